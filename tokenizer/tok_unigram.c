/* Unigram: the split of a text into tokens whose scores have the highest sum. */
#include <stdlib.h>

#include "tokenizer/tok_job.h"
#include "tokenizer/tok_load.h"
#include "tokenizer/unicode/unicode.h"

enum svc_code tok_unigram_build(struct tok *tok, struct svc_err *err)
{
	if (tok->model_unk_id < 0)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer", "model.unk_id is missing");
	if (!tok_trie_begin(&tok->unigram.trie))
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for the vocabulary");
	for (uint32_t id = 0; id < tok->n_vocab; id++) {
		const struct tok_entry *entry = &tok->entries[id];
		if (!entry->makeable || entry->text.len == 0)
			continue;
		if (!tok_trie_put(&tok->unigram.trie, entry->text, (int32_t)id))
			return svc_fail(err, SVC_NO_MEMORY, "tokenizer",
					"no memory for the vocabulary's trie");
	}
	return SVC_OK;
}

/* The best way to a place in the text. */
struct step {
	double score;
	uint32_t start; /* of the last token; UINT32_MAX: not reached */
	int32_t id;	/* -1: an unknown character */
};

static void offer(struct step *steps, size_t start, size_t end, double score, int32_t id)
{
	score += steps[start].score;
	if (steps[end].start == UINT32_MAX || score > steps[end].score)
		steps[end] = (struct step){score, (uint32_t)start, id};
}

static void search(const struct tok *tok, struct span text, struct step *steps)
{
	const struct tok_trie *trie = &tok->unigram.trie;
	for (size_t i = 0; i <= text.len; i++)
		steps[i] = (struct step){0, UINT32_MAX, -1};
	for (size_t at = 0, character; at < text.len; at += character) {
		character = unicode_at(text.ptr, text.len, at).len;
		bool single = false;
		uint32_t node = 0;
		for (size_t end = at; end < text.len;) {
			node = tok_trie_step(trie, node, (unsigned char)text.ptr[end++]);
			if (!node)
				break;
			if (trie->values[node] < 0)
				continue;
			offer(steps, at, end, tok->entries[trie->values[node]].score,
			      trie->values[node]);
			single = single || end - at == character;
		}
		if (!single)
			offer(steps, at, at + character, tok->unigram.unk_score, -1);
	}
}

static bool has_bytes(const struct tok *tok, struct span run)
{
	for (size_t i = 0; i < run.len; i++)
		if (tok->byte_ids[(unsigned char)run.ptr[i]] < 0)
			return false;
	return tok->unigram.byte_fallback;
}

/* A run of unknown characters: its bytes' tokens, or one unknown token. (A token of just these
 * characters, which lost against them, is taken all the same: Hugging Face looks the run up.) */
static void push_unknown(struct tok_job *job, struct span run)
{
	const struct tok *tok = job->tok;
	int32_t id = tok_map_get(&tok->pieces, run);
	if (id >= 0 && tok->entries[id].makeable) {
		tok_push(job, id);
	} else if (has_bytes(tok, run)) {
		for (size_t i = 0; i < run.len; i++)
			tok_push(job, tok->byte_ids[(unsigned char)run.ptr[i]]);
	} else {
		tok_push(job, tok->model_unk_id);
	}
}

void tok_unigram_encode(struct tok_job *job, struct span word)
{
	struct step *steps = malloc((word.len + 1) * sizeof *steps);
	if (!steps) {
		job->failed = true;
		return;
	}
	search(job->tok, word, steps);
	/* The way back, turned round in place: each step then names where its token ends. */
	uint32_t end = (uint32_t)word.len, next = UINT32_MAX;
	while (end != UINT32_MAX) {
		uint32_t start = end ? steps[end].start : UINT32_MAX;
		steps[end].start = next;
		next = end;
		end = start;
	}
	for (size_t at = 0; at < word.len;) {
		size_t stop = steps[at].start;
		int32_t id = steps[stop].id;
		if (id >= 0) {
			tok_push(job, id);
		} else {
			while (stop < word.len && steps[steps[stop].start].id < 0)
				stop = steps[stop].start;
			push_unknown(job, (struct span){word.ptr + at, stop - at});
		}
		at = stop;
	}
	free(steps);
}
