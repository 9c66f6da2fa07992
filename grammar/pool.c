#include "grammar/pool.h"

#include <stdlib.h>
#include <string.h>

#define POOL_BYTES_MAX (24u << 20)
#define ROOM_FIRST     256u

/* ---- room ---- */

static bool array_grow(void **array, size_t bytes)
{
	void *larger = realloc(*array, bytes);
	if (larger)
		*array = larger;
	return larger != NULL;
}

#define GROW(array, n) array_grow((void **)&(array), (n) * sizeof *(array))

static uint32_t mix(uint32_t hash, uint32_t value)
{
	hash = (hash ^ value) * 0x9E3779B1u;
	return hash ^ hash >> 15;
}

static uint32_t node_hash(const struct gr_pool *pool, uint32_t node)
{
	return mix(mix(1, pool->nodes[node].state), pool->nodes[node].parent);
}

static uint32_t set_hash(const struct gr_pool *pool, uint32_t set)
{
	uint32_t hash = 2;
	for (uint32_t i = 0; i < pool->sets[set].n; i++)
		hash = mix(hash, pool->members[pool->sets[set].first + i]);
	return hash;
}

/* A new index of twice the places, for what is numbered from 1 to n - 1. */
static bool index_grow(struct gr_pool *pool, uint32_t **index, uint32_t *bits, uint32_t n,
		       uint32_t (*hash)(const struct gr_pool *, uint32_t))
{
	uint32_t mask = (2u << *bits) - 1;
	uint32_t *larger = calloc((size_t)mask + 1, sizeof *larger);
	if (!larger)
		return false;
	for (uint32_t i = 1; i < n; i++) {
		uint32_t at = hash(pool, i) & mask;
		while (larger[at])
			at = (at + 1) & mask;
		larger[at] = i;
	}
	free(*index);
	*index = larger;
	(*bits)++;
	return true;
}

static bool nodes_grow(struct gr_pool *pool)
{
	uint32_t room = pool->room_nodes ? 2 * pool->room_nodes : ROOM_FIRST;
	if (!GROW(pool->nodes, room) || !GROW(pool->seen, room) ||
	    !index_grow(pool, &pool->node_index, &pool->node_bits, pool->n_nodes, node_hash))
		return false;
	memset(pool->seen + pool->room_nodes, 0, (room - pool->room_nodes) * sizeof *pool->seen);
	pool->room_nodes = room;
	return true;
}

static bool sets_grow(struct gr_pool *pool)
{
	uint32_t room = pool->room_sets ? 2 * pool->room_sets : ROOM_FIRST;
	size_t classes = pool->grammar->n_classes;
	if (!GROW(pool->sets, room) || !GROW(pool->next, room * classes) ||
	    !index_grow(pool, &pool->set_index, &pool->set_bits, pool->n_sets, set_hash))
		return false;
	memset(pool->next + pool->room_sets * classes, 0,
	       (room - pool->room_sets) * classes * sizeof *pool->next);
	pool->room_sets = room;
	return true;
}

static bool members_fit(struct gr_pool *pool, uint32_t n)
{
	while (pool->room_members - pool->n_members < n) {
		uint32_t room = pool->room_members ? 2 * pool->room_members : ROOM_FIRST;
		if (!GROW(pool->members, room))
			return false;
		pool->room_members = room;
	}
	return true;
}

static void work_push(struct gr_pool *pool, uint32_t node)
{
	if (node == GR_NONE || pool->failed)
		return;
	if (pool->n_work == pool->room_work) {
		uint32_t room = pool->room_work ? 2 * pool->room_work : ROOM_FIRST;
		if (!GROW(pool->work, room)) {
			pool->failed = true;
			return;
		}
		pool->room_work = room;
	}
	pool->work[pool->n_work++] = node;
}

/* ---- stacks and sets, each once ---- */

/* A state that only ends its rule is never kept above another. */
static bool is_last(const struct gr_pool *pool, uint32_t state)
{
	return pool->grammar->states[state].accepts && pool->grammar->states[state].n_edges == 0;
}

/* GR_NONE: too deep, or what is left of the text would be. */
static uint32_t node_make(struct gr_pool *pool, uint32_t state, uint32_t parent)
{
	uint32_t depth = pool->nodes[parent].depth + 1;
	uint32_t deepest = depth + pool->grammar->states[state].need;
	pool->deepest = deepest > pool->deepest ? deepest : pool->deepest;
	if (deepest > GR_DEPTH_MAX + 1)
		return GR_NONE;
	if (is_last(pool, state))
		return parent;
	if (pool->n_nodes == pool->room_nodes && !nodes_grow(pool)) {
		pool->failed = true;
		return GR_NONE;
	}
	struct gr_node *nodes = pool->nodes;
	uint32_t mask = (1u << pool->node_bits) - 1, node = pool->n_nodes;
	nodes[node] = (struct gr_node){state, parent, depth};
	uint32_t at = node_hash(pool, node) & mask;
	for (; pool->node_index[at]; at = (at + 1) & mask) {
		uint32_t other = pool->node_index[at];
		if (nodes[other].state == state && nodes[other].parent == parent)
			return other;
	}
	pool->seen[node] = 0;
	return pool->node_index[at] = pool->n_nodes++;
}

