#include "shm/prefix.h"

#include <string.h>
#include <time.h>

#include <xxhash.h>

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

struct prefix_key prefix_start(const uint64_t identity[2])
{
	return (struct prefix_key){identity[0], identity[1]};
}

struct prefix_key prefix_next(struct prefix_key before, const int32_t *tokens)
{
	struct {
		struct prefix_key before;
		int32_t tokens[PAGE_POSITIONS];
	} content;
	content.before = before;
	memcpy(content.tokens, tokens, sizeof content.tokens);
	XXH128_hash_t hash = XXH3_128bits(&content, sizeof content);
	return (struct prefix_key){hash.low64, hash.high64};
}

static uint64_t checksum(const struct shm_run *run, uint32_t page)
{
	const void *bytes = run_page(run, page);
	return bytes ? XXH3_64bits(bytes, run->page_bytes) : 0;
}

bool prefix_is_sealed(const struct shm_run *run, uint32_t page)
{
	uint64_t sealed = atomic_load_explicit(&run->page_seals[page].sealed, memory_order_acquire);
	return sealed != 0 && sealed == page_generation(run, page);
}

void prefix_seal(struct shm_run *run, uint32_t page, struct prefix_key key)
{
	if (page >= run->n_pages || prefix_is_sealed(run, page))
		return;
	struct page_seal *seal = &run->page_seals[page];
	/* Unfindable while it changes; the generation goes last. */
	atomic_store(&seal->sealed, 0);
	atomic_store(&seal->key_low, key.low);
	atomic_store(&seal->key_high, key.high);
	atomic_store(&seal->checksum, checksum(run, page));
	atomic_store(&seal->used_us, now_us());
	atomic_store_explicit(&seal->sealed, page_generation(run, page), memory_order_release);
}

static bool matches(const struct shm_run *run, uint32_t page, struct prefix_key key)
{
	const struct page_seal *seal = &run->page_seals[page];
	return atomic_load_explicit(&seal->key_low, memory_order_relaxed) == key.low &&
	       atomic_load_explicit(&seal->key_high, memory_order_relaxed) == key.high &&
	       prefix_is_sealed(run, page);
}

uint32_t prefix_find(struct shm_run *run, struct prefix_key key)
{
	for (uint32_t page = 0; page < run->n_pages; page++) {
		if (!matches(run, page, key))
			continue;
		bool was_mine = page_is_mine(run, page);
		if (!page_hold(run, page))
			continue;
		/* It may have been freed and filled anew between the look and the hold. */
		bool same = matches(run, page, key);
		if (same && checksum(run, page) == atomic_load(&run->page_seals[page].checksum)) {
			atomic_store(&run->page_seals[page].used_us, now_us());
			return page;
		}
		if (same)
			atomic_store(&run->page_seals[page].sealed, 0);
		if (!was_mine)
			page_drop(run, page);
	}
	return PAGE_NONE;
}

uint32_t prefix_oldest(const struct shm_run *run, const uint8_t *may_go)
{
	uint32_t oldest = PAGE_NONE;
	uint64_t oldest_us = UINT64_MAX;
	for (uint32_t page = 0; page < run->n_pages; page++) {
		uint64_t used_us =
			atomic_load_explicit(&run->page_seals[page].used_us, memory_order_relaxed);
		if (may_go[page] && prefix_is_sealed(run, page) && used_us < oldest_us) {
			oldest_us = used_us;
			oldest = page;
		}
	}
	return oldest;
}
