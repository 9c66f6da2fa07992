/* Calls: of builtins by their parameters, of macros, of anything callable. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"

const struct tmpl_builtin *tmpl_builtin_find(const struct tmpl_builtin *table, size_t count,
					     struct span name)
{
	for (size_t i = 0; i < count; i++)
		if (span_is(name, table[i].name))
			return &table[i];
	return NULL;
}

/* The number of name among comma separated parameters, or -1. *ret_count: how many there are. */
static int find_parameter(const char *parameters, struct span name, int *ret_count)
{
	int found = -1, count = 0;
	while (*parameters) {
		size_t len = strcspn(parameters, ",");
		if (name.ptr && span_equal(name, (struct span){parameters, len}))
			found = count;
		count++;
		parameters += len + (parameters[len] == ',');
	}
	*ret_count = count;
	return found;
}

static bool bind_named(struct tmpl_eval *e, struct tmpl_call *call, const char *parameters,
		       struct tmpl_entry entry)
{
	struct span name = tmpl_span(entry.key.str);
	int count, at = find_parameter(parameters, name, &count);
	if (at < 0)
		return tmpl_fail(e, SVC_INVALID, "%s: no argument '%.*s'", call->builtin->name,
				 (int)(name.len < 60 ? name.len : 60), name.ptr);
	if (tmpl_given(call->arg[at]))
		return tmpl_fail(e, SVC_INVALID, "%s: argument '%.*s' twice", call->builtin->name,
				 (int)(name.len < 60 ? name.len : 60), name.ptr);
	call->arg[at] = entry.value;
	return true;
}

static bool bind(struct tmpl_eval *e, struct tmpl_call *call)
{
	const char *parameters = call->builtin->parameters;
	const struct tmpl_args *args = call->args;
	bool by_position = parameters[0] == '/';
	int count;
	find_parameter(parameters + by_position, (struct span){0}, &count);
	if (args->list.count > (size_t)count)
		return tmpl_fail(e, SVC_INVALID, "%s: at most %d arguments", call->builtin->name,
				 count);
	for (size_t i = 0; i < args->list.count; i++)
		call->arg[i] = args->list.items[i];
	for (size_t i = 0; i < args->named.count; i++)
		if (!bind_named(e, call, by_position ? "" : parameters, args->named.entries[i]))
			return false;
	for (int i = 0; i < call->builtin->required; i++)
		if (!tmpl_given(call->arg[i]))
			return tmpl_fail(e, SVC_INVALID, "%s: %d more argument(s) needed",
					 call->builtin->name, call->builtin->required - i);
	return true;
}

bool tmpl_builtin_call(struct tmpl_eval *e, const struct tmpl_builtin *builtin,
		       struct tmpl_value self, const struct tmpl_args *args, struct tmpl_value *ret)
{
	struct tmpl_call call = {.builtin = builtin, .self = self, .args = args};
	if (builtin->parameters && !bind(e, &call))
		return false;
	return builtin->run(e, &call, ret);
}

/* What a method of Markup gives is Markup too, in lists as well. */
static bool mark_result(struct tmpl_eval *e, struct tmpl_value *value)
{
	if (value->kind == TV_STRING)
		return (value->str = tmpl_str_mark(e, value->str, true)) != NULL;
	if (value->kind != TV_LIST && value->kind != TV_TUPLE)
		return true;
	for (size_t i = 0; i < value->list->count; i++)
		if (value->list->items[i].kind == TV_STRING &&
		    !mark_result(e, &value->list->items[i]))
			return false;
	return true;
}

static bool call_method(struct tmpl_eval *e, const struct tmpl_method *method,
			const struct tmpl_args *args, struct tmpl_value *ret)
{
	if (!tmpl_builtin_call(e, method->builtin, method->self, args, ret))
		return false;
	bool markup = method->builtin->markup && method->self.kind == TV_STRING &&
		      method->self.str->markup;
	return !markup || mark_result(e, ret);
}

/* Binds a macro's parameters; those without a value are undefined until their defaults are set. */
static bool bind_parameters(struct tmpl_eval *e, const struct tmpl_macro *macro,
			    const struct tmpl_args *args, struct tmpl_scope *scope)
{
	for (size_t i = 0; i < macro->count; i++) {
		const struct tmpl_parameter *parameter = &macro->parameters[i];
		struct tmpl_value value = {.kind = TV_MISSING};
		if (i < args->list.count)
			value = args->list.items[i];
		else if (!tmpl_dict_get(e, &args->named, tmpl_str_value(parameter->name), &value))
			return false;
		if (value.kind == TV_MISSING)
			value = tmpl_undefined(parameter->name, WHY_NAME);
		if (!tmpl_scope_set(e, scope, parameter->symbol, value))
			return false;
	}
	return true;
}

