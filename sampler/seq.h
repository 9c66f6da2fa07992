/* sampler/seq.h: the insides of struct smp_seq. */
#pragma once
#include "base/arena.h"
#include "grammar/guide.h"
#include "sampler/counts.h"
#include "sampler/params.h"
#include "sampler/sampler.h"
#include "sampler/text.h"

struct smp_seq {
	struct arena arena;
	const struct smp_vocab *vocab;
	uint32_t n_vocab;
	struct smp_params params;
	int32_t *ends; /* [n_ends], checked: what ends the answer, end tokens and stop_token_ids */
	uint32_t n_ends;
	uint32_t n_made, limit;
	bool strip_space; /* still to be done */
	enum body_finish finish;
	bool penalized; /* counts are kept */
	struct smp_counts counts;
	struct smp_text text;
	struct gr_seq grammar; /* .guide NULL: none */
	uint32_t *allowed;     /* [(n_vocab + 31) / 32] */
	bool allowed_known;    /* for the next token */
};
