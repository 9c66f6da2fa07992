/* verify/speculate.h: strict speculation without replay, in process. Drafts by prompt look-up: what
 * followed the last tokens where they stood before. A step runs the last committed token and its
 * draft as consecutive positions; where what is chosen agrees with the draft, the position's KV and
 * logits are committed as the batch made them. A draw is a function of seed and position, so a
 * sampled token is verified as a greedy one is. What was drafted wrongly is overwritten by the next
 * step. In a family where batch = sequence bit for bit, nothing differs from plain decoding. */
#pragma once
#include "npu-worker/engine/hooks.h"
#include "verify/pass.h"

struct vfy_speculation {
	struct vfy_rig *rig; /* its chunk: more than draft */
	const struct engine_hooks *hooks;
	int32_t *tokens;	     /* [n_prompt + n_new]; those behind the prompt are filled in */
	struct vfy_chooser *chooser; /* NULL: greedily */
	uint32_t n_prompt, n_new;
	uint32_t draft; /* tokens of a draft, at most; 0: plain decoding */
	uint32_t match; /* the longest run of last tokens that is looked up; down to 1 */
};
struct vfy_speculation_result {
	uint32_t steps;		    /* behind the prompt */
	uint32_t drafted, accepted; /* tokens */
	double seconds;		    /* of those steps */
	struct vfy_trace trace;	    /* of the committed positions; the caller frees */
};
/* From the empty state. SVC_USAGE: the draft doesn't fit the rig's chunk. */
SVC_CHECKED enum svc_code vfy_speculate(const struct vfy_speculation *job,
					struct vfy_speculation_result *ret_result,
					struct svc_err *err);
