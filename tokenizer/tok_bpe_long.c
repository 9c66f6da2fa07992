/* BPE of a long word (text without spaces; whole texts in some vocabularies).
 *
 * First in rounds: as long as one merge is due at many places at once, as in a run of one
 * character, all of them are merged in one pass. Then by lists: the neighbours that can merge lie
 * in one list per rank, a heap says which rank is next. A list is in text order when its turn
 * comes: a merge of rank r makes longer tokens than r's pair has, so nothing is added to a list
 * that has begun, and one sort before that is enough. In a word of n symbols: O(n log n). */
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
	uint32_t *ids, *ranks; /* of the rounds; ranks[i]: of the symbols i and i + 1 */
	size_t room;
	struct symbol *symbols; /* of the lists */
	size_t symbol_room;
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
	free(l->ids);
	free(l->ranks);
	free(l->symbols);
	free(l->nodes);
	free(l->list_of);
	free(l->lists);
	free(l->list_ranks);
	free(l->heap);
	free(l->sorting);
	free(l);
}

static bool reserve_ids(struct tok_long *l, size_t n)
{
	if (l->ids && n <= l->room)
		return true;
	if (!grow(&l->ids, n, sizeof *l->ids) || !grow(&l->ranks, n, sizeof *l->ranks))
		return false;
	l->room = n;
	return true;
}

static bool reserve_symbols(struct tok_long *l, size_t n)
{
	if (n <= l->symbol_room)
		return true;
	if (!grow(&l->symbols, n, sizeof *l->symbols))
		return false;
	l->symbol_room = n;
	return true;
}

/* ---- rounds */

/* The same pair is often asked for many times in a row. */
struct asked {
	uint32_t left, right, rank;
};

static uint32_t rank_of(const struct tok_bpe *bpe, struct asked *last, uint32_t left,
			uint32_t right)
{
	if (last->left != left || last->right != right) {
		const struct tok_merge *merge = tok_merge_find(bpe, left, right);
		*last = (struct asked){left, right, merge ? merge->rank : TOK_NO_RANK};
	}
	return last->rank;
}

/* Fills l->ranks; returns the lowest one and how often it occurs. */
static uint32_t rank_all(struct tok_long *l, const struct tok_bpe *bpe, uint32_t n,
			 uint32_t *ret_count)
{
	struct asked last = {NONE, NONE, TOK_NO_RANK};
	uint32_t lowest = TOK_NO_RANK, count = 0;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t rank = rank_of(bpe, &last, l->ids[i], l->ids[i + 1]);
		l->ranks[i] = rank;
		count = rank < lowest ? 1 : count + (rank == lowest);
		lowest = rank < lowest ? rank : lowest;
	}
	*ret_count = count;
	return lowest;
}

/* Merges every place where this merge is due, from left to right. Stops where that makes a pair of
 * a lower rank, whose turn it would be then: false. */
static bool merge_everywhere(struct tok_long *l, const struct tok_bpe *bpe, uint32_t *n,
			     const struct tok_merge *merge)
{
	struct asked before = {NONE, NONE, TOK_NO_RANK}, after = before;
	uint32_t out = 0;
	bool going = true;
	for (uint32_t i = 0; i < *n;) {
		if (!going || i + 1 == *n || l->ids[i] != merge->left ||
		    l->ids[i + 1] != merge->right) {
			l->ids[out++] = l->ids[i++];
			continue;
		}
		l->ids[out++] = merge->result;
		i += 2;
		if (out > 1 && rank_of(bpe, &before, l->ids[out - 2], merge->result) < merge->rank)
			going = false;
		if (i < *n && rank_of(bpe, &after, merge->result, l->ids[i]) < merge->rank)
			going = false;
	}
	*n = out;
	return going;
}

/* Returns the number of symbols left; *ret_done: nothing can merge any more. Else l->ranks is
 * filled. */
static uint32_t merge_in_rounds(struct tok_long *l, const struct tok_bpe *bpe, uint32_t n,
				bool *ret_done)
{
	bool going = true;
	for (;;) {
		uint32_t count, rank = rank_all(l, bpe, n, &count);
		*ret_done = rank == TOK_NO_RANK;
		if (*ret_done || !going || count < n / 8)
			return n;
		going = merge_everywhere(l, bpe, &n, &bpe->table[bpe->slots[rank]]);
	}
}

/* ---- lists */

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

/* Links the n symbols and notes every merge that is possible between two of them. */
static void set_up(struct tok_long *l, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		l->symbols[i] =
			(struct symbol){l->ids[i], i ? i - 1 : NONE, i + 1 < n ? i + 1 : NONE};
	for (uint32_t i = 0; i + 1 < n; i++)
		if (l->ranks[i] != TOK_NO_RANK)
			note_merge(l, l->ranks[i], i);
}

static void merge_by_lists(struct tok_job *job, struct tok_long *l, uint32_t n)
{
	const struct tok_bpe *bpe = &job->tok->bpe;
	if (!reserve_symbols(l, n)) {
		job->failed = true;
		return;
	}
	set_up(l, n);
	while (l->n_heap > 0 && !l->failed) {
		const struct tok_merge *merge = &bpe->table[bpe->slots[l->heap[0]]];
		merge_at(l, bpe, take_pair(l), merge);
	}
	job->failed = job->failed || l->failed;
	for (uint32_t i = 0; i != NONE && !job->failed; i = l->symbols[i].after)
		tok_push(job, (int32_t)l->symbols[i].id);
}

void tok_bpe_encode_long(struct tok_job *job, struct span word)
{
	struct tok_long *l = longs_of(job);
	if (!l || !reserve_ids(l, word.len)) {
		job->failed = true;
		return;
	}
	bool done;
	uint32_t n = (uint32_t)tok_bpe_symbols(job->tok, word, l->ids);
	n = merge_in_rounds(l, &job->tok->bpe, n, &done);
	if (!done) {
		merge_by_lists(job, l, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		tok_push(job, (int32_t)l->ids[i]);
}
