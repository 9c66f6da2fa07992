/* base/buf.h: a growing byte buffer, always terminated. After a failed allocation `failed` is set
 * and every later append is a no-op, so that a writer checks once at the end. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/span.h"

struct buf {
	char *ptr;
	size_t len, room;
	size_t limit; /* 0: none; an append that would pass it sets failed */
	bool failed;
};

void buf_append(struct buf *buf, const void *bytes, size_t len);
void buf_print(struct buf *buf, const char *format, ...) SVC_PRINTF(2, 3);
void buf_span(struct buf *buf, struct span text);
/* Appends text as a JSON string with quotes: escapes, and one U+FFFD for each maximal subpart that
 * is no UTF-8, as decoders of other languages do. */
void buf_json_string(struct buf *buf, struct span text);
/* Keeps the memory. */
void buf_clear(struct buf *buf);
void buf_free(struct buf *buf);
/* Length of the UTF-8 sequence at text (1..4), or 0 if it is not well formed (surrogates, overlong,
 * cut). */
size_t utf8_length(const char *text, size_t len);
