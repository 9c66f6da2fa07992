/* The tests of `is`. */
#include <math.h>

#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_unicode.h"

/* What can be told from the value's type alone; detail says which. */
enum {
	IS_DEFINED,
	IS_UNDEFINED,
	IS_NONE,
	IS_BOOLEAN,
	IS_TRUE,
	IS_FALSE,
	IS_INTEGER,
	IS_FLOAT,
	IS_NUMBER,
	IS_STRING,
	IS_MAPPING,
	IS_SEQUENCE,
	IS_ITERABLE,
	IS_CALLABLE,
	IS_ESCAPED
};

static bool of_type(struct tmpl_value v, int which)
{
	switch (which) {
	case IS_DEFINED:
		return v.kind != TV_UNDEFINED;
	case IS_UNDEFINED:
		return v.kind == TV_UNDEFINED;
	case IS_NONE:
		return v.kind == TV_NONE;
	case IS_BOOLEAN:
		return v.kind == TV_BOOL;
	case IS_TRUE:
		return v.kind == TV_BOOL && v.flag;
	case IS_FALSE:
		return v.kind == TV_BOOL && !v.flag;
	case IS_INTEGER:
		return v.kind == TV_INT;
	case IS_FLOAT:
		return v.kind == TV_FLOAT;
	case IS_NUMBER:
		return tmpl_is_number(v);
	case IS_STRING:
		return v.kind == TV_STRING;
	case IS_MAPPING:
		return v.kind == TV_DICT;
	case IS_SEQUENCE:
		return v.kind == TV_STRING || v.kind == TV_LIST || v.kind == TV_TUPLE ||
		       v.kind == TV_DICT || v.kind == TV_RANGE || v.kind == TV_UNDEFINED;
	case IS_ITERABLE:
		return tmpl_iterable(v);
	case IS_CALLABLE:
		return v.kind == TV_FUNCTION || v.kind == TV_METHOD || v.kind == TV_MACRO ||
		       v.kind == TV_LOOP || v.kind == TV_UNDEFINED;
	default:
		return v.kind == TV_STRING && v.str->markup;
	}
}

static bool run_type(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	*ret = tmpl_bool(of_type(call->self, call->builtin->detail));
	return e->code == SVC_OK;
}

static bool run_compare(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	bool holds;
	if (!tmpl_compare(e, (char)call->builtin->detail, call->self, call->arg[0], &holds))
		return false;
	return *ret = tmpl_bool(holds), true;
}

/* odd (detail 1), even (0), divisibleby (2). */
static bool run_remainder(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	int which = call->builtin->detail;
	struct tmpl_value divisor = which == 2 ? call->arg[0] : tmpl_int(2), rest;
	bool equal;
	if (!tmpl_binary(e, '%', call->self, divisor, &rest) ||
	    !tmpl_equal(e, rest, tmpl_int(which == 1), &equal))
		return false;
	return *ret = tmpl_bool(equal), true;
}

static bool run_sameas(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value a = call->self, b = call->arg[0];
	bool same = a.kind == b.kind;
	bool holder = a.kind == TV_LIST || a.kind == TV_TUPLE || a.kind == TV_DICT ||
		      a.kind == TV_RANGE || a.kind == TV_VIEW;
	if (same && holder)
		same = a.list == b.list;
	else if (same && !tmpl_equal(e, a, b, &same))
		return false;
	return *ret = tmpl_bool(same), true;
}

/* upper (detail 1) and lower (0): some letters have case, and all of those this one. */
static bool run_cased(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	bool any = false, all = true;
	uint32_t code;
	if (!s)
		return false;
	for (size_t at = 0; at < s->len && all;) {
		at += tmpl_decode(s->ptr + at, &code);
		if (!tmpl_is_cased(code))
			continue;
		any = true;
		all = call->builtin->detail ? tmpl_is_uppercase(code) : tmpl_is_lowercase(code);
	}
	return *ret = tmpl_bool(any && all), tmpl_charge(e, s->len / 16);
}

/* Whether a filter (detail 0) or a test (1) of this name exists here. */
static bool run_exists(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	bool found = false;
	if (call->self.kind == TV_STRING) {
		struct span name = tmpl_span(call->self.str);
		found = (call->builtin->detail ? tmpl_is_find(name) : tmpl_filter_find(name)) !=
			NULL;
	}
	return *ret = tmpl_bool(found), e->code == SVC_OK;
}

static const struct tmpl_builtin tests[] = {
	{"!=", run_compare, "b", 1, 'n', false},
	{"<", run_compare, "b", 1, '<', false},
	{"<=", run_compare, "b", 1, 'l', false},
	{"==", run_compare, "b", 1, '=', false},
	{">", run_compare, "b", 1, '>', false},
	{">=", run_compare, "b", 1, 'g', false},
	{"boolean", run_type, "", 0, IS_BOOLEAN, false},
	{"callable", run_type, "", 0, IS_CALLABLE, false},
	{"defined", run_type, "", 0, IS_DEFINED, false},
	{"divisibleby", run_remainder, "num", 1, 2, false},
	{"eq", run_compare, "b", 1, '=', false},
	{"equalto", run_compare, "b", 1, '=', false},
	{"escaped", run_type, "", 0, IS_ESCAPED, false},
	{"even", run_remainder, "", 0, 0, false},
	{"false", run_type, "", 0, IS_FALSE, false},
	{"filter", run_exists, "", 0, 0, false},
	{"float", run_type, "", 0, IS_FLOAT, false},
	{"ge", run_compare, "b", 1, 'g', false},
	{"greaterthan", run_compare, "b", 1, '>', false},
	{"gt", run_compare, "b", 1, '>', false},
	{"in", run_compare, "seq", 1, 'i', false},
	{"integer", run_type, "", 0, IS_INTEGER, false},
	{"iterable", run_type, "", 0, IS_ITERABLE, false},
	{"le", run_compare, "b", 1, 'l', false},
	{"lessthan", run_compare, "b", 1, '<', false},
	{"lower", run_cased, "", 0, 0, false},
	{"lt", run_compare, "b", 1, '<', false},
	{"mapping", run_type, "", 0, IS_MAPPING, false},
	{"ne", run_compare, "b", 1, 'n', false},
	{"none", run_type, "", 0, IS_NONE, false},
	{"number", run_type, "", 0, IS_NUMBER, false},
	{"odd", run_remainder, "", 0, 1, false},
	{"sameas", run_sameas, "other", 1, 0, false},
	{"sequence", run_type, "", 0, IS_SEQUENCE, false},
	{"string", run_type, "", 0, IS_STRING, false},
	{"test", run_exists, "", 0, 1, false},
	{"true", run_type, "", 0, IS_TRUE, false},
	{"undefined", run_type, "", 0, IS_UNDEFINED, false},
	{"upper", run_cased, "", 0, 1, false},
};

const struct tmpl_builtin *tmpl_is_find(struct span name)
{
	return tmpl_builtin_find(tests, sizeof tests / sizeof *tests, name);
}
