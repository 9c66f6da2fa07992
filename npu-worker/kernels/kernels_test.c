/* Packing against the file formats, the scalar products against plain double arithmetic, and every
 * other form's products against the scalar ones, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/testing.h"

static const char *type_name(uint32_t type)
{
	const char *name = gguf_tensor_type_name(type);
	return name ? name : "?";
}

static double half_at(const uint8_t *p)
{
	return (double)f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Scale and offset of group g (0..7) of a Q4_K or Q5_K block: 6-bit fields in 12 bytes, as in the
 * format. */
static void k_scales(const uint8_t *block, unsigned g, double *ret_d, double *ret_m)
{
	const uint8_t *s = block + 4;
	unsigned sc = g < 4 ? s[g] & 63u : (s[g + 4] & 15u) + 16u * (s[g - 4] >> 6);
	unsigned mn = g < 4 ? s[g + 4] & 63u : (s[g + 4] >> 4) + 16u * (s[g] >> 6);
	*ret_d = half_at(block) * sc;
	*ret_m = half_at(block + 2) * mn;
}

/* The weight that column c of a row means, straight from the file's bytes. */
static double value_at(uint32_t type, const uint8_t *row, uint32_t c)
{
	const struct layout_info *info = layout_info(type);
	const uint8_t *b = row + (size_t)(c / info->columns) * info->file_bytes;
	unsigned i = c % info->columns, g = i / 32, j = i % 32, half = i % 32 / 16;
	float f;
	double d, m;
	if (type == GGUF_TENSOR_F32) {
		memcpy(&f, b, 4);
		return (double)f;
	}
	if (type == GGUF_TENSOR_F16)
		return half_at(b);
	if (type == GGUF_TENSOR_BF16)
		return (double)fm_bits_float((uint32_t)b[0] << 16 | (uint32_t)b[1] << 24);
	if (type == GGUF_TENSOR_Q8_0)
		return half_at(b) * (int8_t)b[2 + j];
	if (type == GGUF_TENSOR_Q4_0)
		return half_at(b) * ((b[2 + j % 16] >> 4 * half & 15) - 8);
	if (type == GGUF_TENSOR_Q4_1)
		return half_at(b) * (b[4 + j % 16] >> 4 * half & 15) + half_at(b + 2);
	if (type == GGUF_TENSOR_Q5_0)
		return half_at(b) *
		       ((b[6 + j % 16] >> 4 * half & 15) + 16 * (b[2 + j / 8] >> j % 8 & 1) - 16);
	if (type == GGUF_TENSOR_Q5_1)
		return half_at(b) * ((b[8 + j % 16] >> 4 * half & 15) +
				     16 * (b[4 + j / 8] >> j % 8 & 1)) +
		       half_at(b + 2);
	if (type == GGUF_TENSOR_Q6_K) {
		unsigned low = b[i / 128 * 64 + i % 64] >> 4 * (i % 128 / 64) & 15;
		unsigned high = b[128 + i / 128 * 32 + j] >> 2 * (i % 128 / 32) & 3;
		return half_at(b + 208) * (int8_t)b[192 + i / 16] * ((int)(low + 16 * high) - 32);
	}
	k_scales(b, g, &d, &m);
	if (type == GGUF_TENSOR_Q4_K)
		return d * (b[16 + i / 64 * 32 + j] >> 4 * (g % 2) & 15) - m;
	return d * ((b[48 + i / 64 * 32 + j] >> 4 * (g % 2) & 15) + 16 * (b[16 + j] >> g & 1)) - m;
}

static size_t row_bytes(uint32_t type, uint32_t cols)
{
	return (size_t)(cols / layout_info(type)->columns) * layout_info(type)->file_bytes;
}

/* Every weight of a packed matrix is the file's, rounded once. */
static void packing(void **state)
{
	(void)state;
	uint64_t random = test_seed("packing");
	for (uint32_t i = 0; i < TEST_TYPE_COUNT; i++) {
		uint32_t type = TEST_TYPES[i], rows = 37, cols = 512;
		uint8_t *tensor = test_tensor(type, rows, cols, false, &random);
		struct kernels_matrix w = test_matrix(type, rows, cols, tensor);
		assert_true(kernels_packed_bytes(type, 4096, 4096) <=
			    row_bytes(type, 4096) * 4096 * 103 / 100);
		for (uint32_t row = 0; row < rows; row++) {
			float values[512];
			kernels_dequantise_row(&w, row, values);
			for (uint32_t c = 0; c < cols; c++) {
				double wanted =
					value_at(type, tensor + row * row_bytes(type, cols), c);
				if (values[c] != (float)wanted)
					fail_msg("%s row %u column %u: %a, wanted %a",
						 type_name(type), row, c, (double)values[c],
						 wanted);
			}
		}
		free((void *)(uintptr_t)w.data);
		free(tensor);
	}
}

