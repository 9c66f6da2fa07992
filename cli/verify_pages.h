/* cli/verify_pages.h: the HTML pages of diverge, ladder, histogram, sweep, prefill and of the gates
 * (--html FILE). */
#pragma once
#include <jansson.h>

#include "npu-worker/engine/config.h"
#include "verify/gate.h"
#include "verify/histogram.h"
#include "verify/match.h"
#include "verify/prefill.h"
#include "verify/sweep.h"

/* Of each checkpoint and layer the largest relative L2 over the positions; negative: no record. */
struct verify_grid {
	double values[VFY_CHECKPOINT_END][MODEL_MAX_LAYERS + 1];
	uint32_t n_layers; /* the highest that was seen, and 1 */
};
/* NULL: no memory. The caller frees it. */
struct verify_grid *verify_grid_new(void);
/* A vfy_match_options.visit function; context is a struct verify_grid. */
void verify_grid_visit(void *context, const struct vfy_record *record, const void *a,
		       const void *b);

/* json: what --json prints; borrowed. grid: of what was compared. */
SVC_CHECKED enum svc_code verify_page_divergence(const char *path, const json_t *json,
						 const struct verify_grid *grid,
						 struct svc_err *err);
SVC_CHECKED enum svc_code verify_page_histogram(const char *path, const char *family,
						const json_t *json,
						const struct vfy_histogram *paths,
						struct svc_err *err);
SVC_CHECKED enum svc_code verify_page_sweep(const char *path, const json_t *json,
					    const struct vfy_sweep *sweep, struct svc_err *err);

/* One rung of the ladder: n forced tokens, the first `depth` layers (0: all). */
struct verify_rung {
	uint32_t n, depth;
	struct vfy_divergence d;
};
/* In each context all depths, the same ones in the same order. */
SVC_CHECKED enum svc_code verify_page_ladder(const char *path, const struct verify_rung *rungs,
					     uint32_t n, struct svc_err *err);

/* What the logits of each position differ by. */
struct verify_positions {
	uint32_t n, room;
	struct verify_position {
		uint32_t position;
		double max_abs, relative_l2;
		bool flips; /* the argmax is another */
	} * at;		    /* [n], of [room] */
};
/* A vfy_match_options.visit function; context is a struct verify_positions whose `at` has room. */
void verify_positions_visit(void *context, const struct vfy_record *record, const void *a,
			    const void *b);
SVC_CHECKED enum svc_code verify_page_prefill(const char *path, const json_t *json,
					      const struct vfy_prefill_result *result,
					      const struct verify_positions *positions,
					      struct svc_err *err);
/* verb: "greedy", "same-prefix" or "attribution". */
SVC_CHECKED enum svc_code verify_page_gate(const char *path, const char *verb, const json_t *json,
					   const struct vfy_gate_result *result,
					   struct svc_err *err);
