/* Statements, names, and compilation as a whole. */
#include "tokenizer/template/tmpl_parse.h"

#include <stdlib.h>

#define MOST_SOURCE   ((size_t)1 << 20)
#define MOST_COMPILED ((size_t)128 << 20) /* bytes of tree, about 250 per token */

struct tmpl_node *tmpl_node_new(struct tmpl_parser *p, enum tmpl_node_type type)
{
	struct tmpl_node *node = tmpl_alloc(p->e, 1, sizeof *node);
	if (!node)
		return NULL;
	node->type = type;
	node->line = p->e->line = p->at->line;
	return node;
}

bool tmpl_parse_enter(struct tmpl_parser *p)
{
	p->e->line = p->at->line;
	if (++p->depth <= TMPL_PARSE_DEPTH)
		return true;
	return tmpl_fail(p->e, SVC_TOO_LARGE, "more than %d nested expressions and blocks",
			 TMPL_PARSE_DEPTH);
}

void tmpl_parse_failed(struct tmpl_parser *p, const char *expected)
{
	p->e->line = p->at->line;
	struct span text = p->at->text;
	if (p->at->type == TOKEN_END)
		tmpl_failed(p->e, SVC_INVALID, "expected %s before the template's end", expected);
	else
		tmpl_failed(p->e, SVC_INVALID, "expected %s, not '%.*s'", expected,
			    (int)(text.len < 60 ? text.len : 60), text.ptr);
}

bool tmpl_is_op(const struct tmpl_parser *p, char op)
{
	return p->at->type == TOKEN_OPERATOR && p->at->op == op;
}

bool tmpl_is_name(const struct tmpl_parser *p, const char *name)
{
	return p->at->type == TOKEN_NAME && span_is(p->at->text, name);
}

bool tmpl_skip_op(struct tmpl_parser *p, char op)
{
	return tmpl_is_op(p, op) && p->at++;
}

bool tmpl_skip_name(struct tmpl_parser *p, const char *name)
{
	return tmpl_is_name(p, name) && p->at++;
}

bool tmpl_take_op(struct tmpl_parser *p, char op)
{
	char expected[] = {'\'', op == 'a' ? '=' : op, '\'', 0};
	return tmpl_skip_op(p, op) || tmpl_parse_fail(p, expected);
}

bool tmpl_take_name(struct tmpl_parser *p, struct span *ret_name)
{
	if (p->at->type != TOKEN_NAME)
		return tmpl_parse_fail(p, "a name");
	*ret_name = p->at++->text;
	return true;
}

static size_t hash_name(struct span name)
{
	size_t hash = 5381;
	for (size_t i = 0; i < name.len; i++)
		hash = hash * 33 + (unsigned char)name.ptr[i];
	return hash;
}

/* The slot of a name, or the free one where it belongs. */
static uint32_t *find_slot(const struct tmpl_symbol_table *table, struct span name)
{
	size_t mask = table->slot_count - 1, at = hash_name(name) & mask;
	while (table->slots[at] &&
	       !span_equal(tmpl_span(table->items[table->slots[at] - 1].name), name))
		at = (at + 1) & mask;
	return &table->slots[at];
}

static bool grow_table(struct tmpl_parser *p, struct tmpl_symbol_table *table)
{
	uint32_t room = table->room ? table->room * 2 : 32;
	struct tmpl_symbol *items = tmpl_alloc(p->e, room, sizeof *items);
	table->slot_count = (size_t)room * 2;
	table->slots = tmpl_alloc(p->e, table->slot_count, sizeof *table->slots);
	if (!items || !table->slots)
		return false;
	if (table->count)
		memcpy(items, table->items, table->count * sizeof *items);
	table->items = items;
	table->room = room;
	for (uint32_t i = 0; i < table->count; i++)
		*find_slot(table, tmpl_span(items[i].name)) = i + 1;
	return true;
}

bool tmpl_symbol(struct tmpl_parser *p, struct span name, uint32_t *ret_symbol)
{
	struct tmpl_symbol_table *table = &p->symbols;
	if (table->count == table->room && !grow_table(p, table))
		return false;
	uint32_t *slot = find_slot(table, name);
	if (!*slot) {
		/* The spelling is also what tmpl_mentions looks through. */
		const struct tmpl_str *text = tmpl_constant(p, name);
		if (!text)
			return false;
		table->items[table->count++] = (struct tmpl_symbol){.name = text};
		*slot = table->count;
	}
	*ret_symbol = *slot - 1;
	return true;
}

