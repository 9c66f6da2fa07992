/* model/tile.h: Q4NX's tiles, 32 output rows x 256 input columns of a matrix, and their four
 * meanings (docs/formats.md). Pure functions over bytes; nothing here fails. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
	TILE_ROWS = 32,
	TILE_COLS = 256,
	TILE_GROUPS = 8, /* of 32 columns */
	TILE_Q4_BYTES = 5120,
	TILE_Q8_BYTES = 8704,
	TILE_Q4K_BYTES = 4736,
	TILE_MAX_BYTES = TILE_Q8_BYTES
};

/* What a tile's bytes mean. A, C and B, D cannot be told apart by looking at one tile. */
enum tile_form {
	TILE_A,	  /* d*q + m, q 0..15 */
	TILE_B,	  /* d*q, q -8..7, m plane zero */
	TILE_C,	  /* d*(q - z), q 0..15, the m plane holds z */
	TILE_D,	  /* as B, scales row by row instead of group by group */
	TILE_Q8A, /* d*q, q int8, a column's 16 rows together */
	TILE_Q8B, /* as Q8A, a column's 32 rows together */
	TILE_Q4K, /* S*scale*q + M*min; read as A */
	TILE_FORM_COUNT
};

/* One tile, unpacked. d, m: bf16. q: as stored (a nibble, or the bits of an int8). */
struct tile {
	uint16_t d[TILE_GROUPS][TILE_ROWS], m[TILE_GROUPS][TILE_ROWS];
	uint8_t q[TILE_ROWS][TILE_COLS];
};

/* "A", "Q8-a", ... */
const char *tile_form_name(enum tile_form form);
uint32_t tile_form_bytes(enum tile_form form);

/* Any tile_form_bytes() bytes are a tile, and writing what was read gives the same bytes back (but
 * for TILE_Q4K, whose scales become bf16: it is read only). */
void tile_read(enum tile_form form, const uint8_t *bytes, struct tile *ret_tile);
void tile_write(enum tile_form form, const struct tile *tile, uint8_t *ret_bytes);

/* The weight at (row, col) in float32: one fma. */
float tile_value(enum tile_form form, const struct tile *tile, uint32_t row, uint32_t col);
/* Every m of a 4-bit tile's bytes is +0 or -0. */
bool tile_has_no_offset(const uint8_t *bytes);
