/* for, and the loop variable. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"

/* The next item that the loop's filter lets pass. */
static bool next_item(struct tmpl_eval *e, struct tmpl_loop *loop, struct tmpl_value *ret)
{
	const struct tmpl_node *filter = loop->filtered ? NULL : loop->node->b;
	struct tmpl_scope *scope = NULL, *outer = e->scope;
	if (filter && !(scope = tmpl_scope_open(e, loop->around)))
		return false;
	for (;;) {
		if (!tmpl_iter_next(e, &loop->iter, ret))
			return false;
		if (!filter || ret->kind == TV_MISSING)
			return true;
		struct tmpl_value pass;
		scope->count = 0;
		e->scope = scope;
		bool ok = tmpl_assign_target(e, loop->node->target, scope, *ret) &&
			  tmpl_eval_node(e, filter, &pass);
		e->scope = outer;
		if (!ok)
			return false;
		if (tmpl_truth(pass))
			return true;
	}
}

bool tmpl_loop_fetch(struct tmpl_eval *e, struct tmpl_loop *loop, struct tmpl_value *ret)
{
	*ret = loop->after;
	if (loop->after.kind == TV_MISSING && !next_item(e, loop, ret))
		return false;
	loop->after = (struct tmpl_value){.kind = TV_MISSING};
	if (ret->kind == TV_MISSING)
		return true;
	loop->index0++;
	loop->before = loop->current;
	loop->current = *ret;
	return true;
}

static bool peek(struct tmpl_eval *e, struct tmpl_loop *loop)
{
	return loop->after.kind != TV_MISSING || next_item(e, loop, &loop->after);
}

/* Where the number of items isn't known before, all that are left are fetched now. */
static bool find_length(struct tmpl_eval *e, struct tmpl_loop *loop)
{
	size_t count;
	if (loop->length >= 0)
		return true;
	if (!loop->node->b && loop->iter.value.kind != TV_GENERATOR) {
		if (!tmpl_length(e, loop->iter.value, &count))
			return false;
		return loop->length = (int64_t)count, true;
	}
	struct tmpl_list *rest = tmpl_list_new(e, 0);
	if (!rest)
		return false;
	for (struct tmpl_value item;;) {
		if (!next_item(e, loop, &item))
			return false;
		if (item.kind == TV_MISSING)
			break;
		if (!tmpl_list_add(e, rest, item))
			return false;
	}
	loop->length = (int64_t)rest->count + loop->index0 + 1 + (loop->after.kind != TV_MISSING);
	loop->iter = (struct tmpl_iter){.value = tmpl_list_value(TV_LIST, rest)};
	loop->filtered = true;
	return true;
}

/* loop.cycle(a, b): its arguments in turn. */
static bool run_cycle(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_list *items = &call->args->list;
	if (items->count == 0)
		return tmpl_fail(e, SVC_INVALID, "loop.cycle: no items");
	*ret = items->items[(size_t)call->self.loop->index0 % items->count];
	return true;
}

/* loop.changed(a): whether it differs from the last call's. */
static bool run_changed(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_loop *loop = call->self.loop;
	struct tmpl_list *copy = tmpl_list_new(e, call->args->list.count);
	if (!copy)
		return false;
	for (size_t i = 0; i < call->args->list.count; i++)
		copy->items[copy->count++] = call->args->list.items[i];
	struct tmpl_value now = tmpl_list_value(TV_TUPLE, copy);
	bool equal;
	if (!tmpl_equal(e, loop->changed, now, &equal))
		return false;
	loop->changed = now;
	*ret = tmpl_bool(!equal);
	return true;
}

static const struct tmpl_builtin loop_methods[] = {
	{.name = "cycle", .run = run_cycle},
	{.name = "changed", .run = run_changed},
};

static bool loop_method(struct tmpl_eval *e, struct tmpl_value loop, struct span name,
			struct tmpl_value *ret)
{
	const struct tmpl_builtin *builtin =
		tmpl_builtin_find(loop_methods, sizeof loop_methods / sizeof *loop_methods, name);
	if (!builtin)
		return true;
	struct tmpl_method *method = tmpl_alloc(e, 1, sizeof *method);
	if (!method)
		return false;
	*method = (struct tmpl_method){.builtin = builtin, .self = loop};
	*ret = (struct tmpl_value){.kind = TV_METHOD, .trusted = true, .method = method};
	return true;
}

static bool item_beside(struct tmpl_eval *e, struct tmpl_value item, const char *hint,
			struct tmpl_value *ret)
{
	*ret = item;
	if (item.kind == TV_MISSING)
		*ret = tmpl_undefined(tmpl_str_static(e, hint), WHY_HINT);
	return e->code == SVC_OK;
}

enum loop_field {
	INDEX,
	INDEX0,
	REVINDEX,
	REVINDEX0,
	LENGTH,
	DEPTH,
	DEPTH0,
	FIRST,
	LAST,
	BEFORE,
	AFTER
};

