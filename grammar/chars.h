/* grammar/chars.h: characters of the grammar languages: UTF-8, and sets of code points. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/span.h"
#include "grammar/draft.h"

#define CHAR_LAST 0x10FFFFu

/* The code point at text[*at], and moves behind it; false at the end or where it isn't UTF-8. */
bool char_next(struct span text, size_t *at, uint32_t *ret_char);
void char_append(struct buf *out, uint32_t c);
/* Exactly n hexadecimal digits; false if there are others. */
bool char_hex(struct span text, size_t *at, size_t n, uint32_t *ret_value);

struct char_set {
	struct draft_range *ranges; /* after char_set_tidy: ascending, with gaps between them */
	size_t n, room;
	bool failed; /* memory */
};

void char_set_add(struct char_set *set, uint32_t low, uint32_t high);
void char_set_tidy(struct char_set *set);
/* The other characters; tidies first. */
void char_set_invert(struct char_set *set);
/* Keeps what lies in [low, high]; the set must be tidy. */
void char_set_clip(struct char_set *set, uint32_t low, uint32_t high);
bool char_set_has(const struct char_set *set, uint32_t c);
void char_set_free(struct char_set *set);