static int number_compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* The set of the stacks made; sorts them. */
static uint32_t set_make(struct gr_pool *pool)
{
	uint32_t n = pool->n_made, set = pool->n_sets;
	if (n == 0 || pool->failed)
		return GR_DEAD;
	if (!members_fit(pool, n) || (set == pool->room_sets && !sets_grow(pool))) {
		pool->failed = true;
		return GR_DEAD;
	}
	if (n > 1)
		qsort(pool->made, n, sizeof *pool->made, number_compare);
	memcpy(pool->members + pool->n_members, pool->made, n * sizeof *pool->made);
	pool->sets[set] = (struct gr_set){.first = pool->n_members, .n = n};
	uint32_t mask = (1u << pool->set_bits) - 1, at = set_hash(pool, set) & mask;
	for (; pool->set_index[at]; at = (at + 1) & mask) {
		const struct gr_set *other = &pool->sets[pool->set_index[at]];
		if (other->n == n &&
		    memcmp(pool->members + other->first, pool->made, n * sizeof *pool->made) == 0)
			return pool->set_index[at];
	}
	pool->n_members += n;
	return pool->set_index[at] = pool->n_sets++;
}

/* Adds a stack to those made, once; false: they are too many. */
static bool made_add(struct gr_pool *pool, uint32_t node)
{
	if (node == GR_NONE || pool->seen[node] == pool->closing)
		return true;
	if (pool->n_made == GR_HEADS_MAX)
		return false;
	pool->seen[node] = pool->closing;
	pool->made[pool->n_made++] = node;
	return true;
}

/* ---- steps ---- */

/* What a stack leads to without a byte; returns whether it reads bytes itself. */
static bool node_expand(struct gr_pool *pool, uint32_t node)
{
	const struct gr_grammar *grammar = pool->grammar;
	const struct gr_node mine = pool->nodes[node];
	const struct gr_state *state = &grammar->states[mine.state];
	const struct gr_edge *edge = grammar->edges + state->edge;
	bool reads = false;
	if (state->accepts)
		work_push(pool, mine.parent);
	for (uint32_t i = 0; i < state->n_edges; i++, edge++) {
		if (edge->rule == GR_NONE) {
			reads = true;
			continue;
		}
		uint32_t parent = node_make(pool, edge->to, mine.parent);
		if (parent != GR_NONE)
			work_push(pool, node_make(pool, grammar->starts[edge->rule], parent));
	}
	return reads;
}

/* Finds the stacks of a set that read bytes, after all calls and returns. */
static void set_close(struct gr_pool *pool, uint32_t set)
{
	struct gr_set mine = pool->sets[set];
	pool->closing++;
	pool->n_work = 0;
	pool->deepest = 0;
	for (uint32_t i = 0; i < mine.n; i++)
		work_push(pool, pool->members[mine.first + i]);
	mine.readers = pool->n_members;
	while (pool->n_work && !pool->failed) {
		uint32_t node = pool->work[--pool->n_work];
		if (pool->seen[node] == pool->closing)
			continue;
		pool->seen[node] = pool->closing;
		if (node == GR_BOTTOM) {
			mine.ends = true;
		} else if (node_expand(pool, node)) {
			if (!members_fit(pool, 1))
				pool->failed = true;
			else
				pool->members[pool->n_members++] = node;
		}
	}
	mine.n_readers = pool->n_members - mine.readers;
	mine.reads = mine.n_readers > 0;
	mine.known = !pool->failed;
	mine.deepest = pool->deepest;
	pool->sets[set] = mine;
}

static const struct gr_set *set_known(struct gr_pool *pool, uint32_t set)
{
	if (!pool->sets[set].known)
		set_close(pool, set);
	return &pool->sets[set];
}

