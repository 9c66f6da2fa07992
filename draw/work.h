/* draw/work.h: memory for one row of logits and what is drawn from it, one per thread. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "draw/row.h"
#include "draw/set.h"

/* Exact sums of 2^42 per token stay below 2^63 up to here. */
#define DRAW_VOCAB_MAX (1u << 21)

struct draw_work {
	struct arena arena;
	struct draw_row row;
	struct draw_set set;
};

/* About 45 bytes per token of the vocabulary. SVC_BAD_CONFIG: the CPU lacks the instruction set
 * asked for. */
enum svc_code draw_work_open(uint32_t n_vocab, enum draw_isa isa, struct draw_work **ret_work,
			     struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct draw_work *draw_work_free(struct draw_work *work);
