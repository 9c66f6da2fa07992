/* verify/rig_private.h: the rig's inside, shared by rig.c, rig_damage.c and rig_device.c. */
#pragma once
#include "npu-worker/device/products.h"
#include "npu-worker/engine/hooks.h"
#include "verify/rig.h"

struct vfy_rig {
	struct vfy_config config;
	struct plan *plan;
	uint8_t *region, *pages;
	size_t region_bytes, pages_bytes, k_tile, v_tile, kv_bytes;
	uint32_t pages_each;
	struct engine *engine;
	uint32_t *tables; /* [1 + neighbours][pages_each] */
	int32_t *neighbour_tokens;
	uint32_t *neighbour_pos;
	struct engine_seq *seqs;   /* [1 + neighbours] */
	struct products *products; /* the NPU; NULL: the host's own kernels */
	void *activations;	   /* the NPU's */
	char where[32];
	float *logits; /* [chunk][n_vocab], where an NPU's layers write them; or NULL */
};

/* ---- rig_device.c */

/* Page-aligned, *bytes rounded up to whole pages: what a driver can map. NULL: no memory. */
void *vfy_rig_memory(size_t *bytes);
/* Gives the engine's work to the NPU of config. */
SVC_CHECKED enum svc_code vfy_rig_open_device(struct vfy_rig *rig, struct svc_err *err);
void vfy_rig_close_device(struct vfy_rig *rig);

/* ---- rig_damage.c */

/* The part that makes a checkpoint; NULL: none of its own. */
const struct plan_part *vfy_rig_matrix(const struct vfy_rig *rig, uint32_t layer,
				       enum engine_checkpoint checkpoint);

/* Where element i of a key or value lies in rig->pages. */
size_t vfy_rig_kv_offset(const struct vfy_rig *rig, uint32_t position, uint32_t layer,
			 uint32_t part, uint32_t i);
