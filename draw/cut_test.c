/* The cut of a ranking and the kernels: against sorting, and instruction set against instruction
 * set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <math.h>
#include <cmocka.h>

#include "draw/cut.h"
#include "draw/kernels.h"
#include "draw/set.h"

static uint64_t seed = 42;

static uint32_t random_bits(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

static float random_logit(void)
{
	float sum = -6;
	for (int i = 0; i < 12; i++)
		sum += (float)random_bits() * 0x1p-32f;
	return sum * 4;
}

static int ranked_compare(const void *a, const void *b)
{
	uint64_t x = ((const struct draw_ranked *)a)->rank,
		 y = ((const struct draw_ranked *)b)->rank;
	return x < y ? -1 : x > y;
}

static uint64_t cut_by_sorting(struct draw_ranked *items, size_t n, uint64_t goal)
{
	qsort(items, n, sizeof *items, ranked_compare);
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		if ((sum += items[i].mass) >= goal)
			return items[i].rank;
	return UINT64_MAX;
}

/* All alike, in steps, or spread; ranked by descending value or ascending distance. Returns the sum
 * of the masses. */
static uint64_t items_fill(struct draw_ranked *items, size_t n)
{
	uint64_t sum = 0;
	unsigned kind = random_bits() % 4;
	for (size_t i = 0; i < n; i++) {
		float x = kind == 0   ? 1.0f
			  : kind == 1 ? (float)(random_bits() % 8)
				      : random_logit();
		items[i].rank = kind == 3 ? draw_rank_ascending(fabsf(x), (uint32_t)i)
					  : draw_rank_descending(x, (uint32_t)i);
		items[i].mass = random_bits() % 4 ? random_bits() : 0;
		sum += items[i].mass;
	}
	return sum;
}

static void cut_is_where_sorting_cuts(void **state)
{
	(void)state;
	enum { N = 9000 };
	static struct draw_ranked items[N], scratch[N];
	static uint64_t ranks[N], masses[N];
	for (int round = 0; round < 1000; round++) {
		size_t n = random_bits() % (round % 50 ? 300 : N + 1);
		uint64_t sum = items_fill(items, n);
		uint64_t goal =
			1 +
			(sum ? (uint64_t)random_bits() * random_bits() % (sum + sum / 8 + 1) : 0);
		for (size_t i = 0; i < n; i++) {
			ranks[i] = items[i].rank;
			masses[i] = items[i].mass;
		}
		assert_int_equal(draw_cut(ranks, masses, n, goal, scratch),
				 cut_by_sorting(items, n, goal));
		for (size_t i = 0; i < n; i++)
			items[i].mass = 1;
		goal = 1 + goal % (n + 1);
		assert_int_equal(draw_cut(ranks, NULL, n, goal, scratch),
				 cut_by_sorting(items, n, goal));
	}
}

static void rank_orders_floats(void **state)
{
	(void)state;
	static const float down[] = {INFINITY, 3e38f,	1.5f,  1.0f,   1e-45f,
				     0.0f,     -1e-45f, -1.0f, -3e38f, -INFINITY};
	for (size_t i = 1; i < sizeof down / sizeof *down; i++)
		assert_true(draw_rank_descending(down[i - 1], 9) <
			    draw_rank_descending(down[i], 0));
	assert_true(draw_rank_descending(2.0f, 3) < draw_rank_descending(2.0f, 4));
	assert_int_equal(draw_rank_descending(0.0f, 3), draw_rank_descending(-0.0f, 3));
	assert_true(draw_rank_ascending(0.5f, 9) < draw_rank_ascending(0.75f, 1));
	assert_int_equal(draw_rank_ascending(-0.0f, 1), draw_rank_ascending(0.0f, 1));
}

static void block_fill(float *block, int round)
{
	for (size_t i = 0; i < DRAW_BLOCK; i++)
		block[i] = round % 3 == 0 && random_bits() % 2 ? -INFINITY : random_logit();
	if (round % 4 == 1)
		for (size_t i = 0; i < DRAW_BLOCK; i++)
			block[i] *= 1e37f;
	if (round % 4 == 2)
		for (size_t i = 0; i < DRAW_BLOCK; i++)
			block[i] = (float)(random_bits() % 3) * 1e-40f *
				   (random_bits() % 2 ? 1.0f : -1.0f);
}

static void weights_check(const float *block, const uint64_t *weights, float max,
			  float inverse_temperature)
{
	for (size_t i = 0; i < DRAW_BLOCK; i++) {
		double exact = exp((double)((block[i] - max) * inverse_temperature)) * DRAW_UNIT;
		assert_true(fabs((double)weights[i] - exact) <= 0.5000001 + exact * 3e-7);
	}
}

static void moment_check(const float *block, struct draw_moments moments, float max,
			 float inverse_temperature)
{
	double moment = 0, mass = 0;
	for (size_t i = 0; i < DRAW_BLOCK; i++) {
		double depth = (double)((block[i] - max) * inverse_temperature);
		mass += exp(depth);
		moment += depth > -200 ? depth * exp(depth) : 0;
	}
	assert_true(fabs((double)moments.mass / DRAW_UNIT - mass) < mass * 1e-6);
	assert_true(fabs((double)moments.moment / DRAW_UNIT - moment) < 1e-9 - moment * 1e-6);
}

