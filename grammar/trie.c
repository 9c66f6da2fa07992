#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

struct piece {
	struct span bytes;
	uint32_t id;
};

static int piece_compare(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	size_t n = x->bytes.len < y->bytes.len ? x->bytes.len : y->bytes.len;
	int order = memcmp(x->bytes.ptr, y->bytes.ptr, n);
	if (order == 0)
		order = (x->bytes.len > y->bytes.len) - (x->bytes.len < y->bytes.len);
	return order ? order : (x->id > y->id) - (x->id < y->id);
}

static size_t shared(struct span a, struct span b)
{
	size_t n = 0;
	while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
		n++;
	return n;
}

/* Nodes that the pieces, in order, need; at most one for each byte. */
static size_t nodes_count(const struct piece *pieces, size_t n)
{
	size_t nodes = 0;
	for (size_t i = 0; i < n; i++)
		nodes += pieces[i].bytes.len -
			 (i ? shared(pieces[i - 1].bytes, pieces[i].bytes) : 0);
	return nodes;
}

static void nodes_fill(struct gr_trie *trie, const struct piece *pieces, size_t n)
{
	uint32_t open[GR_TOKEN_BYTES_MAX], node = 0;
	size_t depth = 0;
	for (size_t i = 0; i < n; i++) {
		struct span bytes = pieces[i].bytes;
		size_t kept = i ? shared(pieces[i - 1].bytes, bytes) : 0;
		while (depth > kept)
			trie->skip[open[--depth]] = node;
		for (; depth < bytes.len; depth++, node++) {
			trie->byte[node] = (uint8_t)bytes.ptr[depth];
			trie->depth[node] = (uint16_t)(depth + 1);
			trie->token[node] = (uint32_t)i;
			open[depth] = node;
		}
		trie->tokens[i] = pieces[i].id;
		trie->depth_max = depth > trie->depth_max ? (uint32_t)depth : trie->depth_max;
	}
	while (depth)
		trie->skip[open[--depth]] = node;
	trie->token[node] = (uint32_t)n;
	/* A node that only leads on has no tokens: its first is that of the node behind it. */
}

static enum svc_code trie_fill(struct gr_trie *trie, struct piece *pieces, size_t n,
			       struct svc_err *err)
{
	if (n)
		qsort(pieces, n, sizeof *pieces, piece_compare);
	size_t nodes = nodes_count(pieces, n);
	trie->n_nodes = (uint32_t)nodes;
	trie->n_tokens = (uint32_t)n;
	trie->skip = malloc((nodes + 1) * sizeof *trie->skip);
	trie->token = malloc((nodes + 1) * sizeof *trie->token);
	trie->tokens = malloc((n + 1) * sizeof *trie->tokens);
	trie->byte = malloc(nodes + 1);
	trie->depth = malloc((nodes + 1) * sizeof *trie->depth);
	if (!trie->skip || !trie->token || !trie->tokens || !trie->byte || !trie->depth ||
	    nodes > UINT32_MAX / 2)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %zu tokens by bytes",
				n);
	nodes_fill(trie, pieces, n);
	return SVC_OK;
}

enum svc_code gr_trie_open(const struct span *pieces, uint32_t n_vocab, struct gr_trie **ret_trie,
			   struct svc_err *err)
{
	struct gr_trie *trie = calloc(1, sizeof *trie);
	struct piece *kept = malloc((n_vocab + (size_t)1) * sizeof *kept);
	size_t n = 0;
	if (!trie || !kept) {
		free(trie);
		free(kept);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %u tokens by bytes",
				n_vocab);
	}
	for (uint32_t id = 0; id < n_vocab; id++)
		if (pieces[id].len && pieces[id].len <= GR_TOKEN_BYTES_MAX)
			kept[n++] = (struct piece){pieces[id], id};
	enum svc_code code = trie_fill(trie, kept, n, err);
	free(kept);
	if (code != SVC_OK) {
		gr_trie_free(trie);
		return code;
	}
	*ret_trie = trie;
	return SVC_OK;
}

struct gr_trie *gr_trie_free(struct gr_trie *trie)
{
	if (trie) {
		free(trie->skip);
		free(trie->token);
		free(trie->tokens);
		free(trie->byte);
		free(trie->depth);
	}
	free(trie);
	return NULL;
}
