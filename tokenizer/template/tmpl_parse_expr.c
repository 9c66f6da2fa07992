/* Expressions. */
#include <string.h>

#include "tokenizer/template/tmpl_parse.h"

static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filters);
static struct tmpl_node *parse_postfix(struct tmpl_parser *p, struct tmpl_node *node);
static struct tmpl_node *parse_primary(struct tmpl_parser *p);

/* A node of two operands; NULL if one of them is. */
static struct tmpl_node *binary(struct tmpl_parser *p, char op, struct tmpl_node *a,
				struct tmpl_node *b)
{
	struct tmpl_node *node = a && b ? tmpl_node_new(p, NODE_BINARY) : NULL;
	if (!node)
		return NULL;
	node->op = op;
	node->a = a;
	node->b = b;
	return node;
}

static struct tmpl_node *parse_power(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_unary(p, true);
	while (left && tmpl_skip_op(p, 'p'))
		left = binary(p, 'p', left, parse_unary(p, true));
	return left;
}

static struct tmpl_node *parse_product(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_power(p);
	while (left && p->at->type == TOKEN_OPERATOR && strchr("*/f%", p->at->op)) {
		char op = p->at++->op;
		left = binary(p, op, left, parse_power(p));
	}
	return left;
}

static struct tmpl_node *parse_concat(struct tmpl_parser *p)
{
	struct tmpl_node *first = parse_product(p), *last = first;
	if (!first || !tmpl_is_op(p, '~'))
		return first;
	struct tmpl_node *node = tmpl_node_new(p, NODE_CONCAT);
	if (!node)
		return NULL;
	node->first = first;
	while (tmpl_skip_op(p, '~')) {
		last->next = parse_product(p);
		last = last->next;
		if (!last)
			return NULL;
	}
	return node;
}

static struct tmpl_node *parse_sum(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_concat(p);
	while (left && (tmpl_is_op(p, '+') || tmpl_is_op(p, '-'))) {
		char op = p->at++->op;
		left = binary(p, op, left, parse_concat(p));
	}
	return left;
}

/* The comparison at the current token, stepped over; 0 if there is none. */
static char take_comparison(struct tmpl_parser *p)
{
	if (p->at->type == TOKEN_OPERATOR && strchr("=n<>lg", p->at->op))
		return p->at++->op;
	if (tmpl_skip_name(p, "in"))
		return 'i';
	if (tmpl_is_name(p, "not") && p->at[1].type == TOKEN_NAME && span_is(p->at[1].text, "in")) {
		p->at += 2;
		return 'o';
	}
	return 0;
}

static struct tmpl_node *parse_compare(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_sum(p), *node = NULL, **end = NULL;
	char op;
	while (left && (op = take_comparison(p))) {
		if (!node) {
			node = tmpl_node_new(p, NODE_COMPARE);
			if (!node)
				return NULL;
			node->a = left;
			end = &node->first;
		}
		struct tmpl_node *operand = tmpl_node_new(p, NODE_OPERAND);
		if (!operand)
			return NULL;
		operand->op = op;
		operand->a = parse_sum(p);
		if (!operand->a)
			return NULL;
		*end = operand;
		end = &operand->next;
	}
	return node ? node : left;
}

static struct tmpl_node *parse_not(struct tmpl_parser *p)
{
	if (!tmpl_is_name(p, "not"))
		return parse_compare(p);
	struct tmpl_node *node = tmpl_node_new(p, NODE_UNARY);
	if (!node || !tmpl_parse_enter(p))
		return NULL;
	p->at++;
	node->op = '!';
	node->a = parse_not(p);
	p->depth--;
	return node->a ? node : NULL;
}

static struct tmpl_node *parse_and(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_not(p);
	while (left && tmpl_skip_name(p, "and"))
		left = binary(p, '&', left, parse_not(p));
	return left;
}

static struct tmpl_node *parse_or(struct tmpl_parser *p)
{
	struct tmpl_node *left = parse_and(p);
	while (left && tmpl_skip_name(p, "or"))
		left = binary(p, '|', left, parse_and(p));
	return left;
}

