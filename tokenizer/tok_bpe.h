/* tokenizer/tok_bpe.h: the merges of a byte pair encoding. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOK_NO_RANK UINT32_MAX

struct tok_merge {
	uint32_t left, right;
	uint32_t rank; /* TOK_NO_RANK: an empty place of the table */
	uint32_t result;
};

struct tok_bpe {
	struct tok_merge *table; /* hash table by (left, right), at most half full */
	uint32_t mask;
	uint32_t *slots; /* rank -> index into table */
	uint32_t n_merges;
	bool byte_level;    /* symbols are bytes, not characters */
	bool byte_fallback; /* characters without a token are spelled by the tokens of their bytes
			     */
	bool fuse_unk;	    /* unknown characters in a row are one unknown token */
	bool ignore_merges; /* a word that is a token is that token, whatever the merges say */
};

static inline uint32_t tok_merge_hash(uint32_t left, uint32_t right)
{
	uint64_t key = (uint64_t)left << 32 | right;
	return (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32);
}

/* NULL: these two don't merge. */
static inline const struct tok_merge *tok_merge_find(const struct tok_bpe *bpe, uint32_t left,
						     uint32_t right)
{
	for (uint32_t i = tok_merge_hash(left, right);; i++) {
		const struct tok_merge *merge = &bpe->table[i & bpe->mask];
		if (merge->rank == TOK_NO_RANK)
			return NULL;
		if (merge->left == left && merge->right == right)
			return merge;
	}
}