struct product {
	struct kernels_matrix w;
	struct kernels_acts acts;
	float *x, *y;
	size_t y_stride;
	void *memory;
};

enum { UNTOUCHED = 0x7fc12345 }; /* a NaN that no kernel makes: marks what must not be written */

static void product_setup(struct product *p, enum kernels_family family, struct kernels_matrix w,
			  uint32_t tokens)
{
	p->w = w;
	p->x = test_memory((size_t)tokens * (w.cols + 5) * sizeof(float));
	p->y_stride = w.rows + 3;
	p->y = test_memory((size_t)tokens * p->y_stride * sizeof(float));
	p->memory = test_memory(kernels_acts_bytes(family, tokens, w.cols));
	kernels_acts_init(&p->acts, family, tokens, w.cols, p->memory);
	p->acts.x = p->x;
	p->acts.x_stride = w.cols + 5;
}

static void product_free(struct product *p)
{
	free(p->x);
	free(p->y);
	free(p->memory);
}

/* The whole product, in two ranges of blocks. */
static bool product_run(struct product *p, const struct kernels *form)
{
	const uint32_t untouched = UNTOUCHED;
	for (size_t i = 0; i < p->acts.rows * p->y_stride; i++)
		memcpy(&p->y[i], &untouched, sizeof untouched);
	uint32_t blocks = kernels_block_count(p->w.rows), cut = blocks / 3;
	bool ok = form->quantise(&p->acts, 0, p->acts.rows);
	form->matmul(&p->w, &p->acts, p->y, p->y_stride, 0, cut);
	form->matmul(&p->w, &p->acts, p->y, p->y_stride, cut, blocks);
	return ok;
}

enum pattern { NORMAL, SPARSE, TINY, HUGE, SUBNORMAL, INFINITE, PATTERNS };

static void fill_acts(struct product *p, enum pattern pattern, uint64_t *random)
{
	for (size_t i = 0; i < p->acts.rows * p->acts.x_stride; i++) {
		float x = test_normal(random);
		if (pattern == SPARSE && test_below(random, 80))
			x = 0.0f;
		if (pattern == TINY)
			x *= test_below(random, 2) ? 0x1p-100f : 0x1p-99f;
		if (pattern == HUGE)
			x *= 0x1p125f;
		if (pattern == SUBNORMAL)
			x *= 0x1p-140f;
		if (pattern == INFINITE && test_below(random, 100) == 0)
			x = test_below(random, 2) ? INFINITY : NAN;
		p->x[i] = x;
	}
}

/* Within what the roundings of the activations and of the chain can make. */
static void scalar_against_double(void **state)
{
	(void)state;
	uint64_t random = test_seed("scalar_against_double");
	for (uint32_t i = 0; i < TEST_TYPE_COUNT * 3; i++) {
		uint32_t type = TEST_TYPES[i / 3], rows = 21, cols = 768, tokens = 3;
		enum kernels_family family = (enum kernels_family)(i % 3);
		uint8_t *tensor = test_tensor(type, rows, cols, false, &random);
		struct product p;
		product_setup(&p, family, test_matrix(type, rows, cols, tensor), tokens);
		fill_acts(&p, NORMAL, &random);
		assert_true(product_run(&p, &kernels_scalar));
		double step = family == KERNELS_F32   ? 0.0
			      : family == KERNELS_A16 ? 0.5 / 32767
						      : 0.5 / 127;
		for (uint32_t t = 0; t < tokens; t++) {
			const float *x = p.x + t * p.acts.x_stride;
			for (uint32_t n = 0; n < rows; n++) {
				double sum = 0, magnitude = 0, weight = 0;
				for (uint32_t c = 0; c < cols; c++) {
					double w = value_at(type,
							    tensor + n * row_bytes(type, cols), c);
					sum += w * (double)x[c];
					magnitude += fabs(w * (double)x[c]);
					weight += fabs(w);
				}
				/* amax of a group is below 4.4 here */
				double bound =
					4.4 * step * weight + cols * 0x1p-23 * (magnitude + weight);
				double y = (double)p.y[t * p.y_stride + n];
				if (!(fabs(y - sum) <= bound))
					fail_msg("%s %s: %g, wanted %g within %g", type_name(type),
						 kernels_family_name(family), y, sum, bound);
			}
		}
		free((void *)(uintptr_t)p.w.data);
		free(tensor);
		product_free(&p);
	}
}

static float random_group(int exponent, float x[32], uint64_t *random)
{
	float amax = 0.0f;
	for (int i = 0; i < 32; i++) {
		x[i] = ldexpf((float)(int32_t)test_random(random), exponent - 31);
		amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
	}
	return amax;
}