static struct tmpl_node *parse_cond(struct tmpl_parser *p)
{
	const struct tmpl_node *unknown = p->unknown;
	struct tmpl_node *then = parse_or(p);
	while (then && tmpl_skip_name(p, "if")) {
		struct tmpl_node *node = tmpl_node_new(p, NODE_COND);
		if (!node)
			return NULL;
		p->unknown = unknown;
		node->b = then;
		node->a = parse_or(p);
		if (!node->a)
			return NULL;
		unknown = p->unknown;
		if (tmpl_skip_name(p, "else") && !(node->c = tmpl_parse_expr(p, true)))
			return NULL;
		p->unknown = unknown;
		then = node;
	}
	return then;
}

struct tmpl_node *tmpl_parse_expr(struct tmpl_parser *p, bool with_cond)
{
	if (!tmpl_parse_enter(p))
		return NULL;
	struct tmpl_node *node = with_cond ? parse_cond(p) : parse_or(p);
	p->depth--;
	return node;
}

/* Items up to a closing bracket; pairs with colons if `pairs`. */
static struct tmpl_node *parse_items(struct tmpl_parser *p, enum tmpl_node_type type, char close)
{
	struct tmpl_node *node = tmpl_node_new(p, type);
	if (!node)
		return NULL;
	struct tmpl_node **end = &node->first;
	p->at++;
	while (!tmpl_is_op(p, close)) {
		if (node->first && !tmpl_take_op(p, ','))
			return NULL;
		if (tmpl_is_op(p, close))
			break;
		if (!(*end = tmpl_parse_expr(p, true)))
			return NULL;
		end = &(*end)->next;
		if (type != NODE_DICT)
			continue;
		if (!tmpl_take_op(p, ':') || !(*end = tmpl_parse_expr(p, true)))
			return NULL;
		end = &(*end)->next;
	}
	p->at++;
	return node;
}

static struct tmpl_node *constant(struct tmpl_parser *p, struct tmpl_value value)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_CONST);
	if (node)
		node->value = value;
	return node;
}

static struct tmpl_node *parse_name(struct tmpl_parser *p)
{
	struct span name = p->at->text;
	if (span_is(name, "true") || span_is(name, "True"))
		return p->at++, constant(p, tmpl_bool(true));
	if (span_is(name, "false") || span_is(name, "False"))
		return p->at++, constant(p, tmpl_bool(false));
	if (span_is(name, "none") || span_is(name, "None"))
		return p->at++, constant(p, (struct tmpl_value){.kind = TV_NONE, .trusted = true});
	struct tmpl_node *node = tmpl_node_new(p, NODE_NAME);
	if (!node || !tmpl_symbol(p, name, &node->symbol))
		return NULL;
	tmpl_note_use(p, node->symbol);
	p->at++;
	return node;
}

/* Strings that follow one another are one. */
static struct tmpl_node *parse_string(struct tmpl_parser *p)
{
	struct tmpl_builder b;
	tmpl_build(&b, p->e, 0);
	for (; p->at->type == TOKEN_STRING; p->at++)
		tmpl_add_bytes(&b, p->at->text.ptr, p->at->text.len, true);
	const struct tmpl_str *text = tmpl_built(&b);
	if (!text || !(text = tmpl_constant(p, tmpl_span(text))))
		return NULL;
	return constant(p, tmpl_str_value(text));
}

static struct tmpl_node *parse_parentheses(struct tmpl_parser *p)
{
	p->at++;
	struct tmpl_node *node = tmpl_parse_tuple(p, PARSE_PARENTHESES);
	return node && tmpl_take_op(p, ')') ? node : NULL;
}

static struct tmpl_node *parse_primary(struct tmpl_parser *p)
{
	if (p->at->type == TOKEN_NAME)
		return parse_name(p);
	if (p->at->type == TOKEN_STRING)
		return parse_string(p);
	if (p->at->type == TOKEN_NUMBER)
		return p->at++, constant(p, p->at[-1].value);
	if (tmpl_is_op(p, '('))
		return parse_parentheses(p);
	if (tmpl_is_op(p, '['))
		return parse_items(p, NODE_LIST, ']');
	if (tmpl_is_op(p, '{'))
		return parse_items(p, NODE_DICT, '}');
	return tmpl_parse_failed(p, "an expression"), NULL;
}

/* Nothing, or an expression, up to ':' or ']' or ','. */
static bool parse_bound(struct tmpl_parser *p, struct tmpl_node **ret)
{
	if (tmpl_is_op(p, ':') || tmpl_is_op(p, ']') || tmpl_is_op(p, ','))
		return true;
	return (*ret = tmpl_parse_expr(p, true)) != NULL;
}

