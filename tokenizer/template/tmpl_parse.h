/* tokenizer/template/tmpl_parse.h: tokens to a syntax tree. Recursive descent with Jinja's
 * precedences; every function returns NULL (or false) after a failure. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_lex.h"
#include "tokenizer/template/tmpl_program.h"

/* Names seen so far, by an open-addressing table of number + 1. */
struct tmpl_symbol_table {
	struct tmpl_symbol *items;
	uint32_t count, room;
	uint32_t *slots;
	size_t slot_count;
};

/* The body of a macro or call block being parsed: a function of its own. */
struct tmpl_body {
	struct tmpl_body *around;
	struct tmpl_macro *macro; /* NULL: the template */
	unsigned loops;		  /* for blocks around the current place */
};

struct tmpl_parser {
	struct tmpl_eval *e;
	struct tmpl_token *at; /* the current token */
	struct tmpl *tmpl;
	struct tmpl_symbol_table symbols;
	struct tmpl_body *body;
	unsigned depth;
	/* The first filter or test that doesn't exist and isn't within a condition. Within one it
	 * is an error only if it is reached, so that a template may ask first ('x' is filter). */
	const struct tmpl_node *unknown;
};

#define TMPL_PARSE_DEPTH 200

struct tmpl_node *tmpl_node_new(struct tmpl_parser *p, enum tmpl_node_type type);
/* Limits nesting; each true is followed by p->depth--. */
bool tmpl_parse_enter(struct tmpl_parser *p);
void tmpl_parse_failed(struct tmpl_parser *p, const char *expected);
/* False, as tmpl_fail. */
#define tmpl_parse_fail(p, expected) (tmpl_parse_failed(p, expected), false)
bool tmpl_is_op(const struct tmpl_parser *p, char op);
bool tmpl_is_name(const struct tmpl_parser *p, const char *name);
/* Steps over it if it is the current token. */
bool tmpl_skip_op(struct tmpl_parser *p, char op);
bool tmpl_skip_name(struct tmpl_parser *p, const char *name);
/* Must be there. */
bool tmpl_take_op(struct tmpl_parser *p, char op);
bool tmpl_take_name(struct tmpl_parser *p, struct span *ret_name);

/* The symbol of a name, made if new. */
bool tmpl_symbol(struct tmpl_parser *p, struct span name, uint32_t *ret_symbol);
/* A string constant in the template's memory; also what tmpl_mentions looks through. */
const struct tmpl_str *tmpl_constant(struct tmpl_parser *p, struct span text);
/* `caller`, `kwargs` and `varargs` are special in a macro that reads them. */
void tmpl_note_use(struct tmpl_parser *p, uint32_t symbol);

enum { PARSE_NO_COND = 1, PARSE_END_RECURSIVE = 2, PARSE_PARENTHESES = 4 };

struct tmpl_node *tmpl_parse_expr(struct tmpl_parser *p, bool with_cond);
/* One expression, or several with commas as a tuple. */
struct tmpl_node *tmpl_parse_tuple(struct tmpl_parser *p, unsigned options);
/* |filter|filter on input; at least one if `first` (whose name comes without a bar). */
struct tmpl_node *tmpl_parse_filters(struct tmpl_parser *p, struct tmpl_node *input, bool first);

/* Fills every unset of a parsed template. */
bool tmpl_find_unset(struct tmpl_eval *e, struct tmpl *tmpl);
