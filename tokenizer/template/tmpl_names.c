/* Which variables begin without a value.
 *
 * In Jinja a block that assigns a name owns it from its beginning: if the assignment is the first
 * thing that happens to the name there, reading it before (from a loop or macro within) gives
 * undefined, even where the request has a variable of that name. If it is read first, or assigned
 * in some branch only, it begins with the request's. Where a block around knows the name, it
 * begins with that one's. This walk finds the names of the first kind. */
#include "tokenizer/template/tmpl_parse.h"

enum { NAME_KNOWN = 1, NAME_ASSIGNED = 2, NAME_UNSET = 4 };

/* One block that has variables of its own: the template, a macro, a loop's body ... */
struct frame {
	struct frame *around;
	struct tmpl_eval *e;
	uint32_t count; /* symbols */
	uint8_t *names; /* per symbol: NAME_ bits */
};

static bool open_frame(struct frame *frame, struct frame *around, struct tmpl_eval *e,
		       uint32_t count)
{
	*frame = (struct frame){.around = around, .e = e, .count = count};
	frame->names = tmpl_alloc(e, count, 1);
	return frame->names != NULL;
}

static bool known_around(const struct frame *frame, uint32_t symbol)
{
	for (frame = frame->around; frame; frame = frame->around)
		if (frame->names[symbol])
			return true;
	return false;
}

static void load(struct frame *frame, uint32_t symbol)
{
	if (!frame->names[symbol] && !known_around(frame, symbol))
		frame->names[symbol] = NAME_KNOWN;
}

static void store(struct frame *frame, uint32_t symbol)
{
	if (!frame->names[symbol])
		frame->names[symbol] =
			known_around(frame, symbol) ? NAME_KNOWN : NAME_KNOWN | NAME_UNSET;
	frame->names[symbol] |= NAME_ASSIGNED;
}

static bool load_all(struct frame *frame, const struct tmpl_node *node);

static bool load_list(struct frame *frame, const struct tmpl_node *node)
{
	for (; node; node = node->next)
		if (!load_all(frame, node))
			return false;
	return true;
}

static bool load_args(struct frame *frame, const struct tmpl_argument *args)
{
	for (; args; args = args->next)
		if (!load_all(frame, args->value))
			return false;
	return true;
}

/* Every name in an expression. */
static bool load_all(struct frame *frame, const struct tmpl_node *node)
{
	if (!node)
		return true;
	if (node->type == NODE_NAME)
		load(frame, node->symbol);
	if (!tmpl_enter(frame->e))
		return false;
	bool ok = load_all(frame, node->a) && load_all(frame, node->b) &&
		  load_all(frame, node->c) && load_all(frame, node->d) &&
		  load_list(frame, node->first) && load_args(frame, node->args);
	tmpl_leave(frame->e);
	return ok;
}

/* assigned: else they are parameters, which always have a value. */
static void store_targets(struct frame *frame, const struct tmpl_node *target, bool assigned)
{
	if (target->type == NODE_TARGET_LIST)
		for (const struct tmpl_node *each = target->first; each; each = each->next)
			store_targets(frame, each, assigned);
	else if (target->type == NODE_TARGET_ATTR)
		load(frame, target->symbol);
	else if (assigned)
		store(frame, target->symbol);
	else
		frame->names[target->symbol] = NAME_KNOWN;
}

static bool walk(struct frame *frame, const struct tmpl_node *body);

/* What all three branches assign keeps its beginning; what some do begins with what is around. */
static bool walk_if(struct frame *frame, const struct tmpl_node *node)
{
	const struct tmpl_node *elif = NULL, *other = node->other;
	if (other && other->type == NODE_IF && !other->next) {
		elif = other;
		other = NULL;
	}
	const struct tmpl_node *const branches[] = {node->body, elif, other};
	uint8_t *before = frame->names, *after[3];
	if (!load_all(frame, node->a))
		return false;
	for (int i = 0; i < 3; i++) {
		after[i] = frame->names = tmpl_alloc(frame->e, frame->count, 1);
		if (!after[i])
			return false;
		memcpy(frame->names, before, frame->count);
		if (!walk(frame, branches[i]))
			return false;
	}
	frame->names = before;
	for (uint32_t i = 0; i < frame->count; i++) {
		bool all = after[0][i] & after[1][i] & after[2][i] & NAME_ASSIGNED;
		uint8_t any = after[0][i] | after[1][i] | after[2][i];
		if (!(before[i] & NAME_ASSIGNED) && (any & NAME_ASSIGNED) && !all)
			any &= (uint8_t)~NAME_UNSET;
		before[i] |= any;
	}
	return true;
}

