/* npu-worker/store.h: KV pages on disk. What falls out of memory, and what is there when the
 * pipeline stops, can be read back by its content's key instead of being computed again: the same
 * bytes. A folder of files, one page each: a header with the key and a checksum of everything, then
 * an LZ4 frame. No index: a look-up is an open, several npu-workers may share the folder, and what
 * isn't exactly what it should be is removed and computed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "shm/prefix.h"

struct store;

struct store_options {
	const char *dir;      /* made if it isn't there (0700); borrowed while the store is open */
	uint64_t limit_bytes; /* of all its files; the longest unused go first */
	size_t page_bytes;
	void (*beat)(void *context); /* called while many files are looked through; NULL is fine */
	void *context;
};

/* SVC_BAD_CONFIG if the folder can't be made or written to. */
SVC_CHECKED enum svc_code store_open(const struct store_options *options, struct store **ret_store,
				     struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct store *store_close(struct store *store);

/* Fills page[page_bytes] with the page of that key. false: it isn't there, or was damaged (then it
 * is gone now); page holds nothing of worth. */
bool store_load(struct store *store, struct prefix_key key, void *page);
/* Does nothing if it is there. What can't be written (a full disk) is logged, and not there. */
void store_save(struct store *store, struct prefix_key key, const void *page);

/* ---- for tests */

/* Does file[bytes] hold the page of that key? Fills page[page_bytes] if so. */
bool store_decode(struct store *store, const void *file, size_t bytes, struct prefix_key key,
		  void *page);
