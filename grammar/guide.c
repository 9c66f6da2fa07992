#include "grammar/guide.h"

#include <stdlib.h>
#include <string.h>

#define LOCAL_BYTES_MAX (64u << 20)
/* Stacks of a mask that are looked at one by one. */
#define TODO_MAX 4096u
/* What is known of a state alone holds where its tokens' stacks have room in any case. */
#define LOCAL_DEPTH_MAX (GR_DEPTH_MAX / 2)
/* Nodes of the trie between two looks at memory and clock. */
#define WORK_NODES 4096u

/* What may follow a state, seen from its own rule. */
struct local {
	uint32_t *bits; /* many tokens: a mask; else NULL */
	uint32_t *ids;	/* few: their ids */
	uint32_t n_ids;
	uint32_t *exits; /* nodes of the trie where the rule may be at its end, with more beneath */
	uint32_t n_exits, room_exits;
	bool ends; /* the rule may end before any token */
	bool deep; /* it depends on the depth that is left: to be found anew each time */
};

struct gr_guide {
	struct gr_grammar *grammar;
	const struct gr_trie *trie;
	uint32_t n_vocab, n_words;
	struct gr_pool pool;
	struct local **locals; /* [grammar->n_states] */
	size_t local_bytes;
	uint32_t *scratch; /* [n_words] */
	/* Sets that must live while a mask is made. */
	uint32_t *path; /* [trie->depth_max + 1]: by depth of the walk */
	uint32_t path_from, path_to;
	uint32_t *todo; /* [TODO_MAX]: of one stack each */
	uint32_t n_todo;
	uint32_t behind; /* of the stack beneath the one at work */
	LIST_HEAD(, gr_seq) seqs;
	void (*on_work)(void *);
	void *data;
};

/* ---- a walk over the vocabulary ---- */

/* Where found tokens go. */
struct walk {
	struct gr_guide *guide;
	uint32_t *bits;
	struct local *local; /* what is found out of a state alone; NULL: real stacks */
};

static enum svc_code pool_shrink(struct gr_guide *guide, struct svc_err *err)
{
	size_t n = guide->path_to - guide->path_from + guide->n_todo + 1;
	struct gr_seq *seq;
	LIST_FOREACH(seq, &guide->seqs, link)
	n++;
	uint32_t **sets = malloc(n * sizeof *sets);
	if (!sets)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar's states");
	n = 0;
	for (uint32_t i = guide->path_from; i < guide->path_to; i++)
		sets[n++] = &guide->path[i];
	for (uint32_t i = 0; i < guide->n_todo; i++)
		sets[n++] = &guide->todo[i];
	sets[n++] = &guide->behind;
	LIST_FOREACH(seq, &guide->seqs, link)
	sets[n++] = &seq->set;
	enum svc_code code = gr_pool_empty(&guide->pool, sets, n, err);
	free(sets);
	return code;
}

static enum svc_code work_note(struct gr_guide *guide, struct svc_err *err)
{
	if (guide->on_work)
		guide->on_work(guide->data);
	if (guide->pool.failed)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar's states");
	return gr_pool_is_large(&guide->pool) ? pool_shrink(guide, err) : SVC_OK;
}

static bool exit_add(struct local *local, uint32_t node)
{
	if (local->n_exits == local->room_exits) {
		uint32_t room = local->room_exits ? 2 * local->room_exits : 16;
		uint32_t *exits = realloc(local->exits, room * sizeof *exits);
		if (!exits)
			return false;
		local->exits = exits;
		local->room_exits = room;
	}
	local->exits[local->n_exits++] = node;
	return true;
}

/* A node that the text can reach: its tokens may come. */
static void node_take(struct walk *walk, uint32_t node, uint32_t set)
{
	const struct gr_trie *trie = walk->guide->trie;
	struct gr_pool *pool = &walk->guide->pool;
	for (uint32_t i = trie->token[node]; i < trie->token[node + 1]; i++)
		walk->bits[trie->tokens[i] / 32] |= 1u << trie->tokens[i] % 32;
	if (walk->local && trie->skip[node] > node + 1 && gr_pool_ends(pool, set) &&
	    !exit_add(walk->local, node))
		pool->failed = true;
}

