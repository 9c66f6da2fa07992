/* verify/prefill.h: a prompt in one batch against its tokens one by one. */
#pragma once
#include "verify/diverge.h"

/* A: side.rows positions per step; B: one. Every position's logits and state are compared. In the
 * family "bat" both sides use the other arithmetic, which depends on the rows of the pass. */
struct vfy_prefill_result {
	struct vfy_verdict verdict;
	double seconds_batched, seconds_single;
};
SVC_CHECKED enum svc_code vfy_prefill(const struct vfy_side *side, const int32_t *prompt,
				      uint32_t n_prompt, const struct vfy_match_options *match,
				      struct vfy_prefill_result *ret_result, struct svc_err *err);
