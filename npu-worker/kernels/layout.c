#include "npu-worker/kernels/layout.h"

#include <string.h>

#include "npu-worker/kernels/f16.h"

static const struct layout_info INFO[] = {
	[GGUF_TENSOR_F32] = {1, 64, 4},
	[GGUF_TENSOR_F16] = {1, 32, 2},
	[GGUF_TENSOR_BF16] = {1, 32, 2},
	[GGUF_TENSOR_Q4_0] = {32, sizeof(struct block_q4_0), 18},
	[GGUF_TENSOR_Q4_1] = {32, sizeof(struct block_q4_1), 20},
	[GGUF_TENSOR_Q5_0] = {32, sizeof(struct block_q5_0), 22},
	[GGUF_TENSOR_Q5_1] = {32, sizeof(struct block_q5_1), 24},
	[GGUF_TENSOR_Q8_0] = {32, sizeof(struct block_q8_0), 34},
	[GGUF_TENSOR_Q4_K] = {256, sizeof(struct block_q4_k), 144},
	[GGUF_TENSOR_Q5_K] = {256, sizeof(struct block_q5_k), 176},
	[GGUF_TENSOR_Q6_K] = {256, sizeof(struct block_q6_k), 210},
};

const struct layout_info *layout_info(uint32_t type)
{
	if (type >= sizeof INFO / sizeof INFO[0] || INFO[type].columns == 0)
		return NULL;
	return &INFO[type];
}

size_t layout_stride(uint32_t type, uint32_t cols)
{
	return (size_t)(cols / INFO[type].columns) * INFO[type].block_bytes;
}

/* Where a group's parts lie, for the types that are made of nibbles. */
struct parts {
	const uint8_t (*nibbles)[16][4];
	const uint8_t (*ones)[4];
	const uint8_t (*twos)[16][4];
	int bias;
};

static uint32_t code_of(const struct parts *p, uint32_t slot, uint32_t row, uint32_t byte)
{
	uint32_t nibbles = p->nibbles[slot / 2][row][byte];
	uint32_t code = slot % 2 ? nibbles >> 4 : nibbles & 15u;
	if (p->ones)
		code |= (p->ones[row][byte] >> slot & 1u) << 4;
	if (p->twos)
		code |= ((uint32_t)p->twos[slot / 4][row][byte] >> 2 * (slot % 4) & 3u) << 4;
	return code;
}

static void set_scale(struct layout_group *ret, float d)
{
	ret->d[0] = ret->d[1] = d;
}

static void set_offset(struct layout_group *ret, float m)
{
	ret->m = m;
	ret->has_offset = true;
}

static struct parts read_small(uint32_t type, const void *block, uint32_t row, uint32_t group,
			       struct layout_group *ret)
{
	if (type == GGUF_TENSOR_Q4_0) {
		const struct block_q4_0 *b = (const struct block_q4_0 *)block + group;
		set_scale(ret, f16_to_f32(b->d[row]));
		return (struct parts){b->nibbles, NULL, NULL, 8};
	}
	if (type == GGUF_TENSOR_Q4_1) {
		const struct block_q4_1 *b = (const struct block_q4_1 *)block + group;
		set_scale(ret, f16_to_f32(b->d[row]));
		set_offset(ret, f16_to_f32(b->m[row]));
		return (struct parts){b->nibbles, NULL, NULL, 0};
	}
	if (type == GGUF_TENSOR_Q5_0) {
		const struct block_q5_0 *b = (const struct block_q5_0 *)block + group;
		set_scale(ret, f16_to_f32(b->d[row]));
		return (struct parts){b->nibbles, b->ones, NULL, 16};
	}
	const struct block_q5_1 *b = (const struct block_q5_1 *)block + group;
	set_scale(ret, f16_to_f32(b->d[row]));
	set_offset(ret, f16_to_f32(b->m[row]));
	return (struct parts){b->nibbles, b->ones, NULL, 0};
}

static struct parts read_k(uint32_t type, const void *block, uint32_t row, uint32_t group,
			   struct layout_group *ret)
{
	if (type == GGUF_TENSOR_Q4_K) {
		const struct block_q4_k *b = (const struct block_q4_k *)block + group / 8;
		const struct group_q4_k *g = &b->group[group % 8];
		set_scale(ret, f16_to_f32(b->d[row]) * (float)g->sc[row]);
		set_offset(ret, -(f16_to_f32(b->dmin[row]) * (float)g->mn[row]));
		return (struct parts){g->nibbles, NULL, NULL, 0};
	}
	if (type == GGUF_TENSOR_Q5_K) {
		const struct block_q5_k *b = (const struct block_q5_k *)block + group / 8;
		const struct group_q5_k *g = &b->group[group % 8];
		set_scale(ret, f16_to_f32(b->d[row]) * (float)g->sc[row]);
		set_offset(ret, -(f16_to_f32(b->dmin[row]) * (float)g->mn[row]));
		return (struct parts){g->nibbles, g->ones, NULL, 0};
	}
	const struct block_q6_k *b = (const struct block_q6_k *)block + group / 8;
	const struct group_q6_k *g = &b->group[group % 8];
	ret->d[0] = f16_to_f32(b->d[row]) * (float)g->sc[0][row];
	ret->d[1] = f16_to_f32(b->d[row]) * (float)g->sc[1][row];
	ret->has_halves = true;
	return (struct parts){g->nibbles, NULL, g->twos, 32};
}

void layout_group_read(uint32_t type, const void *block, uint32_t row, uint32_t group,
		       struct layout_group *ret)
{
	*ret = (struct layout_group){.m = 0.0f};
	const int8_t(*bytes)[16][4] = NULL;
	struct parts parts = {NULL, NULL, NULL, 0};
	if (type == GGUF_TENSOR_Q8_0) {
		const struct block_q8_0 *b = (const struct block_q8_0 *)block + group;
		set_scale(ret, f16_to_f32(b->d[row]));
		bytes = b->bytes;
	} else if (INFO[type].columns == 32) {
		parts = read_small(type, block, row, group, ret);
	} else {
		parts = read_k(type, block, row, group, ret);
	}
	for (uint32_t slot = 0; slot < 8; slot++) {
		for (uint32_t byte = 0; byte < 4; byte++) {
			uint32_t col = slot / 2 * 8 + layout_column(slot % 2, byte);
			ret->w[col] = bytes ? bytes[slot][row][byte]
					    : (int16_t)((int)code_of(&parts, slot, row, byte) -
							parts.bias);
		}
	}
}

void layout_group_values(const struct layout_group *group, float ret_values[32])
{
	for (uint32_t i = 0; i < 32; i++) {
		float w = (float)group->w[i], d = group->d[i / 16];
		ret_values[i] = group->has_offset ? fmaf(d, w, group->m) : d * w;
	}
}

float layout_float(uint32_t type, const void *block, uint32_t row, uint32_t col)
{
	size_t index = (size_t)col * KERNELS_BLOCK_ROWS + row;
	if (type == GGUF_TENSOR_F32)
		return ((const float *)block)[index];
	uint16_t h = ((const uint16_t *)block)[index];
	return type == GGUF_TENSOR_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}
