/* Where a pack's tiles lie. Two functions in opposite directions, written apart: the import uses
 * one, its check the other. */
#include "model/pack_private.h"
#include "model/tile.h"

uint32_t pack_tile_at(const struct pack_matrix *matrix, uint32_t place)
{
	uint32_t width = matrix->cols / TILE_COLS, pair = 2 * width;
	uint32_t first = place / pair * pair, within = place % pair;
	if (first + pair > matrix->n_tiles) /* an odd strip at the end has no partner */
		return place;
	return first + within / 2 + within % 2 * width;
}

uint32_t pack_place_of(const struct pack_matrix *matrix, uint32_t tile)
{
	uint32_t width = matrix->cols / TILE_COLS, strips = matrix->rows / TILE_ROWS;
	uint32_t strip = tile / width, column = tile % width;
	if (strip % 2 == 0 && strip + 1 == strips)
		return tile;
	return strip / 2 * 2 * width + column * 2 + strip % 2;
}

/* First tile of a layer's file that belongs to the runs of attention before this one. */
static uint64_t attention_start(const struct pack *pack, uint32_t matrix)
{
	uint64_t at = 0;
	for (uint32_t i = 0; i < 3 && pack->layout.attention[i] != matrix; i++)
		at += pack->matrices[pack->layout.attention[i]].n_tiles;
	return at;
}

static uint64_t mlp_place(const struct pack *pack, uint32_t matrix, uint32_t place)
{
	uint32_t chunk = pack->layout.chunk_tiles, n = pack->matrices[PACK_UP].n_tiles;
	uint32_t group = place / chunk, left = n - group * chunk;
	bool second = (matrix == PACK_UP) != pack->layout.up_first;
	return (uint64_t)2 * group * chunk + (second ? (left < chunk ? left : chunk) : 0) +
	       place % chunk;
}

uint64_t pack_offset(const struct pack *pack, uint32_t matrix, uint32_t tile)
{
	const struct pack_matrix *m = pack->matrices;
	uint64_t place = pack_place_of(&m[matrix], tile), mlp = pack->derived.attention_tiles;
	switch (matrix) {
	case PACK_O:
		place += mlp - m[PACK_O].n_tiles;
		break;
	case PACK_GATE:
	case PACK_UP:
		place = mlp + mlp_place(pack, matrix, (uint32_t)place);
		break;
	case PACK_DOWN:
		place += mlp + m[PACK_GATE].n_tiles + m[PACK_UP].n_tiles;
		break;
	default:
		place += attention_start(pack, matrix);
	}
	return place * PACK_TILE_BYTES;
}

uint32_t pack_vector_bytes(const struct pack *pack, uint32_t v)
{
	return 2 * hf_width(&pack->config, pack->vectors[v]->cols);
}

uint64_t pack_vector_offset(const struct pack *pack, uint32_t v)
{
	uint64_t at = pack->layer_tiles * PACK_TILE_BYTES;
	for (uint32_t i = 0; i < v; i++)
		at += pack_vector_bytes(pack, i);
	return at;
}
