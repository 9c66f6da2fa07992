/* grammar/analyse.c: what must hold of a grammar before a text is made with it: no rule begins with
 * itself, and from every state its rule's end can be reached within the depth that a text may
 * have. */
#include <stdlib.h>
#include <string.h>

#include "grammar/draft.h"

/* Rounds over all edges until nothing changes; a grammar that needs more is refused. */
#define WORK_MAX 100000000u
/* Rules that begin within each other. */
#define WALK_MAX 4096u

static const struct gr_edge *edges_of(const struct gr_grammar *grammar, uint32_t state)
{
	return grammar->edges + grammar->states[state].edge;
}

/* A rule that is called as the last thing takes its caller's place. */
static bool is_last(const struct gr_grammar *grammar, uint32_t state)
{
	return grammar->states[state].accepts && grammar->states[state].n_edges == 0;
}

/* ---- depth ---- */

#define NEED_NONE UINT16_MAX

static uint16_t edge_need(const struct gr_grammar *grammar, const struct gr_edge *edge)
{
	uint16_t after = grammar->states[edge->to].need;
	if (edge->rule == GR_NONE)
		return after;
	uint16_t within = grammar->states[grammar->starts[edge->rule]].need;
	if (after == NEED_NONE || within == NEED_NONE)
		return NEED_NONE;
	within = (uint16_t)(within + !is_last(grammar, edge->to));
	return within > after ? within : after;
}

/* Lowers one state's need; returns whether it changed. */
static bool need_lower(struct gr_grammar *grammar, uint32_t at)
{
	struct gr_state *state = &grammar->states[at];
	uint16_t least = state->accepts ? 0 : NEED_NONE;
	for (uint32_t i = 0; i < state->n_edges; i++) {
		uint16_t need = edge_need(grammar, edges_of(grammar, at) + i);
		least = need < least ? need : least;
	}
	bool lower = least < state->need;
	state->need = lower ? least : state->need;
	return lower;
}

static bool needs_find(struct gr_grammar *grammar)
{
	bool changed = true;
	for (uint32_t i = 0; i < grammar->n_states; i++)
		grammar->states[i].need = NEED_NONE;
	for (uint64_t work = 0; changed && work < WORK_MAX;) {
		changed = false;
		for (uint32_t i = grammar->n_states; i > 0; i--)
			changed |= need_lower(grammar, i - 1);
		work += (uint64_t)grammar->n_edges + grammar->n_states;
	}
	return !changed;
}

/* Leaves only edges from which the end can be reached. */
static void edges_trim(struct gr_grammar *grammar)
{
	for (uint32_t i = 0; i < grammar->n_states; i++) {
		struct gr_state *state = &grammar->states[i];
		struct gr_edge *edges = grammar->edges + state->edge;
		uint32_t kept = 0;
		for (uint32_t at = 0; at < state->n_edges; at++)
			if (edge_need(grammar, &edges[at]) != NEED_NONE)
				edges[kept++] = edges[at];
		state->n_edges = kept;
	}
}

/* ---- left recursion ---- */

struct search {
	const struct gr_grammar *grammar;
	unsigned char *nullable; /* [n_states]: its rule can end from here without a byte */
	unsigned char *seen;	 /* [n_states] */
	unsigned char *colour;	 /* [n_rules]: 0 new, 1 on the way, 2 done */
	uint32_t rule;		 /* where a walk came back to */
};

static void nullable_find(const struct search *search)
{
	const struct gr_grammar *grammar = search->grammar;
	for (bool changed = true; changed;) {
		changed = false;
		for (uint32_t i = grammar->n_states; i > 0; i--) {
			uint32_t at = i - 1;
			bool nullable = grammar->states[at].accepts;
			const struct gr_edge *edge = edges_of(grammar, at);
			for (uint32_t n = grammar->states[at].n_edges; n && !nullable; n--, edge++)
				nullable = edge->rule != GR_NONE &&
					   search->nullable[grammar->starts[edge->rule]] &&
					   search->nullable[edge->to];
			changed |= nullable && !search->nullable[at];
			search->nullable[at] |= nullable;
		}
	}
}

static bool rule_walk(struct search *search, uint32_t rule, unsigned depth);

/* The rules that can be entered from a state before a byte is read. What follows an empty text is
 * in the same rule, so coming back to it there is no recursion. */
static bool state_walk(struct search *search, uint32_t at, unsigned depth)
{
	const struct gr_grammar *grammar = search->grammar;
	const struct gr_edge *edge = edges_of(grammar, at);
	if (depth > WALK_MAX)
		return false;
	search->seen[at] = 1;
	for (uint32_t n = grammar->states[at].n_edges; n; n--, edge++) {
		if (edge->rule == GR_NONE)
			continue;
		if (!rule_walk(search, edge->rule, depth + 1))
			return false;
		if (search->nullable[grammar->starts[edge->rule]] && !search->seen[edge->to] &&
		    !state_walk(search, edge->to, depth + 1))
			return false;
	}
	return true;
}

static bool rule_walk(struct search *search, uint32_t rule, unsigned depth)
{
	if (search->colour[rule] == 2)
		return true;
	search->rule = rule;
	if (search->colour[rule] == 1)
		return false;
	search->colour[rule] = 1;
	bool ends = state_walk(search, search->grammar->starts[rule], depth);
	if (ends)
		search->colour[rule] = 2;
	return ends;
}

static enum svc_code recursion_check(const struct gr_grammar *grammar, const struct draft *draft,
				     struct svc_err *err)
{
	struct search search = {.grammar = grammar,
				.nullable = calloc(grammar->n_states, 1),
				.seen = calloc(grammar->n_states, 1),
				.colour = calloc(grammar->n_rules, 1)};
	bool room = search.nullable && search.seen && search.colour, ends = true;
	if (room) {
		nullable_find(&search);
		for (uint32_t i = 0; ends && i < grammar->n_rules; i++)
			ends = rule_walk(&search, i, 0);
	}
	free(search.nullable);
	free(search.seen);
	free(search.colour);
	if (!room)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	if (ends)
		return SVC_OK;
	struct span name = draft->rules[search.rule].name;
	return gr_wrong(err,
			"grammar refused: rule %.*s can begin with itself (left "
			"recursion), or begins with more than %u rules within each other; "
			"put what it reads before what it repeats",
			(int)(name.len < 40 ? name.len : 40), name.ptr, WALK_MAX);
}

enum svc_code gr_analyse(struct gr_grammar *grammar, const struct draft *draft, struct svc_err *err)
{
	enum svc_code code = recursion_check(grammar, draft, err);
	if (code != SVC_OK)
		return code;
	if (!needs_find(grammar))
		return gr_large(err, "grammar refused: its rules refer to each other too deeply");
	uint16_t need = grammar->states[grammar->starts[grammar->root]].need;
	if (need == NEED_NONE)
		return gr_wrong(err, "grammar refused: no text fulfils it");
	if (need > GR_DEPTH_MAX)
		return gr_large(err,
				"grammar refused: its shortest text has %u rules within each "
				"other, more than %u",
				need, GR_DEPTH_MAX);
	edges_trim(grammar);
	return SVC_OK;
}
