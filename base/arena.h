/* base/arena.h: memory with one lifetime (a request, a load): many allocations, one free, an upper
 * limit. Not for several threads at once. */
#pragma once
#include <stddef.h>

#include "base/span.h"

struct arena {
	struct arena_block *blocks;
	size_t used_bytes;  /* over all blocks */
	size_t limit_bytes; /* 0: none */
};

void arena_init(struct arena *arena, size_t limit_bytes);
/* Zeroed, 16-byte aligned. NULL when the limit or memory is exhausted. */
void *arena_alloc(struct arena *arena, size_t size) __attribute__((malloc, alloc_size(2)));
/* A terminated copy of text; NULL as arena_alloc. */
char *arena_copy(struct arena *arena, struct span text);
/* Frees everything; the arena can be used again. */
void arena_free(struct arena *arena);
