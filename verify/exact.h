/* verify/exact.h: which of two paths is nearer to the exact value? An operator's two results on the
 * same inputs are held against its value in double from those inputs. It calls neither right. */
#pragma once
#include "npu-worker/engine/hooks.h"
#include "verify/match.h"
#include "verify/rig.h"

struct vfy_exact {
	/* Of side A, and of side B; borrowed. Their pages hold what both have computed last. */
	const struct vfy_rig *rig, *other;
	enum engine_checkpoint checkpoint;
	uint32_t layer; /* n_layers for what comes after the last */
	/* What the operator reads: the latest record of each checkpoint, [width]; owned. */
	float *inputs[ENGINE_CHECKPOINT_COUNT];
	double *value;
	bool failed; /* no memory */
	/* Out. */
	bool decided; /* there is an exact form of this operator here, and its inputs were recorded
		       */
	bool same_inputs; /* all inputs were the same on both sides */
	uint64_t elements, differ, a_nearer, b_nearer, ties;
	double rms_error_a, rms_error_b; /* over all elements; sums of squares until the finish */
};
/* A vfy_match_options.visit function; context is a struct vfy_exact. */
void vfy_exact_visit(void *context, const struct vfy_record *record, const void *a, const void *b);
SVC_CHECKED enum svc_code vfy_exact_finish(struct vfy_exact *exact, struct svc_err *err);
void vfy_exact_free(struct vfy_exact *exact);
