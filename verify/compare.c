#include "verify/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	size_t bytes;
	uint32_t sign, exponent; /* masks */
} TYPES[VFY_DTYPE_COUNT] = {
	[VFY_F32] = {"f32", 4, 0x80000000u, 0x7f800000u},
	[VFY_BF16] = {"bf16", 2, 0x8000u, 0x7f80u},
	[VFY_F16] = {"f16", 2, 0x8000u, 0x7c00u},
};

const char *vfy_dtype_name(enum vfy_dtype dtype)
{
	return TYPES[dtype].name;
}

size_t vfy_dtype_bytes(enum vfy_dtype dtype)
{
	return TYPES[dtype].bytes;
}

bool vfy_dtype_parse(const char *name, enum vfy_dtype *ret_dtype)
{
	for (int i = 0; i < VFY_DTYPE_COUNT; i++) {
		if (strcmp(name, TYPES[i].name) == 0) {
			*ret_dtype = (enum vfy_dtype)i;
			return true;
		}
	}
	return false;
}

uint64_t vfy_array_count(const struct vfy_array *array)
{
	uint64_t count = 1;
	for (uint32_t d = 0; d < array->n_dims; d++)
		count *= array->dims[d];
	return count;
}

uint32_t vfy_bits_at(const struct vfy_array *array, uint64_t i)
{
	size_t bytes = TYPES[array->dtype].bytes;
	const uint8_t *at = (const uint8_t *)array->data + i * bytes;
	uint32_t wide;
	uint16_t narrow;
	if (bytes == sizeof wide) {
		memcpy(&wide, at, sizeof wide);
		return wide;
	}
	memcpy(&narrow, at, sizeof narrow);
	return narrow;
}

