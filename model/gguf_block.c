#include "model/gguf_block.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "model/gguf.h"

static uint16_t load16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load32(const uint8_t *p)
{
	return load16(p) | (uint32_t)load16(p + 2) << 16;
}

/* Eight codes at a time, one a byte, in a word: nothing here carries from one byte to the next.
 * (The file's bytes are little-endian, as the CPUs are.) */
#define EACH(byte) ((byte)*UINT64_C(0x0101010101010101))

static uint64_t load8(const uint8_t *p)
{
	uint64_t word;
	memcpy(&word, p, sizeof word);
	return word;
}

static void store8(uint8_t *p, uint64_t word)
{
	memcpy(p, &word, sizeof word);
}

/* Byte j holds codes j (low) and j + 16 (high). */
static void read_nibbles(const uint8_t *qs, struct gguf_group *ret)
{
	for (uint32_t j = 0; j < 16; j += 8) {
		uint64_t word = load8(qs + j);
		store8(ret->code + j, word & EACH(15));
		store8(ret->code + j + 16, word >> 4 & EACH(15));
	}
}

/* Eight bits to eight bytes at once: bit j in byte j alone, then 1 where that byte isn't 0. */
static void read_ones(uint32_t bits, struct gguf_group *ret)
{
	for (uint32_t octet = 0; octet < 4; octet++) {
		uint8_t *code = ret->code + (size_t)octet * 8;
		uint64_t own = EACH(bits >> 8 * octet & 255u) & 0x8040201008040201u;
		uint64_t ones = (own + EACH(0x7f)) >> 7 & EACH(1);
		store8(code, load8(code) | ones << 4);
	}
}

static void read_small(uint32_t type, const uint8_t *p, struct gguf_group *ret)
{
	ret->d = load16(p);
	p += 2;
	if (type == GGUF_TENSOR_Q8_0) {
		memcpy(ret->code, p, 32);
		return;
	}
	if (type == GGUF_TENSOR_Q4_1 || type == GGUF_TENSOR_Q5_1) {
		ret->m = load16(p);
		p += 2;
	}
	if (type == GGUF_TENSOR_Q5_0 || type == GGUF_TENSOR_Q5_1) {
		read_nibbles(p + 4, ret);
		read_ones(load32(p), ret);
	} else {
		read_nibbles(p, ret);
	}
}

/* Q4_K, Q5_K: twelve bytes hold eight 6-bit scales and eight 6-bit offsets; those of groups 4-7 are
 * split into four bits in the last third and two in the tops of the first bytes. */
static void read_k_scales(const uint8_t *s, uint32_t g, struct gguf_group *ret)
{
	if (g < 4) {
		ret->sc[0] = s[g] & 63;
		ret->mn = s[g + 4] & 63;
	} else {
		ret->sc[0] = (uint8_t)((s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
		ret->mn = (uint8_t)(s[g + 4] >> 4 | (s[g] >> 6) << 4);
	}
}

/* Two groups share 32 bytes of nibbles; bit g of byte j of the high bits is group g's. */
static void read_q4_q5_k(uint32_t type, const uint8_t *p, uint32_t g, struct gguf_group *ret)
{
	const bool fifth = type == GGUF_TENSOR_Q5_K;
	const uint8_t *ones = p + 16;
	const uint8_t *qs = p + 16 + (fifth ? 32 : 0) + g / 2 * 32;
	ret->d = load16(p);
	ret->m = load16(p + 2);
	read_k_scales(p + 4, g, ret);
	for (uint32_t j = 0; j < 32; j += 8) {
		uint64_t codes = load8(qs + j) >> g % 2 * 4 & EACH(15);
		if (fifth)
			codes |= (load8(ones + j) >> g & EACH(1)) << 4;
		store8(ret->code + j, codes);
	}
}

/* 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d; four groups (of 128 columns) share
 * 64 bytes of nibbles and 32 of pairs. */
static void read_q6_k(const uint8_t *p, uint32_t g, struct gguf_group *ret)
{
	const uint8_t *ql = p + g / 4 * 64 + g % 2 * 32;
	const uint8_t *qh = p + 128 + g / 4 * 32;
	for (uint32_t j = 0; j < 32; j += 8) {
		uint64_t low = load8(ql + j) >> g % 4 / 2 * 4 & EACH(15);
		uint64_t high = load8(qh + j) >> g % 4 * 2 & EACH(3);
		store8(ret->code + j, low | high << 4);
	}
	ret->sc[0] = p[192 + 2 * g];
	ret->sc[1] = p[193 + 2 * g];
	ret->d = load16(p + 208);
}

bool gguf_block_is_known(uint32_t type)
{
	static const uint32_t known[] = {GGUF_TENSOR_Q4_0, GGUF_TENSOR_Q4_1, GGUF_TENSOR_Q5_0,
					 GGUF_TENSOR_Q5_1, GGUF_TENSOR_Q8_0, GGUF_TENSOR_Q4_K,
					 GGUF_TENSOR_Q5_K, GGUF_TENSOR_Q6_K};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i] == type)
			return true;
	return false;
}