/* The names of a block itself, in the order Jinja looks at them; blocks within come after. */
static bool walk(struct frame *frame, const struct tmpl_node *body)
{
	for (const struct tmpl_node *node = body; node; node = node->next) {
		bool ok = true;
		if (node->type == NODE_IF)
			ok = walk_if(frame, node);
		else if (node->type == NODE_FOR || node->type == NODE_OUTPUT ||
			 node->type == NODE_CALL_BLOCK || node->type == NODE_FILTER_BLOCK ||
			 node->type == NODE_SET)
			ok = load_all(frame, node->a);
		else if (node->type == NODE_SCOPE)
			for (const struct tmpl_node *at = node->first; at && ok;
			     at = at->next->next)
				ok = load_all(frame, at->next);
		if (node->type == NODE_SET || node->type == NODE_SET_BLOCK)
			store_targets(frame, node->target, true);
		else if (node->type == NODE_MACRO)
			store(frame, node->symbol);
		if (!ok)
			return false;
	}
	return true;
}

static bool walk_inner(struct frame *frame, struct tmpl_node *body);

/* Finishes a frame whose parameters are set: its own names, the list, and the blocks within. */
static bool finish(struct frame *frame, struct tmpl_node *body, struct tmpl_unset *ret)
{
	uint32_t unset = 0;
	if (!walk(frame, body))
		return false;
	for (uint32_t i = 0; i < frame->count; i++)
		unset += (frame->names[i] & NAME_UNSET) != 0;
	if (unset && !(ret->symbols = tmpl_alloc(frame->e, unset, sizeof *ret->symbols)))
		return false;
	for (uint32_t i = 0; i < frame->count; i++)
		if (frame->names[i] & NAME_UNSET)
			ret->symbols[ret->count++] = i;
	return walk_inner(frame, body);
}

static bool finish_for(struct frame *around, struct tmpl_node *node)
{
	struct frame frame;
	if (!open_frame(&frame, around, around->e, around->count))
		return false;
	frame.names[SYMBOL_LOOP] = NAME_KNOWN;
	store_targets(&frame, node->target, false);
	if (!finish(&frame, node->body, &node->unset))
		return false;
	return open_frame(&frame, around, around->e, around->count) &&
	       finish(&frame, node->other, &node->unset_else);
}

static bool finish_macro(struct frame *around, struct tmpl_macro *macro)
{
	struct frame frame;
	if (!open_frame(&frame, around, around->e, around->count))
		return false;
	for (size_t i = 0; i < macro->count; i++)
		frame.names[macro->parameters[i].symbol] = NAME_KNOWN;
	for (size_t i = 0; i < macro->count; i++)
		if (!load_all(&frame, macro->parameters[i].fallback))
			return false;
	frame.names[SYMBOL_CALLER] = frame.names[SYMBOL_KWARGS] = NAME_KNOWN;
	frame.names[SYMBOL_VARARGS] = NAME_KNOWN;
	return finish(&frame, macro->body, &macro->unset);
}

static bool finish_block(struct frame *around, struct tmpl_node *node)
{
	struct frame frame;
	if (!open_frame(&frame, around, around->e, around->count))
		return false;
	if (node->type == NODE_SCOPE)
		for (const struct tmpl_node *at = node->first; at; at = at->next->next)
			store_targets(&frame, at, false);
	return finish(&frame, node->body, &node->unset);
}

static bool walk_inner(struct frame *frame, struct tmpl_node *body)
{
	for (struct tmpl_node *node = body; node; node = node->next) {
		bool ok = true;
		switch ((int)node->type) {
		case NODE_IF:
			ok = walk_inner(frame, node->body) && walk_inner(frame, node->other);
			break;
		case NODE_FOR:
			ok = finish_for(frame, node);
			break;
		case NODE_MACRO:
		case NODE_CALL_BLOCK:
			ok = finish_macro(frame, node->macro);
			break;
		case NODE_SET_BLOCK:
		case NODE_FILTER_BLOCK:
		case NODE_SCOPE:
			ok = finish_block(frame, node);
			break;
		default:
			break;
		}
		if (!ok)
			return false;
	}
	return true;
}

bool tmpl_find_unset(struct tmpl_eval *e, struct tmpl *tmpl)
{
	struct frame frame;
	return open_frame(&frame, NULL, e, tmpl->symbol_count) &&
	       finish(&frame, tmpl->body, &tmpl->unset);
}
