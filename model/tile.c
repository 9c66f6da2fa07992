#include "model/tile.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"

enum { SCALE_BYTES = TILE_GROUPS * TILE_ROWS * 2, HALF_ROWS = 16 };

static const struct {
	const char *name;
	uint32_t bytes;
} forms[TILE_FORM_COUNT] = {
	[TILE_A] = {"A", TILE_Q4_BYTES},       [TILE_B] = {"B", TILE_Q4_BYTES},
	[TILE_C] = {"C", TILE_Q4_BYTES},       [TILE_D] = {"D", TILE_Q4_BYTES},
	[TILE_Q8A] = {"Q8-a", TILE_Q8_BYTES},  [TILE_Q8B] = {"Q8-b", TILE_Q8_BYTES},
	[TILE_Q4K] = {"Q4_K", TILE_Q4K_BYTES},
};

const char *tile_form_name(enum tile_form form)
{
	return form < TILE_FORM_COUNT ? forms[form].name : "?";
}

uint32_t tile_form_bytes(enum tile_form form)
{
	return form < TILE_FORM_COUNT ? forms[form].bytes : 0;
}

/* The plane's words are little-endian, and so is the host (gguf.c asserts it). */
static void read_scales(bool by_row, const uint8_t *bytes, uint16_t plane[TILE_GROUPS][TILE_ROWS])
{
	if (!by_row) {
		memcpy(plane, bytes, SCALE_BYTES);
		return;
	}
	for (uint32_t r = 0; r < TILE_ROWS; r++)
		for (uint32_t g = 0; g < TILE_GROUPS; g++)
			memcpy(&plane[g][r], bytes + 2 * (r * TILE_GROUPS + g), 2);
}

static void write_scales(bool by_row, const uint16_t plane[TILE_GROUPS][TILE_ROWS], uint8_t *bytes)
{
	if (!by_row) {
		memcpy(bytes, plane, SCALE_BYTES);
		return;
	}
	for (uint32_t r = 0; r < TILE_ROWS; r++)
		for (uint32_t g = 0; g < TILE_GROUPS; g++)
			memcpy(bytes + 2 * (r * TILE_GROUPS + g), &plane[g][r], 2);
}

/* Two halves of 16 rows; in each, a column is 8 bytes, the even row in the low nibble. */
static void read_nibbles(const uint8_t *codes, struct tile *tile)
{
	for (uint32_t r = 0; r < TILE_ROWS; r += 2) {
		const uint8_t *at = codes + r / HALF_ROWS * 2048 + r % HALF_ROWS / 2;
		for (uint32_t c = 0; c < TILE_COLS; c++) {
			tile->q[r][c] = at[c * 8] & 15;
			tile->q[r + 1][c] = at[c * 8] >> 4;
		}
	}
}

static void write_nibbles(const struct tile *tile, uint8_t *codes)
{
	for (uint32_t r = 0; r < TILE_ROWS; r += 2) {
		uint8_t *at = codes + r / HALF_ROWS * 2048 + r % HALF_ROWS / 2;
		for (uint32_t c = 0; c < TILE_COLS; c++)
			at[c * 8] = (uint8_t)((tile->q[r][c] & 15) | tile->q[r + 1][c] << 4);
	}
}

static uint32_t byte_index(enum tile_form form, uint32_t r, uint32_t c)
{
	return form == TILE_Q8B ? c * TILE_ROWS + r
				: r / HALF_ROWS * 4096 + c * HALF_ROWS + r % HALF_ROWS;
}

/* 8-bit scale and offset per group and row, one bf16 pair per row over them; all 32 rows of a
 * column lie together. */
static void read_q4k(const uint8_t *bytes, struct tile *tile)
{
	const uint8_t *scale = bytes, *min = bytes + 256, *codes = bytes + 512;
	for (uint32_t r = 0; r < TILE_ROWS; r++) {
		uint16_t s16, m16;
		memcpy(&s16, bytes + 4608 + 2 * r, 2);
		memcpy(&m16, bytes + 4672 + 2 * r, 2);
		for (uint32_t g = 0; g < TILE_GROUPS; g++) {
			float s = bf16_to_f32(s16) * (float)scale[g * TILE_ROWS + r];
			float m = bf16_to_f32(m16) * (float)min[g * TILE_ROWS + r];
			tile->d[g][r] = bf16_from_f32(s);
			tile->m[g][r] = bf16_from_f32(m);
		}
		for (uint32_t c = 0; c < TILE_COLS; c++)
			tile->q[r][c] = codes[c * 16 + r / 2] >> 4 * (r % 2) & 15;
	}
}

void tile_read(enum tile_form form, const uint8_t *bytes, struct tile *ret_tile)
{
	if (form == TILE_Q4K) {
		read_q4k(bytes, ret_tile);
		return;
	}
	read_scales(form == TILE_D, bytes, ret_tile->d);
	if (form == TILE_Q8A || form == TILE_Q8B) {
		memset(ret_tile->m, 0, sizeof ret_tile->m);
		for (uint32_t r = 0; r < TILE_ROWS; r++)
			for (uint32_t c = 0; c < TILE_COLS; c++)
				ret_tile->q[r][c] = bytes[SCALE_BYTES + byte_index(form, r, c)];
		return;
	}
	read_scales(form == TILE_D, bytes + SCALE_BYTES, ret_tile->m);
	read_nibbles(bytes + 2 * (size_t)SCALE_BYTES, ret_tile);
}

void tile_write(enum tile_form form, const struct tile *tile, uint8_t *ret_bytes)
{
	write_scales(form == TILE_D, tile->d, ret_bytes);
	if (form == TILE_Q8A || form == TILE_Q8B) {
		for (uint32_t r = 0; r < TILE_ROWS; r++)
			for (uint32_t c = 0; c < TILE_COLS; c++)
				ret_bytes[SCALE_BYTES + byte_index(form, r, c)] = tile->q[r][c];
		return;
	}
	write_scales(form == TILE_D, tile->m, ret_bytes + SCALE_BYTES);
	write_nibbles(tile, ret_bytes + 2 * (size_t)SCALE_BYTES);
}

float tile_value(enum tile_form form, const struct tile *tile, uint32_t row, uint32_t col)
{
	float d = bf16_to_f32(tile->d[col / 32][row]), m = bf16_to_f32(tile->m[col / 32][row]);
	int q = tile->q[row][col];
	switch (form) {
	case TILE_B:
	case TILE_D:
		return d * (float)((q ^ 8) - 8);
	case TILE_C:
		return d * ((float)q - m);
	case TILE_Q8A:
	case TILE_Q8B:
		return d * (float)(int8_t)q;
	case TILE_A:
	case TILE_Q4K:
	case TILE_FORM_COUNT:
		break;
	}
	return fmaf(d, (float)q, m);
}

bool tile_has_no_offset(const uint8_t *bytes)
{
	uint16_t seen = 0;
	for (uint32_t i = 0; i < SCALE_BYTES; i += 2) {
		uint16_t m;
		memcpy(&m, bytes + SCALE_BYTES + i, 2);
		seen |= m;
	}
	return (seen & 0x7fff) == 0;
}
