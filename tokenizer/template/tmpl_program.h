/* tokenizer/template/tmpl_program.h: a compiled template: its syntax tree, and the functions built
 * in. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_state.h"

enum tmpl_node_type {
	/* expressions */
	NODE_CONST,   /* value */
	NODE_NAME,    /* symbol */
	NODE_LIST,    /* first: items */
	NODE_TUPLE,   /* first: items */
	NODE_DICT,    /* first: key, value, key, value ... */
	NODE_ATTR,    /* a.text */
	NODE_ITEM,    /* a[b] */
	NODE_SLICE,   /* a[b:c:d] */
	NODE_CALL,    /* a(args) */
	NODE_FILTER,  /* a | builtin(args); text: its name */
	NODE_IS,      /* a is builtin(args); text: its name */
	NODE_UNARY,   /* op a; op + - ! (not) */
	NODE_BINARY,  /* a op b; op as tmpl_arithmetic, & (and), | (or) */
	NODE_CONCAT,  /* first: operands of ~ */
	NODE_COMPARE, /* a, then first: NODE_OPERANDs */
	NODE_OPERAND, /* op a; op < > l (<=) g (>=) = n (!=) i (in) o (not in) */
	NODE_COND,    /* b if a else c; c may be NULL */
	NODE_HOLE,    /* the text a filter block works on */
	/* statements; symbol, or a tuple of targets, in target */
	NODE_DATA,	   /* text */
	NODE_OUTPUT,	   /* a */
	NODE_SET,	   /* target = a */
	NODE_SET_BLOCK,	   /* target = body, through a, which holds the hole */
	NODE_FOR,	   /* target in a if b: body, else other; flag: recursive */
	NODE_IF,	   /* a: body, else other */
	NODE_MACRO,	   /* macro */
	NODE_CALL_BLOCK,   /* a (a NODE_CALL) with macro as caller */
	NODE_FILTER_BLOCK, /* body through a, which holds the hole */
	NODE_SCOPE,	   /* first: targets, values in turn; body. `with`, `generation` */
	NODE_BREAK,
	NODE_CONTINUE,
	/* targets */
	NODE_TARGET_NAME, /* symbol */
	NODE_TARGET_ATTR, /* symbol.text: of a namespace */
	NODE_TARGET_LIST, /* first: targets */
};

/* The variables that a block assigns and that begin without a value there (see tmpl_names.c). */
struct tmpl_unset {
	uint32_t *symbols;
	uint32_t count;
};

struct tmpl_node {
	enum tmpl_node_type type;
	uint32_t line;
	uint32_t symbol;
	char op;
	bool flag;
	const struct tmpl_str *text;
	struct tmpl_value value;
	struct tmpl_node *next; /* in a list of items, operands or statements */
	struct tmpl_node *a, *b, *c, *d;
	struct tmpl_node *first, *target, *body, *other;
	const struct tmpl_builtin *builtin;
	struct tmpl_macro *macro;
	struct tmpl_argument *args;
	struct tmpl_unset unset, unset_else; /* of body, and of other */
};

struct tmpl_argument {
	struct tmpl_argument *next;
	const struct tmpl_str *name; /* NULL: by position */
	int stars;		     /* 1: *list, 2: **dict */
	struct tmpl_node *value;
};

struct tmpl_parameter {
	uint32_t symbol;
	const struct tmpl_str *name;
	struct tmpl_node *fallback; /* NULL: none */
};

struct tmpl_macro {
	const struct tmpl_str *name; /* NULL: the body of a call block */
	struct tmpl_parameter *parameters;
	size_t count;
	struct tmpl_node *body;
	/* Whether the body names these variables, and takes what they hold. */
	bool uses_caller, uses_kwargs, uses_varargs;
	struct tmpl_unset unset;
};

/* A macro together with the variables it sees. */
struct tmpl_closure {
	const struct tmpl_macro *macro;
	struct tmpl_scope *scope;
};

/* Symbols that the engine itself names come first. */
enum { SYMBOL_LOOP, SYMBOL_CALLER, SYMBOL_KWARGS, SYMBOL_VARARGS, SYMBOL_FIRST_FREE };

struct tmpl_symbol {
	const struct tmpl_str *name;
	bool assigned; /* somewhere in the template; else it can only come from the input */
};

struct tmpl {
	struct arena arena;
	struct tmpl_node *body;
	struct tmpl_symbol *symbols;
	uint32_t symbol_count;
	struct tmpl_unset unset;
	struct tmpl_list *names; /* every attribute and string constant, for tmpl_mentions */
};

#define TMPL_MAX_ARGS 6

struct tmpl_args {
	struct tmpl_list list;
	struct tmpl_dict named;
};

/* One call of a builtin. */
struct tmpl_call {
	const struct tmpl_builtin *builtin;
	struct tmpl_value self;		      /* what is filtered, tested, or the method's object */
	struct tmpl_value arg[TMPL_MAX_ARGS]; /* by parameter; TV_MISSING where none was given */
	const struct tmpl_args *args;	      /* as given, for builtins that take any */
};

/* A filter, test, method or function. parameters: names, comma separated; after a leading '/' they
 * go by position only; NULL: takes any arguments, and looks at args itself. */
struct tmpl_builtin {
	const char *name;
	bool (*run)(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret);
	const char *parameters;
	uint8_t required;
	uint8_t detail; /* tells apart builtins that share run */
	bool markup;	/* of a string method: what it gives is markup if its object is */
};

const struct tmpl_builtin *tmpl_filter_find(struct span name);
const struct tmpl_builtin *tmpl_is_find(struct span name);
/* A global function; NULL if there is none. */
const struct tmpl_builtin *tmpl_function_find(struct span name);
/* A filter or test without a builtin: there is none of its name. Returns false. */
bool tmpl_fail_unknown(struct tmpl_eval *e, const struct tmpl_node *node);
