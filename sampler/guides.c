#include "sampler/guides.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	struct gr_guide *guide;
	char *text;
	size_t len;
	TAILQ_ENTRY(entry) link;
};

struct smp_guides {
	struct gr_trie *trie;
	uint32_t n_vocab, n_entries;
	TAILQ_HEAD(entries, entry) entries; /* last used first */
	void (*on_work)(void *);
	void *data;
};

/* A token's text as it enters an answer, or its code for what has no text; a damaged vocabulary's
 * tokens have none. */
static struct span piece_of(const struct smp_vocab *vocab, uint32_t id,
			    char code[GR_TOKEN_CODE_BYTES])
{
	struct span none = {"", 0};
	if (id >= vocab->n_tokens)
		return none;
	if (vocab->flags[id] & SMP_TOKEN_CONTROL) {
		gr_token_code(id, code);
		return (struct span){code, GR_TOKEN_CODE_BYTES};
	}
	uint32_t begin = vocab->offsets[id], end = vocab->offsets[id + 1];
	if (begin > end || end > vocab->n_bytes || end - begin > vocab->max_piece_bytes)
		return none;
	struct span piece = {vocab->bytes + begin, end - begin};
	return gr_is_text(piece) ? piece : none;
}

enum svc_code smp_guides_open(const struct smp_vocab *vocab, uint32_t n_vocab,
			      struct smp_guides **ret_guides, struct svc_err *err)
{
	struct smp_guides *guides = calloc(1, sizeof *guides);
	struct span *pieces = malloc((n_vocab + (size_t)1) * sizeof *pieces);
	char(*codes)[GR_TOKEN_CODE_BYTES] = malloc((n_vocab + (size_t)1) * sizeof *codes);
	if (!guides || !pieces || !codes) {
		free(guides);
		free(pieces);
		free(codes);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for grammars");
	}
	for (uint32_t id = 0; id < n_vocab; id++)
		pieces[id] = piece_of(vocab, id, codes[id]);
	guides->n_vocab = n_vocab;
	TAILQ_INIT(&guides->entries);
	enum svc_code code = gr_trie_open(pieces, n_vocab, &guides->trie, err);
	free(pieces);
	free(codes);
	if (code != SVC_OK) {
		free(guides);
		return code;
	}
	*ret_guides = guides;
	return SVC_OK;
}

static void entry_free(struct smp_guides *guides, struct entry *entry)
{
	TAILQ_REMOVE(&guides->entries, entry, link);
	guides->n_entries--;
	gr_guide_free(entry->guide);
	free(entry->text);
	free(entry);
}

struct smp_guides *smp_guides_free(struct smp_guides *guides)
{
	if (!guides)
		return NULL;
	for (struct entry *next, *entry = TAILQ_FIRST(&guides->entries); entry; entry = next) {
		next = TAILQ_NEXT(entry, link);
		entry_free(guides, entry);
	}
	gr_trie_free(guides->trie);
	free(guides);
	return NULL;
}

void smp_guides_on_work(struct smp_guides *guides, void (*on_work)(void *), void *data)
{
	guides->on_work = on_work;
	guides->data = data;
}

/* The least used ones that nobody uses now. */
static void entries_shrink(struct smp_guides *guides)
{
	struct entry *before, *entry = TAILQ_LAST(&guides->entries, entries);
	for (; entry && guides->n_entries >= SMP_GUIDES_KEPT; entry = before) {
		before = TAILQ_PREV(entry, entries, link);
		if (gr_guide_is_idle(entry->guide))
			entry_free(guides, entry);
	}
}

/* Compiles the text of an entry, which is a copy: the request's lies in shared memory. */
static enum svc_code entry_fill(struct smp_guides *guides, struct entry *entry, struct svc_err *err)
{
	struct gr_grammar *grammar = NULL;
	struct span text = {entry->text, entry->len};
	enum svc_code code = gr_compile(text, &grammar, err);
	if (code == SVC_OK)
		code = gr_guide_open(grammar, guides->trie, guides->n_vocab, &entry->guide, err);
	if (code == SVC_OK)
		gr_guide_on_work(entry->guide, guides->on_work, guides->data);
	return code;
}

static enum svc_code entry_add(struct smp_guides *guides, struct span text,
			       struct gr_guide **ret_guide, struct svc_err *err)
{
	struct entry *entry = calloc(1, sizeof *entry);
	char *copy = malloc(text.len + 1);
	enum svc_code code = SVC_OK;
	if (!entry || !copy) {
		free(copy);
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	} else {
		memcpy(copy, text.ptr, text.len);
		*entry = (struct entry){.text = copy, .len = text.len};
		code = entry_fill(guides, entry, err);
		if (code != SVC_OK)
			free(copy);
	}
	if (code != SVC_OK || !entry) {
		free(entry);
		return code;
	}
	entries_shrink(guides);
	TAILQ_INSERT_HEAD(&guides->entries, entry, link);
	guides->n_entries++;
	*ret_guide = entry->guide;
	return SVC_OK;
}

enum svc_code smp_guides_get(struct smp_guides *guides, struct span text,
			     struct gr_guide **ret_guide, struct svc_err *err)
{
	struct entry *entry;
	TAILQ_FOREACH(entry, &guides->entries, link)
	{
		if (entry->len != text.len || memcmp(entry->text, text.ptr, text.len) != 0)
			continue;
		TAILQ_REMOVE(&guides->entries, entry, link);
		TAILQ_INSERT_HEAD(&guides->entries, entry, link);
		*ret_guide = entry->guide;
		return SVC_OK;
	}
	return entry_add(guides, text, ret_guide, err);
}
