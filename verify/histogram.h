/* verify/histogram.h: divergence seen from outside. A path commits a token stream; the stream is
 * fed back through ordinary decode (one position a step, alone), of the same configuration or of
 * another one. At each position the gap is logit(what ordinary decode chooses) - logit(committed),
 * its size if tokens are sampled: 0 where it would have chosen the same. */
#pragma once
#include "verify/diverge.h"

enum vfy_path {
	VFY_PLAIN,	 /* one position a step, alone */
	VFY_BATCHED,	 /* with neighbours in every step */
	VFY_SPECULATIVE, /* drafts verified in a batch, committed directly */
	VFY_REPLAYED,	 /* half way the state is lost and made again in one batch */
	VFY_PATH_COUNT
};
const char *vfy_path_name(enum vfy_path path);

struct vfy_histogram {
	uint32_t positions, nonzero;
	double worst;
	uint32_t worst_position;
	uint32_t up_to_0_1, up_to_0_5, up_to_2, above_2; /* of the nonzero ones */
	uint32_t drafted, accepted;			 /* speculative */
	/* Positions whose state and logits are the very ones of plain decoding; UINT32_MAX: not
	 * asked, as the streams differ. */
	uint32_t identical;
};

struct vfy_histogram_job {
	struct vfy_side side;		 /* commits the tokens; rows counts for nothing */
	const struct vfy_side *ordinary; /* what they are fed back through; NULL: side */
	const int32_t *prompt;		 /* [n_prompt] */
	uint32_t n_prompt, n_new;
	uint32_t draft;
	const struct body_params *sampling; /* NULL: greedy */
};
/* SVC_CONFLICT if side and ordinary have vocabularies of different sizes. */
SVC_CHECKED enum svc_code vfy_histogram_run(const struct vfy_histogram_job *job,
					    struct vfy_histogram ret_paths[VFY_PATH_COUNT],
					    struct svc_err *err);
