/* sampler/text.h: the answer's text, as its tokens' bytes arrive. Well-formed UTF-8 whatever the
 * tokens are, and cut at the first stop string. A pure function of the bytes: how they are split
 * over tokens changes nothing but the moment.
 *
 * Two things are held back: an incomplete UTF-8 sequence at the end, and a proper prefix of a stop
 * string. Ill-formed bytes become U+FFFD, one for each maximal subpart (Unicode, chapter 3.9), as
 * Python's and Rust's decoders do. Linear: every byte moves one Knuth-Morris-Pratt automaton per
 * stop string. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/span.h"
#include "sampler/params.h"

/* The start of a UTF-8 sequence whose end hasn't come yet. */
struct smp_utf8 {
	uint8_t bytes[4];
	uint8_t n, length; /* there, and in the whole sequence */
	uint8_t low, high; /* range of the next byte */
};

struct smp_stop {
	struct span text;
	uint16_t *border; /* [i]: length of the longest proper border of the first i + 1 bytes */
	uint16_t matched; /* bytes of it that the answer's end matches; never all of them */
};

struct smp_text {
	struct smp_stop stops[SMP_STOPS_MAX];
	uint32_t n_stops;
	bool keep_stop; /* the stop string that ends the answer is part of it */
	struct smp_utf8 utf8;
	char *out; /* released bytes, then held ones */
	size_t n_out, n_released, room;
};

/* max_piece_bytes: the longest run of bytes given to smp_text_feed. Everything lives in the arena,
 * params' strings too. */
enum svc_code smp_text_init(const struct smp_params *params, size_t max_piece_bytes,
			    struct arena *arena, struct smp_text *ret_text,
			    struct svc_err *err) SVC_CHECKED;

/* Forgets what was released before: call once per token. */
void smp_text_next(struct smp_text *text);

/* Takes a token's bytes, at most max_piece_bytes, once per token. Returns the index of the stop
 * string that ends the answer here, or -1. may_stop false: a stop string that is completed by these
 * bytes is text like any other. */
int smp_text_feed(struct smp_text *text, struct span bytes, bool may_stop);

/* A control token within the text, which the answer's reader must see: SMP_TEXT_MARK, a byte that
 * no text has. It ends what was incomplete or held back. Once per token, instead of smp_text_feed.
 */
#define SMP_TEXT_MARK '\xFF'
void smp_text_mark(struct smp_text *text);

/* The answer ends: an incomplete sequence becomes U+FFFD, what was held back is released. Returns
 * as smp_text_feed. */
int smp_text_end(struct smp_text *text, bool may_stop);

/* What the bytes since smp_text_next have released; valid until the next call of any of these. */
struct span smp_text_released(const struct smp_text *text);
