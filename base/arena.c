#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

struct arena_block {
	struct arena_block *next;
	size_t size, used;
	_Alignas(16) unsigned char bytes[];
};

void arena_init(struct arena *arena, size_t limit_bytes)
{
	*arena = (struct arena){.limit_bytes = limit_bytes};
}

void *arena_alloc(struct arena *arena, size_t size)
{
	if (size > SIZE_MAX / 4)
		return NULL;
	size = (size + 15) & ~(size_t)15;
	if (arena->limit_bytes &&
	    (size > arena->limit_bytes || arena->used_bytes > arena->limit_bytes - size))
		return NULL;
	struct arena_block *block = arena->blocks;
	if (!block || block->size - block->used < size) {
		size_t room = size > 16384 ? size : 16384;
		block = calloc(1, sizeof *block + room);
		if (!block)
			return NULL;
		block->size = room;
		block->next = arena->blocks;
		arena->blocks = block;
	}
	void *result = block->bytes + block->used;
	block->used += size;
	arena->used_bytes += size;
	return result;
}

char *arena_copy(struct arena *arena, struct span text)
{
	char *copy = arena_alloc(arena, text.len + 1);
	if (copy && text.len)
		memcpy(copy, text.ptr, text.len);
	return copy;
}

void arena_free(struct arena *arena)
{
	for (struct arena_block *block = arena->blocks; block;) {
		struct arena_block *next = block->next;
		free(block);
		block = next;
	}
	arena->blocks = NULL;
	arena->used_bytes = 0;
}
