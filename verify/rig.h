/* verify/rig.h: an engine of one's own, in process, for the instruments: the model is packed into
 * private memory (which an instrument may damage on purpose), KV pages are private, and a state can
 * be taken and put back in full. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npu-worker/engine/engine.h"
#include "npu-worker/engine/hooks.h"

/* How a pass is run. */
struct vfy_config {
	const char *model;  /* GGUF file */
	const char *family; /* as engine_family_parse */
	const char *isa;    /* as kernels_select */
	uint32_t threads;
	uint32_t ctx;	     /* positions */
	uint32_t chunk;	     /* positions of a sequence per step, at most */
	uint32_t neighbours; /* other sequences that share every step, one position each */
	bool logits_only;    /* KV is never looked at: a family that keeps codes is fine, too */
	/* "xrt": on an NPU, which this process then owns, with the kernels of this folder; NULL or
	 * anything else: on the host. */
	const char *device, *kernels, *xrt_module;
	uint64_t device_limit_us; /* a dispatch may take */
};

struct vfy_rig;

/* SVC_NO_DEVICE: why there is no such NPU, and what to do about it. An NPU that fails later ends
 * the process, as it does a worker (npu-worker/device/products.h). */
SVC_CHECKED enum svc_code vfy_rig_open(const struct vfy_config *config, struct vfy_rig **ret_rig,
				       struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_rig *vfy_rig_close(struct vfy_rig *rig);
const struct engine_info *vfy_rig_info(const struct vfy_rig *rig);
const struct vfy_config *vfy_rig_config(const struct vfy_rig *rig);
/* What computes: "avx512", "avx512 and xrt products", "xrt layers". */
const char *vfy_rig_where(const struct vfy_rig *rig);
bool vfy_rig_is_on_npu(const struct vfy_rig *rig);
/* An NPU computes all layers at once: between embedding and logits nothing can be probed, seeded or
 * varied; what stands in the pages afterwards can be read. */
bool vfy_rig_is_whole(const struct vfy_rig *rig);
/* SVC_USAGE: both would own the NPU. */
SVC_CHECKED enum svc_code vfy_check_devices(const struct vfy_config *a, const struct vfy_config *b,
					    struct svc_err *err);

/* One engine step for the positions pos .. pos + n - 1 of the rig's one sequence, and its
 * neighbours' next ones. n: at most config.chunk. tokens: [n]. The last n_logits positions' logits
 * go to logits, [n_logits][n_vocab]. SVC_NUMERIC for a NaN or an infinity. */
struct vfy_feed {
	const int32_t *tokens;
	uint32_t pos, n, n_logits;
	float *logits;
	const struct engine_hooks *hooks; /* NULL is fine */
	bool alone;			  /* without the neighbours */
};
SVC_CHECKED enum svc_code vfy_rig_feed(struct vfy_rig *rig, const struct vfy_feed *feed,
				       struct svc_err *err);

/* One position's key (part 0) or value (part 1) of a KV head, as it lies in its page:
 * ret_vector[head_dim * vfy_rig_kv_bytes()]. */
void vfy_rig_read_kv(const struct vfy_rig *rig, uint32_t position, uint32_t layer, uint32_t part,
		     void *ret_vector);
size_t vfy_rig_kv_bytes(const struct vfy_rig *rig); /* of one element */

/* A position's cosines and sines as the layer uses them: [2 * *ret_pairs]. Borrowed. */
const float *vfy_rig_rope(const struct vfy_rig *rig, uint32_t layer, uint32_t position,
			  uint32_t *ret_pairs);

/* All that can influence a later token: the KV pages of the sequence and of its neighbours, and the
 * neighbours' places. (Position tables are constant; a greedy or forced pass draws nothing.) */
struct vfy_state;
SVC_CHECKED enum svc_code vfy_rig_save(const struct vfy_rig *rig, struct vfy_state **ret_state,
				       struct svc_err *err);
void vfy_rig_restore(struct vfy_rig *rig, const struct vfy_state *state);
struct vfy_state *vfy_state_free(struct vfy_state *state);
/* Back to the empty state, pages full of NaNs. */
void vfy_rig_reset(struct vfy_rig *rig);

/* Largest value's index, ties to the lower. */
int32_t vfy_argmax(const float *logits, uint32_t n);

/* ---- damage on purpose: each changes one bit, and again changes it back */

/* The lowest bit of one element of a position's table row as the layer uses it: 0 .. 2 * pairs - 1.
 * A table is shared by layers. SVC_INVALID: no such element. */
SVC_CHECKED enum svc_code vfy_rig_flip_rope(struct vfy_rig *rig, uint32_t layer, uint32_t position,
					    uint32_t element, struct svc_err *err);
/* The lowest bit of byte `byte` of the 16-row tile `tile` of the matrix that makes a checkpoint. */
SVC_CHECKED enum svc_code vfy_rig_flip_weight(struct vfy_rig *rig, uint32_t layer,
					      enum engine_checkpoint checkpoint, uint32_t tile,
					      uint32_t byte, struct svc_err *err);
/* The lowest mantissa bit of an element of a key or value at rest. */
SVC_CHECKED enum svc_code vfy_rig_flip_kv(struct vfy_rig *rig, uint32_t layer, uint32_t part,
					  uint32_t position, uint32_t element, struct svc_err *err);

/* Positions 0 .. n - 1 of from's sequence become into's; f16 widens to float32, the other way is
 * SVC_INVALID. The rigs' models have the same shape. */
SVC_CHECKED enum svc_code vfy_rig_copy_kv(const struct vfy_rig *from, struct vfy_rig *into,
					  uint32_t n, struct svc_err *err);