/* The nodes from begin to end, which are beneath a node of that depth where the text stands at set.
 */
static enum svc_code walk_nodes(struct walk *walk, uint32_t begin, uint32_t end, uint32_t depth,
				uint32_t set, struct svc_err *err)
{
	struct gr_guide *guide = walk->guide;
	const struct gr_trie *trie = guide->trie;
	guide->path[depth] = set;
	guide->path_from = depth;
	uint32_t work = 0;
	for (uint32_t node = begin; node < end;) {
		depth = trie->depth[node];
		if (++work % WORK_NODES == 0) {
			guide->path_to = depth;
			enum svc_code code = work_note(guide, err);
			if (code != SVC_OK)
				return code;
		}
		uint32_t from = guide->path[depth - 1];
		uint32_t next = gr_pool_step(&guide->pool, from, trie->byte[node]);
		if (walk->local && guide->pool.sets[from].deepest > LOCAL_DEPTH_MAX)
			walk->local->deep = true;
		if (next == GR_DEAD) {
			node = trie->skip[node];
			continue;
		}
		guide->path[depth] = next;
		node_take(walk, node, next);
		node++;
	}
	guide->path_from = guide->path_to = 0;
	return work_note(guide, err);
}

/* ---- what is known of a state alone ---- */

static struct local *local_free(struct local *local)
{
	if (local) {
		free(local->bits);
		free(local->ids);
		free(local->exits);
	}
	free(local);
	return NULL;
}

static void locals_forget(struct gr_guide *guide)
{
	for (uint32_t i = 0; i < guide->grammar->n_states; i++)
		guide->locals[i] = local_free(guide->locals[i]);
	guide->local_bytes = 0;
}

/* Few tokens as a list, many as a mask. */
static bool local_pack(struct gr_guide *guide, struct local *local)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < guide->n_words; i++)
		n += (uint32_t)__builtin_popcount(guide->scratch[i]);
	size_t bytes = (n < guide->n_words / 2 ? n : guide->n_words) * sizeof(uint32_t);
	uint32_t *packed = malloc(bytes + 1);
	if (!packed)
		return false;
	guide->local_bytes += sizeof *local + bytes + local->room_exits * sizeof *local->exits;
	if (n >= guide->n_words / 2) {
		memcpy(packed, guide->scratch, bytes);
		local->bits = packed;
		return true;
	}
	local->ids = packed;
	for (uint32_t i = 0; i < guide->n_words; i++)
		for (uint32_t word = guide->scratch[i]; word; word &= word - 1)
			packed[local->n_ids++] = 32 * i + (uint32_t)__builtin_ctz(word);
	return true;
}

static enum svc_code local_find(struct gr_guide *guide, uint32_t state, struct local *local,
				struct svc_err *err)
{
	struct walk walk = {guide, guide->scratch, local};
	memset(guide->scratch, 0, guide->n_words * sizeof *guide->scratch);
	uint32_t start = gr_pool_start(&guide->pool, state, GR_BOTTOM);
	local->ends = gr_pool_ends(&guide->pool, start);
	enum svc_code code = walk_nodes(&walk, 0, guide->trie->n_nodes, 0, start, err);
	if (code == SVC_OK && !local_pack(guide, local))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a token mask");
	return code;
}

static enum svc_code local_get(struct gr_guide *guide, uint32_t state,
			       const struct local **ret_local, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	if (!guide->locals[state]) {
		if (guide->local_bytes > LOCAL_BYTES_MAX)
			locals_forget(guide);
		struct local *local = calloc(1, sizeof *local);
		if (!local)
			return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a token mask");
		code = local_find(guide, state, local, err);
		if (code != SVC_OK) {
			local_free(local);
			return code;
		}
		guide->locals[state] = local;
	}
	*ret_local = guide->locals[state];
	return code;
}

/* ---- masks ---- */

