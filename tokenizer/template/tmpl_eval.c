/* Expressions. */
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_builtin.h"

#include "tokenizer/template/tmpl_format.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"

/* The innermost binding of symbol, or NULL. */
static const struct tmpl_value *find_binding(struct tmpl_eval *e, uint32_t symbol)
{
	for (const struct tmpl_scope *scope = e->scope; scope; scope = scope->around) {
		for (uint32_t i = 0; i < scope->count; i++)
			if (scope->items[i].symbol == symbol)
				return &scope->items[i].value;
		tmpl_charge(e, scope->count / 64);
	}
	return NULL;
}

bool tmpl_eval_name(struct tmpl_eval *e, uint32_t symbol, struct tmpl_value *ret)
{
	const struct tmpl_symbol *name = &e->tmpl->symbols[symbol];
	const struct tmpl_value *found = name->assigned ? find_binding(e, symbol) : NULL;
	*ret = found ? *found : e->context[symbol];
	if (ret->kind == TV_MISSING)
		*ret = tmpl_undefined(name->name, WHY_NAME);
	return e->code == SVC_OK;
}

static bool eval_items(struct tmpl_eval *e, const struct tmpl_node *node, enum tmpl_kind kind,
		       struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list)
		return false;
	for (const struct tmpl_node *item = node->first; item; item = item->next) {
		struct tmpl_value value;
		if (!tmpl_eval_node(e, item, &value) || !tmpl_list_add(e, list, value))
			return false;
	}
	*ret = tmpl_list_value(kind, list);
	return true;
}

static bool eval_dict(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_dict *dict = tmpl_dict_new(e);
	if (!dict)
		return false;
	for (const struct tmpl_node *key = node->first; key; key = key->next->next) {
		struct tmpl_value name, value;
		if (!tmpl_eval_node(e, key, &name) || !tmpl_eval_node(e, key->next, &value) ||
		    !tmpl_dict_set(e, dict, name, value))
			return false;
	}
	*ret = tmpl_dict_value(dict);
	return true;
}

/* Strings: Markup escapes what is added to it on either side. */
static bool add_strings(struct tmpl_eval *e, const struct tmpl_str *a, const struct tmpl_str *b,
			struct tmpl_value *ret)
{
	bool markup = a->markup || b->markup;
	if (markup && (!(a = tmpl_escape(e, a)) || !(b = tmpl_escape(e, b))))
		return false;
	const struct tmpl_str *sum = tmpl_str_join2(e, a, b);
	if (!sum || !(sum = tmpl_str_mark(e, sum, markup)))
		return false;
	*ret = tmpl_str_value(sum);
	return true;
}

static bool add_lists(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b,
		      struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_list_new(e, a.list->count + b.list->count);
	if (!list || !tmpl_charge(e, a.list->count + b.list->count))
		return false;
	if (a.list->count)
		memcpy(list->items, a.list->items, a.list->count * sizeof *list->items);
	if (b.list->count)
		memcpy(list->items + a.list->count, b.list->items,
		       b.list->count * sizeof *list->items);
	list->count = list->room;
	*ret = tmpl_list_value(a.kind, list);
	ret->trusted = a.trusted && b.trusted;
	return true;
}

static bool repeat(struct tmpl_eval *e, struct tmpl_value what, int64_t times,
		   struct tmpl_value *ret)
{
	if (what.kind == TV_STRING) {
		struct tmpl_builder b;
		tmpl_build(&b, e, 0);
		for (; times > 0 && what.str->len && !b.failed && tmpl_charge(e, 1); times--)
			tmpl_add(&b, what.str);
		const struct tmpl_str *str = tmpl_built(&b);
		if (!str || !(str = tmpl_str_mark(e, str, what.str->markup)))
			return false;
		return *ret = tmpl_str_value(str), true;
	}
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list)
		return false;
	for (; times > 0 && what.list->count; times--)
		for (size_t i = 0; i < what.list->count; i++)
			if (!tmpl_charge(e, 1) || !tmpl_list_add(e, list, what.list->items[i]))
				return false;
	*ret = tmpl_list_value(what.kind, list);
	ret->trusted = what.trusted;
	return true;
}

static bool is_sequence(struct tmpl_value value)
{
	return value.kind == TV_STRING || value.kind == TV_LIST || value.kind == TV_TUPLE;
}

