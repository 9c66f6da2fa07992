/* shm/prefix.h: finding KV pages by content. A full page is sealed when the step that filled it was
 * committed: from then on it is immutable and can be found by its key, a hash over everything that
 * its bytes depend on: the identity of model, family and layout, and all token ids from position 0
 * to its end. Pages of equal key have equal bytes, so sharing one changes nothing but the time. */
#pragma once
#include <stdbool.h>

#include "shm/page.h"
#include "shm/run.h"

struct prefix_key {
	uint64_t low, high;
};

/* The key before the first page. identity: of all that pages depend on beside the tokens. */
struct prefix_key prefix_start(const uint64_t identity[2]);
/* The key of the page that follows `before` and holds these PAGE_POSITIONS tokens. */
struct prefix_key prefix_next(struct prefix_key before, const int32_t *tokens);

/* Makes a full, committed page that I hold findable. Does nothing if it is sealed already. */
void prefix_seal(struct shm_run *run, uint32_t page, struct prefix_key key);
bool prefix_is_sealed(const struct shm_run *run, uint32_t page);
/* A sealed page of this key, held by me from now on and its checksum verified; PAGE_NONE if there
 * is none. A page whose checksum fails is unsealed and never returned. */
uint32_t prefix_find(struct shm_run *run, struct prefix_key key);
/* Of the pages that `may_go` marks (n_pages bytes), the sealed one that wasn't used for longest. */
uint32_t prefix_oldest(const struct shm_run *run, const uint8_t *may_go);