void gguf_group_read(uint32_t type, const void *row, uint32_t group, struct gguf_group *ret_group)
{
	uint32_t elements = 0, bytes = 0;
	gguf_tensor_type_block(type, &elements, &bytes);
	memset(ret_group, 0, sizeof *ret_group);
	if (elements == GGUF_GROUP) {
		read_small(type, (const uint8_t *)row + (size_t)group * bytes, ret_group);
		return;
	}
	const uint8_t *p = (const uint8_t *)row + (size_t)(group / 8) * bytes;
	if (type == GGUF_TENSOR_Q6_K)
		read_q6_k(p, group % 8, ret_group);
	else
		read_q4_q5_k(type, p, group % 8, ret_group);
}

/* What is taken from a code of the types without an offset. */
static int bias_of(uint32_t type)
{
	switch (type) {
	case GGUF_TENSOR_Q4_0:
		return 8;
	case GGUF_TENSOR_Q5_0:
		return 16;
	case GGUF_TENSOR_Q6_K:
		return 32;
	default:
		return 0;
	}
}

void gguf_group_values(uint32_t type, const struct gguf_group *group, float ret_values[GGUF_GROUP])
{
	float d[2], m = 0.0f;
	d[0] = d[1] = f16_to_f32(group->d);
	if (type == GGUF_TENSOR_Q6_K) {
		d[0] *= (float)(int8_t)group->sc[0];
		d[1] *= (float)(int8_t)group->sc[1];
	} else if (type == GGUF_TENSOR_Q4_K || type == GGUF_TENSOR_Q5_K) {
		d[0] = d[1] = d[0] * (float)group->sc[0];
		m = -(f16_to_f32(group->m) * (float)group->mn);
	} else {
		m = f16_to_f32(group->m);
	}
	for (uint32_t i = 0; i < GGUF_GROUP; i++) {
		int code = type == GGUF_TENSOR_Q8_0 ? (int8_t)group->code[i]
						    : (int)group->code[i] - bias_of(type);
		ret_values[i] = fmaf(d[i / 16], (float)code, m);
	}
}

void gguf_row_values(uint32_t type, const void *row, uint32_t cols, float *ret_values)
{
	const uint8_t *bytes = row;
	struct gguf_group group;
	if (type == GGUF_TENSOR_F32) {
		memcpy(ret_values, row, cols * sizeof *ret_values);
	} else if (type == GGUF_TENSOR_F16 || type == GGUF_TENSOR_BF16) {
		for (size_t i = 0; i < cols; i++)
			ret_values[i] = type == GGUF_TENSOR_F16
						? f16_to_f32(load16(bytes + 2 * i))
						: bf16_to_f32(load16(bytes + 2 * i));
	} else {
		for (uint32_t g = 0; g < cols / GGUF_GROUP; g++) {
			gguf_group_read(type, row, g, &group);
			gguf_group_values(type, &group, ret_values + (size_t)g * GGUF_GROUP);
		}
	}
}