static struct tmpl_node *parse_bracket(struct tmpl_parser *p, struct tmpl_node *object)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_ITEM);
	if (!node)
		return NULL;
	p->at++;
	node->a = object;
	if (!parse_bound(p, &node->b))
		return NULL;
	if (tmpl_skip_op(p, ':')) {
		node->type = NODE_SLICE;
		if (!parse_bound(p, &node->c))
			return NULL;
		if (tmpl_skip_op(p, ':') && !parse_bound(p, &node->d))
			return NULL;
	} else if (!node->b) {
		return tmpl_parse_failed(p, "an index"), NULL;
	}
	if (tmpl_is_op(p, ','))
		return tmpl_failed(p->e, SVC_UNSUPPORTED, "an index of several dimensions"), NULL;
	return tmpl_take_op(p, ']') ? node : NULL;
}

static struct tmpl_node *parse_dot(struct tmpl_parser *p, struct tmpl_node *object)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_ATTR);
	if (!node)
		return NULL;
	p->at++;
	node->a = object;
	if (p->at->type == TOKEN_NUMBER && p->at->value.kind == TV_INT) {
		node->type = NODE_ITEM;
		node->b = constant(p, p->at++->value);
		return node->b ? node : NULL;
	}
	struct span name;
	if (!tmpl_take_name(p, &name))
		return NULL;
	node->text = tmpl_constant(p, name);
	return node->text ? node : NULL;
}

/* One argument: value, name=value, *values or **values. */
static struct tmpl_argument *parse_argument(struct tmpl_parser *p)
{
	struct tmpl_argument *argument = tmpl_alloc(p->e, 1, sizeof *argument);
	if (!argument)
		return NULL;
	if (tmpl_skip_op(p, '*')) {
		argument->stars = 1;
	} else if (tmpl_skip_op(p, 'p')) {
		argument->stars = 2;
	} else if (p->at->type == TOKEN_NAME && p->at[1].type == TOKEN_OPERATOR &&
		   p->at[1].op == 'a') {
		argument->name = tmpl_constant(p, p->at->text);
		p->at += 2;
		if (!argument->name)
			return NULL;
	}
	argument->value = tmpl_parse_expr(p, true);
	return argument->value ? argument : NULL;
}

/* Positional ones first, then names, *list and **dict; the order is Python's to check, and ours. */
static bool argument_order(struct tmpl_parser *p, const struct tmpl_argument *argument, int *stage)
{
	int own = argument->stars == 2 ? 3 : argument->stars == 1 ? 2 : argument->name ? 1 : 0;
	bool ok = own == 1 ? *stage < 3 : own == 0 ? *stage == 0 : own > *stage;
	if (own > *stage)
		*stage = own;
	return ok || tmpl_fail(p->e, SVC_INVALID, "arguments in a wrong order");
}

static bool parse_arguments(struct tmpl_parser *p, struct tmpl_argument **ret)
{
	int stage = 0;
	p->at++;
	for (bool first = true; !tmpl_is_op(p, ')'); first = false) {
		if (!first && !tmpl_take_op(p, ','))
			return false;
		if (tmpl_is_op(p, ')'))
			break;
		*ret = parse_argument(p);
		if (!*ret || !argument_order(p, *ret, &stage))
			return false;
		ret = &(*ret)->next;
	}
	p->at++;
	return true;
}

static struct tmpl_node *parse_call(struct tmpl_parser *p, struct tmpl_node *callee)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_CALL);
	if (!node)
		return NULL;
	node->a = callee;
	return parse_arguments(p, &node->args) ? node : NULL;
}

static struct tmpl_node *parse_postfix(struct tmpl_parser *p, struct tmpl_node *node)
{
	while (node) {
		if (tmpl_is_op(p, '.'))
			node = parse_dot(p, node);
		else if (tmpl_is_op(p, '['))
			node = parse_bracket(p, node);
		else if (tmpl_is_op(p, '('))
			node = parse_call(p, node);
		else
			break;
	}
	return node;
}

/* The filter or test of this name; the name is kept for the error where there is none. */
static bool find_builtin(struct tmpl_parser *p, struct tmpl_node *node, struct span name)
{
	node->builtin = node->type == NODE_FILTER ? tmpl_filter_find(name) : tmpl_is_find(name);
	if (!node->builtin && !p->unknown)
		p->unknown = node;
	node->text = tmpl_str_new(p->e, name, true);
	return node->text != NULL;
}

