/* Statements and scopes. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_print.h"

struct tmpl_scope *tmpl_scope_open(struct tmpl_eval *e, struct tmpl_scope *around)
{
	struct tmpl_scope *scope = tmpl_alloc(e, 1, sizeof *scope);
	if (scope)
		scope->around = around;
	return scope;
}

bool tmpl_scope_set(struct tmpl_eval *e, struct tmpl_scope *scope, uint32_t symbol,
		    struct tmpl_value value)
{
	for (uint32_t i = 0; i < scope->count; i++)
		if (scope->items[i].symbol == symbol) {
			scope->items[i].value = value;
			return tmpl_charge(e, i / 64);
		}
	if (scope->count == scope->room) {
		uint32_t room = scope->room ? scope->room * 2 : 4;
		struct tmpl_binding *items = tmpl_alloc(e, room, sizeof *items);
		if (!items)
			return false;
		if (scope->count)
			memcpy(items, scope->items, scope->count * sizeof *items);
		scope->items = items;
		scope->room = room;
	}
	scope->items[scope->count++] = (struct tmpl_binding){symbol, value};
	return tmpl_charge(e, scope->count / 64);
}

bool tmpl_scope_unset(struct tmpl_eval *e, struct tmpl_scope *scope, struct tmpl_unset unset)
{
	for (uint32_t i = 0; i < unset.count; i++)
		if (!tmpl_scope_set(e, scope, unset.symbols[i],
				    (struct tmpl_value){.kind = TV_MISSING}))
			return false;
	return true;
}

static bool assign_attr(struct tmpl_eval *e, const struct tmpl_node *target,
			struct tmpl_value value)
{
	struct tmpl_value space;
	if (!tmpl_eval_name(e, target->symbol, &space))
		return false;
	if (space.kind != TV_NAMESPACE)
		return tmpl_fail(e, SVC_INVALID,
				 "can't set an attribute of a %s, only of a "
				 "namespace",
				 tmpl_type_name(space));
	if (target->text->ptr[0] == '_')
		return tmpl_fail(e, SVC_INVALID, "a namespace's attribute can't begin with _");
	return tmpl_dict_set(e, space.dict, tmpl_str_value(target->text), value);
}

static bool assign_list(struct tmpl_eval *e, const struct tmpl_node *target,
			struct tmpl_scope *scope, struct tmpl_value value)
{
	if (value.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, value);
	struct tmpl_list *items = tmpl_collect(e, value);
	if (!items)
		return false;
	size_t wanted = 0, at = 0;
	for (const struct tmpl_node *each = target->first; each; each = each->next)
		wanted++;
	if (wanted != items->count)
		return tmpl_fail(e, SVC_INVALID, "can't unpack %zu values into %zu names",
				 items->count, wanted);
	for (const struct tmpl_node *each = target->first; each; each = each->next)
		if (!tmpl_assign_target(e, each, scope, items->items[at++]))
			return false;
	return true;
}

bool tmpl_assign_target(struct tmpl_eval *e, const struct tmpl_node *target,
			struct tmpl_scope *scope, struct tmpl_value value)
{
	if (target->type == NODE_TARGET_NAME)
		return tmpl_scope_set(e, scope, target->symbol, value);
	if (target->type == NODE_TARGET_ATTR)
		return assign_attr(e, target, value);
	if (!tmpl_enter(e) || !assign_list(e, target, scope, value))
		return false;
	tmpl_leave(e);
	return true;
}

enum tmpl_flow tmpl_capture(struct tmpl_eval *e, const struct tmpl_node *body,
			    struct tmpl_scope *scope, struct tmpl_value *ret)
{
	struct tmpl_scope *outer_scope = e->scope;
	struct tmpl_builder *outer = e->out, inner;
	tmpl_build(&inner, e, 0);
	e->scope = scope;
	e->out = &inner;
	enum tmpl_flow flow = tmpl_exec(e, body);
	e->scope = outer_scope;
	e->out = outer;
	if (flow != FLOW_NEXT)
		return flow;
	const struct tmpl_str *text = tmpl_built(&inner);
	*ret = tmpl_str_value(text);
	return text ? FLOW_NEXT : FLOW_FAILED;
}

/* body's output through the filters of node->a. */
static enum tmpl_flow filtered(struct tmpl_eval *e, const struct tmpl_node *node,
			       struct tmpl_value *ret)
{
	struct tmpl_value text, outer = e->hole;
	struct tmpl_scope *scope = tmpl_scope_open(e, e->scope);
	if (!scope || !tmpl_scope_unset(e, scope, node->unset))
		return FLOW_FAILED;
	enum tmpl_flow flow = tmpl_capture(e, node->body, scope, &text);
	if (flow != FLOW_NEXT)
		return flow;
	e->hole = text;
	bool ok = tmpl_eval_node(e, node->a, ret);
	e->hole = outer;
	return ok ? FLOW_NEXT : FLOW_FAILED;
}

static enum tmpl_flow exec_set(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_value value;
	if (node->type == NODE_SET) {
		if (!tmpl_eval_node(e, node->a, &value))
			return FLOW_FAILED;
	} else {
		enum tmpl_flow flow = filtered(e, node, &value);
		if (flow != FLOW_NEXT)
			return flow;
	}
	return tmpl_assign_target(e, node->target, e->scope, value) ? FLOW_NEXT : FLOW_FAILED;
}