/* Subnormals become normal numbers; NaN payloads keep their place at the top of the fraction. */
static uint32_t widen_f16(uint32_t bits)
{
	uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
	if (exponent == 31)
		return sign | 0x7f800000u | fraction << 13;
	if (exponent)
		return sign | (exponent + 112) << 23 | fraction << 13;
	if (!fraction)
		return sign;
	uint32_t shift =
		(uint32_t)__builtin_clz(fraction) - 21; /* to bring its top bit to bit 10 */
	return sign | (113 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
}

float vfy_value_at(const struct vfy_array *array, uint64_t i)
{
	uint32_t bits = vfy_bits_at(array, i);
	float value;
	if (array->dtype == VFY_BF16)
		bits <<= 16;
	else if (array->dtype == VFY_F16)
		bits = widen_f16(bits);
	memcpy(&value, &bits, sizeof value);
	return value;
}

static bool is_nan(enum vfy_dtype dtype, uint32_t bits)
{
	return (bits & (TYPES[dtype].sign - 1)) > TYPES[dtype].exponent;
}

/* Orders the numbers of a type as integers. */
static int64_t key_of(enum vfy_dtype dtype, uint32_t bits)
{
	uint32_t sign = TYPES[dtype].sign, all = sign | (sign - 1);
	return bits & sign ? (int64_t)(~bits & all) : (int64_t)(bits | sign);
}

bool vfy_ulp_distance(enum vfy_dtype dtype, uint32_t a, uint32_t b, uint64_t *ret_distance)
{
	if (a != b && (is_nan(dtype, a) || is_nan(dtype, b)))
		return false;
	int64_t distance = key_of(dtype, a) - key_of(dtype, b);
	*ret_distance = (uint64_t)(distance < 0 ? -distance : distance);
	return true;
}

size_t vfy_nearest_rank(size_t n, unsigned p)
{
	size_t rank = (n * p + 99) / 100;
	return rank ? rank - 1 : 0;
}

/* What the elements add up to. Only those that are finite on both sides take part in the sums of
 * products. */
struct sums {
	uint64_t n;
	double square, a, b, aa, bb, ab;
};

static void raise_peak(struct vfy_peak *peak, double value, uint64_t index)
{
	if (value > peak->value)
		*peak = (struct vfy_peak){value, index};
}

static void count_signs(struct vfy_diff *diff, uint32_t bits_a, uint32_t bits_b, double a, double b)
{
	diff->above += a > b;
	diff->below += a < b;
	diff->equal_value += a == b && bits_a != bits_b;
}

/* |a - b|, or NaN where it is undefined. Equal bits differ by nothing, whatever they stand for. */
static double distance_of(uint32_t bits_a, uint32_t bits_b, double a, double b)
{
	if (bits_a == bits_b || a == b)
		return 0;
	return isfinite(a) && isfinite(b) ? fabs(a - b) : (double)NAN;
}

static void add_sums(struct sums *sums, double a, double b)
{
	if (!isfinite(a) || !isfinite(b))
		return;
	sums->n++;
	sums->square += (a - b) * (a - b);
	sums->a += a;
	sums->b += b;
	sums->aa += a * a;
	sums->bb += b * b;
	sums->ab += a * b;
}

/* The means are taken off first, so that a large mean doesn't eat the digits. */
static double correlate(const struct vfy_array *a, const struct vfy_array *b,
			const struct sums *sums)
{
	double mean_a = sums->a / (double)sums->n, mean_b = sums->b / (double)sums->n;
	double aa = 0, bb = 0, ab = 0;
	uint64_t count = vfy_array_count(a);
	for (uint64_t i = 0; i < count; i++) {
		double x = (double)vfy_value_at(a, i), y = (double)vfy_value_at(b, i);
		if (!isfinite(x) || !isfinite(y))
			continue;
		aa += (x - mean_a) * (x - mean_a);
		bb += (y - mean_b) * (y - mean_b);
		ab += (x - mean_a) * (y - mean_b);
	}
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : (double)NAN;
}

static void finish_sums(const struct vfy_array *a, const struct vfy_array *b,
			const struct sums *sums, struct vfy_diff *diff)
{
	if (sums->n == 0) {
		bool empty = diff->count == 0;
		diff->rms_abs = diff->relative_l2 = empty ? 0 : (double)NAN;
		diff->cosine = diff->correlation = (double)NAN;
		return;
	}
	diff->rms_abs = sqrt(sums->square / (double)sums->n);
	if (sums->bb > 0)
		diff->relative_l2 = sqrt(sums->square) / sqrt(sums->bb);
	else
		diff->relative_l2 = sums->square > 0 ? (double)NAN : 0;
	diff->cosine = sums->aa > 0 && sums->bb > 0 ? sums->ab / (sqrt(sums->aa) * sqrt(sums->bb))
						    : (double)NAN;
	diff->correlation = correlate(a, b, sums);
}

static int ascending_u64(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

static int ascending_double(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return a < b ? -1 : a > b;
}

/* The defined distances of all elements, for the percentiles. */
struct lists {
	uint64_t *ulps;
	double *abs;
	size_t n_ulps, n_abs;
};

static void take_percentiles(struct lists *lists, struct vfy_diff *diff)
{
	if (lists->n_ulps) {
		qsort(lists->ulps, lists->n_ulps, sizeof *lists->ulps, ascending_u64);
		diff->ulp_p50 = lists->ulps[vfy_nearest_rank(lists->n_ulps, 50)];
		diff->ulp_p90 = lists->ulps[vfy_nearest_rank(lists->n_ulps, 90)];
		diff->ulp_p99 = lists->ulps[vfy_nearest_rank(lists->n_ulps, 99)];
	}
	if (lists->n_abs) {
		qsort(lists->abs, lists->n_abs, sizeof *lists->abs, ascending_double);
		diff->abs_p50 = lists->abs[vfy_nearest_rank(lists->n_abs, 50)];
		diff->abs_p90 = lists->abs[vfy_nearest_rank(lists->n_abs, 90)];
		diff->abs_p99 = lists->abs[vfy_nearest_rank(lists->n_abs, 99)];
	}
}

static void compare_element(const struct vfy_array *x, const struct vfy_array *y, uint64_t i,
			    struct lists *lists, struct vfy_diff *diff)
{
	uint32_t bits_a = vfy_bits_at(x, i), bits_b = vfy_bits_at(y, i);
	double a = (double)vfy_value_at(x, i), b = (double)vfy_value_at(y, i);
	if (bits_a != bits_b && diff->mismatches++ == 0) {
		diff->first = i;
		diff->first_a = bits_a;
		diff->first_b = bits_b;
	}
	uint64_t ulp;
	if (vfy_ulp_distance(x->dtype, bits_a, bits_b, &ulp)) {
		raise_peak(&diff->ulp, (double)ulp, i);
		lists->ulps[lists->n_ulps++] = ulp;
	} else {
		diff->ulp_undefined++;
	}
	double distance = distance_of(bits_a, bits_b, a, b);
	if (isnan(distance)) {
		diff->abs_undefined++;
	} else {
		double scale = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
		raise_peak(&diff->abs, distance, i);
		raise_peak(&diff->rel, distance > 0 ? distance / scale : 0, i);
		lists->abs[lists->n_abs++] = distance;
	}
	count_signs(diff, bits_a, bits_b, a, b);
}

static enum svc_code check_shapes(const struct vfy_array *a, const struct vfy_array *b,
				  struct svc_err *err)
{
	if (a->dtype != b->dtype)
		return svc_fail(err, SVC_INVALID, __func__,
				"the types differ: %s and %s; only equal types are compared",
				vfy_dtype_name(a->dtype), vfy_dtype_name(b->dtype));
	if (a->n_dims != b->n_dims)
		return svc_fail(err, SVC_INVALID, __func__,
				"the shapes differ: %" PRIu32 " and %" PRIu32 " dimensions",
				a->n_dims, b->n_dims);
	for (uint32_t d = 0; d < a->n_dims; d++) {
		if (a->dims[d] != b->dims[d])
			return svc_fail(err, SVC_INVALID, __func__,
					"the shapes differ: dimension %" PRIu32 " is %" PRIu64
					" and %" PRIu64,
					d, a->dims[d], b->dims[d]);
	}
	return SVC_OK;
}

enum svc_code vfy_compare(const struct vfy_array *a, const struct vfy_array *b,
			  struct vfy_diff *ret_diff, struct svc_err *err)
{
	enum svc_code code = check_shapes(a, b, err);
	if (code)
		return code;
	uint64_t count = vfy_array_count(a);
	struct vfy_diff diff = {.count = count, .first = count};
	struct lists lists = {.ulps = calloc(count + 1, sizeof *lists.ulps),
			      .abs = calloc(count + 1, sizeof *lists.abs)};
	if (lists.ulps && lists.abs) {
		struct sums sums = {0};
		for (uint64_t i = 0; i < count; i++) {
			compare_element(a, b, i, &lists, &diff);
			add_sums(&sums, (double)vfy_value_at(a, i), (double)vfy_value_at(b, i));
		}
		finish_sums(a, b, &sums, &diff);
		take_percentiles(&lists, &diff);
		*ret_diff = diff;
	} else {
		code = svc_fail_errno(err, __func__, "no memory for %" PRIu64 " distances", count);
	}
	free(lists.ulps);
	free(lists.abs);
	return code;
}
