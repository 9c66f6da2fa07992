/* sampler/counts.h: how often a sequence has used each token, for the penalties. A hash of the
 * tokens used, so that its size follows the context and not the vocabulary. All memory is taken at
 * the start. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct smp_count {
	int32_t id;
	uint32_t seen; /* in the window over prompt and answer: repetition penalty */
	uint32_t made; /* in the whole answer: presence and frequency penalties */
};

struct smp_counts {
	struct smp_count *items; /* [n], in order of first use */
	uint32_t n, limit;
	uint32_t *table; /* item + 1; 0: empty. Linear probing, at most half full */
	uint32_t table_bits;
	int32_t *ring; /* the last `window` tokens; NULL: the window is the whole sequence */
	uint32_t window, n_ring, ring_at;
};

/* Room for max_tokens of prompt and answer together; window 0: the whole sequence. */
enum svc_code smp_counts_init(uint32_t max_tokens, uint32_t n_vocab, uint32_t window,
			      struct arena *arena, struct smp_counts *ret_counts,
			      struct svc_err *err) SVC_CHECKED;

/* made: the token is part of the answer, not of the prompt. At most max_tokens calls, ids below
 * n_vocab. */
void smp_counts_add(struct smp_counts *counts, int32_t id, bool made);
