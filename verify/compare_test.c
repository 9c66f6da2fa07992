#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "verify/compare.h"

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static struct vfy_diff compare_bits(const uint32_t *a, const uint32_t *b, uint64_t n)
{
	struct vfy_array left = {VFY_F32, 1, {n}, a}, right = {VFY_F32, 1, {n}, b};
	struct vfy_diff diff;
	struct svc_err err;
	assert_int_equal(vfy_compare(&left, &right, &diff, &err), SVC_OK);
	return diff;
}

static struct vfy_diff compare_one(uint32_t a, uint32_t b)
{
	return compare_bits(&a, &b, 1);
}

static void test_zeros(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_one(0x00000000u, 0x80000000u);
	assert_int_equal(diff.mismatches, 1);
	assert_true(diff.ulp.value == 1);
	assert_true(diff.abs.value == 0 && diff.rel.value == 0);
	assert_int_equal(diff.equal_value, 1);
	assert_int_equal(diff.first_b, 0x80000000u);
	assert_true(diff.relative_l2 == 0);
	assert_true(isnan(diff.cosine));
}

static void test_subnormals(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_one(0x00000001u, 0x80000001u);
	assert_true(diff.ulp.value == 3); /* over both zeros */
	assert_true(diff.abs.value == 0x1p-148);
	assert_true(diff.rel.value == 2);
	/* The smallest normal number and the largest subnormal one are neighbours. */
	assert_true(compare_one(0x00800000u, 0x007fffffu).ulp.value == 1);
}

static void test_largest(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_one(0x7f7fffffu, 0xff7fffffu);
	assert_true(diff.abs.value == 2.0 * 0x1.fffffep127);
	assert_true(diff.ulp.value == 2.0 * 0x7f7fffff + 1);
	/* The infinity is one step further, but no finite distance away. */
	diff = compare_one(0x7f7fffffu, 0x7f800000u);
	assert_true(diff.ulp.value == 1);
	assert_int_equal(diff.abs_undefined, 1);
	assert_int_equal(diff.below, 1);
}

static void test_infinities(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_one(0x7f800000u, 0x7f800000u);
	assert_int_equal(diff.mismatches, 0);
	assert_int_equal(diff.abs_undefined, 0);
	assert_true(diff.abs.value == 0);
	diff = compare_one(0x7f800000u, 0xff800000u);
	assert_int_equal(diff.abs_undefined, 1);
	assert_int_equal(diff.ulp_undefined, 0);
	assert_int_equal(diff.above, 1);
	assert_true(isnan(diff.rms_abs));
}

static void test_nan_payloads(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_one(0x7fc00001u, 0x7fc00001u);
	assert_int_equal(diff.mismatches, 0);
	assert_int_equal(diff.ulp_undefined + diff.abs_undefined, 0);
	diff = compare_one(0x7fc00001u, 0x7fc00002u);
	assert_int_equal(diff.mismatches, 1);
	assert_int_equal(diff.ulp_undefined, 1);
	assert_int_equal(diff.abs_undefined, 1);
	assert_int_equal(diff.above + diff.below + diff.equal_value, 0);
	diff = compare_one(0x7f800001u, bits_of(1.0f));
	assert_int_equal(diff.ulp_undefined, 1);
}

static void test_empty(void **state)
{
	(void)state;
	struct vfy_diff diff = compare_bits(NULL, NULL, 0);
	assert_int_equal(diff.count, 0);
	assert_int_equal(diff.mismatches, 0);
	assert_int_equal(diff.first, 0);
	assert_true(diff.rms_abs == 0 && diff.relative_l2 == 0);
	assert_true(isnan(diff.cosine) && isnan(diff.correlation));
}

static void test_shapes(void **state)
{
	(void)state;
	float x[6] = {0};
	struct vfy_array a = {VFY_F32, 2, {2, 3}, x}, b = {VFY_F32, 2, {3, 2}, x};
	struct vfy_array flat = {VFY_F32, 1, {6}, x}, half = {VFY_F16, 2, {2, 3}, x};
	struct vfy_diff diff;
	struct svc_err err;
	assert_int_equal(vfy_compare(&a, &b, &diff, &err), SVC_INVALID);
	assert_non_null(strstr(err.msg, "dimension 0 is 2 and 3"));
	assert_int_equal(vfy_compare(&a, &flat, &diff, &err), SVC_INVALID);
	assert_int_equal(vfy_compare(&a, &half, &diff, &err), SVC_INVALID);
	assert_non_null(strstr(err.msg, "f32 and f16"));
}

