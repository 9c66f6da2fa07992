/* verify/pass.h: tokens through an engine, from the empty state or from one that was restored, with
 * or without a recorder; what capture, replay and the divergence instruments are made of. */
#pragma once
#include "npu-worker/engine/hooks.h"
#include "verify/choose.h"
#include "verify/record.h"
#include "verify/rig.h"

struct vfy_hash128 {
	uint64_t low, high;
};

/* Of every position that was fed: the state after it, and its logits (zeros where none were asked
 * for). Taken from memory after each step, whether anything is recorded or not. */
struct vfy_trace {
	uint32_t n;
	struct vfy_hash128 *state, *logits; /* [n] */
};
void vfy_trace_free(struct vfy_trace *trace);

/* Two passes that must be the same: of how many positions state and logits are. */
struct vfy_gate {
	uint32_t positions, identical;
};
bool vfy_gate_holds(const struct vfy_gate *gate);
/* From position start on. */
struct vfy_gate vfy_gate_of(const struct vfy_trace *a, const struct vfy_trace *b, uint32_t start);

struct vfy_pass {
	struct vfy_rig *rig;
	int32_t *tokens;   /* [n_prompt + n_new] */
	uint32_t start;	   /* positions before it are in the rig's state already */
	uint32_t n_prompt; /* >= 1 */
	uint32_t n_new;	   /* tokens behind the prompt; the last one is not fed */
	bool forced;	   /* all tokens are given; else those behind the prompt are chosen */
	struct vfy_chooser *chooser; /* NULL: the argmax */
	bool all_logits;	     /* of prompt positions, too */
	bool alone;		     /* without the rig's neighbours */
	uint32_t prompt_chunk;	     /* prompt positions per step; 0: the rig's */
	uint32_t answer_chunk; /* forced positions behind the prompt per step; 1: one by one */
	struct vfy_recorder *recorder; /* NULL: none */
	/* Other arithmetic, a seeded fault; NULL: none. Its probe is replaced by the recorder's. */
	const struct engine_hooks *hooks;
	/* After each step, with the recorder's records in execution order. NULL: they pile up until
	 * the end. */
	enum svc_code (*emit)(void *context, struct vfy_recorder *recorder, struct svc_err *err);
	void *context;
};
/* *state goes on over a position's keys and values, layer by layer. SVC_NO_MEMORY. */
SVC_CHECKED enum svc_code vfy_hash_state(const struct vfy_rig *rig, uint32_t position,
					 struct vfy_hash128 *state, struct svc_err *err);
struct vfy_hash128 vfy_hash_logits(const float *logits, uint32_t n);

/* SVC_UNSUPPORTED: an NPU computes all layers at once, and the level would look into them. */
SVC_CHECKED enum svc_code vfy_check_level(const struct vfy_rig *rig, enum vfy_level level,
					  struct svc_err *err);

/* The positions that a pass feeds. */
uint32_t vfy_pass_fed(const struct vfy_pass *pass);

/* Runs from position pass->start. ret_trace NULL is fine; else the caller frees it. */
SVC_CHECKED enum svc_code vfy_pass_run(const struct vfy_pass *pass, struct vfy_trace *ret_trace,
				       struct svc_err *err);
