/* model/q4nx_write.h: a model.q4nx made from a GGUF model. */
#pragma once
#include "base/err.h"
#include "model/draft.h"
#include "model/gguf.h"
#include "model/hf_config.h"

enum q4nx_policy {
	/* As fine as the format allows: Q4_0, Q4_1 and Q4_K keep their codes in 4-bit tiles, Q5_0
	 * and Q8_0 theirs in 8-bit ones (Q8-a); everything else is rounded to Q8-a. */
	Q4NX_FINE,
	/* Every matrix in 4 bits: Q4_0, Q4_1 and Q4_K as above, everything else rounded to the type
	 * that the family's published files have (Q4_0: qwen2; Q4_1: the others). */
	Q4NX_FOUR_BITS
};

/* Plans the file; gguf must outlive the draft, which the caller frees. config is gguf's own.
 * SVC_UNSUPPORTED: phi3, a tensor that has no place, rows that are no multiple of 32. */
SVC_CHECKED enum svc_code q4nx_draft(const struct gguf *gguf, const struct hf_config *config,
				     enum q4nx_policy policy, struct draft *ret_draft,
				     struct svc_err *err);