/* The rule itself, once more, with the C library's rounding. */
static void check_group(const struct kernels_acts *acts, float amax)
{
	bool wide = acts->family == KERNELS_A16, zero = amax < 0x1p-100f;
	float most = wide ? 32767.0f : 127.0f;
	int32_t codes[32], sum[2] = {0, 0};
	for (uint32_t i = 0; i < 32; i++) {
		codes[i] = zero ? 0 : (int32_t)nearbyintf(acts->x[i] * (most / amax));
		sum[i / 16] += codes[i];
	}
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t c = i / 8 * 8 + layout_column(i / 4 % 2, i % 4);
		assert_int_equal(wide ? acts->q16[i] : acts->q8[i], codes[wide ? i : c]);
	}
	assert_true(acts->dx[0] == (zero ? 0.0f : amax / most));
	assert_true(acts->sum[0] == sum[0] && acts->sum[1] == sum[1]);
	assert_true(acts->sx[0] == (float)(sum[0] + sum[1]) * acts->dx[0]);
}

/* Over amax around 2^-100 and up to the largest. */
static void quantisation(void **state)
{
	(void)state;
	static _Alignas(64) uint8_t memory[4096];
	uint64_t random = test_seed("quantisation");
	for (int round = 0; round < 6000; round++) {
		struct kernels_acts acts;
		float x[32];
		int exponent = round % 3 ? (int)test_below(&random, 254) - 127 : -101 + round % 4;
		float amax = random_group(exponent, x, &random);
		kernels_acts_init(&acts, round % 2 ? KERNELS_A16 : KERNELS_A8, 1, 32, memory);
		acts.x = x;
		assert_true(kernels_scalar.quantise(&acts, 0, 1));
		check_group(&acts, amax);
		x[test_below(&random, 32)] = round % 3 ? -INFINITY : NAN;
		assert_false(kernels_scalar.quantise(&acts, 0, 1));
		assert_true(isnan(acts.dx[0]) && isnan(acts.sx[0]));
	}
}

static bool same_bits(float a, float b)
{
	return fm_float_bits(a) == fm_float_bits(b) || (isnan(a) && isnan(b));
}

static void compare_forms(struct product *p, const char *what)
{
	size_t count = p->acts.rows * p->y_stride;
	bool ok = product_run(p, &kernels_scalar);
	float *wanted = test_memory(count * sizeof *wanted);
	memcpy(wanted, p->y, count * sizeof *wanted);
	bool runs;
	for (size_t f = 0; test_form(f, &runs); f++) {
		const struct kernels *form = test_form(f, &runs);
		if (!runs)
			continue;
		memset(p->memory, 0xa5,
		       kernels_acts_bytes(p->acts.family, p->acts.rows, p->acts.cols));
		assert_int_equal(product_run(p, form), ok);
		for (size_t i = 0; i < count; i++) {
			uint32_t bits = fm_float_bits(p->y[i]);
			bool outside = i % p->y_stride >= p->w.rows;
			if (outside ? bits != UNTOUCHED
				    : !same_bits(p->y[i], wanted[i]) || bits == UNTOUCHED)
				fail_msg("%s %s %s (%u rows, %u columns, %u tokens): token %zu row "
					 "%zu is %a, "
					 "wanted %a",
					 form->name, kernels_family_name(p->acts.family), what,
					 p->w.rows, p->w.cols, p->acts.rows, i / p->y_stride,
					 i % p->y_stride, (double)p->y[i], (double)wanted[i]);
		}
	}
	free(wanted);
}

static void forms_agree(void **state)
{
	(void)state;
	uint64_t random = test_seed("forms_agree");
	for (uint32_t i = 0; i < TEST_TYPE_COUNT * 3 * PATTERNS; i++) {
		uint32_t type = TEST_TYPES[i / 3 / PATTERNS];
		enum pattern pattern = (enum pattern)(i / 3 % PATTERNS);
		uint32_t unit = layout_info(type)->columns;
		uint32_t cols = unit * (1 + test_below(&random, 768 / unit)),
			 rows = 1 + test_below(&random, 70);
		uint32_t tokens = 1 + test_below(&random, 20);
		uint8_t *tensor = test_tensor(type, rows, cols, pattern >= TINY, &random);
		struct product p;
		product_setup(&p, (enum kernels_family)(i % 3),
			      test_matrix(type, rows, cols, tensor), tokens);
		fill_acts(&p, pattern, &random);
		compare_forms(&p, type_name(type));
		free((void *)(uintptr_t)p.w.data);
		free(tensor);
		product_free(&p);
	}
}

