/* npu-worker/batch.h: the step: ids in, logits out, commit, pass on. */
#pragma once
#include "npu-worker/worker_private.h"

/* One pass over the planned positions; commits and passes on what is ready to be sampled. `ahead`:
 * the guesses too (ahead.c). */
void batch_run(struct worker *worker, bool ahead);
/* Commits and passes on what was computed before its token was drawn. */
void batch_commit_computed(struct worker *worker);
