/* BPE of a long word (text without spaces; whole texts in some vocabularies). The neighbours that
 * can merge lie in one list per rank, a heap says which rank is next. A list is in text order when
 * its turn comes: a merge of rank r makes longer tokens than r's pair has, so nothing is added to a
 * list that has begun, and one sort before that is enough. In a word of n symbols with d different
 * ranks: O(n log d + n log n), and for one repeated character next to O(n). */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tok_job.h"

#define NONE UINT32_MAX

struct node {
	uint32_t at; /* index of the pair's left symbol */
	uint32_t next;
};

struct list {
	uint32_t head, tail;
	bool sorted;
};

struct symbol {
	uint32_t id; /* NONE: merged into the one before */
	uint32_t before, after;
};

struct tok_long {
	struct symbol *symbols;
	uint32_t *ids; /* before they are symbols */
	size_t room;
	struct node *nodes;
	uint32_t n_nodes, node_room, free_node;
	uint32_t *list_of; /* rank -> index into lists, NONE if empty */
	struct list *lists;
	uint32_t *list_ranks; /* free entries of lists hold the next free one */
	uint32_t n_lists, list_room, free_list;
	uint32_t *heap; /* ranks whose lists aren't empty */
	uint32_t n_heap;
	uint32_t *sorting;
	size_t sorting_room;
	bool failed;
};

static bool grow(void *array, size_t room, size_t size)
{
	void *grown = realloc(*(void **)array, room * size);
	if (grown)
		*(void **)array = grown;
	return grown != NULL;
}

static struct tok_long *longs_of(struct tok_job *job)
{
	if (job->longs)
		return job->longs;
	const struct tok_bpe *bpe = &job->tok->bpe;
	struct tok_long *l = calloc(1, sizeof *l);
	if (!l)
		return NULL;
	l->free_node = l->free_list = NONE;
	l->list_of = malloc((bpe->n_merges + 1) * sizeof *l->list_of);
	if (!l->list_of) {
		free(l);
		return NULL;
	}
	memset(l->list_of, 0xFF, (bpe->n_merges + 1) * sizeof *l->list_of);
	job->longs = l;
	return l;
}

void tok_long_free(struct tok_long *l)
{
	if (!l)
		return;
	free(l->symbols);
	free(l->ids);
	free(l->nodes);
	free(l->list_of);
	free(l->lists);
	free(l->list_ranks);
	free(l->heap);
	free(l->sorting);
	free(l);
}

static bool reserve_symbols(struct tok_long *l, size_t n)
{
	if (n <= l->room)
		return true;
	if (!grow(&l->ids, n, sizeof *l->ids) || !grow(&l->symbols, n, sizeof *l->symbols))
		return false;
	l->room = n;
	return true;
}

static uint32_t take_node(struct tok_long *l)
{
	uint32_t node = l->free_node;
	if (node != NONE) {
		l->free_node = l->nodes[node].next;
		return node;
	}
	if (l->n_nodes == l->node_room) {
		uint32_t room = l->node_room ? 2 * l->node_room : 1024;
		if (!grow(&l->nodes, room, sizeof *l->nodes))
			return NONE;
		l->node_room = room;
	}
	return l->n_nodes++;
}

static void heap_add(struct tok_long *l, uint32_t rank)
{
	uint32_t at = l->n_heap++;
	while (at > 0 && l->heap[(at - 1) / 2] > rank) {
		l->heap[at] = l->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	l->heap[at] = rank;
}

/* Removes heap[0]. */
static void heap_drop(struct tok_long *l)
{
	uint32_t rank = l->heap[--l->n_heap], at = 0;
	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= l->n_heap)
			break;
		if (child + 1 < l->n_heap && l->heap[child + 1] < l->heap[child])
			child++;
		if (l->heap[child] >= rank)
			break;
		l->heap[at] = l->heap[child];
		at = child;
	}
	l->heap[at] = rank;
}

/* An empty list for rank. */
static struct list *open_list(struct tok_long *l, uint32_t rank)
{
	uint32_t index = l->free_list;
	if (index != NONE) {
		l->free_list = l->list_ranks[index];
	} else {
		if (l->n_lists == l->list_room) {
			uint32_t room = l->list_room ? 2 * l->list_room : 256;
			if (!grow(&l->lists, room, sizeof *l->lists) ||
			    !grow(&l->list_ranks, room, sizeof *l->list_ranks) ||
			    !grow(&l->heap, room, sizeof *l->heap))
				return NULL;
			l->list_room = room;
		}
		index = l->n_lists++;
	}
	l->lists[index] = (struct list){NONE, NONE, true};
	l->list_of[rank] = index;
	heap_add(l, rank);
	return &l->lists[index];
}

static void close_list(struct tok_long *l, uint32_t rank)
{
	uint32_t index = l->list_of[rank];
	l->list_of[rank] = NONE;
	l->list_ranks[index] = l->free_list;
	l->free_list = index;
	heap_drop(l);
}

