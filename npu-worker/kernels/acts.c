#include "npu-worker/kernels/kernels.h"

static size_t round_up(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static size_t group_count(uint32_t cols)
{
	return ((size_t)cols + KERNELS_GROUP - 1) / KERNELS_GROUP;
}

const char *kernels_family_name(enum kernels_family family)
{
	static const char *const NAMES[] = {"f32-v1", "a16-v1", "a8-v1", "a16-kv8-v1", "b16-v1"};
	return NAMES[family];
}

enum kernels_kv kernels_family_kv(enum kernels_family family)
{
	static const enum kernels_kv types[] = {KERNELS_KV_F32, KERNELS_KV_F16, KERNELS_KV_F16,
						KERNELS_KV_I8, KERNELS_KV_F16};
	return types[family];
}

/* The family whose activations are the same. */
static enum kernels_family of_activations(enum kernels_family family)
{
	return family == KERNELS_A16_KV8 ? KERNELS_A16 : family;
}

static size_t code_bytes(enum kernels_family family, size_t groups)
{
	return round_up(groups * KERNELS_GROUP * (family == KERNELS_A16 ? 2 : 1));
}

size_t kernels_acts_bytes(enum kernels_family family, uint32_t rows, uint32_t cols)
{
	family = of_activations(family);
	if (family == KERNELS_F32)
		return 0;
	if (family == KERNELS_B16)
		return round_up((size_t)rows * cols * sizeof(float));
	size_t groups = rows * group_count(cols);
	return code_bytes(family, groups) + 2 * round_up(groups * sizeof(float)) +
	       round_up(2 * groups * sizeof(int32_t));
}

void kernels_acts_init(struct kernels_acts *acts, enum kernels_family family, uint32_t rows,
		       uint32_t cols, void *memory)
{
	bool b16 = family == KERNELS_B16;
	family = b16 ? KERNELS_F32 : of_activations(family);
	*acts = (struct kernels_acts){
		.family = family, .rows = rows, .cols = cols, .x_stride = cols};
	if (b16)
		acts->b16 = memory;
	if (family == KERNELS_F32)
		return;
	size_t groups = rows * group_count(cols);
	uint8_t *at = memory;
	if (family == KERNELS_A16)
		acts->q16 = (int16_t *)(void *)at;
	else
		acts->q8 = (int8_t *)at;
	at += code_bytes(family, groups);
	acts->dx = (float *)(void *)at;
	at += round_up(groups * sizeof(float));
	acts->sx = (float *)(void *)at;
	at += round_up(groups * sizeof(float));
	acts->sum = (int32_t *)(void *)at;
}

struct kernels_acts kernels_acts_part(const struct kernels_acts *acts, uint32_t first,
				      uint32_t count)
{
	size_t groups = group_count(acts->cols);
	struct kernels_acts part = *acts;
	part.rows = count;
	part.x += first * acts->x_stride;
	if (acts->b16) {
		part.x = acts->b16 + (size_t)first * acts->cols;
		part.x_stride = acts->cols;
	}
	if (acts->family == KERNELS_F32)
		return part;
	if (acts->q16)
		part.q16 += first * groups * KERNELS_GROUP;
	if (acts->q8)
		part.q8 += first * groups * KERNELS_GROUP;
	part.dx += first * groups;
	part.sx += first * groups;
	part.sum += first * groups * 2;
	return part;
}
