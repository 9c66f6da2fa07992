/* npu-worker/kernels/simd_avx512.h: 16 lanes, one 16-row block. The including file defines
 * SIMD_VNNI as 1 or 0. */
#pragma once
#include <immintrin.h>

#include "base/fmath.h"

typedef __m512 vf;
typedef __m512i vi;

enum {
	LANES = 16,
	TOKENS_MOST =
		8, /* tokens per tile of a matrix product: accumulators that fit the registers */
	ATTENTION_VECTORS = 4, /* vectors per query row in attention, times four rows */
};

FM_INLINE vf vf_set1(float x)
{
	return _mm512_set1_ps(x);
}

FM_INLINE vf vf_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

FM_INLINE void vf_store(float *p, vf a)
{
	_mm512_storeu_ps(p, a);
}

FM_INLINE vf vf_load_f16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

FM_INLINE void vf_store_f16(uint16_t *p, vf a)
{
	_mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

FM_INLINE vf vf_load_bf16(const uint16_t *p)
{
	__m256i h = _mm256_loadu_si256((const __m256i *)p);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

FM_INLINE vf vf_fma(vf a, vf b, vf c)
{
	return _mm512_fmadd_ps(a, b, c);
}

FM_INLINE vf vf_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}

FM_INLINE vf vf_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}

FM_INLINE vf vf_negate(vf a)
{
	return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}

FM_INLINE vf vf_max(vf a, vf b)
{
	return _mm512_max_ps(a, b);
}

/* Halves are combined until one lane is left. */
FM_INLINE float vf_tree_max(vf a)
{
	__m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
	c = _mm_max_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

FM_INLINE float vf_tree_sum(vf a)
{
	__m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
	__m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
	c = _mm_add_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

FM_INLINE vf vf_from_int(vi a)
{
	return _mm512_cvtepi32_ps(a);
}

FM_INLINE vi vi_zero(void)
{
	return _mm512_setzero_si512();
}

FM_INLINE vi vi_set1(int32_t x)
{
	return _mm512_set1_epi32(x);
}

FM_INLINE vi vi_load(const void *p)
{
	return _mm512_loadu_si512(p);
}

/* One byte per lane. */
FM_INLINE vi vi_load_u8(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

FM_INLINE vi vi_load_s8(const int8_t *p)
{
	return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

FM_INLINE vi vi_and(vi a, vi b)
{
	return _mm512_and_si512(a, b);
}

/* a | (b & c) */
FM_INLINE vi vi_or_and(vi a, vi b, vi c)
{
	return _mm512_ternarylogic_epi32(a, b, c, 0xf8);
}

FM_INLINE vi vi_sub32(vi a, vi b)
{
	return _mm512_sub_epi32(a, b);
}

/* The counts of all shifts are constants once the caller is inlined. Compilers disagree whether a
 * count is signed. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
FM_INLINE vi vi_left16(vi a, unsigned count)
{
	return _mm512_slli_epi16(a, count);
}

FM_INLINE vi vi_right16(vi a, unsigned count)
{
	return _mm512_srli_epi16(a, count);
}

FM_INLINE vi vi_right16_signed(vi a, unsigned count)
{
	return _mm512_srai_epi16(a, count);
}

FM_INLINE vi vi_left32(vi a, unsigned count)
{
	return _mm512_slli_epi32(a, count);
}

FM_INLINE vi vi_right32(vi a, unsigned count)
{
	return _mm512_srli_epi32(a, count);
}

FM_INLINE vi vi_right32_signed(vi a, unsigned count)
{
	return _mm512_srai_epi32(a, count);
}

#pragma GCC diagnostic pop

/* acc plus the products of each lane's two int16 numbers. */
FM_INLINE vi vi_dot16(vi acc, vi w, vi x)
{
#if SIMD_VNNI
	return _mm512_dpwssd_epi32(acc, w, x);
#else
	return _mm512_add_epi32(acc, _mm512_madd_epi16(w, x));
#endif
}

/* acc plus the products of each lane's four bytes: w is 0..127, x is -127..127. The int16 pair sums
 * of the plain form stay below 2*127*127. */
FM_INLINE vi vi_dot8(vi acc, vi w, vi x)
{
#if SIMD_VNNI
	return _mm512_dpbusd_epi32(acc, w, x);
#else
	__m512i pairs = _mm512_maddubs_epi16(w, x);
	return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#endif
}

/* The same for w in -128..127: |w| times x with w's sign; never w + 128, whose pair sums would
 * saturate. */
FM_INLINE vi vi_dot8_signed(vi acc, vi w, vi x)
{
	__mmask64 negative = _mm512_movepi8_mask(w);
	x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
	return vi_dot8(acc, _mm512_abs_epi8(w), x);
}