static bool loop_field(struct tmpl_eval *e, struct tmpl_loop *loop, enum loop_field field,
		       struct tmpl_value *ret)
{
	switch (field) {
	case INDEX:
		return *ret = tmpl_int(loop->index0 + 1), true;
	case INDEX0:
		return *ret = tmpl_int(loop->index0), true;
	case REVINDEX:
	case REVINDEX0:
	case LENGTH:
		if (!find_length(e, loop))
			return false;
		*ret = tmpl_int(field == LENGTH	    ? loop->length
				: field == REVINDEX ? loop->length - loop->index0
						    : loop->length - loop->index0 - 1);
		return true;
	case DEPTH:
		return *ret = tmpl_int(loop->depth0 + 1), true;
	case DEPTH0:
		return *ret = tmpl_int(loop->depth0), true;
	case FIRST:
		return *ret = tmpl_bool(loop->index0 == 0), true;
	case LAST:
		if (!peek(e, loop))
			return false;
		return *ret = tmpl_bool(loop->after.kind == TV_MISSING), true;
	case BEFORE:
		return item_beside(e, loop->before, "there is no previous item", ret);
	case AFTER:
		return peek(e, loop) && item_beside(e, loop->after, "there is no next item", ret);
	}
	return true;
}

bool tmpl_loop_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		    struct tmpl_value *ret)
{
	static const char *const fields[] = {
		[INDEX] = "index",	   [INDEX0] = "index0",	 [REVINDEX] = "revindex",
		[REVINDEX0] = "revindex0", [LENGTH] = "length",	 [DEPTH] = "depth",
		[DEPTH0] = "depth0",	   [FIRST] = "first",	 [LAST] = "last",
		[BEFORE] = "previtem",	   [AFTER] = "nextitem",
	};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (span_is(tmpl_span(name), fields[i]))
			return loop_field(e, value.loop, (enum loop_field)i, ret);
	return loop_method(e, value, tmpl_span(name), ret);
}

/* One round of the body. FLOW_CONTINUE ends the round only, but is returned. */
static enum tmpl_flow run_round(struct tmpl_eval *e, struct tmpl_loop *loop,
				struct tmpl_scope *scope, struct tmpl_value item)
{
	struct tmpl_value self = {.kind = TV_LOOP, .trusted = true, .loop = loop};
	/* The scope is the same in every round, but empty. */
	scope->count = 0;
	if (!tmpl_scope_set(e, scope, SYMBOL_LOOP, self) ||
	    !tmpl_scope_unset(e, scope, loop->node->unset) ||
	    !tmpl_assign_target(e, loop->node->target, scope, item))
		return FLOW_FAILED;
	struct tmpl_scope *outer = e->scope;
	e->scope = scope;
	enum tmpl_flow flow = tmpl_exec(e, loop->node->body);
	e->scope = outer;
	return flow;
}

static enum tmpl_flow run_else(struct tmpl_eval *e, const struct tmpl_node *node,
			       struct tmpl_scope *around)
{
	struct tmpl_scope *outer = e->scope;
	e->scope = tmpl_scope_open(e, around);
	bool ok = e->scope && tmpl_scope_unset(e, e->scope, node->unset_else);
	enum tmpl_flow flow = ok ? tmpl_exec(e, node->other) : FLOW_FAILED;
	e->scope = outer;
	return flow;
}

enum tmpl_flow tmpl_exec_for(struct tmpl_eval *e, const struct tmpl_node *node,
			     struct tmpl_scope *around, struct tmpl_value items, int64_t depth0)
{
	struct tmpl_loop *loop = tmpl_alloc(e, 1, sizeof *loop);
	struct tmpl_scope *scope = tmpl_scope_open(e, around);
	if (!loop || !scope)
		return FLOW_FAILED;
	*loop = (struct tmpl_loop){
		.node = node, .around = around, .index0 = -1, .length = -1, .depth0 = depth0};
	if (!tmpl_iter_start(e, items, &loop->iter))
		return FLOW_FAILED;
	bool ran = false; /* a round to its end: Jinja's else asks for that */
	for (enum tmpl_flow flow = FLOW_NEXT; flow != FLOW_BREAK;) {
		struct tmpl_value item;
		if (!tmpl_loop_fetch(e, loop, &item))
			return FLOW_FAILED;
		if (item.kind == TV_MISSING)
			break;
		flow = run_round(e, loop, scope, item);
		if (flow == FLOW_FAILED)
			return flow;
		ran = ran || flow == FLOW_NEXT;
	}
	return !ran && node->other ? run_else(e, node, around) : FLOW_NEXT;
}

bool tmpl_loop_call(struct tmpl_eval *e, struct tmpl_loop *loop, const struct tmpl_args *args,
		    struct tmpl_value *ret)
{
	if (!loop->node->flag)
		return tmpl_fail(e, SVC_INVALID, "loop() in a loop that isn't marked recursive");
	if (args->list.count != 1 || args->named.count)
		return tmpl_fail(e, SVC_INVALID, "loop() takes one argument");
	struct tmpl_builder *outer = e->out, inner;
	tmpl_build(&inner, e, 0);
	e->out = &inner;
	enum tmpl_flow flow =
		tmpl_exec_for(e, loop->node, loop->around, args->list.items[0], loop->depth0 + 1);
	e->out = outer;
	if (flow != FLOW_NEXT)
		return tmpl_fail(e, SVC_INTERNAL, "a recursive loop was left from within");
	*ret = tmpl_str_value(tmpl_built(&inner));
	return ret->str != NULL;
}