/* Everything of `kernels` equals the scalar form; the scalar form is near the mathematics. */
static void kernels_check(const struct draw_kernels *kernels)
{
	static float block[DRAW_BLOCK], maxima[2][DRAW_LANES], x[2][DRAW_BLOCK + 1];
	static uint64_t weights[2][DRAW_BLOCK];
	static uint32_t ids[2][DRAW_BLOCK + 1];
	const struct draw_kernels *both[2] = {&draw_kernels_scalar, kernels};
	for (int round = 0; round < 60; round++) {
		float max = -INFINITY,
		      inverse_temperature = round % 5 == 0 ? 1e5f : 0.01f * (float)(1 << round % 8);
		uint64_t mass[2], sum = 0;
		struct draw_moments moments[2];
		size_t n[2];
		block_fill(block, round);
		for (size_t i = 0; i < DRAW_BLOCK; i++)
			max = block[i] > max ? block[i] : max;
		for (int k = 0; k < 2; k++) {
			assert_true(both[k]->scan(block, maxima[k]));
			both[k]->weigh(block, DRAW_BLOCK, max, inverse_temperature, weights[k]);
			mass[k] = both[k]->mass(block, DRAW_BLOCK, max, inverse_temperature);
			moments[k] = both[k]->moments(block, DRAW_BLOCK, max, inverse_temperature);
			n[k] = both[k]->collect(block, max / 2, 7, ids[k], x[k]);
		}
		assert_memory_equal(maxima[0], maxima[1], sizeof maxima[0]);
		assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
		assert_int_equal(n[0], n[1]);
		assert_memory_equal(ids[0], ids[1], n[0] * sizeof ids[0][0]);
		assert_memory_equal(x[0], x[1], n[0] * sizeof x[0][0]);
		for (size_t i = 0; i < DRAW_BLOCK; i++)
			sum += weights[0][i];
		assert_true(sum == mass[0] && sum == mass[1]);
		assert_memory_equal(&moments[0], &moments[1], sizeof moments[0]);
		moment_check(block, moments[0], max, inverse_temperature);
		weights_check(block, weights[0], max, inverse_temperature);
		size_t above = 0;
		for (size_t i = 0; i < DRAW_BLOCK; i++)
			if (block[i] >= max / 2)
				assert_int_equal(ids[0][above++], 7 + i);
		assert_int_equal(above, n[0]);
	}
}

static void sanity_check(const struct draw_kernels *kernels)
{
	static float block[DRAW_BLOCK];
	static const float bad[] = {NAN, -NAN, INFINITY};
	float maxima[DRAW_LANES];
	for (size_t i = 0; i < DRAW_BLOCK; i++)
		for (size_t b = 0; b < 3; b++) {
			block[i] = bad[b];
			assert_false(kernels->scan(block, maxima));
			block[i] = -INFINITY;
			assert_true(kernels->scan(block, maxima));
			block[i] = 0;
		}
}

static void kernels_agree(void **state)
{
	(void)state;
	int sets = 0;
	for (int isa = DRAW_ISA_SCALAR; isa <= DRAW_ISA_AVX512; isa++) {
		const struct draw_kernels *kernels = draw_kernels_get((enum draw_isa)isa);
		if (!kernels)
			continue;
		kernels_check(kernels);
		sanity_check(kernels);
		sets++;
	}
	print_message("%d instruction sets, auto: %s\n", sets,
		      draw_kernels_get(DRAW_ISA_AUTO)->name);
}

/* Every part of the mass belongs to exactly one token, and none to tokens without weight. */
static void pick_covers_the_mass(void **state)
{
	(void)state;
	uint32_t ids[] = {10, 11, 12, 13, 14};
	uint64_t weights[] = {0, 3, 0, 5, 0};
	const struct draw_set set = {.n = 5, .ids = ids, .weights = weights};
	for (uint64_t eighth = 0; eighth < 8; eighth++) {
		uint32_t expected = eighth < 3 ? 11 : 13;
		assert_int_equal(draw_set_pick(&set, eighth << 50), expected);
		assert_int_equal(draw_set_pick(&set, ((eighth + 1) << 50) - 1), expected);
	}
}

static void shares_are_rounded_up(void **state)
{
	(void)state;
	assert_int_equal(draw_share(0.0f, 100), 1);
	assert_int_equal(draw_share(0.5f, 3), 2);
	assert_int_equal(draw_share(1.0f, UINT64_MAX >> 1), UINT64_MAX >> 1);
	assert_int_equal(draw_share(0.25f, 400), 100);
}

static void isa_names(void **state)
{
	(void)state;
	enum draw_isa isa = DRAW_ISA_SCALAR;
	assert_false(draw_isa_parse("sse9", &isa));
	assert_int_equal(isa, DRAW_ISA_SCALAR);
	assert_true(draw_isa_parse("avx512", &isa));
	assert_int_equal(isa, DRAW_ISA_AVX512);
	assert_true(draw_isa_parse("amx", &isa));
	assert_int_equal(isa, DRAW_ISA_AVX512);
	assert_true(draw_isa_parse("auto", &isa));
	assert_int_equal(isa, DRAW_ISA_AUTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut_is_where_sorting_cuts),
		cmocka_unit_test(rank_orders_floats),
		cmocka_unit_test(kernels_agree),
		cmocka_unit_test(pick_covers_the_mass),
		cmocka_unit_test(shares_are_rounded_up),
		cmocka_unit_test(isa_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
