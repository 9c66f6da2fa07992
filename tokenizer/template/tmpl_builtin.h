/* tokenizer/template/tmpl_builtin.h: what the tables of filters, tests, methods and functions
 * share. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_program.h"

/* A method without run: unsafe ones change their object, which the sandbox forbids (reading the
 * attribute gives undefined); the others exist in Python, but not here. */
enum { METHOD_UNSUPPORTED, METHOD_UNSAFE };

const struct tmpl_builtin *tmpl_method_find(enum tmpl_kind kind, struct span name);

/* The tables, each in its own file. */
extern const struct tmpl_builtin tmpl_text_filters[], tmpl_sequence_filters[],
	tmpl_select_filters[];
extern const size_t tmpl_text_filter_count, tmpl_sequence_filter_count, tmpl_select_filter_count;

/* In one table; helps tmpl_filter_find and its like. */
const struct tmpl_builtin *tmpl_builtin_find(const struct tmpl_builtin *table, size_t count,
					     struct span name);

/* Calls a filter or test by what was given for its parameters. */
bool tmpl_builtin_call(struct tmpl_eval *e, const struct tmpl_builtin *builtin,
		       struct tmpl_value self, const struct tmpl_args *args,
		       struct tmpl_value *ret);
/* Calls anything callable. */
bool tmpl_call_value(struct tmpl_eval *e, struct tmpl_value callee, const struct tmpl_args *args,
		     struct tmpl_value *ret);

static inline bool tmpl_given(struct tmpl_value value)
{
	return value.kind != TV_MISSING;
}

/* Given and not None. */
static inline bool tmpl_set(struct tmpl_value value)
{
	return value.kind != TV_MISSING && value.kind != TV_NONE;
}

/* The integer argument at i, or fallback if it wasn't given. */
bool tmpl_arg_int(struct tmpl_eval *e, const struct tmpl_call *call, int i, int64_t fallback,
		  int64_t *ret);
/* The string argument at i, or fallback if it wasn't given (or is None). */
bool tmpl_arg_str(struct tmpl_eval *e, const struct tmpl_call *call, int i,
		  const struct tmpl_str *fallback, const struct tmpl_str **ret);
/* A string to return; fails if str is NULL. */
bool tmpl_return(const struct tmpl_str *str, struct tmpl_value *ret);

/* item.a.b.0, as map, sort and their like look up attributes. path: a string, an integer or
 * TV_MISSING for the item itself. fallback: TV_MISSING, or what replaces undefined. */
bool tmpl_follow(struct tmpl_eval *e, struct tmpl_value item, struct tmpl_value path,
		 struct tmpl_value fallback, struct tmpl_value *ret);
/* Strings in lower case unless case counts, other values as they are. */
bool tmpl_fold_case(struct tmpl_eval *e, struct tmpl_value value, bool case_counts,
		    struct tmpl_value *ret);
