/* npu-worker/weights.h: the packed weights' segment: built once, attached to afterwards. */
#pragma once
#include "npu-worker/worker_private.h"

/* Attaches to the run's packed weights, or packs them; one builder at a time. */
SVC_CHECKED enum svc_code weights_map(struct svc *svc, uint32_t threads, bool writable,
				      struct segment *ret_seg, struct svc_err *err);
/* The same for another model of the same vocabulary: SVC_BAD_CONFIG if it has another one. */
SVC_CHECKED enum svc_code weights_map_draft(struct svc *svc, const char *path, uint32_t threads,
					    struct segment *ret_seg, struct svc_err *err);
/* Keeps them from being paged out; SVC_BAD_CONFIG if the limit of locked memory is too low. */
SVC_CHECKED enum svc_code weights_lock(const struct segment *seg, struct svc_err *err);
