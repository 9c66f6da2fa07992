/* verify/diverge.h: from one state, the same forced tokens in two configurations: where do they
 * differ first? */
#pragma once
#include "npu-worker/engine/variant.h"
#include "verify/match.h"
#include "verify/pass.h"

enum vfy_fault_kind {
	VFY_FAULT_NONE,
	VFY_FAULT_OPERATOR, /* the last bit of one element of a checkpoint at one position, layer */
	VFY_FAULT_ORDER,    /* the other primitive at a checkpoint of one layer */
	VFY_FAULT_ROPE,	    /* the last bit of one element of a table's row */
	VFY_FAULT_WEIGHT,   /* one bit of one 16-row tile of the matrix that makes a checkpoint */
	VFY_FAULT_KV,	    /* the last bit of one element of a key or value at rest */
	/* As VFY_FAULT_OPERATOR, but only in the second of a side's three passes, or only in that
	 * with probes: what the gates are there for. */
	VFY_FAULT_UNSTEADY,
	VFY_FAULT_PROBE,
	VFY_FAULT_KIND_COUNT
};
const char *vfy_fault_name(enum vfy_fault_kind kind);

struct vfy_fault {
	enum vfy_fault_kind kind;
	uint32_t layer, position, checkpoint, part, element, tile;
};

/* A configuration. `variant` counts if is_bat: the sites that use the other arithmetic. */
struct vfy_side {
	struct vfy_config config;
	uint32_t rows; /* forced positions per step */
	bool is_bat;
	struct variant variant;
	struct vfy_fault fault;
};
/* family "bat" and "seq" become f32-v1 with and without all other primitives; "bat16" is bat with
 * partial sums in bfloat16. */
void vfy_side_family(struct vfy_side *side, const char *family);

/* A place in KV at rest that differs. */
struct vfy_rest {
	bool found;
	uint32_t position, layer, part, element;
};

/* Two engines in one state. */
struct vfy_duel;
struct vfy_duel_options {
	struct vfy_side a, b;
	const int32_t *prompt; /* [n_prompt]: what the common state is made of */
	uint32_t n_prompt;
	uint32_t n_forced; /* b's greedy choices from there */
	bool scores;	   /* attention's are compared, too */
};
/* SVC_CONFLICT if the models' shapes differ; SVC_USAGE if both sides want the NPU. */
SVC_CHECKED enum svc_code vfy_duel_open(const struct vfy_duel_options *options,
					struct vfy_duel **ret_duel, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_duel *vfy_duel_close(struct vfy_duel *duel);
/* The forced tokens, [n_forced]. */
const int32_t *vfy_duel_tokens(const struct vfy_duel *duel);

/* The engines of side A and of side B. */
const struct vfy_rig *vfy_duel_rig(const struct vfy_duel *duel);
const struct vfy_rig *vfy_duel_other_rig(const struct vfy_duel *duel);
const struct vfy_duel_options *vfy_duel_options(const struct vfy_duel *duel);

struct vfy_divergence {
	struct vfy_gate control_a, probe_a, control_b, probe_b;
	bool valid; /* all gates hold; without it the rest says nothing */
	struct vfy_verdict verdict;
	struct vfy_rest rest;	       /* KV of the prompt after the passes */
	double seconds_a, seconds_b;   /* without probes */
	enum vfy_level level;	       /* of what was compared */
	bool on_npu;		       /* one of the sides */
	const char *where_a, *where_b; /* as vfy_rig_where; the duel's */
};
/* What both sides computed, to be compared as often as one likes. */
struct vfy_duel_passes {
	uint32_t n_forced;
	struct vfy_divergence gates; /* no verdict in it */
	struct vfy_recorder a, b;
};
/* CONTROL: twice without probes; PROBE: with them; of both sides, the outputs are identical.
 * n_forced: 1 .. the duel's. side_a: another than the duel's a may be given, of the same
 * configuration but other sites; NULL: the duel's. vfy_duel_passes_free, also after a failure. */
SVC_CHECKED enum svc_code vfy_duel_pass(struct vfy_duel *duel, const struct vfy_side *side_a,
					uint32_t n_forced, struct vfy_duel_passes *ret_passes,
					struct svc_err *err);
/* Side A again, as another of the same configuration but other sites; B's are kept. */
SVC_CHECKED enum svc_code vfy_duel_pass_a(struct vfy_duel *duel, const struct vfy_side *side_a,
					  struct vfy_duel_passes *passes, struct svc_err *err);
/* The gates, and the sides' verdict if they hold. */
SVC_CHECKED enum svc_code vfy_duel_compare(const struct vfy_duel_passes *passes,
					   const struct vfy_match_options *match,
					   struct vfy_divergence *ret_divergence,
					   struct svc_err *err);
void vfy_duel_passes_free(struct vfy_duel_passes *passes);

/* Both. */
SVC_CHECKED enum svc_code vfy_duel_run(struct vfy_duel *duel, const struct vfy_side *side_a,
				       uint32_t n_forced, const struct vfy_match_options *match,
				       struct vfy_divergence *ret_divergence, struct svc_err *err);