/* Every f16: against the value by its definition, and its neighbour one step away in f16 although
 * it is 8192 steps away in f32. */
static void test_f16(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 0x10000; i++) {
		uint16_t bits = (uint16_t)i;
		struct vfy_array one = {VFY_F16, 1, {1}, &bits};
		uint32_t exponent = i >> 10 & 31, fraction = i & 0x3ff;
		double value = exponent ? ldexp(1024 + fraction, (int)exponent - 25)
					: ldexp(fraction, -24);
		value = i & 0x8000 ? -value : value;
		float wide = vfy_value_at(&one, 0);
		if (exponent == 31)
			assert_true(fraction ? isnan(wide) : isinf(wide));
		else
			assert_true((double)wide == value && !!signbit(wide) == (i >> 15 == 1));
	}
	uint64_t ulp;
	assert_true(vfy_ulp_distance(VFY_F16, 0x3c00, 0x3c01, &ulp));
	assert_int_equal(ulp, 1);
	assert_true(vfy_ulp_distance(VFY_F16, 0x0000, 0x8000, &ulp));
	assert_int_equal(ulp, 1);
	assert_false(vfy_ulp_distance(VFY_F16, 0x7c01, 0x7c00, &ulp));
	assert_true(vfy_ulp_distance(VFY_BF16, 0x3f80, 0x3f82, &ulp));
	assert_int_equal(ulp, 2);
}

static void test_measures(void **state)
{
	(void)state;
	const float a[4] = {1.0f, 2.0f, 3.0f, 5.0f}, b[4] = {1.0f, 2.5f, 3.0f, 4.0f};
	struct vfy_array left = {VFY_F32, 1, {4}, a}, right = {VFY_F32, 1, {4}, b};
	struct vfy_diff diff;
	struct svc_err err;
	assert_int_equal(vfy_compare(&left, &right, &diff, &err), SVC_OK);
	assert_int_equal(diff.mismatches, 2);
	assert_int_equal(diff.first, 1);
	assert_true(diff.abs.value == 1 && diff.abs.index == 3);
	assert_true(diff.rel.value == 0.2 && diff.rel.index == 1);
	assert_int_equal(diff.above, 1);
	assert_int_equal(diff.below, 1);
	assert_true(fabs(diff.rms_abs - sqrt(1.25 / 4)) < 1e-15);
	assert_true(fabs(diff.relative_l2 - sqrt(1.25 / 32.25)) < 1e-15);
	assert_true(diff.abs_p50 == 0 && diff.abs_p90 == 1 && diff.abs_p99 == 1);
}

/* A mean that is large beside the deviations must not spoil the correlation. */
static void test_correlation_of_offset(void **state)
{
	(void)state;
	float a[100], b[100];
	for (int i = 0; i < 100; i++) {
		a[i] = 1e6f + (float)i;
		b[i] = 1e6f - (float)i;
	}
	struct vfy_array left = {VFY_F32, 1, {100}, a}, right = {VFY_F32, 1, {100}, b};
	struct vfy_diff diff;
	struct svc_err err;
	assert_int_equal(vfy_compare(&left, &right, &diff, &err), SVC_OK);
	assert_true(fabs(diff.correlation + 1) < 1e-12);
}

static void test_nearest_rank(void **state)
{
	(void)state;
	assert_int_equal(vfy_nearest_rank(1, 50), 0);
	assert_int_equal(vfy_nearest_rank(4, 50), 1);
	assert_int_equal(vfy_nearest_rank(5, 50), 2);
	assert_int_equal(vfy_nearest_rank(100, 99), 98);
	assert_int_equal(vfy_nearest_rank(100, 100), 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros),	     cmocka_unit_test(test_subnormals),
		cmocka_unit_test(test_largest),	     cmocka_unit_test(test_infinities),
		cmocka_unit_test(test_nan_payloads), cmocka_unit_test(test_empty),
		cmocka_unit_test(test_shapes),	     cmocka_unit_test(test_f16),
		cmocka_unit_test(test_measures),     cmocka_unit_test(test_correlation_of_offset),
		cmocka_unit_test(test_nearest_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
