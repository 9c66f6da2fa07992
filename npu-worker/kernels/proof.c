/* Is a form's arithmetic the scalar one's on this machine? What the tests show on some machines,
 * in small, where it runs. */
#include <string.h>

#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/layout.h"

enum {
	ROWS = 16,
	COLS = 288, /* nine groups: a run of eight and a rest, for types that allow it */
	COLS_K = 256,
	TOKENS = 25, /* sixteen and a rest, which is more than half of that */
	/* kernels_acts_bytes: codes of two bytes, four numbers for each group, and the rounding up
	 */
	ACTS_BYTES = TOKENS * COLS * 2 + TOKENS * COLS / KERNELS_GROUP * 16 + 4 * 64,
};

/* The low bits of a linear congruential generator repeat soon; its high ones will do. */
static uint32_t next(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*random >> 32);
}

/* A packed block of any codes, and of scales between 2^-6 and 2^-5 of both signs. */
static void fill_block(uint32_t type, uint8_t *block, uint64_t *random)
{
	const struct layout_info *info = layout_info(type);
	uint32_t cols = info->columns == COLS_K ? COLS_K : COLS;
	size_t bytes = layout_stride(type, cols), halves_at = 0, halves = 16;
	for (size_t i = 0; i < bytes; i++)
		block[i] = (uint8_t)next(random);
	if (type == GGUF_TENSOR_Q4_1) {
		halves_at = offsetof(struct block_q4_1, d);
		halves = 32;
	}
	for (size_t at = 0; at < bytes; at += info->block_bytes) {
		for (size_t i = 0; i < halves; i++) {
			uint16_t half = (uint16_t)((next(random) & 0x83ff) | 0x2400);
			memcpy(block + at + halves_at + 2 * i, &half, sizeof half);
		}
	}
}

static bool same_product(const struct kernels *form, uint32_t type, enum kernels_family family)
{
	static const uint32_t untouched = 0x7fc12345;
	_Alignas(64) uint8_t block[ROWS * COLS * 2], memory[ACTS_BYTES];
	float x[TOKENS * COLS], y[2][TOKENS * ROWS];
	uint64_t random = type + 100 * (uint64_t)family;
	uint32_t cols = layout_info(type)->columns == COLS_K ? COLS_K : COLS;
	fill_block(type, block, &random);
	for (size_t i = 0; i < TOKENS * COLS; i++)
		x[i] = (float)(int32_t)next(&random) * 0x1p-30f;
	struct kernels_matrix w = {type, ROWS, cols, block};
	const struct kernels *forms[2] = {&kernels_scalar, form};
	for (size_t i = 0; i < 2; i++) {
		struct kernels_acts acts;
		kernels_acts_init(&acts, family, TOKENS, cols, memory);
		acts.x = x;
		for (size_t j = 0; j < TOKENS * ROWS; j++)
			memcpy(&y[i][j], &untouched, sizeof untouched);
		if (!forms[i]->quantise(&acts, 0, TOKENS))
			return false;
		forms[i]->matmul(&w, &acts, y[i], ROWS, 0, 1);
	}
	for (size_t j = 0; j < TOKENS * ROWS; j++) {
		if (fm_float_bits(y[0][j]) != fm_float_bits(y[1][j]))
			return false;
	}
	return true;
}

bool kernels_proven(const struct kernels *form)
{
	/* with offsets and without, with signed codes, and with two scales in a group */
	static const struct {
		uint32_t type;
		enum kernels_family family;
	} products[] = {
		{GGUF_TENSOR_Q4_1, KERNELS_A16},
		{GGUF_TENSOR_Q4_1, KERNELS_A8},
		{GGUF_TENSOR_Q6_K, KERNELS_A16},
		{GGUF_TENSOR_Q8_0, KERNELS_A16},
	};
	if (form == &kernels_scalar)
		return true;
	for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
		if (!same_product(form, products[i].type, products[i].family))
			return false;
	}
	return true;
}