const struct tmpl_str *tmpl_constant(struct tmpl_parser *p, struct span text)
{
	const struct tmpl_str *str = tmpl_str_new(p->e, text, true);
	return str && tmpl_list_add(p->e, p->tmpl->names, tmpl_str_value(str)) ? str : NULL;
}

void tmpl_note_use(struct tmpl_parser *p, uint32_t symbol)
{
	for (struct tmpl_body *body = p->body; body && body->macro; body = body->around) {
		body->macro->uses_caller |= symbol == SYMBOL_CALLER;
		body->macro->uses_kwargs |= symbol == SYMBOL_KWARGS;
		body->macro->uses_varargs |= symbol == SYMBOL_VARARGS;
	}
}

static bool assign(struct tmpl_parser *p, struct span name, uint32_t *ret_symbol)
{
	static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
	for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
		if (span_is(name, reserved[i]))
			return tmpl_fail(p->e, SVC_INVALID, "can't assign to %s", reserved[i]);
	if (!tmpl_symbol(p, name, ret_symbol))
		return false;
	if (*ret_symbol == SYMBOL_LOOP && p->body->loops)
		return tmpl_fail(p->e, SVC_INVALID, "can't assign to loop within a loop");
	p->symbols.items[*ret_symbol].assigned = true;
	return true;
}

static struct tmpl_node *parse_targets(struct tmpl_parser *p, bool attributes);

/* name, name.attribute or (targets). */
static struct tmpl_node *parse_target(struct tmpl_parser *p, bool attributes)
{
	struct span name;
	if (tmpl_is_op(p, '(')) {
		if (!tmpl_parse_enter(p))
			return NULL;
		p->at++;
		struct tmpl_node *inner = parse_targets(p, false);
		p->depth--;
		return inner && tmpl_take_op(p, ')') ? inner : NULL;
	}
	struct tmpl_node *node = tmpl_node_new(p, NODE_TARGET_NAME);
	if (!node || !tmpl_take_name(p, &name))
		return NULL;
	if (!attributes || !tmpl_skip_op(p, '.'))
		return assign(p, name, &node->symbol) ? node : NULL;
	node->type = NODE_TARGET_ATTR;
	if (!tmpl_symbol(p, name, &node->symbol) || !tmpl_take_name(p, &name))
		return NULL;
	node->text = tmpl_constant(p, name);
	return node->text ? node : NULL;
}

static struct tmpl_node *parse_targets(struct tmpl_parser *p, bool attributes)
{
	struct tmpl_node *first = parse_target(p, attributes), *last = first;
	if (!first || !tmpl_is_op(p, ','))
		return first;
	while (tmpl_skip_op(p, ',') && !tmpl_is_name(p, "in") && !tmpl_is_op(p, ')') &&
	       p->at->type != TOKEN_BLOCK_END) {
		last->next = parse_target(p, attributes);
		last = last->next;
		if (!last)
			return NULL;
	}
	struct tmpl_node *node = tmpl_node_new(p, NODE_TARGET_LIST);
	if (node)
		node->first = first;
	return node;
}

static bool parse_block(struct tmpl_parser *p, const char *const *ends, struct tmpl_node **ret);

/* Statements up to one of the end tags, whose name is then the current token. */
static bool parse_body(struct tmpl_parser *p, const char *const *ends, struct tmpl_node **ret)
{
	tmpl_skip_op(p, ':');
	if (p->at->type != TOKEN_BLOCK_END)
		return tmpl_parse_fail(p, "%}");
	p->at++;
	return parse_block(p, ends, ret);
}

/* As parse_body, with one possible end, which is stepped over. */
static bool parse_body_to(struct tmpl_parser *p, const char *end, struct tmpl_node **ret)
{
	const char *const ends[] = {end, NULL};
	return parse_body(p, ends, ret) && p->at++;
}

