/* tests/fuzz/tile_fuzz.c: any bytes as a tile of every form: what is read and written back is the
 * same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/tile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tile tile;
	uint8_t bytes[TILE_MAX_BYTES] = {0}, back[TILE_MAX_BYTES];
	memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
	for (int form = TILE_A; form < TILE_FORM_COUNT; form++) {
		tile_read((enum tile_form)form, bytes, &tile);
		if (form == TILE_Q4K)
			continue;
		tile_write((enum tile_form)form, &tile, back);
		if (memcmp(bytes, back, tile_form_bytes((enum tile_form)form)) != 0)
			abort();
	}
	return 0;
}
