/* grammar/grammar.h: a language of byte strings, compiled from its one text form (GBNF, see
 * docs/structured-output.md) to a pushdown automaton over bytes. Every other form (JSON schema,
 * regular expression, list of choices) is translated to that text first. Immutable once compiled;
 * may be shared by threads. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

#define GR_TEXT_MAX   (512u << 10) /* bytes of a grammar's text */
#define GR_RULES_MAX  16384u
#define GR_NESTING    128u /* brackets within brackets */
#define GR_REPEAT_MAX 65536u
#define GR_STATES_MAX 400000u
#define GR_EDGES_MAX  1000000u
/* Rules within rules while a text is read; deeper texts are not part of the language. */
#define GR_DEPTH_MAX 512u

/* From one state to another by one byte of a range (rule == GR_NONE), or by a whole text of a rule.
 */
struct gr_edge {
	uint32_t to, rule;
	uint8_t low, high;
};

struct gr_state {
	uint32_t edge, n_edges; /* in gr_grammar.edges */
	uint16_t need;		/* rules within rules that the way to the rule's end takes */
	bool accepts;		/* the rule may end here */
};

#define GR_NONE UINT32_MAX

/* One token by its number, in the text form <[ID]>: what steers a model has no bytes of its own, so
 * it stands in the language as bytes that no text has. */
#define GR_TOKEN_CODE_BYTES 4u
#define GR_TOKEN_MAX	    0xFFFFFFu
void gr_token_code(uint32_t id, char ret_code[GR_TOKEN_CODE_BYTES]);
/* False for what could only be part of such a code: tokens of single bytes must not spell one. */
bool gr_is_text(struct span bytes);

struct gr_grammar {
	struct gr_state *states;
	struct gr_edge *edges;
	uint32_t *starts; /* [n_rules]: each rule's first state */
	uint32_t n_states, n_edges, n_rules, root;
	bool names_tokens;    /* <[ID]> is somewhere in it */
	uint8_t classes[256]; /* bytes of one class have the same edges everywhere */
	uint32_t n_classes;
};

/* Compiles a grammar whose start is the rule `root`. Every state of the result can reach its rule's
 * end. SVC_INVALID or SVC_TOO_LARGE with err.param "grammar": syntax, a rule that is missing or
 * left-recursive, a limit above, or a language without any text; names line and byte, or the rule.
 */
enum svc_code gr_compile(struct span text, struct gr_grammar **ret_grammar,
			 struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct gr_grammar *gr_free(struct gr_grammar *grammar);
