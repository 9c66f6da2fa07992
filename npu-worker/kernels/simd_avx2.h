/* npu-worker/kernels/simd_avx2.h: 8 lanes, half of a 16-row block. AVX2, FMA and F16C. */
#pragma once
#include <immintrin.h>

#include "base/fmath.h"

typedef __m256 vf;
typedef __m256i vi;

enum {
	LANES = 8,
	TOKENS_MOST =
		4, /* tokens per tile of a matrix product: accumulators that fit the registers */
	ATTENTION_VECTORS = 2, /* vectors per query row in attention, times four rows */
};

FM_INLINE vf vf_set1(float x)
{
	return _mm256_set1_ps(x);
}

FM_INLINE vf vf_load(const float *p)
{
	return _mm256_loadu_ps(p);
}

FM_INLINE void vf_store(float *p, vf a)
{
	_mm256_storeu_ps(p, a);
}

FM_INLINE vf vf_load_f16(const uint16_t *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

FM_INLINE void vf_store_f16(uint16_t *p, vf a)
{
	_mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

FM_INLINE vf vf_load_bf16(const uint16_t *p)
{
	__m128i h = _mm_loadu_si128((const __m128i *)p);
	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

FM_INLINE vf vf_fma(vf a, vf b, vf c)
{
	return _mm256_fmadd_ps(a, b, c);
}

FM_INLINE vf vf_mul(vf a, vf b)
{
	return _mm256_mul_ps(a, b);
}

FM_INLINE vf vf_add(vf a, vf b)
{
	return _mm256_add_ps(a, b);
}

FM_INLINE vf vf_negate(vf a)
{
	return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}

FM_INLINE vf vf_max(vf a, vf b)
{
	return _mm256_max_ps(a, b);
}

/* Halves are combined until one lane is left. */
FM_INLINE float vf_tree_max(vf a)
{
	__m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_max_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

FM_INLINE float vf_tree_sum(vf a)
{
	__m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	b = _mm_add_ps(b, _mm_movehl_ps(b, b));
	return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

FM_INLINE vf vf_from_int(vi a)
{
	return _mm256_cvtepi32_ps(a);
}

FM_INLINE vi vi_zero(void)
{
	return _mm256_setzero_si256();
}

FM_INLINE vi vi_set1(int32_t x)
{
	return _mm256_set1_epi32(x);
}

FM_INLINE vi vi_load(const void *p)
{
	return _mm256_loadu_si256((const __m256i *)p);
}

/* One byte per lane. */
FM_INLINE vi vi_load_u8(const uint8_t *p)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

FM_INLINE vi vi_load_s8(const int8_t *p)
{
	return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

FM_INLINE vi vi_and(vi a, vi b)
{
	return _mm256_and_si256(a, b);
}

/* a | (b & c) */
FM_INLINE vi vi_or_and(vi a, vi b, vi c)
{
	return _mm256_or_si256(a, _mm256_and_si256(b, c));
}

FM_INLINE vi vi_sub32(vi a, vi b)
{
	return _mm256_sub_epi32(a, b);
}

/* The counts of all shifts are constants once the caller is inlined. */
FM_INLINE vi vi_left16(vi a, unsigned count)
{
	return _mm256_slli_epi16(a, (int)count);
}

FM_INLINE vi vi_right16(vi a, unsigned count)
{
	return _mm256_srli_epi16(a, (int)count);
}

FM_INLINE vi vi_right16_signed(vi a, unsigned count)
{
	return _mm256_srai_epi16(a, (int)count);
}

FM_INLINE vi vi_left32(vi a, unsigned count)
{
	return _mm256_slli_epi32(a, (int)count);
}

FM_INLINE vi vi_right32(vi a, unsigned count)
{
	return _mm256_srli_epi32(a, (int)count);
}

FM_INLINE vi vi_right32_signed(vi a, unsigned count)
{
	return _mm256_srai_epi32(a, (int)count);
}

/* acc plus the products of each lane's two int16 numbers. */
FM_INLINE vi vi_dot16(vi acc, vi w, vi x)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(w, x));
}

/* acc plus the products of each lane's four bytes: w is 0..127 (or 128, see below), x is -127..127.
 * The int16 pair sums stay below 2*128*127 < 2^15. */
FM_INLINE vi vi_dot8(vi acc, vi w, vi x)
{
	__m256i pairs = _mm256_maddubs_epi16(w, x);
	return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* The same for w in -128..127: |w| times x with w's sign; never w + 128, whose pair sums would
 * saturate. */
FM_INLINE vi vi_dot8_signed(vi acc, vi w, vi x)
{
	return vi_dot8(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
