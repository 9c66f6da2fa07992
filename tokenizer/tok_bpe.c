/* Byte pair encoding: of all neighbours that can merge, the pair with the lowest rank does, the
 * leftmost first among equals, until none is left. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tok_job.h"
#include "tokenizer/tok_load.h"
#include "tokenizer/unicode/unicode.h"

#define SHORT_WORD 48u /* symbols; up to here the next merge is found by looking at all of them */

static uint32_t rank_of(const struct tok_bpe *bpe, uint32_t left, uint32_t right)
{
	const struct tok_merge *merge = tok_merge_find(bpe, left, right);
	return merge ? merge->rank : TOK_NO_RANK;
}

/* The tokens of single bytes, of those that have one. */
static size_t byte_symbols(const struct tok *tok, const char *bytes, size_t len, uint32_t *ids)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		int32_t id = tok->byte_ids[(unsigned char)bytes[i]];
		if (id >= 0)
			ids[n++] = (uint32_t)id;
	}
	return n;
}

static bool has_bytes(const struct tok *tok, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (tok->byte_ids[(unsigned char)bytes[i]] < 0)
			return false;
	return true;
}

/* Unknown characters in a row are one symbol where the model says so. They wait in *pending until a
 * known one comes. */
static size_t flush_unknown(const struct tok *tok, size_t *pending, uint32_t *ids)
{
	size_t n = tok->bpe.fuse_unk && *pending ? 1 : *pending;
	*pending = 0;
	for (size_t i = 0; i < n; i++)
		ids[i] = (uint32_t)tok->model_unk_id;
	return n;
}

size_t tok_bpe_symbols(const struct tok *tok, struct span word, uint32_t *ids)
{
	const struct tok_bpe *bpe = &tok->bpe;
	if (bpe->byte_level)
		return byte_symbols(tok, word.ptr, word.len, ids);
	size_t n = 0, pending = 0;
	for (size_t at = 0, len; at < word.len; at += len) {
		len = unicode_at(word.ptr, word.len, at).len;
		struct span character = {word.ptr + at, len};
		int32_t id = tok_map_get(&tok->pieces, character);
		if (id >= 0 && tok->entries[id].makeable) {
			n += flush_unknown(tok, &pending, ids + n);
			ids[n++] = (uint32_t)id;
		} else if (bpe->byte_fallback && has_bytes(tok, character.ptr, len)) {
			n += byte_symbols(tok, character.ptr, len, ids + n);
		} else if (tok->model_unk_id >= 0) {
			pending++;
		}
	}
	return n + flush_unknown(tok, &pending, ids + n);
}

/* ids[n], merged in place; the number left is returned. */
static size_t merge_short(const struct tok_bpe *bpe, uint32_t *ids, size_t n)
{
	uint32_t ranks[SHORT_WORD];
	for (size_t i = 0; i + 1 < n; i++)
		ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < n; i++)
			if (ranks[i] < ranks[best])
				best = i;
		if (ranks[best] == TOK_NO_RANK)
			break;
		ids[best] = bpe->table[bpe->slots[ranks[best]]].result;
		n--;
		memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
		memmove(ranks + best, ranks + best + 1, (n - best - 1) * sizeof *ranks);
		if (best > 0)
			ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
		if (best + 1 < n)
			ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
	}
	return n;
}

/* What tok->verdicts says of a token: whether the model makes exactly that token of its text, found
 * out when a text first asks. Two threads that ask at once come to the same answer. */
enum verdict { NOT_ASKED, WHOLE, PARTED };

static enum verdict verdict_of(const struct tok *tok, int32_t id)
{
	return tok->bpe.ignore_merges
		       ? WHOLE
		       : atomic_load_explicit(&tok->verdicts[id], memory_order_relaxed);
}

static void merge_word(struct tok_job *job, struct span word)
{
	if (word.len > SHORT_WORD) {
		tok_bpe_encode_long(job, word);
		return;
	}
	uint32_t ids[SHORT_WORD];
	size_t n = merge_short(&job->tok->bpe, ids, tok_bpe_symbols(job->tok, word, ids));
	for (size_t i = 0; i < n; i++)
		tok_push(job, (int32_t)ids[i]);
}

