#include "tokenizer/template/tmpl_state.h"

#include "tokenizer/template/tmpl_number.h"

struct tmpl_value tmpl_undefined(const struct tmpl_str *name, enum tmpl_why why)
{
	return (struct tmpl_value){
		.kind = TV_UNDEFINED, .trusted = true, .detail = (uint8_t)why, .str = name};
}

struct tmpl_value tmpl_bool(bool flag)
{
	return (struct tmpl_value){.kind = TV_BOOL, .trusted = true, .flag = flag};
}

struct tmpl_value tmpl_int(int64_t integer)
{
	return (struct tmpl_value){.kind = TV_INT, .trusted = true, .integer = integer};
}

struct tmpl_value tmpl_real(double real)
{
	return (struct tmpl_value){.kind = TV_FLOAT, .trusted = true, .real = real};
}

struct tmpl_value tmpl_str_value(const struct tmpl_str *str)
{
	return (struct tmpl_value){.kind = TV_STRING, .trusted = true, .str = str};
}

struct tmpl_value tmpl_dict_value(struct tmpl_dict *dict)
{
	return (struct tmpl_value){.kind = TV_DICT, .trusted = true, .dict = dict};
}

struct tmpl_value tmpl_list_value(enum tmpl_kind kind, struct tmpl_list *list)
{
	return (struct tmpl_value){.kind = kind, .trusted = true, .list = list};
}

struct tmpl_list *tmpl_list_new(struct tmpl_eval *e, size_t room)
{
	struct tmpl_list *list = tmpl_alloc(e, 1, sizeof *list);
	if (!list)
		return NULL;
	if (room && !(list->items = tmpl_alloc(e, room, sizeof *list->items)))
		return NULL;
	list->room = room;
	return list;
}

bool tmpl_list_add(struct tmpl_eval *e, struct tmpl_list *list, struct tmpl_value value)
{
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 4;
		struct tmpl_value *items = tmpl_alloc(e, room, sizeof *items);
		if (!items)
			return false;
		if (list->count)
			memcpy(items, list->items, list->count * sizeof *items);
		list->items = items;
		list->room = room;
	}
	list->items[list->count++] = value;
	return true;
}

bool tmpl_pair(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b,
	       struct tmpl_value *ret)
{
	struct tmpl_list *pair = tmpl_list_new(e, 2);
	if (!pair)
		return false;
	pair->items[0] = a;
	pair->items[1] = b;
	pair->count = 2;
	*ret = tmpl_list_value(TV_TUPLE, pair);
	return true;
}

bool tmpl_truth(struct tmpl_value value)
{
	switch (value.kind) {
	case TV_MISSING:
	case TV_UNDEFINED:
	case TV_NONE:
		return false;
	case TV_BOOL:
		return value.flag;
	case TV_INT:
		return value.integer != 0;
	case TV_FLOAT:
		return value.real != 0;
	case TV_STRING:
		return value.str->len != 0;
	case TV_LIST:
	case TV_TUPLE:
		return value.list->count != 0;
	case TV_DICT:
	case TV_VIEW:
		return value.dict->count != 0;
	case TV_RANGE:
		return value.range->count != 0;
	case TV_GENERATOR:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		return true;
	}
	return false;
}

const char *tmpl_type_name(struct tmpl_value value)
{
	static const char *const names[] = {
		[TV_MISSING] = "missing",
		[TV_UNDEFINED] = "Undefined",
		[TV_NONE] = "NoneType",
		[TV_BOOL] = "bool",
		[TV_INT] = "int",
		[TV_FLOAT] = "float",
		[TV_STRING] = "str",
		[TV_LIST] = "list",
		[TV_TUPLE] = "tuple",
		[TV_DICT] = "dict",
		[TV_GENERATOR] = "generator",
		[TV_VIEW] = "dict view",
		[TV_RANGE] = "range",
		[TV_NAMESPACE] = "Namespace",
		[TV_LOOP] = "LoopContext",
		[TV_MACRO] = "Macro",
		[TV_FUNCTION] = "function",
		[TV_METHOD] = "method",
	};
	return names[value.kind];
}

bool tmpl_hashable(struct tmpl_eval *e, struct tmpl_value value, bool *ret_hashable)
{
	*ret_hashable = value.kind != TV_LIST && value.kind != TV_DICT && value.kind != TV_VIEW;
	if (!tmpl_charge(e, 1))
		return false;
	if (value.kind != TV_TUPLE)
		return true;
	if (!tmpl_enter(e))
		return false;
	for (size_t i = 0; i < value.list->count && *ret_hashable; i++)
		if (!tmpl_hashable(e, value.list->items[i], ret_hashable))
			return false;
	tmpl_leave(e);
	return true;
}

