/* model/gguf_block.h: the blocks of GGUF's quantised types, one row and 32 columns (a group) at a
 * time, in one plain form for every type. The types are those with kernels: Q4_0 Q4_1 Q5_0 Q5_1
 * Q8_0 Q4_K Q5_K Q6_K. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { GGUF_GROUP = 32 };

struct gguf_group {
	uint8_t code[GGUF_GROUP]; /* as stored; Q8_0's are int8 */
	uint16_t d, m;		  /* float16: scale and offset, or d and dmin of a K-quant */
	uint8_t sc[2], mn;	  /* a K-quant's integers */
};

bool gguf_block_is_known(uint32_t type);
/* row: the row's bytes in the file; group: which 32 columns. type must be known. */
void gguf_group_read(uint32_t type, const void *row, uint32_t group, struct gguf_group *ret_group);
/* The group's 32 weights in float32, one rounding each (two for a K-quant's offset). */
void gguf_group_values(uint32_t type, const struct gguf_group *group, float ret_values[GGUF_GROUP]);
/* cols values of a row of any type that is known, or F32, F16, BF16. */
void gguf_row_values(uint32_t type, const void *row, uint32_t cols, float *ret_values);
