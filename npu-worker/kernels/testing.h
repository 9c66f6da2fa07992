/* npu-worker/kernels/testing.h: random inputs for the kernel tests and the bench. Not compiled into
 * the engine. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/kernels/f16.h"
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/layout.h"

/* As kernels_form; and last "tiles-model", the AMX form's products on a software model of the
 * instructions (form_tiles_test.c). */
const struct kernels *test_form(size_t index, bool *ret_runs);
/* "forms: " and the names of those that run here; tests/emulated/run looks for it. */
void test_print_forms(void);

static const uint32_t TEST_TYPES[] = {GGUF_TENSOR_F32,	GGUF_TENSOR_F16,  GGUF_TENSOR_BF16,
				      GGUF_TENSOR_Q4_0, GGUF_TENSOR_Q4_1, GGUF_TENSOR_Q5_0,
				      GGUF_TENSOR_Q5_1, GGUF_TENSOR_Q8_0, GGUF_TENSOR_Q4_K,
				      GGUF_TENSOR_Q5_K, GGUF_TENSOR_Q6_K};
enum { TEST_TYPE_COUNT = sizeof TEST_TYPES / sizeof TEST_TYPES[0] };

/* splitmix64 */
static inline uint64_t test_random(uint64_t *random)
{
	uint64_t z = *random += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static inline uint32_t test_below(uint64_t *random, uint32_t limit)
{
	return (uint32_t)(test_random(random) % limit);
}

/* About normal with deviation 1. */
static inline float test_normal(uint64_t *random)
{
	int32_t sum = 0;
	for (int i = 0; i < 4; i++)
		sum += (int32_t)(test_random(random) >> 48) - 32768;
	return (float)sum * (float)(1.0 / 37837.0);
}

static inline void *test_memory(size_t bytes)
{
	void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
	if (!memory)
		abort();
	return memory;
}

/* LOCKSTEP_SEED, or the usual one; printed, as every test that draws from it must. */
static inline uint64_t test_seed(const char *test)
{
	const char *text = getenv("LOCKSTEP_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : 20250607u;
	printf("%s: LOCKSTEP_SEED=%llu\n", test, (unsigned long long)seed);
	return seed;
}

/* A half of either sign and of magnitude 2^-14 to 2^-5; wild: any finite half, subnormals and zero
 * too. */
static inline uint16_t test_half(uint64_t *random, bool wild)
{
	uint16_t h = (uint16_t)test_random(random);
	if (wild)
		return (h & 0x7c00) == 0x7c00 ? 0x0001 : h;
	return (uint16_t)((h & 0x83ff) | (1 + test_below(random, 9)) << 10);
}

/* A tensor as in a file: random codes and scales. Caller frees. */
static inline uint8_t *test_tensor(uint32_t type, uint32_t rows, uint32_t cols, bool wild,
				   uint64_t *random)
{
	const struct layout_info *info = layout_info(type);
	size_t count = (size_t)rows * (cols / info->columns), bytes = count * info->file_bytes;
	uint8_t *tensor = test_memory(bytes);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = test_random(random);
		memcpy(tensor + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
	for (size_t i = 0; i < count; i++) {
		uint8_t *p = tensor + i * info->file_bytes;
		uint16_t h[2] = {test_half(random, wild), test_half(random, wild)};
		float f = test_normal(random) * (wild ? 0x1p60f : 0.05f);
		if (type == GGUF_TENSOR_F32)
			memcpy(p, &f, 4);
		else if (type == GGUF_TENSOR_BF16)
			p[1] = (uint8_t)((p[1] & 0x80) | 0x3c);
		else if (type == GGUF_TENSOR_Q6_K)
			memcpy(p + 208, h, 2);
		else if (type == GGUF_TENSOR_Q4_0 || type == GGUF_TENSOR_Q5_0 ||
			 type == GGUF_TENSOR_Q8_0 || type == GGUF_TENSOR_F16)
			memcpy(p, h, 2);
		else
			memcpy(p, h, 4);
	}
	return tensor;
}

/* Packed; caller frees (void *)data. */
static inline struct kernels_matrix test_matrix(uint32_t type, uint32_t rows, uint32_t cols,
						const void *tensor)
{
	void *packed = test_memory(kernels_packed_bytes(type, rows, cols));
	struct kernels_matrix w = {type, rows, cols, packed};
	kernels_pack(&w, tensor, packed, 0, kernels_block_count(rows));
	return w;
}