static bool both_lists(struct tmpl_eval *e, const struct tmpl_list *a, const struct tmpl_list *b,
		       bool *ret_equal)
{
	*ret_equal = a->count == b->count;
	if (!*ret_equal || a == b)
		return true;
	if (!tmpl_enter(e))
		return false;
	for (size_t i = 0; i < a->count && *ret_equal; i++)
		if (!tmpl_equal(e, a->items[i], b->items[i], ret_equal))
			return false;
	tmpl_leave(e);
	return true;
}

static bool both_dicts(struct tmpl_eval *e, const struct tmpl_dict *a, const struct tmpl_dict *b,
		       bool *ret_equal)
{
	*ret_equal = a->count == b->count;
	if (!*ret_equal || a == b)
		return true;
	if (!tmpl_enter(e))
		return false;
	for (size_t i = 0; i < a->count && *ret_equal; i++) {
		struct tmpl_value other;
		if (!tmpl_dict_get(e, b, a->entries[i].key, &other))
			return false;
		*ret_equal = other.kind != TV_MISSING;
		if (*ret_equal && !tmpl_equal(e, a->entries[i].value, other, ret_equal))
			return false;
	}
	tmpl_leave(e);
	return true;
}

static bool both_ranges(const struct tmpl_range *a, const struct tmpl_range *b)
{
	return a->count == b->count &&
	       (a->count == 0 || (a->start == b->start && (a->count == 1 || a->step == b->step)));
}

