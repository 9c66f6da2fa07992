/* cli/bench_rig.h: an engine with its memory and prompts, for what is measured in process. */
#pragma once
#include "cli/bench.h"
#include "model/gguf.h"
#include "npu-worker/engine/engine.h"

#define BENCH_CHUNK 256u /* prompt positions of one step */

struct rig {
	struct gguf *gguf;
	struct plan *plan;
	void *region, *pages;
	struct engine *engine;
	struct engine_seq *seqs;
	int32_t *tokens;  /* [streams][ctx] */
	uint32_t *tables; /* [streams][pages_each] */
	float *logits;	  /* [streams][n_vocab] */
	uint32_t ctx, pages_each, n_vocab;
};

/* ret_rig is to be closed also when it fails. */
SVC_CHECKED enum svc_code bench_rig_open(const struct bench_plan *bench, struct rig *ret_rig,
					 struct svc_err *err);
void bench_rig_close(struct rig *rig);
/* A stream's tokens from pos on, for a step. */
struct engine_seq bench_rig_part(struct rig *rig, uint32_t stream, uint32_t pos, uint32_t n,
				 bool logits);
/* Computes prompts of made-up tokens, the same ones each time. */
SVC_CHECKED enum svc_code bench_rig_prefill(const struct bench_plan *bench, struct rig *rig,
					    struct svc_err *err);