/* A token's result does not depend on what shares its batch. */
static void batch_is_one_by_one(void **state)
{
	(void)state;
	uint64_t random = test_seed("batch_is_one_by_one");
	const uint32_t rows = 48, cols = 512, tokens = 19;
	bool runs;
	for (size_t f = 0; test_form(f, &runs); f++) {
		const struct kernels *form = test_form(f, &runs);
		for (uint32_t i = 0; runs && i < TEST_TYPE_COUNT * 3; i++) {
			uint8_t *tensor =
				test_tensor(TEST_TYPES[i / 3], rows, cols, false, &random);
			struct kernels_matrix w =
				test_matrix(TEST_TYPES[i / 3], rows, cols, tensor);
			struct product all, one;
			product_setup(&all, (enum kernels_family)(i % 3), w, tokens);
			product_setup(&one, (enum kernels_family)(i % 3), w, 1);
			fill_acts(&all, NORMAL, &random);
			product_run(&all, form);
			for (uint32_t t = 0; t < tokens; t++) {
				one.acts.x = all.x + t * all.acts.x_stride;
				product_run(&one, form);
				assert_memory_equal(one.y, all.y + t * all.y_stride,
						    rows * sizeof(float));
			}
			free((void *)(uintptr_t)w.data);
			free(tensor);
			product_free(&all);
			product_free(&one);
		}
	}
}

/* Batches around the counts of tokens where a form goes over to other code, and columns around
 * those. */
static void forms_agree_in_batches(void **state)
{
	(void)state;
	static const uint32_t counts[] = {7, 8, 9, 15, 16, 17, 23, 24, 31, 40, 63, 64, 65, 72, 100};
	uint64_t random = test_seed("forms_agree_in_batches");
	for (uint32_t i = 0; i < TEST_TYPE_COUNT * 2; i++) {
		uint32_t type = TEST_TYPES[i / 2], unit = layout_info(type)->columns;
		for (uint32_t j = 0; !layout_is_float(type) && j < sizeof counts / sizeof *counts;
		     j++) {
			uint32_t cols = unit * (1 + test_below(&random, unit == 256 ? 2 : 10));
			uint32_t rows = 1 + test_below(&random, 20);
			uint8_t *tensor = test_tensor(type, rows, cols, j % 3 == 0, &random);
			struct product p;
			product_setup(&p, i % 2 ? KERNELS_A8 : KERNELS_A16,
				      test_matrix(type, rows, cols, tensor), counts[j]);
			fill_acts(&p, NORMAL, &random);
			compare_forms(&p, type_name(type));
			free((void *)(uintptr_t)p.w.data);
			free(tensor);
			product_free(&p);
		}
	}
}

/* Every code of a packed matrix the least or the greatest. */
static void set_codes(const struct kernels_matrix *w, bool least)
{
	size_t bytes = kernels_packed_bytes(w->type, w->rows, w->cols);
	uint8_t *packed = (uint8_t *)(uintptr_t)w->data;
	for (size_t at = 0; at < bytes; at += layout_info(w->type)->block_bytes) {
		void *block = packed + at;
		if (w->type == GGUF_TENSOR_Q8_0)
			memset(((struct block_q8_0 *)block)->bytes, least ? 0x80 : 0x7f,
			       sizeof(int8_t[8][16][4]));
		else
			memset(((struct block_q4_0 *)block)->nibbles, least ? 0x00 : 0xff,
			       sizeof(uint8_t[4][16][4]));
	}
}

/* The largest sums that there are, of both signs: codes and activations at their ends. */
static void forms_agree_at_the_ends(void **state)
{
	(void)state;
	static const uint32_t types[] = {GGUF_TENSOR_Q8_0, GGUF_TENSOR_Q4_0};
	uint64_t random = test_seed("forms_agree_at_the_ends");
	const uint32_t rows = 19, cols = 512, tokens = 18;
	for (uint32_t i = 0; i < 16; i++) {
		uint8_t *tensor = test_tensor(types[i / 8], rows, cols, false, &random);
		struct product p;
		product_setup(&p, i / 4 % 2 ? KERNELS_A8 : KERNELS_A16,
			      test_matrix(types[i / 8], rows, cols, tensor), tokens);
		set_codes(&p.w, i % 2);
		for (size_t j = 0; j < tokens * p.acts.x_stride; j++)
			p.x[j] = i / 2 % 2 ? -1.0f : 1.0f;
		compare_forms(&p, type_name(p.w.type));
		free((void *)(uintptr_t)p.w.data);
		free(tensor);
		product_free(&p);
	}
}

int main(void)
{
	test_print_forms();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packing),
		cmocka_unit_test(scalar_against_double),
		cmocka_unit_test(quantisation),
		cmocka_unit_test(forms_agree),
		cmocka_unit_test(forms_agree_in_batches),
		cmocka_unit_test(forms_agree_at_the_ends),
		cmocka_unit_test(batch_is_one_by_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