/* In order, so that a default may use the parameters before it. */
static bool set_defaults(struct tmpl_eval *e, const struct tmpl_macro *macro,
			 const struct tmpl_args *args, struct tmpl_scope *scope)
{
	struct tmpl_scope *outer = e->scope;
	bool ok = true;
	e->scope = scope;
	for (size_t i = args->list.count; i < macro->count && ok; i++) {
		const struct tmpl_parameter *parameter = &macro->parameters[i];
		struct tmpl_value value;
		ok = tmpl_dict_get(e, &args->named, tmpl_str_value(parameter->name), &value);
		if (ok && value.kind == TV_MISSING && parameter->fallback)
			ok = tmpl_eval_node(e, parameter->fallback, &value) &&
			     tmpl_scope_set(e, scope, parameter->symbol, value);
	}
	e->scope = outer;
	return ok;
}

static bool is_parameter(const struct tmpl_macro *macro, size_t from, struct span name)
{
	for (size_t i = from; i < macro->count; i++)
		if (span_equal(tmpl_span(macro->parameters[i].name), name))
			return true;
	return false;
}

/* Arguments by name that are no parameter: caller, or one of kwargs, if the macro reads those. */
static bool bind_other_named(struct tmpl_eval *e, const struct tmpl_macro *macro,
			     const struct tmpl_args *args, struct tmpl_value *caller,
			     struct tmpl_dict *kwargs)
{
	for (size_t i = 0; i < args->named.count; i++) {
		struct tmpl_entry entry = args->named.entries[i];
		struct span name = tmpl_span(entry.key.str);
		if (is_parameter(macro, args->list.count, name))
			continue;
		if (macro->uses_caller && span_is(name, "caller")) {
			*caller = entry.value;
			continue;
		}
		if (!macro->uses_kwargs)
			return tmpl_fail(e, SVC_INVALID, "the macro takes no argument '%.*s'",
					 (int)(name.len < 60 ? name.len : 60), name.ptr);
		if (!tmpl_dict_set(e, kwargs, entry.key, entry.value))
			return false;
	}
	return true;
}

/* caller, kwargs and varargs, for a macro that reads them; an error where it doesn't. */
static bool bind_special(struct tmpl_eval *e, const struct tmpl_macro *macro,
			 const struct tmpl_args *args, struct tmpl_scope *scope)
{
	struct tmpl_value caller = tmpl_undefined(e->tmpl->symbols[SYMBOL_CALLER].name, WHY_NAME);
	struct tmpl_dict *kwargs = tmpl_dict_new(e);
	struct tmpl_list *varargs = tmpl_list_new(e, 0);
	if (!kwargs || !varargs || !bind_other_named(e, macro, args, &caller, kwargs))
		return false;
	if (args->list.count > macro->count && !macro->uses_varargs)
		return tmpl_fail(e, SVC_INVALID, "the macro takes at most %zu arguments",
				 macro->count);
	for (size_t i = macro->count; i < args->list.count; i++)
		if (!tmpl_list_add(e, varargs, args->list.items[i]))
			return false;
	return (!macro->uses_caller || tmpl_scope_set(e, scope, SYMBOL_CALLER, caller)) &&
	       (!macro->uses_kwargs ||
		tmpl_scope_set(e, scope, SYMBOL_KWARGS, tmpl_dict_value(kwargs))) &&
	       (!macro->uses_varargs ||
		tmpl_scope_set(e, scope, SYMBOL_VARARGS, tmpl_list_value(TV_TUPLE, varargs)));
}

static bool call_macro(struct tmpl_eval *e, const struct tmpl_closure *closure,
		       const struct tmpl_args *args, struct tmpl_value *ret)
{
	const struct tmpl_macro *macro = closure->macro;
	struct tmpl_scope *scope = tmpl_scope_open(e, closure->scope);
	return scope && tmpl_scope_unset(e, scope, macro->unset) &&
	       bind_parameters(e, macro, args, scope) && bind_special(e, macro, args, scope) &&
	       set_defaults(e, macro, args, scope) &&
	       tmpl_capture(e, macro->body, scope, ret) == FLOW_NEXT;
}

bool tmpl_call_value(struct tmpl_eval *e, struct tmpl_value callee, const struct tmpl_args *args,
		     struct tmpl_value *ret)
{
	struct tmpl_value nobody = {.kind = TV_NONE};
	switch (callee.kind) {
	case TV_FUNCTION:
		return tmpl_builtin_call(e, callee.function, nobody, args, ret);
	case TV_METHOD:
		return call_method(e, callee.method, args, ret);
	case TV_MACRO:
		return call_macro(e, callee.macro, args, ret);
	case TV_LOOP:
		return tmpl_loop_call(e, callee.loop, args, ret);
	case TV_UNDEFINED:
		return tmpl_fail_undefined(e, callee);
	case TV_MISSING:
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_STRING:
	case TV_LIST:
	case TV_TUPLE:
	case TV_DICT:
	case TV_GENERATOR:
	case TV_VIEW:
	case TV_RANGE:
	case TV_NAMESPACE:
		break;
	}
	return tmpl_fail_type(e, "a call", callee);
}