bool tmpl_binary(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b,
		 struct tmpl_value *ret)
{
	if (a.kind == TV_STRING && op == '%')
		return tmpl_format_percent(e, a.str, b, ret);
	if (a.kind == TV_UNDEFINED || b.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, a.kind == TV_UNDEFINED ? a : b);
	if (tmpl_is_number(a) && tmpl_is_number(b))
		return tmpl_arithmetic(e, op, a, b, ret);
	if (op == '+' && a.kind == TV_STRING && b.kind == TV_STRING)
		return add_strings(e, a.str, b.str, ret);
	if (op == '+' && a.kind == b.kind && is_sequence(a))
		return add_lists(e, a, b, ret);
	if (op == '*' && is_sequence(a) && tmpl_is_integer(b))
		return repeat(e, a, tmpl_to_int64(b), ret);
	if (op == '*' && is_sequence(b) && tmpl_is_integer(a))
		return repeat(e, b, tmpl_to_int64(a), ret);
	return tmpl_fail(e, SVC_INVALID, "%s %s %s: not for these types", tmpl_type_name(a),
			 op == 'p'   ? "**"
			 : op == 'f' ? "//"
				     : (const char[]){op, 0},
			 tmpl_type_name(b));
}

static bool eval_binary(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value right;
	if (!tmpl_eval_node(e, node->a, ret))
		return false;
	if (node->op == '&' || node->op == '|')
		return tmpl_truth(*ret) == (node->op == '|') || tmpl_eval_node(e, node->b, ret);
	return tmpl_eval_node(e, node->b, &right) && tmpl_binary(e, node->op, *ret, right, ret);
}

static bool eval_unary(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value value;
	if (!tmpl_eval_node(e, node->a, &value))
		return false;
	if (node->op == '!')
		return *ret = tmpl_bool(!tmpl_truth(value)), true;
	if (!tmpl_is_number(value))
		return tmpl_fail_type(e, node->op == '-' ? "unary -" : "unary +", value);
	if (node->op == '-')
		return tmpl_negate(e, value, ret);
	*ret = value;
	if (value.kind == TV_BOOL)
		*ret = tmpl_int(value.flag);
	return true;
}

static bool eval_concat(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_builder b;
	tmpl_build(&b, e, 0);
	/* All operands are evaluated before the first is printed, as Python does. */
	struct tmpl_value all;
	if (!eval_items(e, node, TV_LIST, &all))
		return false;
	for (size_t i = 0; i < all.list->count; i++)
		if (!tmpl_print(&b, all.list->items[i]))
			return false;
	const struct tmpl_str *str = tmpl_built(&b);
	*ret = tmpl_str_value(str);
	return str != NULL;
}

bool tmpl_compare(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b, bool *ret)
{
	bool equal, less;
	switch (op) {
	case '=':
	case 'n':
		if (!tmpl_equal(e, a, b, &equal))
			return false;
		return *ret = equal == (op == '='), true;
	case '<':
		return tmpl_less(e, a, b, ret);
	case '>':
		return tmpl_less(e, b, a, ret);
	case 'l':
	case 'g':
		/* Not the opposite of the other order: NaN. */
		if (!tmpl_less(e, op == 'l' ? a : b, op == 'l' ? b : a, &less) ||
		    !tmpl_equal(e, a, b, &equal))
			return false;
		return *ret = less || equal, true;
	default:
		if (!tmpl_contains(e, b, a, &equal))
			return false;
		return *ret = equal == (op == 'i'), true;
	}
}

static bool eval_compare(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value left, right;
	bool holds = true;
	if (!tmpl_eval_node(e, node->a, &left))
		return false;
	for (const struct tmpl_node *operand = node->first; operand && holds;
	     operand = operand->next) {
		if (!tmpl_eval_node(e, operand->a, &right) ||
		    !tmpl_compare(e, operand->op, left, right, &holds))
			return false;
		left = right;
	}
	*ret = tmpl_bool(holds);
	return true;
}

static bool eval_cond(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value test;
	if (!tmpl_eval_node(e, node->a, &test))
		return false;
	if (tmpl_truth(test))
		return tmpl_eval_node(e, node->b, ret);
	if (node->c)
		return tmpl_eval_node(e, node->c, ret);
	const struct tmpl_str *hint =
		tmpl_str_static(e, "an inline if without else was false: its value");
	*ret = tmpl_undefined(hint, WHY_HINT);
	return hint != NULL;
}

static bool eval_slice(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	const struct tmpl_node *const nodes[] = {node->b, node->c, node->d};
	struct tmpl_value object, bounds[3] = {0};
	if (!tmpl_eval_node(e, node->a, &object))
		return false;
	for (int i = 0; i < 3; i++)
		if (nodes[i] && !tmpl_eval_node(e, nodes[i], &bounds[i]))
			return false;
	return tmpl_slice(e, object, bounds, ret);
}