/* Most words of a text are one token: those are looked up at once. */
void tok_bpe_encode(struct tok_job *job, struct span word)
{
	const struct tok *tok = job->tok;
	int32_t id = tok_map_get(&tok->pieces, word);
	bool may_be_whole = id >= 0 && tok->entries[id].makeable;
	if (may_be_whole && verdict_of(tok, id) == WHOLE) {
		tok_push(job, id);
		return;
	}
	size_t before = job->ids.len;
	merge_word(job, word);
	if (may_be_whole && !job->failed && verdict_of(tok, id) == NOT_ASKED) {
		bool whole = job->ids.len == before + 1 && job->ids.ptr[before] == id;
		atomic_store_explicit(&tok->verdicts[id], whole ? WHOLE : PARTED,
				      memory_order_relaxed);
	}
}

/* ---- loading */

enum svc_code tok_merge_add(struct tok *tok, struct tok_merge_list *list, struct span left,
			    struct span right, struct svc_err *err)
{
	char text[2 * TOK_MAX_TOKEN_BYTES];
	if (left.len == 0 || right.len == 0 || left.len + right.len > sizeof text)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
				"merge %zu: a half is empty or both are over %zu bytes", list->len,
				sizeof text);
	memcpy(text, left.ptr, left.len);
	memcpy(text + left.len, right.ptr, right.len);
	struct span whole = {text, left.len + right.len};
	int32_t a = tok_map_get(&tok->pieces, left), b = tok_map_get(&tok->pieces, right);
	int32_t result = tok_map_get(&tok->pieces, whole);
	if (a < 0 || b < 0 || result < 0) {
		struct span missing = a < 0 ? left : b < 0 ? right : whole;
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
				"merge %zu: '%s' is not in the vocabulary", list->len,
				tok_name(missing).text);
	}
	/* A merge into (or of) a control token is passed over: text never becomes one. */
	bool used = tok->entries[a].makeable && tok->entries[b].makeable &&
		    tok->entries[result].makeable;
	if (list->len >= TOK_MAX_MERGES)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer", "more than %u merges",
				TOK_MAX_MERGES);
	if (list->len == list->room) {
		size_t room = list->room ? 2 * list->room : 65536;
		struct tok_merge *grown = realloc(list->ptr, room * sizeof *grown);
		if (!grown)
			return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %zu merges",
					room);
		list->ptr = grown;
		list->room = room;
	}
	list->ptr[list->len] =
		(struct tok_merge){(uint32_t)a, (uint32_t)b,
				   used ? (uint32_t)list->len : TOK_NO_RANK, (uint32_t)result};
	list->len++;
	return SVC_OK;
}

enum svc_code tok_bpe_build(struct tok *tok, const struct tok_merge_list *list, struct svc_err *err)
{
	struct tok_bpe *bpe = &tok->bpe;
	uint32_t n = 16;
	while (n < 2 * list->len)
		n *= 2;
	bpe->mask = n - 1;
	bpe->n_merges = (uint32_t)list->len;
	bpe->table = arena_alloc(&tok->arena, n * sizeof *bpe->table);
	bpe->slots = arena_alloc(&tok->arena, (list->len + 1) * sizeof *bpe->slots);
	tok->verdicts = arena_alloc(&tok->arena, tok->n_vocab * sizeof *tok->verdicts);
	if (!bpe->table || !bpe->slots || !tok->verdicts)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for %zu merges",
				list->len);
	for (uint32_t i = 0; i < n; i++)
		bpe->table[i].rank = TOK_NO_RANK;
	for (uint32_t rank = 0; rank < bpe->n_merges; rank++) {
		struct tok_merge merge = list->ptr[rank];
		if (merge.rank == TOK_NO_RANK)
			continue;
		uint32_t at = tok_merge_hash(merge.left, merge.right) & bpe->mask;
		/* A pair that is listed twice has its last rank. */
		while (bpe->table[at].rank != TOK_NO_RANK &&
		       (bpe->table[at].left != merge.left || bpe->table[at].right != merge.right))
			at = (at + 1) & bpe->mask;
		bpe->table[at] = merge;
		bpe->table[at].rank = rank;
		bpe->slots[rank] = at;
	}
	return SVC_OK;
}
