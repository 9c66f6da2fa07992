/* model/q4nx_file.h: tensors put into the order and under the header of a model.q4nx. */
#pragma once
#include "base/err.h"
#include "model/draft.h"
#include "model/safetensors.h"

/* A tensor on both sides of the plan: the safetensors entry and how it is made. */
struct q4nx_item {
	struct safetensors_tensor entry; /* without a name: tensor has it */
	struct draft_tensor tensor;	 /* without its offset */
};

/* Sorts the items as the reference writer does and fills draft: head, tensors, total. On failure
 * the caller still frees the draft. */
SVC_CHECKED enum svc_code q4nx_arrange(struct q4nx_item *items, size_t n, struct draft *draft,
				       struct svc_err *err);