static bool parse_set(struct tmpl_parser *p, struct tmpl_node *node)
{
	node->type = NODE_SET;
	node->target = parse_targets(p, true);
	if (!node->target)
		return false;
	if (tmpl_skip_op(p, 'a'))
		return (node->a = tmpl_parse_tuple(p, 0)) != NULL;
	node->type = NODE_SET_BLOCK;
	struct tmpl_node *hole = tmpl_node_new(p, NODE_HOLE);
	node->a = hole ? tmpl_parse_filters(p, hole, false) : NULL;
	return node->a && parse_body_to(p, "endset", &node->body);
}

static bool parse_for(struct tmpl_parser *p, struct tmpl_node *node)
{
	static const char *const ends[] = {"endfor", "else", NULL};
	node->type = NODE_FOR;
	node->target = parse_targets(p, false);
	if (!node->target)
		return false;
	if (!tmpl_skip_name(p, "in"))
		return tmpl_parse_fail(p, "in");
	node->a = tmpl_parse_tuple(p, PARSE_NO_COND | PARSE_END_RECURSIVE);
	if (!node->a)
		return false;
	if (tmpl_skip_name(p, "if") && !(node->b = tmpl_parse_expr(p, true)))
		return false;
	node->flag = tmpl_skip_name(p, "recursive");
	p->body->loops++;
	bool ok = parse_body(p, ends, &node->body);
	p->body->loops--;
	if (!ok)
		return false;
	if (!tmpl_skip_name(p, "else"))
		return p->at++;
	return parse_body_to(p, "endfor", &node->other);
}

/* An elif is an if of its own in the place of else. */
static bool parse_if(struct tmpl_parser *p, struct tmpl_node *node)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	for (;;) {
		node->type = NODE_IF;
		node->a = tmpl_parse_tuple(p, PARSE_NO_COND);
		const struct tmpl_node *unknown = p->unknown;
		if (!node->a || !parse_body(p, ends, &node->body))
			return false;
		p->unknown = unknown;
		if (!tmpl_skip_name(p, "elif"))
			break;
		node->other = tmpl_node_new(p, NODE_IF);
		node = node->other;
		if (!node)
			return false;
	}
	if (!tmpl_skip_name(p, "else"))
		return p->at++;
	const struct tmpl_node *unknown = p->unknown;
	bool ok = parse_body_to(p, "endif", &node->other);
	p->unknown = unknown;
	return ok;
}

static bool parse_with(struct tmpl_parser *p, struct tmpl_node *node)
{
	node->type = NODE_SCOPE;
	struct tmpl_node **end = &node->first;
	while (p->at->type != TOKEN_BLOCK_END) {
		if (node->first && !tmpl_take_op(p, ','))
			return false;
		if (!(*end = parse_target(p, false)) || !tmpl_take_op(p, 'a'))
			return false;
		end = &(*end)->next;
		if (!(*end = tmpl_parse_expr(p, true)))
			return false;
		end = &(*end)->next;
	}
	return parse_body_to(p, "endwith", &node->body);
}

static bool parse_parameter(struct tmpl_parser *p, struct tmpl_macro *macro, size_t *room)
{
	if (macro->count == *room) {
		*room = *room ? *room * 2 : 4;
		struct tmpl_parameter *more = tmpl_alloc(p->e, *room, sizeof *more);
		if (!more)
			return false;
		if (macro->count)
			memcpy(more, macro->parameters, macro->count * sizeof *more);
		macro->parameters = more;
	}
	struct tmpl_parameter *parameter = &macro->parameters[macro->count++];
	struct span name;
	if (!tmpl_take_name(p, &name) || !assign(p, name, &parameter->symbol))
		return false;
	parameter->name = p->symbols.items[parameter->symbol].name;
	if (tmpl_skip_op(p, 'a'))
		return (parameter->fallback = tmpl_parse_expr(p, true)) != NULL;
	if (macro->count > 1 && parameter[-1].fallback)
		return tmpl_fail(p->e, SVC_INVALID,
				 "a parameter without default after one with default");
	return true;
}

static bool parse_signature(struct tmpl_parser *p, struct tmpl_macro *macro)
{
	size_t room = 0;
	if (!tmpl_take_op(p, '('))
		return false;
	while (!tmpl_is_op(p, ')')) {
		if (macro->count && !tmpl_take_op(p, ','))
			return false;
		if (!parse_parameter(p, macro, &room))
			return false;
	}
	p->at++;
	return true;
}