bool tmpl_equal(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b, bool *ret_equal)
{
	if (!tmpl_charge(e, 1))
		return false;
	if (tmpl_is_number(a) && tmpl_is_number(b))
		return *ret_equal = tmpl_number_order(a, b) == 0, true;
	if (a.kind != b.kind)
		return *ret_equal = false, true;
	switch (a.kind) {
	case TV_STRING:
		*ret_equal = span_equal(tmpl_span(a.str), tmpl_span(b.str));
		return tmpl_charge(e, a.str->len == b.str->len ? a.str->len / 64 : 0);
	case TV_LIST:
	case TV_TUPLE:
		return both_lists(e, a.list, b.list, ret_equal);
	case TV_DICT:
		return both_dicts(e, a.dict, b.dict, ret_equal);
	case TV_RANGE:
		return *ret_equal = both_ranges(a.range, b.range), true;
	case TV_MISSING:
	case TV_UNDEFINED:
	case TV_NONE:
		return *ret_equal = true, true;
	case TV_VIEW:
		return *ret_equal = a.dict == b.dict && a.detail == b.detail, true;
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_GENERATOR:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	/* The rest are equal to themselves only; all of them are one pointer. */
	return *ret_equal = a.list == b.list, true;
}

static bool less_lists(struct tmpl_eval *e, const struct tmpl_list *a, const struct tmpl_list *b,
		       bool *ret_less)
{
	if (!tmpl_enter(e))
		return false;
	size_t i = 0;
	bool equal = true;
	for (; i < a->count && i < b->count; i++) {
		if (!tmpl_equal(e, a->items[i], b->items[i], &equal))
			return false;
		if (!equal)
			break;
	}
	*ret_less = a->count < b->count;
	if (i < a->count && i < b->count && !tmpl_less(e, a->items[i], b->items[i], ret_less))
		return false;
	tmpl_leave(e);
	return true;
}

bool tmpl_less(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value b, bool *ret_less)
{
	if (!tmpl_charge(e, 1))
		return false;
	if (a.kind == TV_UNDEFINED || b.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, a.kind == TV_UNDEFINED ? a : b);
	if (tmpl_is_number(a) && tmpl_is_number(b))
		return *ret_less = tmpl_number_order(a, b) == -1, true;
	if (a.kind == TV_STRING && b.kind == TV_STRING) {
		/* UTF-8 sorts as its code points do. */
		size_t both = a.str->len < b.str->len ? a.str->len : b.str->len;
		int order = memcmp(a.str->ptr, b.str->ptr, both);
		*ret_less = order < 0 || (order == 0 && a.str->len < b.str->len);
		return tmpl_charge(e, both / 64);
	}
	if (a.kind == b.kind && (a.kind == TV_LIST || a.kind == TV_TUPLE))
		return less_lists(e, a.list, b.list, ret_less);
	return tmpl_fail(e, SVC_INVALID, "%s and %s have no order", tmpl_type_name(a),
			 tmpl_type_name(b));
}

bool tmpl_length(struct tmpl_eval *e, struct tmpl_value value, size_t *ret_length)
{
	switch (value.kind) {
	case TV_UNDEFINED:
		return *ret_length = 0, true;
	case TV_STRING:
		return *ret_length = value.str->chars, true;
	case TV_LIST:
	case TV_TUPLE:
		return *ret_length = value.list->count, true;
	case TV_DICT:
	case TV_VIEW:
		return *ret_length = value.dict->count, true;
	case TV_RANGE:
		return *ret_length = value.range->count, true;
	case TV_MISSING:
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_GENERATOR:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	return tmpl_fail_type(e, "length", value);
}

/* x in y for the kinds that are walked. */
static bool contains_walk(struct tmpl_eval *e, struct tmpl_value container, struct tmpl_value item,
			  bool *ret_found)
{
	struct tmpl_iter iter;
	struct tmpl_value each;
	*ret_found = false;
	if (!tmpl_iter_start(e, container, &iter))
		return false;
	while (!*ret_found) {
		if (!tmpl_iter_next(e, &iter, &each))
			return false;
		if (each.kind == TV_MISSING)
			return true;
		if (!tmpl_equal(e, item, each, ret_found))
			return false;
	}
	return true;
}

bool tmpl_contains(struct tmpl_eval *e, struct tmpl_value container, struct tmpl_value item,
		   bool *ret_found)
{
	if (container.kind == TV_STRING) {
		if (item.kind != TV_STRING)
			return tmpl_fail_type(e, "`in` a string", item);
		*ret_found = memmem(container.str->ptr, container.str->len, item.str->ptr,
				    item.str->len) != NULL;
		return tmpl_charge(e, container.str->len / 64);
	}
	bool keys = container.kind == TV_VIEW && container.detail == VIEW_KEYS;
	if (container.kind == TV_DICT || keys) {
		struct tmpl_value value;
		if (!tmpl_dict_get(e, container.dict, item, &value))
			return false;
		return *ret_found = value.kind != TV_MISSING, true;
	}
	return contains_walk(e, container, item, ret_found);
}

bool tmpl_iterable(struct tmpl_value value)
{
	switch (value.kind) {
	case TV_UNDEFINED:
	case TV_STRING:
	case TV_LIST:
	case TV_TUPLE:
	case TV_DICT:
	case TV_GENERATOR:
	case TV_VIEW:
	case TV_RANGE:
		return true;
	case TV_MISSING:
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	return false;
}

bool tmpl_iter_start(struct tmpl_eval *e, struct tmpl_value value, struct tmpl_iter *ret_iter)
{
	if (!tmpl_iterable(value))
		return tmpl_fail_type(e, "iteration", value);
	*ret_iter = (struct tmpl_iter){.value = value};
	return true;
}

static bool next_char(struct tmpl_eval *e, struct tmpl_iter *iter, struct tmpl_value *ret)
{
	const struct tmpl_str *s = iter->value.str;
	uint32_t code;
	if (iter->at == s->len)
		return *ret = (struct tmpl_value){0}, true;
	size_t len = tmpl_decode(s->ptr + iter->at, &code);
	const struct tmpl_str *each = tmpl_str_slice(e, s, iter->at, iter->at + len);
	/* Iterating Markup gives plain strings. */
	if (!each || !(each = tmpl_str_mark(e, each, false)))
		return false;
	iter->at += len;
	*ret = tmpl_str_value(each);
	return true;
}

static bool next_entry(struct tmpl_eval *e, struct tmpl_iter *iter, struct tmpl_value *ret)
{
	if (iter->at == iter->value.dict->count)
		return *ret = (struct tmpl_value){0}, true;
	struct tmpl_entry entry = iter->value.dict->entries[iter->at++];
	if (iter->value.kind == TV_DICT || iter->value.detail == VIEW_KEYS)
		return *ret = entry.key, true;
	if (iter->value.detail == VIEW_VALUES)
		return *ret = entry.value, true;
	if (!tmpl_pair(e, entry.key, entry.value, ret))
		return false;
	ret->trusted = iter->value.trusted;
	return true;
}

bool tmpl_iter_next(struct tmpl_eval *e, struct tmpl_iter *iter, struct tmpl_value *ret)
{
	if (!tmpl_charge(e, 1))
		return false;
	*ret = (struct tmpl_value){.kind = TV_MISSING};
	struct tmpl_list *list = iter->value.list;
	const struct tmpl_range *range = iter->value.range;
	switch (iter->value.kind) {
	case TV_STRING:
		return next_char(e, iter, ret);
	case TV_DICT:
	case TV_VIEW:
		return next_entry(e, iter, ret);
	case TV_LIST:
	case TV_TUPLE:
		if (iter->at < list->count)
			*ret = list->items[iter->at++];
		return true;
	case TV_GENERATOR:
		if (list->next < list->count)
			*ret = list->items[list->next++];
		return true;
	case TV_RANGE:
		if (iter->at < range->count)
			*ret = tmpl_int(range->start + (int64_t)iter->at++ * range->step);
		ret->trusted = iter->value.trusted;
		return true;
	case TV_MISSING:
	case TV_UNDEFINED:
	case TV_NONE:
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	return true;
}

struct tmpl_list *tmpl_collect(struct tmpl_eval *e, struct tmpl_value value)
{
	struct tmpl_iter iter;
	struct tmpl_value each;
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list || !tmpl_iter_start(e, value, &iter))
		return NULL;
	for (;;) {
		if (!tmpl_iter_next(e, &iter, &each))
			return NULL;
		if (each.kind == TV_MISSING)
			return list;
		if (!tmpl_list_add(e, list, each))
			return NULL;
	}
}