static bool output(struct tmpl_eval *e, struct tmpl_value value)
{
	return tmpl_print(e->out, value) && !e->out->failed;
}

static enum tmpl_flow exec_if(struct tmpl_eval *e, const struct tmpl_node *node)
{
	for (;;) {
		struct tmpl_value test;
		if (!tmpl_eval_node(e, node->a, &test))
			return FLOW_FAILED;
		if (tmpl_truth(test))
			return tmpl_exec(e, node->body);
		/* A chain of elif, however long, doesn't nest. */
		if (!node->other || node->other->type != NODE_IF || node->other->next)
			return tmpl_exec(e, node->other);
		node = node->other;
	}
}

static enum tmpl_flow exec_scope(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_scope *scope = tmpl_scope_open(e, e->scope);
	if (!scope || !tmpl_scope_unset(e, scope, node->unset))
		return FLOW_FAILED;
	for (const struct tmpl_node *at = node->first; at; at = at->next->next) {
		struct tmpl_value value;
		if (!tmpl_eval_node(e, at->next, &value) ||
		    !tmpl_assign_target(e, at, scope, value))
			return FLOW_FAILED;
	}
	e->scope = scope;
	enum tmpl_flow flow = tmpl_exec(e, node->body);
	e->scope = scope->around;
	return flow;
}

static bool closure(struct tmpl_eval *e, const struct tmpl_macro *macro, struct tmpl_value *ret)
{
	struct tmpl_closure *made = tmpl_alloc(e, 1, sizeof *made);
	if (!made)
		return false;
	*made = (struct tmpl_closure){.macro = macro, .scope = e->scope};
	*ret = (struct tmpl_value){.kind = TV_MACRO, .trusted = true, .macro = made};
	return true;
}

static bool exec_macro(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_value macro;
	return closure(e, node->macro, &macro) && tmpl_scope_set(e, e->scope, node->symbol, macro);
}

static bool exec_call_block(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_value callee, caller, result;
	struct tmpl_args args;
	const struct tmpl_node *call = node->a;
	const struct tmpl_str *name = e->tmpl->symbols[SYMBOL_CALLER].name;
	return closure(e, node->macro, &caller) && tmpl_eval_node(e, call->a, &callee) &&
	       tmpl_eval_args(e, call->args, &args) &&
	       tmpl_dict_set(e, &args.named, tmpl_str_value(name), caller) &&
	       tmpl_call_value(e, callee, &args, &result) && output(e, result);
}

static enum tmpl_flow exec_for(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_value items, text;
	if (!tmpl_eval_node(e, node->a, &items))
		return FLOW_FAILED;
	if (!node->flag)
		return tmpl_exec_for(e, node, e->scope, items, 0);
	/* A recursive loop's output is a string first, as that of the calls within it is. */
	struct tmpl_builder *outer = e->out, inner;
	tmpl_build(&inner, e, 0);
	e->out = &inner;
	enum tmpl_flow flow = tmpl_exec_for(e, node, e->scope, items, 0);
	e->out = outer;
	if (flow != FLOW_NEXT)
		return flow;
	text = tmpl_str_value(tmpl_built(&inner));
	return text.str && output(e, text) ? FLOW_NEXT : FLOW_FAILED;
}

static enum tmpl_flow exec_statement(struct tmpl_eval *e, const struct tmpl_node *node)
{
	struct tmpl_value value;
	enum tmpl_flow flow;
	bool ok = true;
	e->line = node->line;
	switch ((int)node->type) {
	case NODE_DATA:
		tmpl_add(e->out, node->text);
		ok = !e->out->failed;
		break;
	case NODE_OUTPUT:
		ok = tmpl_eval_node(e, node->a, &value) && output(e, value);
		break;
	case NODE_SET:
	case NODE_SET_BLOCK:
		return exec_set(e, node);
	case NODE_FOR:
		return exec_for(e, node);
	case NODE_IF:
		return exec_if(e, node);
	case NODE_MACRO:
		ok = exec_macro(e, node);
		break;
	case NODE_CALL_BLOCK:
		ok = exec_call_block(e, node);
		break;
	case NODE_FILTER_BLOCK:
		flow = filtered(e, node, &value);
		if (flow != FLOW_NEXT)
			return flow;
		ok = output(e, value);
		break;
	case NODE_SCOPE:
		return exec_scope(e, node);
	case NODE_BREAK:
		return FLOW_BREAK;
	case NODE_CONTINUE:
		return FLOW_CONTINUE;
	default:
		ok = tmpl_fail(e, SVC_INTERNAL, "not a statement: node %d", (int)node->type);
		break;
	}
	return ok ? FLOW_NEXT : FLOW_FAILED;
}

enum tmpl_flow tmpl_exec(struct tmpl_eval *e, const struct tmpl_node *body)
{
	if (!tmpl_enter(e))
		return FLOW_FAILED;
	enum tmpl_flow flow = FLOW_NEXT;
	for (; body && flow == FLOW_NEXT; body = body->next)
		flow = tmpl_charge(e, 1) ? exec_statement(e, body) : FLOW_FAILED;
	tmpl_leave(e);
	return flow;
}
