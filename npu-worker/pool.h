/* npu-worker/pool.h: a text's vector, over the steps that its prompt takes. */
#pragma once
#include "npu-worker/worker_private.h"

/* The sequence's request is for a vector, not for an answer. */
bool pool_is_wanted(const struct sequence *sequence);
/* Is there what n_kv says is there? Otherwise it has to start over. */
bool pool_can_go_on(struct worker *worker, const struct sequence *sequence);
/* Fills in what the step's sequence number `index` adds to. false: the body is damaged. */
bool pool_begin(struct worker *worker, const struct sequence *sequence, uint32_t index,
		struct engine_seq *step);
/* Stores the sum; before n_kv says so. */
void pool_commit(struct worker *worker, const struct sequence *sequence,
		 const struct engine_seq *step);
/* All positions are computed: writes the vector. */
SVC_CHECKED enum svc_code pool_finish(struct worker *worker, const struct sequence *sequence,
				      struct svc_err *err);