/* Notes that two neighbours can merge, the left one being `at`. */
static void note_merge(struct tok_long *l, uint32_t rank, uint32_t at)
{
	uint32_t index = l->list_of[rank], node = take_node(l);
	struct list *list = index != NONE ? &l->lists[index] : open_list(l, rank);
	if (!list || node == NONE) {
		l->failed = true;
		return;
	}
	l->nodes[node] = (struct node){at, NONE};
	if (list->head == NONE) {
		list->head = node;
	} else {
		list->sorted = list->sorted && l->nodes[list->tail].at <= at;
		l->nodes[list->tail].next = node;
	}
	list->tail = node;
}

static const struct tok_merge *merge_of(const struct tok_long *l, const struct tok_bpe *bpe,
					uint32_t at)
{
	return tok_merge_find(bpe, l->symbols[at].id, l->symbols[l->symbols[at].after].id);
}

static int index_order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* Puts a list into text order. */
static void sort_list(struct tok_long *l, struct list *list)
{
	size_t n = 0;
	for (uint32_t node = list->head; node != NONE; node = l->nodes[node].next) {
		if (n == l->sorting_room) {
			size_t room = n ? 2 * n : 256;
			if (!grow(&l->sorting, room, sizeof *l->sorting)) {
				l->failed = true;
				return;
			}
			l->sorting_room = room;
		}
		l->sorting[n++] = l->nodes[node].at;
	}
	qsort(l->sorting, n, sizeof *l->sorting, index_order);
	n = 0;
	for (uint32_t node = list->head; node != NONE; node = l->nodes[node].next)
		l->nodes[node].at = l->sorting[n++];
	list->sorted = true;
}

/* The first place of the lowest rank. */
static uint32_t take_pair(struct tok_long *l)
{
	uint32_t rank = l->heap[0];
	struct list *list = &l->lists[l->list_of[rank]];
	if (!list->sorted)
		sort_list(l, list);
	uint32_t node = list->head, at = l->nodes[node].at;
	list->head = l->nodes[node].next;
	l->nodes[node].next = l->free_node;
	l->free_node = node;
	if (list->head == NONE)
		close_list(l, rank);
	return at;
}

static bool fits(const struct tok_long *l, uint32_t at, const struct tok_merge *merge)
{
	uint32_t right = l->symbols[at].after;
	return l->symbols[at].id == merge->left && right != NONE &&
	       l->symbols[right].id == merge->right;
}

/* Whether the next place of this rank begins with the symbol `at`. Then that symbol is about to
 * change, and to note its merge with the one before would be for nothing: half of the work in a run
 * of one character. */
static bool is_next(const struct tok_long *l, uint32_t at, const struct tok_merge *merge)
{
	uint32_t index = l->list_of[merge->rank];
	return index != NONE && l->nodes[l->lists[index].head].at == at && fits(l, at, merge);
}

static void merge_at(struct tok_long *l, const struct tok_bpe *bpe, uint32_t at,
		     const struct tok_merge *merge)
{
	/* A list's entry is out of date if either symbol has been merged since. */
	if (!fits(l, at, merge))
		return;
	struct symbol *symbol = &l->symbols[at];
	struct symbol *right = &l->symbols[symbol->after];
	symbol->id = merge->result;
	symbol->after = right->after;
	right->id = NONE;
	if (symbol->after != NONE) {
		l->symbols[symbol->after].before = at;
		const struct tok_merge *with_next = merge_of(l, bpe, at);
		if (with_next &&
		    (with_next->rank < merge->rank || !is_next(l, symbol->after, merge)))
			note_merge(l, with_next->rank, at);
	}
	if (symbol->before != NONE) {
		const struct tok_merge *with_last = merge_of(l, bpe, symbol->before);
		if (with_last)
			note_merge(l, with_last->rank, symbol->before);
	}
}

/* The symbols of the word, linked, and every merge that is possible between two of them. */
static uint32_t set_up(struct tok_long *l, const struct tok *tok, struct span word)
{
	uint32_t n = (uint32_t)tok_bpe_symbols(tok, word, l->ids);
	for (uint32_t i = 0; i < n; i++)
		l->symbols[i] =
			(struct symbol){l->ids[i], i ? i - 1 : NONE, i + 1 < n ? i + 1 : NONE};
	const struct tok_merge *merge = NULL;
	for (uint32_t i = 0; i + 1 < n; i++) {
		if (i == 0 || l->ids[i - 1] != l->ids[i] || l->ids[i] != l->ids[i + 1])
			merge = tok_merge_find(&tok->bpe, l->ids[i], l->ids[i + 1]);
		if (merge)
			note_merge(l, merge->rank, i);
	}
	return n;
}

void tok_bpe_encode_long(struct tok_job *job, struct span word)
{
	const struct tok_bpe *bpe = &job->tok->bpe;
	struct tok_long *l = longs_of(job);
	if (!l || !reserve_symbols(l, word.len)) {
		job->failed = true;
		return;
	}
	uint32_t n = set_up(l, job->tok, word);
	while (l->n_heap > 0 && !l->failed) {
		const struct tok_merge *merge = &bpe->table[bpe->slots[l->heap[0]]];
		merge_at(l, bpe, take_pair(l), merge);
	}
	job->failed = job->failed || l->failed;
	for (uint32_t i = 0; n > 0 && i != NONE && !job->failed; i = l->symbols[i].after)
		tok_push(job, (int32_t)l->symbols[i].id);
}
