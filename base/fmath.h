/* base/fmath.h: elementary functions whose bits are the same everywhere (docs/arithmetic.md). The C
 * library's differ between its versions and between CPUs; these are fixed sequences of IEEE
 * operations, with fma where it is written, no table and no branch, so a compiler may turn a loop
 * over them into any vector form without changing a bit. They need round-to-nearest and kept
 * subnormals (the default), and -ffp-contract=off. NaN gives NaN; its payload is not fixed.
 *
 * float: inline, for loops that should vectorise. double: for tables and log-probabilities.
 * The coefficients are those of the Taylor series; the argument is always reduced far enough for
 * it. */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FM_INLINE static inline __attribute__((always_inline))

FM_INLINE uint32_t fm_float_bits(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

FM_INLINE float fm_bits_float(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* 2^k for k in -126..127, two's complement. */
FM_INLINE float fm_power2f(uint32_t k)
{
	return fm_bits_float((k + 127u) << 23);
}

struct fm_expf_parts {
	float m;    /* e^r - 1, |r| <= ln2/2 */
	uint32_t k; /* e^x = (1 + m) 2^k, two's complement */
};

/* x = k ln2 + r, |x| < 2^21. Adding 1.5*2^23 leaves round(x / ln2) in the low mantissa bits. */
FM_INLINE struct fm_expf_parts fm_expf_reduce(float x)
{
	const float magic = 0x1.8p23f;
	float shifted = fmaf(x, 0x1.715476p0f, magic);
	float k = shifted - magic;
	float r = fmaf(k, -0x1.62e4p-1f, x); /* exact: k times 15 bits */
	r = fmaf(k, -0x1.7f7d1cp-20f, r);
	float q = (float)(1.0 / 40320);
	q = fmaf(q, r, (float)(1.0 / 5040));
	q = fmaf(q, r, (float)(1.0 / 720));
	q = fmaf(q, r, (float)(1.0 / 120));
	q = fmaf(q, r, (float)(1.0 / 24));
	q = fmaf(q, r, (float)(1.0 / 6));
	q = fmaf(q, r, 0.5f);
	return (struct fm_expf_parts){fmaf(q, r * r, r),
				      fm_float_bits(shifted) - fm_float_bits(magic)};
}

/* The power of two comes in two factors, so that results beyond the normal range round once. */
FM_INLINE float fm_expf(float x)
{
	x = x > 89.0f ? 89.0f : x;
	x = x < -104.0f ? -104.0f : x;
	struct fm_expf_parts e = fm_expf_reduce(x);
	uint32_t half = (uint32_t)((int32_t)e.k >> 1);
	return (1.0f + e.m) * fm_power2f(half) * fm_power2f(e.k - half);
}

/* x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt 2); log(1 + f) by the series of 2 atanh(f / (2 + f)).
 */
FM_INLINE float fm_logf(float x)
{
	const uint32_t sqrt_half = 0x3f3504f3u;
	float up = x < 0x1p-126f ? 0x1p23f : 1.0f;
	float k = x < 0x1p-126f ? -23.0f : 0.0f;
	uint32_t bits = fm_float_bits(x * up) - sqrt_half;
	k += (float)((int32_t)bits >> 23);
	float f = fm_bits_float((bits & 0x7fffffu) + sqrt_half) - 1.0f;
	float s = f / (2.0f + f);
	float z = s * s;
	float r = (float)(2.0 / 9);
	r = fmaf(r, z, (float)(2.0 / 7));
	r = fmaf(r, z, (float)(2.0 / 5));
	r = fmaf(r, z, (float)(2.0 / 3));
	r *= z;
	float half_square = 0.5f * f * f;
	float tail = fmaf(s, half_square + r, k * -0x1.05c61p-29f);
	float log = fmaf(k, 0x1.62e43p-1f, f - (half_square - tail));
	log = x == 0.0f ? -INFINITY : log;
	log = x == INFINITY ? INFINITY : log;
	return x >= 0.0f ? log : NAN;
}

/* (e^2|x| - 1) / (e^2|x| + 1), from e^y - 1 = 2^k m + (2^k - 1), which loses nothing near 0. */
FM_INLINE float fm_tanhf(float x)
{
	float y = 2.0f * fabsf(x);
	y = y > 20.0f ? 20.0f : y;
	struct fm_expf_parts e = fm_expf_reduce(y);
	float power = fm_power2f(e.k);
	float m = fmaf(power, e.m, power - 1.0f);
	return copysignf(m / (m + 2.0f), x);
}

/* x / (1 + e^-u), u of x's sign: by e^-|u|, so that neither end overflows. */
FM_INLINE float fm_times_sigmoidf(float x, float u)
{
	float e = fm_expf(-fabsf(u));
	return x * ((u < 0.0f ? e : 1.0f) / (1.0f + e));
}

FM_INLINE float fm_siluf(float x)
{
	return fm_times_sigmoidf(x, x);
}

/* The tanh form x/2 (1 + tanh t) = x / (1 + e^-2t), t = sqrt(2/pi) (x + 0.044715 x^3). */
FM_INLINE float fm_geluf(float x)
{
	const float linear = (float)1.59576912160573071176, cubic = (float)0.0713548162726002488;
	return fm_times_sigmoidf(x, x * fmaf(cubic, x * x, linear));
}

FM_INLINE float fm_rsqrtf(float x)
{
	return 1.0f / sqrtf(x);
}

/* x[i] = fm_expf(x[i] - shift), in the widest vector form the CPU has. */
void fm_exp_array(float *x, size_t n, float shift);

double fm_exp(double x);
double fm_log(double x);
/* x > 0: e^(y log x), with log x carried beyond double precision. */
double fm_pow(double x, double y);
/* |x| <= 2^30 (positions times frequencies), else NaN. */
double fm_sin(double x);
double fm_cos(double x);
