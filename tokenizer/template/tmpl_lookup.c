/* Attributes, items and slices. */
#include <inttypes.h>

#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"

static bool range_attr(struct tmpl_value value, const struct tmpl_str *name, struct tmpl_value *ret)
{
	struct span text = tmpl_span(name);
	if (span_is(text, "start"))
		*ret = tmpl_int(value.range->start);
	else if (span_is(text, "stop"))
		*ret = tmpl_int(value.range->stop);
	else if (span_is(text, "step"))
		*ret = tmpl_int(value.range->step);
	else
		return false;
	ret->trusted = value.trusted;
	return true;
}

static bool method_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
			struct tmpl_value *ret)
{
	const struct tmpl_builtin *builtin = tmpl_method_find(value.kind, tmpl_span(name));
	if (!builtin)
		return true;
	if (!builtin->run && builtin->detail == METHOD_UNSAFE)
		return *ret = tmpl_undefined(name, WHY_UNSAFE), true;
	if (!builtin->run)
		return tmpl_fail(e, SVC_UNSUPPORTED, "%s.%s", tmpl_type_name(value), builtin->name);
	struct tmpl_method *method = tmpl_alloc(e, 1, sizeof *method);
	if (!method)
		return false;
	*method = (struct tmpl_method){.builtin = builtin, .self = value};
	*ret = (struct tmpl_value){.kind = TV_METHOD, .trusted = true, .method = method};
	return true;
}

bool tmpl_own_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		   struct tmpl_value *ret)
{
	*ret = (struct tmpl_value){.kind = TV_MISSING};
	if (value.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, value);
	if (value.kind == TV_NAMESPACE)
		return tmpl_dict_get(e, value.dict, tmpl_str_value(name), ret);
	if (value.kind == TV_LOOP)
		return tmpl_loop_attr(e, value, name, ret);
	if (value.kind == TV_RANGE && range_attr(value, name, ret))
		return true;
	if (value.kind == TV_MACRO && span_is(tmpl_span(name), "name")) {
		*ret = value.macro->macro->name ? tmpl_str_value(value.macro->macro->name)
						: (struct tmpl_value){.kind = TV_NONE};
		return true;
	}
	return method_attr(e, value, name, ret);
}

static bool no_attr(struct tmpl_eval *e, const struct tmpl_str *name, struct tmpl_value *ret)
{
	*ret = tmpl_undefined(name, WHY_ATTRIBUTE);
	return e->code == SVC_OK;
}

bool tmpl_get_attr(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_str *name,
		   struct tmpl_value *ret)
{
	if (!tmpl_own_attr(e, value, name, ret))
		return false;
	if (ret->kind == TV_MISSING && value.kind == TV_DICT &&
	    !tmpl_dict_get(e, value.dict, tmpl_str_value(name), ret))
		return false;
	return ret->kind != TV_MISSING || no_attr(e, name, ret);
}

/* The index-th of count, from the end if negative; count if there is none. */
static size_t index_of(struct tmpl_value key, size_t count)
{
	int64_t index = tmpl_to_int64(key);
	if (index < 0)
		index += (int64_t)count;
	return index < 0 || (uint64_t)index >= count ? count : (size_t)index;
}

static bool char_at(struct tmpl_eval *e, const struct tmpl_str *s, size_t index,
		    struct tmpl_value *ret)
{
	size_t at = tmpl_offset(s, index);
	uint32_t code;
	const struct tmpl_str *one = tmpl_str_slice(e, s, at, at + tmpl_decode(s->ptr + at, &code));
	*ret = tmpl_str_value(one);
	return one && tmpl_charge(e, s->chars == s->len ? 0 : at / 64);
}

/* value[index] for what has numbered items; TV_MISSING if out of range. */
static bool numbered_item(struct tmpl_eval *e, struct tmpl_value value, struct tmpl_value key,
			  struct tmpl_value *ret)
{
	size_t count, at;
	if (!tmpl_length(e, value, &count))
		return false;
	at = index_of(key, count);
	if (at == count)
		return true;
	if (value.kind == TV_STRING)
		return char_at(e, value.str, at, ret);
	if (value.kind == TV_RANGE)
		*ret = tmpl_int(value.range->start + (int64_t)at * value.range->step),
		ret->trusted = value.trusted;
	else
		*ret = value.list->items[at];
	return true;
}

bool tmpl_get_item(struct tmpl_eval *e, struct tmpl_value value, struct tmpl_value key,
		   struct tmpl_value *ret)
{
	bool numbered = value.kind == TV_LIST || value.kind == TV_TUPLE ||
			value.kind == TV_STRING || value.kind == TV_RANGE,
	     hashable;
	*ret = (struct tmpl_value){.kind = TV_MISSING};
	if (value.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, value);
	if (numbered && tmpl_is_integer(key) && !numbered_item(e, value, key, ret))
		return false;
	if (value.kind == TV_DICT && (!tmpl_hashable(e, key, &hashable) ||
				      (hashable && !tmpl_dict_get(e, value.dict, key, ret))))
		return false;
	if (ret->kind != TV_MISSING)
		return true;
	if (key.kind == TV_STRING)
		return tmpl_own_attr(e, value, key.str, ret) &&
		       (ret->kind != TV_MISSING || no_attr(e, key.str, ret));
	struct tmpl_builder b;
	tmpl_build(&b, e, 0);
	return tmpl_repr(&b, key) && no_attr(e, tmpl_built(&b), ret);
}

