/* Merges out of scores. A SentencePiece BPE vocabulary has no list of merges: two neighbours merge
 * if their text together is a token, the best score first. Hugging Face turns that into ranks (best
 * score first, among equals the longer left half, then the longer right half, then the token's
 * place in the vocabulary), and so does this. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tok_load.h"
#include "tokenizer/unicode/unicode.h"

#define MAX_TOKEN_BYTES 1024u /* the cost is quadratic in it */

struct split {
	double score;
	uint32_t left_chars, right_chars;
	uint32_t left, right, result;
};

struct splits {
	struct split *ptr;
	size_t len, room;
	bool unsorted;
};

static int split_order(const void *a, const void *b)
{
	const struct split *x = a, *y = b;
	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (x->left_chars != y->left_chars)
		return x->left_chars > y->left_chars ? -1 : 1;
	if (x->right_chars != y->right_chars)
		return x->right_chars > y->right_chars ? -1 : 1;
	return (x->result > y->result) - (x->result < y->result);
}

static bool put(struct splits *splits, struct split split)
{
	if (splits->len == splits->room) {
		size_t room = splits->room ? 2 * splits->room : 65536;
		struct split *grown = realloc(splits->ptr, room * sizeof *grown);
		if (!grown)
			return false;
		splits->ptr = grown;
		splits->room = room;
	}
	if (splits->len > 0 && split_order(&splits->ptr[splits->len - 1], &split) > 0)
		splits->unsorted = true;
	splits->ptr[splits->len++] = split;
	return true;
}

/* A place where a token may be cut: after `chars` characters, `at` bytes. */
struct cut {
	uint32_t at, chars;
	int32_t left;
	uint64_t sought;
};

/* All of them, the longest left half first. Returns their number. */
static size_t find_cuts(struct span text, struct cut *cuts)
{
	size_t n = 0;
	for (size_t at = 0; at < text.len; n++) {
		at += unicode_at(text.ptr, text.len, at).len;
		cuts[n] = (struct cut){.at = (uint32_t)at, .chars = (uint32_t)n + 1};
	}
	n -= n > 0; /* the text's end is no cut */
	for (size_t i = 0; i < n / 2; i++) {
		struct cut cut = cuts[i];
		cuts[i] = cuts[n - 1 - i];
		cuts[n - 1 - i] = cut;
	}
	return n;
}

static struct span left_of(struct span text, const struct cut *cut)
{
	return (struct span){text.ptr, cut->at};
}

static struct span right_of(struct span text, const struct cut *cut)
{
	return (struct span){text.ptr + cut->at, text.len - cut->at};
}

/* Keeps the cuts whose left half is a token; their number. */
static size_t keep_left(const struct tok_map *pieces, struct span text, struct cut *cuts, size_t n)
{
	size_t kept = 0;
	for (size_t i = 0; i < n; i++)
		cuts[i].sought = tok_map_seek(pieces, left_of(text, &cuts[i]));
	for (size_t i = 0; i < n; i++) {
		struct cut cut = cuts[i];
		cut.left = tok_map_get_sought(pieces, left_of(text, &cut), cut.sought);
		if (cut.left >= 0)
			cuts[kept++] = cut;
	}
	return kept;
}

/* Every way to cut token id into two tokens. */
static bool put_splits(struct tok *tok, struct splits *splits, uint32_t id)
{
	struct cut cuts[MAX_TOKEN_BYTES];
	const struct tok_map *pieces = &tok->pieces;
	struct span text = tok->entries[id].text;
	size_t n_cuts = find_cuts(text, cuts), n = keep_left(pieces, text, cuts, n_cuts);
	for (size_t i = 0; i < n; i++)
		cuts[i].sought = tok_map_seek(pieces, right_of(text, &cuts[i]));
	for (size_t i = 0; i < n; i++) {
		const struct cut *cut = &cuts[i];
		int32_t right = tok_map_get_sought(pieces, right_of(text, cut), cut->sought);
		struct split split = {.score = tok->entries[id].score,
				      .left_chars = cut->chars,
				      .right_chars = (uint32_t)n_cuts + 1 - cut->chars,
				      .left = (uint32_t)cut->left,
				      .right = (uint32_t)right,
				      .result = id};
		if (right >= 0 && !put(splits, split))
			return false;
	}
	return true;
}

enum svc_code tok_merges_from_scores(struct tok *tok, struct tok_merge_list *list,
				     struct svc_err *err)
{
	struct splits splits = {0};
	bool ok = true;
	for (uint32_t id = 0; ok && id < tok->n_vocab; id++) {
		if (!tok->entries[id].makeable)
			continue;
		if (tok->entries[id].text.len > MAX_TOKEN_BYTES) {
			free(splits.ptr);
			return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
					"token %u has %zu bytes; the limit without a "
					"list of merges is %u",
					id, tok->entries[id].text.len, MAX_TOKEN_BYTES);
		}
		ok = put_splits(tok, &splits, id);
	}
	if (splits.unsorted)
		qsort(splits.ptr, splits.len, sizeof *splits.ptr, split_order);
	list->ptr = ok ? calloc(splits.len + 1, sizeof *list->ptr) : NULL;
	if (list->ptr) {
		list->len = list->room = splits.len;
		for (size_t i = 0; i < splits.len; i++)
			list->ptr[i] = (struct tok_merge){splits.ptr[i].left, splits.ptr[i].right,
							  (uint32_t)i, splits.ptr[i].result};
	}
	free(splits.ptr);
	return list->ptr ? SVC_OK
			 : svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for merges");
}