static void local_add(const struct gr_guide *guide, const struct local *local, uint32_t *bits)
{
	for (uint32_t i = 0; local->bits && i < guide->n_words; i++)
		bits[i] |= local->bits[i];
	for (uint32_t i = 0; i < local->n_ids; i++)
		bits[local->ids[i] / 32] |= 1u << local->ids[i] % 32;
}

/* The only stack of a set. */
static struct gr_node stack_of(const struct gr_guide *guide, uint32_t set)
{
	return guide->pool.nodes[guide->pool.members[guide->pool.sets[set].first]];
}

static uint32_t stack_set(struct gr_guide *guide, uint32_t node)
{
	struct gr_node stack = guide->pool.nodes[node];
	return gr_pool_start(&guide->pool, stack.state, stack.parent);
}

/* Once each; false: too many. */
static bool todo_add(struct gr_guide *guide, uint32_t set)
{
	for (uint32_t i = 0; i < guide->n_todo; i++)
		if (guide->todo[i] == set)
			return true;
	if (guide->n_todo == TODO_MAX)
		return false;
	guide->todo[guide->n_todo++] = set;
	return true;
}

/* What may follow one stack: what its state says, and, where its rule can end within a token, what
 * the stack beneath says. */
static enum svc_code stack_mask(struct gr_guide *guide, uint32_t index, uint32_t *bits,
				bool *ret_fits, struct svc_err *err)
{
	const struct gr_trie *trie = guide->trie;
	struct walk walk = {guide, bits, NULL};
	const struct local *local = NULL;
	enum svc_code code =
		local_get(guide, stack_of(guide, guide->todo[index]).state, &local, err);
	if (code != SVC_OK || !local)
		return code;
	struct gr_node stack = stack_of(guide, guide->todo[index]);
	if (local->deep || stack.depth > GR_DEPTH_MAX - LOCAL_DEPTH_MAX)
		return walk_nodes(&walk, 0, trie->n_nodes, 0, guide->todo[index], err);
	local_add(guide, local, bits);
	if (stack.parent == GR_BOTTOM)
		return SVC_OK;
	guide->behind = stack_set(guide, stack.parent);
	if (local->ends)
		*ret_fits &= todo_add(guide, guide->behind);
	for (uint32_t i = 0; code == SVC_OK && i < local->n_exits; i++) {
		uint32_t node = local->exits[i];
		code = walk_nodes(&walk, node + 1, trie->skip[node], trie->depth[node],
				  guide->behind, err);
	}
	return code;
}

static enum svc_code stacks_mask(struct gr_seq *seq, uint32_t *bits, bool *ret_fits,
				 struct svc_err *err)
{
	struct gr_guide *guide = seq->guide;
	struct gr_pool *pool = &guide->pool;
	enum svc_code code = SVC_OK;
	guide->n_todo = 0;
	for (uint32_t i = 0; i < pool->sets[seq->set].n; i++) {
		uint32_t node = pool->members[pool->sets[seq->set].first + i];
		if (node != GR_BOTTOM)
			*ret_fits &= todo_add(guide, stack_set(guide, node));
	}
	for (uint32_t i = 0; code == SVC_OK && *ret_fits && i < guide->n_todo; i++)
		code = stack_mask(guide, i, bits, ret_fits, err);
	guide->n_todo = 0;
	guide->behind = GR_DEAD;
	return code;
}

/* The first token's leading space isn't text: what lies beneath it in the trie starts anew. */
static enum svc_code stripped_mask(struct gr_seq *seq, struct walk walk, struct svc_err *err)
{
	const struct gr_trie *trie = seq->guide->trie;
	enum svc_code code = SVC_OK;
	for (uint32_t node = 0; code == SVC_OK && node < trie->n_nodes; node = trie->skip[node]) {
		if (trie->byte[node] == ' ')
			code = walk_nodes(&walk, node + 1, trie->skip[node], 1, seq->set, err);
		else
			code = walk_nodes(&walk, node, trie->skip[node], 0, seq->set, err);
	}
	return code;
}