/* The body of a macro or call block: a function of its own. */
static bool parse_function(struct tmpl_parser *p, struct tmpl_macro *macro, const char *end)
{
	struct tmpl_body body = {.around = p->body, .macro = macro};
	p->body = &body;
	bool ok = parse_body_to(p, end, &macro->body);
	p->body = body.around;
	for (size_t i = 0; i < macro->count; i++) {
		macro->uses_caller &= macro->parameters[i].symbol != SYMBOL_CALLER;
		macro->uses_kwargs &= macro->parameters[i].symbol != SYMBOL_KWARGS;
		macro->uses_varargs &= macro->parameters[i].symbol != SYMBOL_VARARGS;
	}
	return ok;
}

static bool parse_macro(struct tmpl_parser *p, struct tmpl_node *node)
{
	struct tmpl_macro *macro = tmpl_alloc(p->e, 1, sizeof *macro);
	struct span name;
	if (!macro || !tmpl_take_name(p, &name) || !assign(p, name, &node->symbol))
		return false;
	node->type = NODE_MACRO;
	node->macro = macro;
	macro->name = p->symbols.items[node->symbol].name;
	return parse_signature(p, macro) && parse_function(p, macro, "endmacro");
}

static bool parse_call_block(struct tmpl_parser *p, struct tmpl_node *node)
{
	struct tmpl_macro *macro = tmpl_alloc(p->e, 1, sizeof *macro);
	if (!macro)
		return false;
	node->type = NODE_CALL_BLOCK;
	node->macro = macro;
	if (tmpl_is_op(p, '(') && !parse_signature(p, macro))
		return false;
	node->a = tmpl_parse_expr(p, true);
	if (!node->a)
		return false;
	if (node->a->type != NODE_CALL)
		return tmpl_fail(p->e, SVC_INVALID, "expected a call after {%% call");
	return parse_function(p, macro, "endcall");
}

static bool parse_filter_block(struct tmpl_parser *p, struct tmpl_node *node)
{
	node->type = NODE_FILTER_BLOCK;
	struct tmpl_node *hole = tmpl_node_new(p, NODE_HOLE);
	node->a = hole ? tmpl_parse_filters(p, hole, true) : NULL;
	return node->a && parse_body_to(p, "endfilter", &node->body);
}

/* What transformers marks as the assistant's: for us a scope like any other. */
static bool parse_generation(struct tmpl_parser *p, struct tmpl_node *node)
{
	struct tmpl_macro nobody = {0};
	bool ok = parse_function(p, &nobody, "endgeneration");
	node->type = NODE_SCOPE;
	node->body = nobody.body;
	return ok;
}

static bool parse_jump(struct tmpl_parser *p, struct tmpl_node *node)
{
	bool leave = span_is(p->at[-1].text, "break");
	node->type = leave ? NODE_BREAK : NODE_CONTINUE;
	return p->body->loops || tmpl_fail(p->e, SVC_INVALID, "{%% %s %%} outside a loop",
					   leave ? "break" : "continue");
}

static bool parse_statement(struct tmpl_parser *p, struct tmpl_node *node)
{
	static const struct {
		const char *name;
		bool (*parse)(struct tmpl_parser *p, struct tmpl_node *node);
	} tags[] = {
		{"set", parse_set},	    {"if", parse_if},
		{"for", parse_for},	    {"macro", parse_macro},
		{"call", parse_call_block}, {"filter", parse_filter_block},
		{"with", parse_with},	    {"generation", parse_generation},
		{"break", parse_jump},	    {"continue", parse_jump},
	};
	struct span name;
	if (!tmpl_take_name(p, &name))
		return false;
	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
		if (span_is(name, tags[i].name))
			return tags[i].parse(p, node);
	p->at--;
	if (name.len > 3 && memcmp(name.ptr, "end", 3) == 0)
		return tmpl_parse_fail(p, "a tag that begins something or ends what is open");
	return tmpl_fail(p->e, SVC_UNSUPPORTED, "the tag {%% %.*s %%}",
			 (int)(name.len < 60 ? name.len : 60), name.ptr);
}

static bool is_end(const struct tmpl_parser *p, const char *const *ends)
{
	for (; *ends; ends++)
		if (tmpl_is_name(p, *ends))
			return true;
	return false;
}

