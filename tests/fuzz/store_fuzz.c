/* tests/fuzz/store_fuzz.c: any bytes as the file of a KV page. What is accepted must hold the page
 * of that key, and decoding it again must give the same. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu-worker/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PAGE_BYTES = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct store *store;
	static uint8_t page[PAGE_BYTES], same[PAGE_BYTES];
	struct svc_err err;
	char dir[] = "/dev/shm/lockstep-store-fuzz-XXXXXX";
	const struct prefix_key key = {0x1122334455667788u, 0x99aabbccddeeff00u};
	if (!store) {
		if (!mkdtemp(dir))
			abort();
		const struct store_options options = {
			.dir = dir, .limit_bytes = 1 << 20, .page_bytes = PAGE_BYTES};
		if (store_open(&options, &store, &err) != SVC_OK)
			abort();
		rmdir(dir);
	}
	if (!store_decode(store, data, size, key, page))
		return 0;
	if (!store_decode(store, data, size, key, same) || memcmp(page, same, sizeof page) != 0)
		abort();
	/* The key is part of what is checked. */
	if (store_decode(store, data, size, (struct prefix_key){1, 2}, same))
		abort();
	return 0;
}
