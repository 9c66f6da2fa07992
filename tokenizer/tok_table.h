/* tokenizer/tok_table.h: two look-up tables over bytes: a hash map from token text to id, and a
 * trie. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/span.h"

/* A token while it is loaded and afterwards. */
struct tok_entry {
	struct span text; /* as it is matched: raw bytes of a byte-level token, "▁" kept; ptr NULL:
			     a hole */
	double score;	  /* SentencePiece's; 0 else */
	uint8_t flags;	  /* enum vocab_flag */
	bool spelled;	  /* part of the model's own vocabulary: merges may name it */
	bool makeable;	  /* and the model can make it out of text: control tokens never */
};

struct tok_map_slot {
	uint32_t tag; /* of the hash */
	int32_t id;   /* -1: empty */
};

struct tok_map {
	struct tok_map_slot *slots;
	uint32_t mask;
	size_t max_len; /* of the texts in it */
	const struct tok_entry *entries;
};

/* For up to count texts out of entries, in the arena's memory. false: no memory. */
bool tok_map_init(struct tok_map *map, struct arena *arena, const struct tok_entry *entries,
		  size_t count);
/* Puts entries[id].text in, unless that text is there already: returns the id it is there under,
 * else -1. */
int32_t tok_map_put(struct tok_map *map, int32_t id);
/* -1: not there. */
int32_t tok_map_get(const struct tok_map *map, struct span text);
/* The same in two steps, for many texts: seek them all, and their places come from memory side by
 * side. Returns what tok_map_get_sought wants. */
uint64_t tok_map_seek(const struct tok_map *map, struct span text);
int32_t tok_map_get_sought(const struct tok_map *map, struct span text, uint64_t sought);

#define TOK_TRIE_MAX_NODES ((1u << 24) - 1)

struct tok_trie_edge {
	uint32_t key; /* 1 + (node << 8 | byte); 0: empty */
	uint32_t child;
};

struct tok_trie {
	struct tok_trie_edge *edges;
	uint32_t mask;
	uint32_t n_nodes;
	int32_t *values; /* per node, -1: no text ends here */
	size_t value_room;
};

/* Makes an empty trie fit to be walked. false: no memory. */
bool tok_trie_begin(struct tok_trie *trie);
/* value >= 0. false: no memory, or too many nodes. A text that is there already keeps its value. */
bool tok_trie_put(struct tok_trie *trie, struct span text, int32_t value);
void tok_trie_free(struct tok_trie *trie);

/* The child of node by byte, 0 if there is none (the root is 0 and nobody's child). */
static inline uint32_t tok_trie_step(const struct tok_trie *trie, uint32_t node, unsigned char byte)
{
	uint32_t key = 1 + (node << 8 | byte);
	for (uint32_t i = key * 2654435761u >> 7;; i++) {
		const struct tok_trie_edge *edge = &trie->edges[i & trie->mask];
		if (edge->key == key)
			return edge->child;
		if (edge->key == 0)
			return 0;
	}
}
