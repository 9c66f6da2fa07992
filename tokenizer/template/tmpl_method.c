/* The methods of lists, tuples, ranges and dicts, and which attributes of a type are refused. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_method_string.h"

/* count of a list, tuple or range. */
static bool run_count(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_iter iter;
	struct tmpl_value item;
	int64_t count = 0;
	if (!tmpl_iter_start(e, call->self, &iter))
		return false;
	for (;;) {
		bool equal = false;
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return *ret = tmpl_int(count), true;
		if (!tmpl_equal(e, item, call->arg[0], &equal))
			return false;
		count += equal;
	}
}

static bool run_index(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_iter iter;
	struct tmpl_value item;
	if (!tmpl_iter_start(e, call->self, &iter))
		return false;
	for (int64_t at = 0;; at++) {
		bool equal;
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return tmpl_fail(e, SVC_INVALID, "index: not in the list");
		if (!tmpl_equal(e, item, call->arg[0], &equal))
			return false;
		if (equal)
			return *ret = tmpl_int(at), true;
	}
}

/* Values don't change, so a copy is the value. */
static bool run_copy(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	*ret = call->self;
	return e->code == SVC_OK;
}

static bool run_get(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (!tmpl_dict_get(e, call->self.dict, call->arg[0], ret))
		return false;
	if (ret->kind == TV_MISSING)
		*ret = tmpl_given(call->arg[1])
			       ? call->arg[1]
			       : (struct tmpl_value){.kind = TV_NONE, .trusted = true};
	return true;
}

/* keys, values and items: detail says which. */
static bool run_view(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	*ret = call->self;
	ret->kind = TV_VIEW;
	ret->detail = call->builtin->detail;
	return e->code == SVC_OK;
}

static const struct tmpl_builtin list_methods[] = {
	{"copy", run_copy, "", 0, 0, false},	     {"count", run_count, "/value", 1, 0, false},
	{"index", run_index, "/value", 1, 0, false}, {.name = "append", .detail = METHOD_UNSAFE},
	{.name = "clear", .detail = METHOD_UNSAFE},  {.name = "extend", .detail = METHOD_UNSAFE},
	{.name = "insert", .detail = METHOD_UNSAFE}, {.name = "pop", .detail = METHOD_UNSAFE},
	{.name = "remove", .detail = METHOD_UNSAFE}, {.name = "reverse", .detail = METHOD_UNSAFE},
	{.name = "sort", .detail = METHOD_UNSAFE},
};

static const struct tmpl_builtin tuple_methods[] = {
	{"count", run_count, "/value", 1, 0, false},
	{"index", run_index, "/value", 1, 0, false},
};

static const struct tmpl_builtin dict_methods[] = {
	{"copy", run_copy, "", 0, 0, false},
	{"get", run_get, "/key,default", 1, 0, false},
	{"items", run_view, "", 0, VIEW_ITEMS, false},
	{"keys", run_view, "", 0, VIEW_KEYS, false},
	{"values", run_view, "", 0, VIEW_VALUES, false},
	{.name = "fromkeys"},
	{.name = "clear", .detail = METHOD_UNSAFE},
	{.name = "pop", .detail = METHOD_UNSAFE},
	{.name = "popitem", .detail = METHOD_UNSAFE},
	{.name = "setdefault", .detail = METHOD_UNSAFE},
	{.name = "update", .detail = METHOD_UNSAFE},
};

static const struct tmpl_builtin number_methods[] = {
	{.name = "as_integer_ratio"}, {.name = "bit_count"},   {.name = "bit_length"},
	{.name = "conjugate"},	      {.name = "denominator"}, {.name = "from_bytes"},
	{.name = "fromhex"},	      {.name = "hex"},	       {.name = "imag"},
	{.name = "is_integer"},	      {.name = "numerator"},   {.name = "real"},
	{.name = "to_bytes"},
};

#define LENGTH(table) (sizeof(table) / sizeof *(table))

const struct tmpl_builtin *tmpl_method_find(enum tmpl_kind kind, struct span name)
{
	switch (kind) {
	case TV_STRING:
		return tmpl_builtin_find(tmpl_string_methods, tmpl_string_method_count, name);
	case TV_LIST:
		return tmpl_builtin_find(list_methods, LENGTH(list_methods), name);
	case TV_TUPLE:
	case TV_RANGE:
		return tmpl_builtin_find(tuple_methods, LENGTH(tuple_methods), name);
	case TV_DICT:
		return tmpl_builtin_find(dict_methods, LENGTH(dict_methods), name);
	case TV_BOOL:
	case TV_INT:
	case TV_FLOAT:
		return tmpl_builtin_find(number_methods, LENGTH(number_methods), name);
	case TV_MISSING:
	case TV_UNDEFINED:
	case TV_NONE:
	case TV_GENERATOR:
	case TV_VIEW:
	case TV_NAMESPACE:
	case TV_LOOP:
	case TV_MACRO:
	case TV_FUNCTION:
	case TV_METHOD:
		break;
	}
	return NULL;
}
