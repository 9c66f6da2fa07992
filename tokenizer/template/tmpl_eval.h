/* tokenizer/template/tmpl_eval.h: running a template: a walk over its tree. Internal to tmpl_*.c.
 * All bool functions return false after a failure, which is then in the rendering's state. */
#pragma once
#include "tokenizer/template/tmpl_program.h"

struct tmpl_binding {
	uint32_t symbol;
	struct tmpl_value value;
};

/* The variables of a template, loop, macro or block, within those around it. */
struct tmpl_scope {
	struct tmpl_scope *around;
	struct tmpl_binding *items;
	uint32_t count, room;
};

enum tmpl_flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };

/* What `loop` stands for: items are fetched one at a time, as a loop's filter may depend on what
 * the body does; looking ahead fetches early. */
struct tmpl_loop {
	const struct tmpl_node *node;
	struct tmpl_scope *around;
	struct tmpl_iter iter;
	struct tmpl_value after, current, before, changed;
	int64_t index0, length; /* length: -1 while unknown */
	int64_t depth0;
	bool filtered; /* what is left has passed the filter already */
};

struct tmpl_scope *tmpl_scope_open(struct tmpl_eval *e, struct tmpl_scope *around);
/* Binds what a block's names begin with where that is nothing: TV_MISSING. */
bool tmpl_scope_unset(struct tmpl_eval *e, struct tmpl_scope *scope, struct tmpl_unset unset);
bool tmpl_scope_set(struct tmpl_eval *e, struct tmpl_scope *scope, uint32_t symbol,
		    struct tmpl_value value);

bool tmpl_eval_node(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret);
/* From the scopes around, then the input, then the functions; undefined if there is none. */
bool tmpl_eval_name(struct tmpl_eval *e, uint32_t symbol, struct tmpl_value *ret);
bool tmpl_eval_args(struct tmpl_eval *e, const struct tmpl_argument *args,
		    struct tmpl_args *ret_args);
bool tmpl_binary(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b,
		 struct tmpl_value *ret);
/* op as in NODE_OPERAND. */
bool tmpl_compare(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b,
		  bool *ret);

enum tmpl_flow tmpl_exec(struct tmpl_eval *e, const struct tmpl_node *body);
/* Output of body in a scope of its own, as a string. */
enum tmpl_flow tmpl_capture(struct tmpl_eval *e, const struct tmpl_node *body,
			    struct tmpl_scope *scope, struct tmpl_value *ret);
/* Runs a for statement over items; `loop.depth0` is depth0. */
enum tmpl_flow tmpl_exec_for(struct tmpl_eval *e, const struct tmpl_node *node,
			     struct tmpl_scope *around, struct tmpl_value items, int64_t depth0);

bool tmpl_loop_fetch(struct tmpl_eval *e, struct tmpl_loop *loop, struct tmpl_value *ret);
bool tmpl_loop_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		    struct tmpl_value *ret);
/* loop(items) of a recursive loop. */
bool tmpl_loop_call(struct tmpl_eval *e, struct tmpl_loop *loop, const struct tmpl_args *args,
		    struct tmpl_value *ret);
bool tmpl_assign_target(struct tmpl_eval *e, const struct tmpl_node *target,
			struct tmpl_scope *scope, struct tmpl_value value);

/* value.name, and value[key]: Jinja's order of attribute and item. */
bool tmpl_get_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		   struct tmpl_value *ret);
bool tmpl_get_item(struct tmpl_eval *e, struct tmpl_value value, struct tmpl_value key,
		   struct tmpl_value *ret);
/* The attribute alone (a method, a field); TV_MISSING if the type has none of this name. */
bool tmpl_own_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		   struct tmpl_value *ret);
/* value[start:stop:step]; a bound is TV_MISSING or TV_NONE where it is left out. */
bool tmpl_slice(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_value bounds[3],
		struct tmpl_value *ret);

/* Binds the input's variables. */
bool tmpl_bind_input(struct tmpl_eval *e);
