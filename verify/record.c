#include "verify/record.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "npu-worker/engine/hooks.h"

const char *vfy_checkpoint_name(uint32_t checkpoint)
{
	static const char *const own[] = {"rope_table", "state_hash", "logits_hash", "top"};
	if (checkpoint >= VFY_ROPE_TABLE && checkpoint < VFY_CHECKPOINT_END)
		return own[checkpoint - VFY_ROPE_TABLE];
	return engine_checkpoint_name((enum engine_checkpoint)checkpoint);
}

static int order_u32(uint32_t a, uint32_t b)
{
	return a < b ? -1 : a > b;
}

/* final_norm, logits and our own come after the last layer whatever layer number they carry. */
static uint32_t depth_of(const struct vfy_record *record)
{
	if (record->checkpoint == VFY_ROPE_TABLE)
		return record->layer;
	return record->checkpoint >= ENGINE_FINAL_NORM ? UINT32_MAX : record->layer;
}

int vfy_record_order(const struct vfy_record *a, const struct vfy_record *b)
{
	int order = order_u32(a->position, b->position);
	order = order ? order : order_u32(depth_of(a), depth_of(b));
	order = order ? order : order_u32(a->checkpoint, b->checkpoint);
	order = order ? order : order_u32(a->part, b->part);
	return order ? order : order_u32(a->run, b->run);
}

bool vfy_record_array(const struct vfy_record *record, const void *data,
		      struct vfy_array *ret_array)
{
	if (record->type != VFY_RECORD_F32 && record->type != VFY_RECORD_F16)
		return false;
	*ret_array = (struct vfy_array){.dtype = record->type == VFY_RECORD_F32 ? VFY_F32 : VFY_F16,
					.n_dims = 2,
					.dims = {record->rows, record->cols},
					.data = data};
	return true;
}

static const char *const LEVELS[VFY_LEVEL_COUNT] = {"hash", "lean", "state", "layers", "all"};

const char *vfy_level_name(enum vfy_level level)
{
	return LEVELS[level];
}

bool vfy_level_parse(const char *name, enum vfy_level *ret_level)
{
	for (int i = 0; i < VFY_LEVEL_COUNT; i++) {
		if (strcmp(name, LEVELS[i]) == 0) {
			*ret_level = (enum vfy_level)i;
			return true;
		}
	}
	return false;
}

bool vfy_level_probes(enum vfy_level level)
{
	return level >= VFY_LEVEL_LAYERS;
}

/* The lowest level that has a checkpoint. */
static enum vfy_level level_of(uint32_t checkpoint)
{
	switch (checkpoint) {
	case VFY_STATE_HASH:
	case VFY_LOGITS_HASH:
	case VFY_TOP:
		return VFY_LEVEL_HASH;
	case VFY_ROPE_TABLE:
	case VFY_LOGITS:
		return VFY_LEVEL_LEAN;
	case ENGINE_KV_WRITE:
		return VFY_LEVEL_STATE;
	case ENGINE_EMBED:
	case ENGINE_AFTER_ATTN:
	case ENGINE_AFTER_FFN:
	case ENGINE_FINAL_NORM:
		return VFY_LEVEL_LAYERS;
	default:
		return VFY_LEVEL_ALL;
	}
}

bool vfy_selects(const struct vfy_selection *s, uint32_t checkpoint, uint32_t layer,
		 uint32_t position)
{
	bool in_layers = checkpoint >= ENGINE_FINAL_NORM ||
			 (layer >= s->first_layer && layer <= s->last_layer);
	bool wanted = level_of(checkpoint) <= s->level;
	/* The numbers themselves make a hash of them superfluous. */
	if (checkpoint == VFY_LOGITS_HASH || checkpoint == VFY_TOP)
		wanted = s->level == VFY_LEVEL_HASH;
	if (checkpoint == VFY_STATE_HASH)
		wanted = s->level <= VFY_LEVEL_LEAN;
	if (checkpoint == ENGINE_SCORES)
		wanted &= s->scores;
	return wanted && in_layers && position >= s->first_position && position <= s->last_position;
}

/* Room for another record of n bytes, its place; NULL: no memory. */
static uint8_t *make_room(struct vfy_recorder *r, size_t n)
{
	if (r->len + n > r->room) {
		size_t room = (r->len + n) * 2;
		uint8_t *bytes = realloc(r->bytes, room);
		if (!bytes)
			return NULL;
		r->bytes = bytes;
		r->room = room;
	}
	if (r->count == r->offsets_room) {
		size_t room = r->count * 2 + 64;
		size_t *offsets = realloc(r->offsets, room * sizeof *offsets);
		if (!offsets)
			return NULL;
		r->offsets = offsets;
		r->offsets_room = room;
	}
	return r->bytes + r->len;
}

void vfy_recorder_add(struct vfy_recorder *r, const struct vfy_record *head, const void *data)
{
	size_t n = (sizeof *head + head->bytes + 7) / 8 * 8;
	uint8_t *at = make_room(r, n);
	if (!at) {
		r->failed = true;
		return;
	}
	memcpy(at, head, sizeof *head);
	memcpy(at + sizeof *head, data, head->bytes);
	r->offsets[r->count++] = r->len;
	r->len += n;
}

void vfy_recorder_probe(void *context, const struct engine_record *record)
{
	struct vfy_recorder *r = context;
	if (record->seq != 0 ||
	    !vfy_selects(&r->selection, record->checkpoint, record->layer, record->position))
		return;
	struct vfy_record head = {.position = record->position,
				  .layer = record->layer,
				  .checkpoint = record->checkpoint,
				  .part = record->part,
				  .step = r->step,
				  .type = record->is_f16 ? VFY_RECORD_F16 : VFY_RECORD_F32,
				  .rows = record->rows,
				  .cols = record->cols,
				  .bytes = record->rows * record->cols * (record->is_f16 ? 2 : 4)};
	vfy_recorder_add(r, &head, record->data);
}

static int by_order(const void *a, const void *b, void *context)
{
	const uint8_t *bytes = context;
	struct vfy_record left, right;
	memcpy(&left, bytes + *(const size_t *)a, sizeof left);
	memcpy(&right, bytes + *(const size_t *)b, sizeof right);
	return vfy_record_order(&left, &right);
}

enum svc_code vfy_recorder_finish(struct vfy_recorder *r, struct svc_err *err)
{
	if (r->failed)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for all of a step's records (%zu bytes were there); a "
				"smaller --chunk or fewer --layers need less",
				r->len);
	for (size_t i = 0; i < r->count; i++) {
		struct vfy_record head;
		uint8_t *at = r->bytes + r->offsets[i];
		memcpy(&head, at, sizeof head);
		head.xxh3 = XXH3_64bits(at + sizeof head, head.bytes);
		memcpy(at, &head, sizeof head);
	}
	qsort_r(r->offsets, r->count, sizeof *r->offsets, by_order, r->bytes);
	return SVC_OK;
}

const struct vfy_record *vfy_recorder_at(const struct vfy_recorder *r, size_t i,
					 const void **ret_data)
{
	const uint8_t *at = r->bytes + r->offsets[i];
	*ret_data = at + sizeof(struct vfy_record);
	return (const struct vfy_record *)(const void *)at;
}

void vfy_recorder_clear(struct vfy_recorder *r)
{
	r->len = r->count = 0;
	r->failed = false;
}

void vfy_recorder_free(struct vfy_recorder *r)
{
	free(r->bytes);
	free(r->offsets);
	r->bytes = NULL;
	r->offsets = NULL;
	r->len = r->room = r->count = r->offsets_room = 0;
}