/* One piece of text, output or statement; *ret_end where an end tag comes instead. */
static struct tmpl_node *parse_piece(struct tmpl_parser *p, const char *const *ends, bool *ret_end)
{
	struct tmpl_node *node = tmpl_node_new(p, NODE_DATA);
	if (!node)
		return NULL;
	struct tmpl_token *token = p->at++;
	if (token->type == TOKEN_DATA) {
		node->text = tmpl_str_new(p->e, token->text, true);
		return node->text ? node : NULL;
	}
	if (token->type == TOKEN_VARIABLE_BEGIN) {
		node->type = NODE_OUTPUT;
		node->a = tmpl_parse_tuple(p, 0);
		if (!node->a)
			return NULL;
		if (p->at->type != TOKEN_VARIABLE_END)
			return tmpl_parse_failed(p, "}}"), NULL;
		p->at++;
		return node;
	}
	*ret_end = is_end(p, ends);
	if (*ret_end || !parse_statement(p, node))
		return NULL;
	if (p->at->type != TOKEN_BLOCK_END)
		return tmpl_parse_failed(p, "%}"), NULL;
	p->at++;
	return node;
}

static bool parse_block(struct tmpl_parser *p, const char *const *ends, struct tmpl_node **ret)
{
	if (!tmpl_parse_enter(p))
		return false;
	bool at_end = false;
	while (p->at->type != TOKEN_END && !at_end) {
		*ret = parse_piece(p, ends, &at_end);
		if (!*ret && !at_end)
			return false;
		if (*ret)
			ret = &(*ret)->next;
	}
	p->depth--;
	return at_end || !*ends || tmpl_parse_fail(p, *ends);
}

static bool compile(struct tmpl_eval *e, struct tmpl *tmpl, struct span source)
{
	static const char *const known[] = {"loop", "caller", "kwargs", "varargs"};
	static const char *const no_ends[] = {NULL};
	struct tmpl_body body = {0};
	struct tmpl_parser p = {.e = e, .tmpl = tmpl, .body = &body};
	uint32_t symbol;
	tmpl->names = tmpl_list_new(e, 0);
	if (!tmpl->names)
		return false;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (!tmpl_symbol(&p, span_of(known[i]), &symbol))
			return false;
		p.symbols.items[symbol].assigned = true;
	}
	p.at = tmpl_lex(e, source);
	if (!p.at || !parse_block(&p, no_ends, &tmpl->body))
		return false;
	if (p.unknown)
		return tmpl_fail_unknown(e, p.unknown);
	tmpl->symbols = p.symbols.items;
	tmpl->symbol_count = p.symbols.count;
	return tmpl_find_unset(e, tmpl);
}

enum svc_code tmpl_compile(struct span source, struct tmpl **ret_tmpl, struct svc_err *err)
{
	if (source.len > MOST_SOURCE)
		return svc_fail_param(err, SVC_TOO_LARGE, "chat_template",
				      "chat template: %zu bytes, the limit is %zu", source.len,
				      MOST_SOURCE);
	struct tmpl *tmpl = calloc(1, sizeof *tmpl);
	if (!tmpl)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a chat template");
	struct tmpl_eval e = {.err = err,
			      .limits = {.steps = UINT64_MAX,
					 .memory_bytes = MOST_COMPILED,
					 .output_bytes = MOST_SOURCE,
					 .depth = TMPL_MOST_DEPTH}};
	arena_init(&e.arena, MOST_COMPILED);
	bool ok = compile(&e, tmpl, source);
	tmpl->arena = e.arena;
	if (!ok) {
		tmpl_free(tmpl);
		return e.code;
	}
	*ret_tmpl = tmpl;
	return SVC_OK;
}

struct tmpl *tmpl_free(struct tmpl *tmpl)
{
	if (tmpl)
		arena_free(&tmpl->arena);
	free(tmpl);
	return NULL;
}

bool tmpl_mentions(const struct tmpl *tmpl, const char *name)
{
	for (size_t i = 0; i < tmpl->names->count; i++)
		if (span_is(tmpl_span(tmpl->names->items[i].str), name))
			return true;
	return false;
}

bool tmpl_takes_parts(const struct tmpl *tmpl)
{
	return tmpl_mentions(tmpl, "text");
}