struct cut {
	int64_t from, to, step;
	size_t count;
};

static bool bound(struct tmpl_eval *e, struct tmpl_value given, int64_t count, int64_t fallback,
		  int64_t low, int64_t *ret)
{
	if (given.kind == TV_MISSING || given.kind == TV_NONE)
		return *ret = fallback, true;
	if (!tmpl_need_int(e, "use as a slice's bound", given, ret))
		return false;
	if (*ret < 0)
		*ret += count;
	int64_t high = count + low;
	*ret = *ret < low ? low : *ret > high ? high : *ret;
	return true;
}

/* Python's rules: bounds are clipped, a negative step walks back. */
static bool find_cut(struct tmpl_eval *e, const struct tmpl_value bounds[3], size_t length,
		     struct cut *ret)
{
	int64_t count = (int64_t)length;
	ret->step = 1;
	if (bounds[2].kind != TV_MISSING && bounds[2].kind != TV_NONE &&
	    !tmpl_need_int(e, "use as a slice's step", bounds[2], &ret->step))
		return false;
	if (ret->step == 0)
		return tmpl_fail(e, SVC_INVALID, "a slice with step 0");
	int64_t low = ret->step < 0 ? -1 : 0;
	if (!bound(e, bounds[0], count, ret->step < 0 ? count - 1 : 0, low, &ret->from) ||
	    !bound(e, bounds[1], count, ret->step < 0 ? -1 : count, low, &ret->to))
		return false;
	ret->count = 0;
	if (ret->step > 0 && ret->to > ret->from)
		ret->count = ((uint64_t)(ret->to - ret->from) - 1) / (uint64_t)ret->step + 1;
	if (ret->step < 0 && ret->to < ret->from)
		ret->count = ((uint64_t)(ret->from - ret->to) - 1) / -(uint64_t)ret->step + 1;
	return true;
}

static const struct tmpl_str *slice_string(struct tmpl_eval *e, const struct tmpl_str *s,
					   const struct cut *cut)
{
	if (!tmpl_charge(e, s->chars == s->len ? 0 : s->len / 64))
		return NULL;
	if (cut->count == 0)
		return tmpl_str_slice(e, s, 0, 0);
	if (cut->step == 1) {
		size_t from = tmpl_offset(s, (size_t)cut->from);
		size_t to = tmpl_offset(s, (size_t)cut->from + cut->count);
		return tmpl_str_slice(e, s, from, to);
	}
	uint32_t *starts = tmpl_alloc(e, s->chars + 1, sizeof *starts);
	if (!starts)
		return NULL;
	size_t n = 0;
	for (size_t at = 0; at < s->len; at++)
		if (((unsigned char)s->ptr[at] & 0xC0) != 0x80)
			starts[n++] = (uint32_t)at;
	starts[n] = (uint32_t)s->len;
	struct tmpl_builder b;
	tmpl_build(&b, e, cut->count);
	int64_t at = cut->from;
	for (size_t i = 0; i < cut->count && !b.failed && tmpl_charge(e, 1); i++) {
		tmpl_add_slice(&b, s, starts[at], starts[at + 1]);
		if (i + 1 < cut->count)
			at += cut->step;
	}
	const struct tmpl_str *str = tmpl_built(&b);
	return str ? tmpl_str_mark(e, str, s->markup) : NULL;
}

static bool slice_list(struct tmpl_eval *e, struct tmpl_value value, const struct cut *cut,
		       struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_list_new(e, cut->count);
	if (!list || !tmpl_charge(e, cut->count / 4))
		return false;
	int64_t at = cut->from;
	for (; list->count < cut->count; list->count++) {
		list->items[list->count] = value.list->items[at];
		if (list->count + 1 < cut->count)
			at += cut->step;
	}
	*ret = tmpl_list_value(value.kind, list);
	ret->trusted = value.trusted;
	return true;
}

static bool slice_range(struct tmpl_eval *e, struct tmpl_value value, const struct cut *cut,
			struct tmpl_value *ret)
{
	const struct tmpl_range *range = value.range;
	struct tmpl_range *part = tmpl_alloc(e, 1, sizeof *part);
	if (!part)
		return false;
	if (__builtin_mul_overflow(range->step, cut->step, &part->step))
		return tmpl_fail(e, SVC_UNSUPPORTED, "a slice of a range with so large a step");
	part->start = range->start + cut->from * range->step;
	part->stop = range->start + cut->to * range->step;
	part->count = cut->count;
	*ret = (struct tmpl_value){.kind = TV_RANGE, .trusted = value.trusted, .range = part};
	return true;
}

bool tmpl_slice(struct tmpl_eval *e, struct tmpl_value value, const struct tmpl_value bounds[3],
		struct tmpl_value *ret)
{
	size_t length;
	struct cut cut;
	if (value.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, value);
	if (value.kind != TV_STRING && value.kind != TV_LIST && value.kind != TV_TUPLE &&
	    value.kind != TV_RANGE)
		return tmpl_fail_type(e, "a slice", value);
	if (!tmpl_length(e, value, &length) || !find_cut(e, bounds, length, &cut))
		return false;
	if (value.kind == TV_RANGE)
		return slice_range(e, value, &cut, ret);
	if (value.kind != TV_STRING)
		return slice_list(e, value, &cut, ret);
	const struct tmpl_str *str = slice_string(e, value.str, &cut);
	*ret = tmpl_str_value(str);
	return str != NULL;
}
