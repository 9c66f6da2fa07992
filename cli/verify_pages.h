/* cli/verify_pages.h: the HTML pages of diverge, histogram and sweep (--html FILE). */
#pragma once
#include <jansson.h>

#include "npu-worker/engine/config.h"
#include "verify/histogram.h"
#include "verify/match.h"
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
