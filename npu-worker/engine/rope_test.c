#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "npu-worker/engine/dmath.h"
#include "npu-worker/engine/rope.h"
#include "npu-worker/engine/rope_golden.h"

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* longrope's literal factors, as rope_reference.py has them. */
static void fill_divisors(const struct rope_golden *g, float *divisors)
{
	bool is_long = (double)g->ctx > g->config.original_ctx;
	for (uint32_t j = 0; j < GOLDEN_PAIRS; j++)
		divisors[j] = 1.0f + (is_long ? 1.75f : 0.03125f) * (float)j;
}

static void inverse_frequencies_are_transformers(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof rope_golden / sizeof rope_golden[0]; i++) {
		const struct rope_golden *g = &rope_golden[i];
		float inv_freq[GOLDEN_PAIRS], divisors[GOLDEN_PAIRS];
		fill_divisors(g, divisors);
		bool longrope = g->config.type == ROPE_LONGROPE;
		float factor =
			rope_inv_freq(&g->config, g->ctx, longrope ? divisors : NULL, inv_freq);
		assert_true(fabsf(factor - g->factor) <= 1e-7f * g->factor);
		for (uint32_t j = 0; j < GOLDEN_PAIRS; j++) {
			int32_t ulp = (int32_t)(bits_of(inv_freq[j]) - g->inv_freq[j]);
			if (abs(ulp) > 1)
				fail_msg("case %u (%s) pair %u: %d ulp apart", i,
					 rope_type_name(g->config.type), j, ulp);
		}
	}
}

/* A llama file's divisors give what its scaling parameters give. */
static void divisors_replace_llama3(void **state)
{
	(void)state;
	const struct rope_config scaled = {.type = ROPE_LLAMA3,
					   .dims = 32,
					   .theta = 500000.0,
					   .factor = 8.0,
					   .low_freq_factor = 1.0,
					   .high_freq_factor = 4.0,
					   .original_ctx = 8192.0};
	const struct rope_config plain = {.type = ROPE_DEFAULT, .dims = 32, .theta = 500000.0};
	float wanted[16], base[16], divisors[16], found[16];
	rope_inv_freq(&scaled, 8192, NULL, wanted);
	rope_inv_freq(&plain, 8192, NULL, base);
	for (uint32_t j = 0; j < 16; j++)
		divisors[j] = base[j] / wanted[j];
	rope_inv_freq(&plain, 8192, divisors, found);
	assert_true(divisors[0] == 1.0f && divisors[15] == 8.0f);
	for (uint32_t j = 0; j < 16; j++)
		assert_true(abs((int32_t)(bits_of(found[j]) - bits_of(wanted[j]))) <= 1);
}

static void rows_are_cosines_and_sines(void **state)
{
	(void)state;
	const float inv_freq[2] = {1.0f, 0.001f};
	float row[4], scaled[4];
	rope_row(inv_freq, 2, 1.0f, 0, row);
	assert_true(row[0] == 1.0f && row[1] == 1.0f && row[2] == 0.0f && row[3] == 0.0f);
	rope_row(inv_freq, 2, 1.0f, 100000, row);
	rope_row(inv_freq, 2, 1.5f, 100000, scaled);
	/* cos and sin of 100000, and of 0.001 * 100000 in float32: 100.00001 */
	assert_true(row[0] == -0.9993608f && row[2] == 0.0357488f);
	assert_true(row[1] == 0.86232275f && row[3] == -0.50635904f);
	assert_true(scaled[2] == row[2] * 1.5f);
}

/* Against the C library's long double forms. */
static double error_in_ulp(double found, long double wanted)
{
	double rounded = (double)wanted;
	double ulp = nextafter(fabs(rounded), INFINITY) - fabs(rounded);
	return (double)(fabsl((long double)found - wanted) / (long double)ulp);
}

static void double_functions_are_accurate(void **state)
{
	(void)state;
	uint64_t draw = 12345;
	for (int i = 0; i < 200000; i++) {
		draw = draw * 6364136223846793005u + 1442695040888963407u;
		double unit = (double)(draw >> 11) * 0x1p-53;
		double angle = (double)(float)(unit * (i % 2 ? 67108864.0 : 10.0));
		double sine, cosine;
		dm_sincos(angle, &sine, &cosine);
		assert_true(error_in_ulp(sine, sinl((long double)angle)) < 2.0);
		assert_true(error_in_ulp(cosine, cosl((long double)angle)) < 2.0);
		double exponent = (unit - 0.5) * 1400.0;
		assert_true(error_in_ulp(dm_exp(exponent), expl((long double)exponent)) < 2.0);
		double x = dm_exp(exponent);
		assert_true(error_in_ulp(dm_log(x), logl((long double)x)) < 2.0);
	}
	double sine, cosine;
	dm_sincos(0.0, &sine, &cosine);
	assert_true(sine == 0.0 && cosine == 1.0);
	assert_true(dm_log(1.0) == 0.0 && dm_exp(0.0) == 1.0 && dm_pow(10000.0, 0.0) == 1.0);
}

static void types_have_names(void **state)
{
	(void)state;
	uint32_t type = 99;
	assert_true(rope_type_parse(span_of("su"), &type) && type == ROPE_LONGROPE);
	assert_true(rope_type_parse(span_of("none"), &type) && type == ROPE_DEFAULT);
	assert_false(rope_type_parse(span_of("mrope"), &type));
	for (uint32_t i = 0; i <= ROPE_LONGROPE; i++)
		assert_true(rope_type_parse(span_of(rope_type_name(i)), &type) && type == i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inverse_frequencies_are_transformers),
		cmocka_unit_test(divisors_replace_llama3),
		cmocka_unit_test(rows_are_cosines_and_sines),
		cmocka_unit_test(double_functions_are_accurate),
		cmocka_unit_test(types_have_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
