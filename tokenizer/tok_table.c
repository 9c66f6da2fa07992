#include "tokenizer/tok_table.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* At most half full. */
static uint32_t slots_for(size_t count)
{
	uint32_t slots = 16;
	while (slots < 2 * count)
		slots *= 2;
	return slots;
}

bool tok_map_init(struct tok_map *map, struct arena *arena, const struct tok_entry *entries,
		  size_t count)
{
	uint32_t n = slots_for(count);
	*map = (struct tok_map){.mask = n - 1, .entries = entries};
	map->slots = arena_alloc(arena, n * sizeof *map->slots);
	for (uint32_t i = 0; map->slots && i < n; i++)
		map->slots[i].id = -1;
	return map->slots != NULL;
}

static uint64_t hash_of(struct span text)
{
	return XXH3_64bits(text.ptr, text.len);
}

static uint32_t tag_of(uint64_t hash)
{
	return (uint32_t)(hash >> 32);
}

/* The slot that holds text, or the empty one where it belongs. */
static struct tok_map_slot *find(const struct tok_map *map, struct span text, uint64_t hash)
{
	for (uint32_t i = (uint32_t)hash;; i++) {
		struct tok_map_slot *slot = &map->slots[i & map->mask];
		if (slot->id < 0)
			return slot;
		if (slot->tag == tag_of(hash) && span_equal(map->entries[slot->id].text, text))
			return slot;
	}
}

int32_t tok_map_put(struct tok_map *map, int32_t id)
{
	struct span text = map->entries[id].text;
	uint64_t hash = hash_of(text);
	struct tok_map_slot *slot = find(map, text, hash);
	if (slot->id >= 0)
		return slot->id;
	*slot = (struct tok_map_slot){tag_of(hash), id};
	if (text.len > map->max_len)
		map->max_len = text.len;
	return -1;
}

uint64_t tok_map_seek(const struct tok_map *map, struct span text)
{
	uint64_t hash = hash_of(text);
	__builtin_prefetch(&map->slots[hash & map->mask]);
	return hash;
}

int32_t tok_map_get_sought(const struct tok_map *map, struct span text, uint64_t sought)
{
	return find(map, text, sought)->id;
}

int32_t tok_map_get(const struct tok_map *map, struct span text)
{
	return text.len > map->max_len ? -1 : find(map, text, hash_of(text))->id;
}

static bool grow_edges(struct tok_trie *trie)
{
	uint32_t n = trie->edges ? 2 * (trie->mask + 1) : 64;
	struct tok_trie_edge *edges = calloc(n, sizeof *edges), *old = trie->edges;
	if (!edges)
		return false;
	uint32_t n_old = old ? trie->mask + 1 : 0;
	for (uint32_t i = 0; i < n_old; i++) {
		if (!old[i].key)
			continue;
		uint32_t at = old[i].key * 2654435761u >> 7;
		while (edges[at & (n - 1)].key)
			at++;
		edges[at & (n - 1)] = old[i];
	}
	free(old);
	trie->edges = edges;
	trie->mask = n - 1;
	return true;
}

static bool grow_values(struct tok_trie *trie)
{
	size_t room = trie->value_room ? 2 * trie->value_room : 64;
	int32_t *values = realloc(trie->values, room * sizeof *values);
	if (!values)
		return false;
	trie->values = values;
	trie->value_room = room;
	return true;
}

static bool add_node(struct tok_trie *trie, uint32_t *ret_node)
{
	if (trie->n_nodes == TOK_TRIE_MAX_NODES)
		return false;
	if (trie->n_nodes == trie->value_room && !grow_values(trie))
		return false;
	if ((!trie->edges || 2 * trie->n_nodes > trie->mask) && !grow_edges(trie))
		return false;
	trie->values[trie->n_nodes] = -1;
	*ret_node = trie->n_nodes++;
	return true;
}

bool tok_trie_begin(struct tok_trie *trie)
{
	uint32_t root;
	return trie->n_nodes > 0 || add_node(trie, &root);
}

bool tok_trie_put(struct tok_trie *trie, struct span text, int32_t value)
{
	uint32_t node = 0, child;
	if (!tok_trie_begin(trie))
		return false;
	for (size_t i = 0; i < text.len; i++, node = child) {
		unsigned char byte = (unsigned char)text.ptr[i];
		child = tok_trie_step(trie, node, byte);
		if (child)
			continue;
		if (!add_node(trie, &child))
			return false;
		uint32_t key = 1 + (node << 8 | byte), at = key * 2654435761u >> 7;
		while (trie->edges[at & trie->mask].key)
			at++;
		trie->edges[at & trie->mask] = (struct tok_trie_edge){key, child};
	}
	if (trie->values[node] < 0)
		trie->values[node] = value;
	return true;
}

void tok_trie_free(struct tok_trie *trie)
{
	free(trie->edges);
	free(trie->values);
	*trie = (struct tok_trie){0};
}
