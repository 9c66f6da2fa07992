/* grammar/compile.c: from a draft with empty moves to states that all read something or end a rule.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/draft.h"

#define EDGES_FIRST 1024u

struct compile {
	const struct draft *draft;
	struct gr_grammar *grammar;
	uint32_t room_edges;
	uint32_t *state_of;    /* [draft->n_states]: its state in the grammar */
	uint32_t *draft_of;    /* the way back; also what is still to be done */
	uint32_t *seen;	       /* [draft->n_states]: the last state whose empty moves came here */
	uint32_t *stack;       /* [draft->n_states] */
	unsigned char *is_end; /* [draft->n_states]: a rule ends here */
};

/* The state that a draft's state becomes; new ones are done later. */
static uint32_t state_take(struct compile *compile, uint32_t at)
{
	if (compile->state_of[at] == GR_NONE) {
		compile->state_of[at] = compile->grammar->n_states;
		compile->draft_of[compile->grammar->n_states++] = at;
	}
	return compile->state_of[at];
}

static bool edge_add(struct compile *compile, struct gr_edge edge)
{
	struct gr_grammar *grammar = compile->grammar;
	if (grammar->n_edges >= GR_EDGES_MAX)
		return false;
	if (grammar->n_edges == compile->room_edges) {
		uint32_t room = 2 * compile->room_edges;
		struct gr_edge *edges = realloc(grammar->edges, room * sizeof *edges);
		if (!edges)
			return false;
		grammar->edges = edges;
		compile->room_edges = room;
	}
	grammar->edges[grammar->n_edges++] = edge;
	return true;
}

/* Follows the empty moves from a state; each is seen once. */
static bool state_fill(struct compile *compile, uint32_t state)
{
	struct gr_state *mine = &compile->grammar->states[state];
	uint32_t n = 0;
	*mine = (struct gr_state){.edge = compile->grammar->n_edges};
	compile->stack[n++] = compile->draft_of[state];
	compile->seen[compile->draft_of[state]] = state;
	while (n) {
		uint32_t at = compile->stack[--n];
		const struct draft_state *draft = &compile->draft->states[at];
		mine->accepts |= compile->is_end[at];
		if (draft->kind != DRAFT_EMPTY) {
			struct gr_edge edge = {.to = state_take(compile, draft->to),
					       .rule = draft->kind == DRAFT_RULE ? draft->rule
										 : GR_NONE,
					       .low = draft->low,
					       .high = draft->high};
			if (!edge_add(compile, edge))
				return false;
			continue;
		}
		const uint32_t next[] = {draft->to2, draft->to};
		for (size_t i = 0; i < 2; i++)
			if (next[i] != GR_NONE && compile->seen[next[i]] != state) {
				compile->seen[next[i]] = state;
				compile->stack[n++] = next[i];
			}
	}
	mine->n_edges = compile->grammar->n_edges - mine->edge;
	return true;
}

static bool compile_open(struct compile *compile)
{
	size_t n = compile->draft->n_states;
	struct gr_grammar *grammar = compile->grammar;
	grammar->states = calloc(n, sizeof *grammar->states);
	grammar->edges = malloc(EDGES_FIRST * sizeof *grammar->edges);
	compile->room_edges = EDGES_FIRST;
	grammar->starts = calloc(compile->draft->n_rules, sizeof *grammar->starts);
	compile->state_of = malloc(n * sizeof *compile->state_of);
	compile->draft_of = malloc(n * sizeof *compile->draft_of);
	compile->seen = malloc(n * sizeof *compile->seen);
	compile->stack = malloc(n * sizeof *compile->stack);
	compile->is_end = calloc(n, 1);
	if (!grammar->states || !grammar->edges || !grammar->starts || !compile->state_of ||
	    !compile->draft_of || !compile->seen || !compile->stack || !compile->is_end)
		return false;
	memset(compile->state_of, 0xFF, n * sizeof *compile->state_of);
	memset(compile->seen, 0xFF, n * sizeof *compile->seen);
	return true;
}

static void compile_close(struct compile *compile)
{
	free(compile->state_of);
	free(compile->draft_of);
	free(compile->seen);
	free(compile->stack);
	free(compile->is_end);
}

static void classes_find(struct gr_grammar *grammar)
{
	bool cut[257] = {false};
	for (uint32_t i = 0; i < grammar->n_edges; i++) {
		const struct gr_edge *edge = &grammar->edges[i];
		if (edge->rule != GR_NONE)
			continue;
		cut[edge->low] = true;
		cut[edge->high + 1] = true;
	}
	uint8_t class = 0;
	for (unsigned byte = 0; byte < 256; byte++) {
		class = (uint8_t)(class + (byte && cut[byte]));
		grammar->classes[byte] = class;
	}
	grammar->n_classes = class + 1u;
}

enum svc_code draft_compile(const struct draft *draft, uint32_t root, struct gr_grammar *grammar,
			    struct svc_err *err)
{
	struct compile compile = {.draft = draft, .grammar = grammar};
	grammar->n_rules = draft->n_rules;
	grammar->root = root;
	bool fits = compile_open(&compile);
	for (uint32_t i = 0; fits && i < draft->n_rules; i++) {
		compile.is_end[draft->rules[i].end] = 1;
		grammar->starts[i] = state_take(&compile, draft->rules[i].start);
	}
	for (uint32_t i = 0; fits && i < grammar->n_states; i++)
		fits = state_fill(&compile, i);
	compile_close(&compile);
	if (!fits)
		return gr_large(err,
				"grammar refused: more than %u ways from state to state; shorten "
				"lists and repetitions",
				GR_EDGES_MAX);
	classes_find(grammar);
	return SVC_OK;
}

enum svc_code gr_compile(struct span text, struct gr_grammar **ret_grammar, struct svc_err *err)
{
	struct draft draft = {0};
	struct gr_grammar *grammar = calloc(1, sizeof *grammar);
	uint32_t root = 0;
	if (!grammar)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	enum svc_code code = draft_read(&draft, text, &root, err);
	if (code == SVC_OK)
		code = draft_compile(&draft, root, grammar, err);
	if (code == SVC_OK)
		code = gr_analyse(grammar, &draft, err);
	grammar->names_tokens = draft.names_tokens;
	draft_clear(&draft);
	if (code != SVC_OK) {
		gr_free(grammar);
		return code;
	}
	*ret_grammar = grammar;
	return SVC_OK;
}

struct gr_grammar *gr_free(struct gr_grammar *grammar)
{
	if (grammar) {
		free(grammar->states);
		free(grammar->edges);
		free(grammar->starts);
	}
	free(grammar);
	return NULL;
}