static uint32_t step_find(struct gr_pool *pool, uint32_t set, uint8_t byte)
{
	const struct gr_set mine = *set_known(pool, set);
	pool->closing++;
	pool->n_made = 0;
	pool->deepest = mine.deepest;
	for (uint32_t i = 0; i < mine.n_readers; i++) {
		const struct gr_node node = pool->nodes[pool->members[mine.readers + i]];
		const struct gr_state *state = &pool->grammar->states[node.state];
		const struct gr_edge *edge = pool->grammar->edges + state->edge;
		for (uint32_t n = state->n_edges; n; n--, edge++) {
			if (edge->rule != GR_NONE || byte < edge->low || byte > edge->high)
				continue;
			if (!made_add(pool, node_make(pool, edge->to, node.parent)))
				return GR_DEAD;
		}
	}
	pool->sets[set].deepest = pool->deepest;
	return set_make(pool);
}

uint32_t gr_pool_step(struct gr_pool *pool, uint32_t set, uint8_t byte)
{
	size_t at = (size_t)set * pool->grammar->n_classes + pool->grammar->classes[byte];
	if (set == GR_DEAD)
		return GR_DEAD;
	if (pool->next[at] == 0) {
		uint32_t next = step_find(pool, set, byte);
		if (!pool->failed)
			pool->next[at] = next + 1;
		return next;
	}
	return pool->next[at] - 1;
}

uint32_t gr_pool_start(struct gr_pool *pool, uint32_t state, uint32_t parent)
{
	pool->closing++;
	pool->n_made = 0;
	(void)made_add(pool, node_make(pool, state, parent));
	return set_make(pool);
}

bool gr_pool_ends(struct gr_pool *pool, uint32_t set)
{
	return set != GR_DEAD && set_known(pool, set)->ends;
}

bool gr_pool_reads(struct gr_pool *pool, uint32_t set)
{
	return set != GR_DEAD && set_known(pool, set)->reads;
}

/* ---- a pool's life ---- */

enum svc_code gr_pool_open(struct gr_pool *pool, const struct gr_grammar *grammar,
			   struct svc_err *err)
{
	*pool = (struct gr_pool){.grammar = grammar, .n_nodes = 1, .n_sets = 1};
	pool->made = malloc(GR_HEADS_MAX * sizeof *pool->made);
	pool->node_bits = pool->set_bits = (uint32_t)__builtin_ctz(ROOM_FIRST);
	if (!pool->made || !nodes_grow(pool) || !sets_grow(pool)) {
		gr_pool_close(pool);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar's states");
	}
	pool->nodes[GR_BOTTOM] = (struct gr_node){GR_NONE, GR_BOTTOM, 0};
	pool->sets[GR_DEAD] = (struct gr_set){.known = true};
	return SVC_OK;
}

void gr_pool_close(struct gr_pool *pool)
{
	free(pool->nodes);
	free(pool->sets);
	free(pool->members);
	free(pool->next);
	free(pool->node_index);
	free(pool->set_index);
	free(pool->seen);
	free(pool->work);
	free(pool->made);
	*pool = (struct gr_pool){0};
}

bool gr_pool_is_large(const struct gr_pool *pool)
{
	size_t per_set = sizeof *pool->sets + sizeof *pool->next * pool->grammar->n_classes;
	return pool->n_nodes * (sizeof *pool->nodes + 12) + pool->n_sets * per_set +
		       pool->n_members * sizeof *pool->members >
	       POOL_BYTES_MAX;
}

/* The same stack in another pool. */
static uint32_t node_copy(const struct gr_pool *from, uint32_t node, struct gr_pool *to)
{
	uint32_t chain[GR_DEPTH_MAX + 2], n = 0, copy = GR_BOTTOM;
	for (; node != GR_BOTTOM && n < GR_DEPTH_MAX + 2; node = from->nodes[node].parent)
		chain[n++] = from->nodes[node].state;
	while (n && copy != GR_NONE)
		copy = node_make(to, chain[--n], copy);
	return copy;
}

static uint32_t set_copy(const struct gr_pool *from, uint32_t set, struct gr_pool *to)
{
	const struct gr_set *mine = &from->sets[set];
	uint32_t copies[GR_HEADS_MAX];
	for (uint32_t i = 0; i < mine->n; i++)
		copies[i] = node_copy(from, from->members[mine->first + i], to);
	to->closing++;
	to->n_made = 0;
	for (uint32_t i = 0; i < mine->n; i++)
		(void)made_add(to, copies[i]);
	return set_make(to);
}

enum svc_code gr_pool_empty(struct gr_pool *pool, uint32_t **sets, size_t n, struct svc_err *err)
{
	struct gr_pool fresh;
	enum svc_code code = gr_pool_open(&fresh, pool->grammar, err);
	if (code != SVC_OK || !fresh.seen)
		return code;
	for (size_t i = 0; i < n; i++)
		*sets[i] = set_copy(pool, *sets[i], &fresh);
	if (fresh.failed)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar's states");
	gr_pool_close(pool);
	*pool = fresh;
	return code;
}
