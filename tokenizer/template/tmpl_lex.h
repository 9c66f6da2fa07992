/* tokenizer/template/tmpl_lex.h: a template's source as tokens, white space already as trim_blocks
 * and lstrip_blocks have it (the way transformers sets Jinja up). Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_state.h"

enum tmpl_token_type {
	TOKEN_END, /* of the template */
	TOKEN_DATA,
	TOKEN_VARIABLE_BEGIN,
	TOKEN_VARIABLE_END,
	TOKEN_BLOCK_BEGIN,
	TOKEN_BLOCK_END,
	TOKEN_NAME,
	TOKEN_STRING,
	TOKEN_NUMBER,
	TOKEN_OPERATOR,
};

struct tmpl_token {
	enum tmpl_token_type type;
	/* One character; p for **, f for //, = for ==, n for !=, g for >=, l for <=, a for =. */
	char op;
	uint32_t line;
	struct span text;	 /* as in the source; of TOKEN_STRING without escapes */
	struct tmpl_value value; /* of TOKEN_NUMBER */
};

/* The tokens live in e's arena; the last one is TOKEN_END. NULL after a failure. */
struct tmpl_token *tmpl_lex(struct tmpl_eval *e, struct span source);
