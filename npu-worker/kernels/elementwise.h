/* npu-worker/kernels/elementwise.h: the kernels that are plain loops. Included by the one file of
 * every instruction set and compiled there with its flags: IEEE operations in a fixed order leave
 * the compiler no freedom to change a bit, only to fill its vectors. */
#pragma once
#include "base/fmath.h"
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/kernels.h"
#include "npu-worker/kernels/layout.h"

/* Lane i is an fma chain over x[i], x[i + 64], ...; the lanes are added by the tree. */
FM_INLINE float sum_of_squares(const float *x, uint32_t n)
{
	float lane[64] = {0};
	uint32_t i = 0;
	for (; i + 64 <= n; i += 64) {
		for (uint32_t l = 0; l < 64; l++)
			lane[l] = fmaf(x[i + l], x[i + l], lane[l]);
	}
	for (uint32_t l = 0; l < n - i; l++)
		lane[l] = fmaf(x[i + l], x[i + l], lane[l]);
	return tree_sum(lane);
}

static void rms_norm(const float *x, const float *weight, float eps, uint32_t n, float *y)
{
	float r = fm_rsqrtf(sum_of_squares(x, n) / (float)n + eps);
	if (weight) {
		for (uint32_t i = 0; i < n; i++)
			y[i] = x[i] * r * weight[i];
	} else {
		for (uint32_t i = 0; i < n; i++)
			y[i] = x[i] * r;
	}
}

/* (a, b) becomes (a cos - b sin, b cos + a sin); the product with sin is rounded first. */
static void rope(float *x, const float *cosines, const float *sines, uint32_t pairs,
		 bool interleaved)
{
	uint32_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
	for (uint32_t i = 0; i < pairs; i++) {
		float a = x[i * step], b = x[i * step + other];
		x[i * step] = fmaf(a, cosines[i], -(b * sines[i]));
		x[i * step + other] = fmaf(b, cosines[i], a * sines[i]);
	}
}

static void add(float *x, const float *y, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] += y[i];
}

static void scale(float *x, float factor, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] *= factor;
}

static void softcap(float *x, float cap, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = cap * fm_tanhf(x[i] / cap);
}

static void silu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = fm_siluf(gate[i]) * up[i];
}

static void gelu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = fm_geluf(gate[i]) * up[i];
}

static bool all_finite(const float *x, uint32_t n)
{
	uint32_t bad = 0;
	for (uint32_t i = 0; i < n; i++)
		bad |= (fm_float_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
	return bad == 0;
}

/* One group: amax = max |x|, dx = amax / most, q = round(x * (most / amax)), clamped; all 0 below
 * 2^-100, where the quotient would overflow. |x| is compared as an integer, which orders NaN and
 * infinity above all numbers. */
FM_INLINE bool quantise_group(const float *x, float most, int32_t q[32], float *ret_dx)
{
	const float magic = 0x1.8p23f; /* x + magic has round(x) in its low mantissa bits */
	const int32_t limit = (int32_t)most;
	uint32_t amax_bits = 0;
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t bits = fm_float_bits(x[i]) & 0x7fffffffu;
		amax_bits = bits > amax_bits ? bits : amax_bits;
	}
	float amax = fm_bits_float(amax_bits);
	bool ok = amax_bits < 0x7f800000u;
	if (!ok || amax < 0x1p-100f) {
		memset(q, 0, 32 * sizeof *q);
		*ret_dx = ok ? 0.0f : NAN;
		return ok;
	}
	float inverse = most / amax;
	for (uint32_t i = 0; i < 32; i++) {
		float shifted = x[i] * inverse + magic;
		int32_t code = (int32_t)(fm_float_bits(shifted) - fm_float_bits(magic));
		code = code > limit ? limit : code;
		q[i] = code < -limit ? -limit : code;
	}
	*ret_dx = amax / most;
	return true;
}

FM_INLINE void store_codes16(const int32_t q[32], int16_t *out)
{
	for (uint32_t i = 0; i < 32; i++)
		out[i] = (int16_t)q[i];
}

FM_INLINE void store_codes8(const int32_t q[32], int8_t *out)
{
	for (uint32_t i = 0; i < 32; i++)
		out[i] = (int8_t)q[i / 8 * 8 + layout_column(i / 4 % 2, i % 4)];
}

static bool quantise_row(const struct kernels_acts *acts, uint32_t row)
{
	const float *x = acts->x + row * acts->x_stride;
	size_t groups = (acts->cols + KERNELS_GROUP - 1) / KERNELS_GROUP;
	bool ok = true;
	for (size_t g = 0; g < groups; g++) {
		size_t at = row * groups + g, left = acts->cols - g * KERNELS_GROUP;
		const float *in = x + g * KERNELS_GROUP;
		float tail[32] = {0};
		if (left < KERNELS_GROUP)
			in = memcpy(tail, in, left * sizeof *in);
		int32_t q[32], sum[2] = {0};
		ok &= quantise_group(in, acts->family == KERNELS_A16 ? 32767.0f : 127.0f, q,
				     &acts->dx[at]);
		if (acts->family == KERNELS_A16)
			store_codes16(q, acts->q16 + at * KERNELS_GROUP);
		else
			store_codes8(q, acts->q8 + at * KERNELS_GROUP);
		for (uint32_t i = 0; i < 16; i++) {
			sum[0] += q[i];
			sum[1] += q[i + 16];
		}
		acts->sum[2 * at] = sum[0];
		acts->sum[2 * at + 1] = sum[1];
		acts->sx[at] = (float)(sum[0] + sum[1]) * acts->dx[at];
	}
	return ok;
}

static bool quantise(const struct kernels_acts *acts, uint32_t first, uint32_t last)
{
	bool ok = true;
	for (uint32_t row = first; row < last; row++) {
		if (acts->family == KERNELS_F32)
			ok &= all_finite(acts->x + row * acts->x_stride, acts->cols);
		else
			ok &= quantise_row(acts, row);
	}
	return ok;
}
