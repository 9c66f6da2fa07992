/* Changing an engine's memory on purpose, and carrying a state from one engine to another. */
#include <inttypes.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/layout.h"
#include "verify/compare.h"
#include "verify/rig_private.h"

static enum svc_code no_such(const char *what, uint32_t given, uint32_t limit, struct svc_err *err)
{
	return svc_fail_param(err, SVC_INVALID, "fault",
			      "--fault: %s %" PRIu32 " isn't there; the limit is %" PRIu32, what,
			      given, limit);
}

static enum svc_code check_layer(const struct vfy_rig *rig, uint32_t layer, struct svc_err *err)
{
	uint32_t layers = engine_info(rig->engine)->config.n_layers;
	return layer < layers ? SVC_OK : no_such("layer", layer, layers - 1, err);
}

/* An NPU has seen the region as it was. (Pages are shown to it at each step.) */
static enum svc_code refresh(struct vfy_rig *rig, struct svc_err *err)
{
	return rig->products ? products_refresh(rig->products, err) : SVC_OK;
}

enum svc_code vfy_rig_flip_rope(struct vfy_rig *rig, uint32_t layer, uint32_t position,
				uint32_t element, struct svc_err *err)
{
	uint32_t pairs;
	enum svc_code code = check_layer(rig, layer, err);
	if (code)
		return code;
	if (position >= engine_info(rig->engine)->ctx)
		return no_such("position", position, engine_info(rig->engine)->ctx - 1, err);
	const float *row = vfy_rig_rope(rig, layer, position, &pairs);
	if (element >= 2 * pairs)
		return no_such("element", element, 2 * pairs - 1, err);
	size_t at = (size_t)((const uint8_t *)(row + element) - rig->region);
	rig->region[at] ^= 1;
	return refresh(rig, err);
}

const struct plan_part *vfy_rig_matrix(const struct vfy_rig *rig, uint32_t layer,
				       enum engine_checkpoint checkpoint)
{
	static const struct {
		enum engine_checkpoint checkpoint;
		enum part_role role;
	} makers[] = {
		{ENGINE_Q_PROJ, PART_Q},  {ENGINE_K_PROJ, PART_K},  {ENGINE_V_PROJ, PART_V},
		{ENGINE_O_PROJ, PART_O},  {ENGINE_GATE, PART_GATE}, {ENGINE_UP, PART_UP},
		{ENGINE_DOWN, PART_DOWN},
	};
	for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++)
		if (makers[i].checkpoint == checkpoint)
			return plan_find(rig->plan, makers[i].role, layer);
	return NULL;
}

enum svc_code vfy_rig_flip_weight(struct vfy_rig *rig, uint32_t layer,
				  enum engine_checkpoint checkpoint, uint32_t tile, uint32_t byte,
				  struct svc_err *err)
{
	enum svc_code code = check_layer(rig, layer, err);
	if (code)
		return code;
	const struct plan_part *part = vfy_rig_matrix(rig, layer, checkpoint);
	if (!part)
		return svc_fail_param(err, SVC_INVALID, "fault",
				      "--fault: no matrix of its own makes %s in this model",
				      engine_checkpoint_name(checkpoint));
	uint32_t tiles = kernels_block_count(part->rows);
	size_t stride = layout_stride(part->type, part->cols);
	if (tile >= tiles)
		return no_such("tile", tile, tiles - 1, err);
	if (byte >= stride)
		return no_such("byte", byte, (uint32_t)stride - 1, err);
	rig->region[part->offset + tile * stride + byte] ^= 1;
	return refresh(rig, err);
}

static uint8_t *kv_element(const struct vfy_rig *rig, uint32_t position, uint32_t layer,
			   uint32_t part, uint32_t i)
{
	return rig->pages + vfy_rig_kv_offset(rig, position, layer, part, i);
}

enum svc_code vfy_rig_flip_kv(struct vfy_rig *rig, uint32_t layer, uint32_t part, uint32_t position,
			      uint32_t element, struct svc_err *err)
{
	const struct engine_info *info = engine_info(rig->engine);
	enum svc_code code = check_layer(rig, layer, err);
	if (code)
		return code;
	if (part >= 2 * info->config.n_kv_heads)
		return no_such("part", part, 2 * info->config.n_kv_heads - 1, err);
	if (position >= info->ctx)
		return no_such("position", position, info->ctx - 1, err);
	if (element >= info->config.head_dim)
		return no_such("element", element, info->config.head_dim - 1, err);
	*kv_element(rig, position, layer, part, element) ^= 1;
	return SVC_OK;
}

enum svc_code vfy_rig_copy_kv(const struct vfy_rig *from, struct vfy_rig *into, uint32_t n,
			      struct svc_err *err)
{
	const struct model_config *c = &engine_info(into->engine)->config;
	if (from->kv_bytes > into->kv_bytes)
		return svc_fail(err, SVC_INVALID, __func__,
				"a state in float32 can't become one in f16 exactly");
	uint8_t vector[KERNELS_MAX_HEAD_DIM * 4];
	const struct vfy_array halves = {VFY_F16, 1, {c->head_dim}, vector};
	for (uint32_t position = 0; position < n; position++)
		for (uint32_t layer = 0; layer < c->n_layers; layer++)
			for (uint32_t part = 0; part < 2 * c->n_kv_heads; part++) {
				vfy_rig_read_kv(from, position, layer, part, vector);
				for (uint32_t i = 0; i < c->head_dim; i++) {
					float wide = vfy_value_at(&halves, i);
					const void *value =
						from->kv_bytes == into->kv_bytes
							? (const void *)(vector +
									 i * from->kv_bytes)
							: &wide;
					memcpy(kv_element(into, position, layer, part, i), value,
					       into->kv_bytes);
				}
			}
	return SVC_OK;
}
