/* tests/fuzz/pack_fuzz.c: any bytes as the pack.json of a pack. */
#include <stdint.h>

#include "model/pack_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pack_layout layout;
	json_error_t where;
	struct svc_err err;
	json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &where);
	if (root && pack_layout_read(root, &layout, &err) == SVC_OK &&
	    (layout.n_vectors > PACK_MAX_VECTORS || !layout.chunk_tiles))
		__builtin_trap();
	json_decref(root);
	return 0;
}