static struct tmpl_node *parse_filter(struct tmpl_parser *p, struct tmpl_node *input)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_FILTER);
	struct span name;
	if (!node || !tmpl_take_name(p, &name))
		return NULL;
	node->a = input;
	if (!find_builtin(p, node, name))
		return NULL;
	if (tmpl_is_op(p, '(') && !parse_arguments(p, &node->args))
		return NULL;
	return node;
}

struct tmpl_node *tmpl_parse_filters(struct tmpl_parser *p, struct tmpl_node *input, bool first)
{
	struct tmpl_node *node = first ? parse_filter(p, input) : input;
	while (node && tmpl_skip_op(p, '|'))
		node = parse_filter(p, node);
	return node;
}

/* `is odd`, `is divisibleby 3`, `is in [..]`, `is not defined`. */
static struct tmpl_node *parse_is(struct tmpl_parser *p, struct tmpl_node *input)
{
	bool negated = tmpl_skip_name(p, "not");
	struct tmpl_node *node = tmpl_node_new(p, NODE_IS), *whole = node;
	struct span name;
	if (!node || !tmpl_take_name(p, &name))
		return NULL;
	node->a = input;
	if (!find_builtin(p, node, name))
		return NULL;
	if (negated) {
		whole = tmpl_node_new(p, NODE_UNARY);
		if (!whole)
			return NULL;
		whole->op = '!';
		whole->a = node;
	}
	if (tmpl_is_op(p, '('))
		return parse_arguments(p, &node->args) ? whole : NULL;
	bool operand = p->at->type == TOKEN_STRING || p->at->type == TOKEN_NUMBER ||
		       tmpl_is_op(p, '[') || tmpl_is_op(p, '{') ||
		       (p->at->type == TOKEN_NAME && !tmpl_is_name(p, "else") &&
			!tmpl_is_name(p, "or") && !tmpl_is_name(p, "and"));
	if (!operand)
		return whole;
	if (tmpl_is_name(p, "is"))
		return tmpl_parse_failed(p, "the end of the test"), NULL;
	node->args = tmpl_alloc(p->e, 1, sizeof *node->args);
	if (!node->args)
		return NULL;
	node->args->value = parse_postfix(p, parse_primary(p));
	return node->args->value ? whole : NULL;
}

static struct tmpl_node *parse_after(struct tmpl_parser *p, struct tmpl_node *node)
{
	while (node) {
		if (tmpl_skip_op(p, '|'))
			node = parse_filter(p, node);
		else if (tmpl_skip_name(p, "is"))
			node = parse_is(p, node);
		else if (tmpl_is_op(p, '('))
			node = parse_call(p, node);
		else
			break;
	}
	return node;
}

static struct tmpl_node *parse_unary(struct tmpl_parser *p, bool with_filters)
{
	struct tmpl_node *node;
	if (tmpl_is_op(p, '-') || tmpl_is_op(p, '+')) {
		node = tmpl_node_new(p, NODE_UNARY);
		if (!node || !tmpl_parse_enter(p))
			return NULL;
		node->op = p->at++->op;
		node->a = parse_unary(p, false);
		p->depth--;
		if (!node->a)
			return NULL;
	} else {
		node = parse_primary(p);
	}
	node = parse_postfix(p, node);
	return with_filters ? parse_after(p, node) : node;
}

static bool tuple_ends(const struct tmpl_parser *p, unsigned options)
{
	return p->at->type == TOKEN_VARIABLE_END || p->at->type == TOKEN_BLOCK_END ||
	       tmpl_is_op(p, ')') ||
	       ((options & PARSE_END_RECURSIVE) && tmpl_is_name(p, "recursive"));
}

struct tmpl_node *tmpl_parse_tuple(struct tmpl_parser *p, unsigned options)
{
	struct tmpl_node *first = NULL, **end = &first;
	bool tuple = false;
	for (;;) {
		if (first && !tmpl_take_op(p, ','))
			return NULL;
		if (tuple_ends(p, options))
			break;
		if (!(*end = tmpl_parse_expr(p, !(options & PARSE_NO_COND))))
			return NULL;
		end = &(*end)->next;
		if (!tmpl_is_op(p, ','))
			break;
		tuple = true;
	}
	if (!tuple && first)
		return first;
	if (!tuple && !(options & PARSE_PARENTHESES))
		return tmpl_parse_failed(p, "an expression"), NULL;
	struct tmpl_node *node = tmpl_node_new(p, NODE_TUPLE);
	if (node)
		node->first = first;
	return node;
}