/* *values: further arguments by position. **values: by name. */
static bool spread(struct tmpl_eval *e, int stars, struct tmpl_value values, struct tmpl_args *args)
{
	struct tmpl_iter iter;
	struct tmpl_value item, value;
	if (stars == 2 && values.kind != TV_DICT)
		return tmpl_fail_type(e, "** of arguments", values);
	if (!tmpl_iter_start(e, values, &iter))
		return false;
	for (;;) {
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return true;
		if (stars == 1) {
			if (!tmpl_list_add(e, &args->list, item))
				return false;
			continue;
		}
		if (item.kind != TV_STRING)
			return tmpl_fail_type(e, "use as an argument's name", item);
		if (!tmpl_dict_get(e, values.dict, item, &value) ||
		    !tmpl_dict_set(e, &args->named, item, value))
			return false;
	}
}

bool tmpl_eval_args(struct tmpl_eval *e, const struct tmpl_argument *args,
		    struct tmpl_args *ret_args)
{
	*ret_args = (struct tmpl_args){0};
	for (; args; args = args->next) {
		struct tmpl_value value;
		bool ok = tmpl_eval_node(e, args->value, &value);
		if (ok && args->stars)
			ok = spread(e, args->stars, value, ret_args);
		else if (ok && args->name)
			ok = tmpl_dict_set(e, &ret_args->named, tmpl_str_value(args->name), value);
		else if (ok)
			ok = tmpl_list_add(e, &ret_args->list, value);
		if (!ok)
			return false;
	}
	return true;
}

static bool eval_call(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value callee;
	struct tmpl_args args;
	if (!tmpl_eval_node(e, node->a, &callee) || !tmpl_eval_args(e, node->args, &args))
		return false;
	e->line = node->line;
	return tmpl_call_value(e, callee, &args, ret);
}

bool tmpl_fail_unknown(struct tmpl_eval *e, const struct tmpl_node *node)
{
	e->line = node->line;
	return tmpl_fail(e, SVC_UNSUPPORTED, "the %s '%.*s'",
			 node->type == NODE_FILTER ? "filter" : "test",
			 (int)(node->text->len < 60 ? node->text->len : 60), node->text->ptr);
}

static bool eval_builtin(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value self;
	struct tmpl_args args;
	if (!node->builtin)
		return tmpl_fail_unknown(e, node);
	if (!tmpl_eval_node(e, node->a, &self) || !tmpl_eval_args(e, node->args, &args))
		return false;
	e->line = node->line;
	return tmpl_builtin_call(e, node->builtin, self, &args, ret);
}

static bool eval_lookup(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	struct tmpl_value object, key;
	if (!tmpl_eval_node(e, node->a, &object))
		return false;
	if (node->type == NODE_ATTR) {
		e->line = node->line;
		return tmpl_get_attr(e, object, node->text, ret);
	}
	if (!tmpl_eval_node(e, node->b, &key))
		return false;
	e->line = node->line;
	return tmpl_get_item(e, object, key, ret);
}

static bool eval_deep(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	switch ((int)node->type) {
	case NODE_LIST:
		return eval_items(e, node, TV_LIST, ret);
	case NODE_TUPLE:
		return eval_items(e, node, TV_TUPLE, ret);
	case NODE_DICT:
		return eval_dict(e, node, ret);
	case NODE_ATTR:
	case NODE_ITEM:
		return eval_lookup(e, node, ret);
	case NODE_SLICE:
		return eval_slice(e, node, ret);
	case NODE_CALL:
		return eval_call(e, node, ret);
	case NODE_FILTER:
	case NODE_IS:
		return eval_builtin(e, node, ret);
	case NODE_UNARY:
		return eval_unary(e, node, ret);
	case NODE_BINARY:
		return eval_binary(e, node, ret);
	case NODE_CONCAT:
		return eval_concat(e, node, ret);
	case NODE_COMPARE:
		return eval_compare(e, node, ret);
	case NODE_COND:
		return eval_cond(e, node, ret);
	default:
		return tmpl_fail(e, SVC_INTERNAL, "not an expression: node %d", (int)node->type);
	}
}

bool tmpl_eval_node(struct tmpl_eval *e, const struct tmpl_node *node, struct tmpl_value *ret)
{
	if (node->type == NODE_CONST)
		return *ret = node->value, true;
	if (node->type == NODE_HOLE)
		return *ret = e->hole, true;
	e->line = node->line;
	if (!tmpl_charge(e, 1))
		return false;
	if (node->type == NODE_NAME)
		return tmpl_eval_name(e, node->symbol, ret);
	if (!tmpl_enter(e))
		return false;
	bool ok = eval_deep(e, node, ret);
	tmpl_leave(e);
	return ok;
}