enum svc_code gr_seq_mask(struct gr_seq *seq, bool strip_space, uint32_t *ret_bits,
			  struct svc_err *err)
{
	struct gr_guide *guide = seq->guide;
	struct walk walk = {guide, ret_bits, NULL};
	bool fits = true;
	memset(ret_bits, 0, guide->n_words * sizeof *ret_bits);
	if (strip_space)
		return stripped_mask(seq, walk, err);
	enum svc_code code = stacks_mask(seq, ret_bits, &fits, err);
	if (code == SVC_OK && !fits)
		code = walk_nodes(&walk, 0, guide->trie->n_nodes, 0, seq->set, err);
	return code;
}

/* ---- texts ---- */

bool gr_seq_push(struct gr_seq *seq, struct span bytes)
{
	struct gr_pool *pool = &seq->guide->pool;
	uint32_t set = seq->set;
	for (size_t i = 0; i < bytes.len && set != GR_DEAD; i++)
		set = gr_pool_step(pool, set, (uint8_t)bytes.ptr[i]);
	if (set == GR_DEAD)
		return false;
	seq->set = set;
	return true;
}

bool gr_seq_ends(struct gr_seq *seq)
{
	return gr_pool_ends(&seq->guide->pool, seq->set);
}

bool gr_seq_reads(struct gr_seq *seq)
{
	return gr_pool_reads(&seq->guide->pool, seq->set);
}

enum svc_code gr_seq_open(struct gr_guide *guide, struct gr_seq *seq, struct svc_err *err)
{
	const struct gr_grammar *grammar = guide->grammar;
	*seq = (struct gr_seq){.guide = guide};
	seq->set = gr_pool_start(&guide->pool, grammar->starts[grammar->root], GR_BOTTOM);
	if (guide->pool.failed)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar's states");
	LIST_INSERT_HEAD(&guide->seqs, seq, link);
	return SVC_OK;
}

void gr_seq_close(struct gr_seq *seq)
{
	if (seq->guide)
		LIST_REMOVE(seq, link);
	seq->guide = NULL;
}

/* ---- a guide's life ---- */

enum svc_code gr_guide_open(struct gr_grammar *grammar_take, const struct gr_trie *trie,
			    uint32_t n_vocab, struct gr_guide **ret_guide, struct svc_err *err)
{
	struct gr_guide *guide = calloc(1, sizeof *guide);
	if (!guide) {
		gr_free(grammar_take);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	}
	guide->grammar = grammar_take;
	guide->trie = trie;
	guide->n_vocab = n_vocab;
	guide->n_words = (n_vocab + 31) / 32;
	guide->locals = calloc(grammar_take->n_states, sizeof *guide->locals);
	guide->scratch = malloc(guide->n_words * sizeof *guide->scratch);
	guide->path = calloc(trie->depth_max + 1, sizeof *guide->path);
	guide->todo = malloc(TODO_MAX * sizeof *guide->todo);
	LIST_INIT(&guide->seqs);
	enum svc_code code = SVC_OK;
	if (!guide->locals || !guide->scratch || !guide->path || !guide->todo)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	if (code == SVC_OK)
		code = gr_pool_open(&guide->pool, grammar_take, err);
	if (code != SVC_OK) {
		gr_guide_free(guide);
		return code;
	}
	*ret_guide = guide;
	return SVC_OK;
}

struct gr_guide *gr_guide_free(struct gr_guide *guide)
{
	if (!guide)
		return NULL;
	if (guide->locals)
		locals_forget(guide);
	gr_pool_close(&guide->pool);
	gr_free(guide->grammar);
	free(guide->locals);
	free(guide->scratch);
	free(guide->path);
	free(guide->todo);
	free(guide);
	return NULL;
}

void gr_guide_on_work(struct gr_guide *guide, void (*on_work)(void *), void *data)
{
	guide->on_work = on_work;
	guide->data = data;
}

bool gr_guide_is_idle(const struct gr_guide *guide)
{
	return LIST_EMPTY(&guide->seqs);
}
