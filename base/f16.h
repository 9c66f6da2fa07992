/* base/f16.h: the 16-bit float types, exact to float32 and back with
 * round-to-nearest-even; the same bits as the CPU's own conversions. */
#pragma once
#include "base/fmath.h"

static inline float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = h & 0x7fffu;
	if (rest >= 0x7c00) /* infinity; a NaN keeps its payload and becomes quiet */
		return fm_bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
				     (rest > 0x7c00 ? 0x400000u : 0));
	if (rest < 0x0400) { /* subnormal: rest * 2^-24 is exact */
		float magnitude = (float)rest * 0x1p-24f;
		return fm_bits_float(sign | fm_float_bits(magnitude));
	}
	return fm_bits_float(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t f16_from_f32(float x)
{
	uint32_t bits = fm_float_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
	if (rest > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
	if (rest >= 0x477ff000u) /* 65520 and more round to infinity */
		return (uint16_t)(sign | 0x7c00u);
	if (rest <
	    0x38800000u) { /* below 2^-14: adding 1/2 leaves a multiple of 2^-24 in the mantissa */
		float shifted = fm_bits_float(rest) + 0.5f;
		return (uint16_t)(sign | (fm_float_bits(shifted) - 0x3f000000u));
	}
	uint32_t odd = rest >> 13 & 1u;
	return (uint16_t)(sign | (rest - (112u << 23) + 0xfffu + odd) >> 13);
}

static inline float bf16_to_f32(uint16_t h)
{
	return fm_bits_float((uint32_t)h << 16);
}

/* A NaN keeps the top of its payload and becomes quiet. */
static inline uint16_t bf16_from_f32(float x)
{
	uint32_t bits = fm_float_bits(x);
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
