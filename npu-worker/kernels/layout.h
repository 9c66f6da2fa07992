/* npu-worker/kernels/layout.h: the packed weights. A block of 16 rows is a run of groups along the
 * columns; lane r of every array below is row r of the block. The order of the codes serves 16-bit
 * and 8-bit products alike:
 *
 * A group's 32 columns are four octets. The 8 codes of (row, octet) are two 32-bit words of bytes,
 * A with the octet's columns 0 4 1 5 and B with 2 6 3 7. So the even bytes of A and B, taken as
 * 16-bit numbers, are the pairs (0,1) and (2,3), their odd bytes (4,5) and (6,7): 16-bit
 * activations stay in natural order, and 8-bit ones are stored as A B. `slot` numbers the eight
 * words of a row: slot 2*octet is A, 2*octet + 1 is B.
 *
 *   nibbles[octet][row][byte]        low half: A, high half: B
 *   ones[row][byte]                  bit `slot`: bit 4 of the code
 *   twos[slot / 4][row][byte]        bits 2*(slot % 4) and up: bits 4 and 5 of the code
 *   bytes[slot][row][byte]           the code itself
 *
 * weight = scale * (code - bias) + offset, with scale = d, or d*sc in K-quants (exact in float32),
 * offset = m, or
 * -(dmin*mn), and bias 8 (Q4_0), 16 (Q5_0), 32 (Q6_K), else 0. Q8_0's codes are signed. Q6_K has
 * one sc per 16 columns. F32, F16 and BF16 are stored as [column][row]. */
#pragma once
#include <stdint.h>

#include "npu-worker/kernels/kernels.h"

struct block_q4_0 {
	uint16_t d[16];
	uint8_t nibbles[4][16][4];
};
struct block_q4_1 {
	uint8_t nibbles[4][16][4];
	uint16_t d[16], m[16];
};
struct block_q5_0 {
	uint16_t d[16];
	uint8_t ones[16][4];
	uint8_t nibbles[4][16][4];
};
struct block_q5_1 {
	uint8_t ones[16][4];
	uint8_t nibbles[4][16][4];
	uint16_t d[16], m[16];
};
struct block_q8_0 {
	uint16_t d[16];
	int8_t bytes[8][16][4];
};
struct block_q4_k {
	uint16_t d[16], dmin[16];
	struct group_q4_k {
		uint8_t sc[16], mn[16];
		uint8_t nibbles[4][16][4];
	} group[8];
};
struct block_q5_k {
	uint16_t d[16], dmin[16];
	struct group_q5_k {
		uint8_t sc[16], mn[16];
		uint8_t ones[16][4];
		uint8_t nibbles[4][16][4];
	} group[8];
};
struct block_q6_k {
	uint16_t d[16];
	struct group_q6_k {
		int8_t sc[2][16];
		uint8_t twos[2][16][4];
		uint8_t nibbles[4][16][4];
	} group[8];
};
_Static_assert(sizeof(struct block_q4_0) == 16 * 18, "as in the file");
_Static_assert(sizeof(struct block_q4_1) == 16 * 20, "as in the file");
_Static_assert(sizeof(struct block_q5_0) == 16 * 22, "as in the file");
_Static_assert(sizeof(struct block_q5_1) == 16 * 24, "as in the file");
_Static_assert(sizeof(struct block_q8_0) == 16 * 34, "as in the file");
_Static_assert(sizeof(struct block_q4_k) == 16 * 148,
	       "the file's 144 and 4 for scales of whole bytes");
_Static_assert(sizeof(struct block_q5_k) == 16 * 180, "the file's 176 and 4");
_Static_assert(sizeof(struct block_q6_k) == 16 * 210, "as in the file");

struct layout_info {
	uint32_t columns;     /* per block; 1 for the float types */
	uint32_t block_bytes; /* of 16 rows */
	uint32_t file_bytes;  /* of `columns` of one row in the GGUF file */
};
/* NULL for a type without kernels. */
const struct layout_info *layout_info(uint32_t type);

/* The packed bytes of one 16-row block. type: one that layout_info knows, as in all that follows.
 */
size_t layout_stride(uint32_t type, uint32_t cols);
static inline bool layout_is_float(uint32_t type)
{
	return type == GGUF_TENSOR_F32 || type == GGUF_TENSOR_F16 || type == GGUF_TENSOR_BF16;
}

/* One row's group of 32 columns, as plainly as can be; what every formula is written with. */
struct layout_group {
	int16_t w[32];		     /* code - bias, in column order */
	float d[2];		     /* scales of columns 0-15 and 16-31; equal except in Q6_K */
	float m;		     /* offset */
	bool has_offset, has_halves; /* Q4_1 Q5_1 Q4_K Q5_K; Q6_K */
};
/* block: of the row's 16-row block; row 0..15; group: along the columns. Quantised types only. */
void layout_group_read(uint32_t type, const void *block, uint32_t row, uint32_t group,
		       struct layout_group *ret);
/* The 32 weights in float32: fma(scale, w, offset), or scale * w; exact but for that one rounding.
 */
void layout_group_values(const struct layout_group *group, float ret_values[32]);
/* Weight `col` of a float type. */
float layout_float(uint32_t type, const void *block, uint32_t row, uint32_t col);

/* Column of an octet that byte `byte` of word A (0) or B (1) holds. */
static inline uint32_t layout_column(uint32_t word, uint32_t byte)
{
	return 2 * word + (byte >> 1) + 4 * (byte & 1);
}
