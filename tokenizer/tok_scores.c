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
	splits->ptr[splits->len++] = split;
	return true;
}

static uint32_t count_chars(struct span text)
{
	uint32_t n = 0;
	for (size_t at = 0; at < text.len; n++)
		at += unicode_at(text.ptr, text.len, at).len;
	return n;
}

/* Every way to cut token id into two tokens. */
static bool put_splits(struct tok *tok, struct splits *splits, uint32_t id)
{
	struct span text = tok->entries[id].text;
	uint32_t chars = count_chars(text), before = 1;
	for (size_t at = unicode_at(text.ptr, text.len, 0).len; at < text.len; before++) {
		int32_t left = tok_map_get(&tok->pieces, (struct span){text.ptr, at});
		int32_t right = left < 0 ? -1
					 : tok_map_get(&tok->pieces,
						       (struct span){text.ptr + at, text.len - at});
		if (right >= 0 &&
		    !put(splits, (struct split){tok->entries[id].score, before, chars - before,
						(uint32_t)left, (uint32_t)right, id}))
			return false;
		at += unicode_at(text.ptr, text.len, at).len;
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
	if (splits.len)
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
