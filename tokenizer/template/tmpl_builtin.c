/* Where builtins are looked up, and what they share. */
#include "tokenizer/template/tmpl_builtin.h"

#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"

const struct tmpl_builtin *tmpl_filter_find(struct span name)
{
	const struct {
		const struct tmpl_builtin *table;
		size_t count;
	} tables[] = {
		{tmpl_text_filters, tmpl_text_filter_count},
		{tmpl_sequence_filters, tmpl_sequence_filter_count},
		{tmpl_select_filters, tmpl_select_filter_count},
	};
	const struct tmpl_builtin *found = NULL;
	for (size_t i = 0; i < sizeof tables / sizeof *tables && !found; i++)
		found = tmpl_builtin_find(tables[i].table, tables[i].count, name);
	return found;
}

bool tmpl_arg_int(struct tmpl_eval *e, const struct tmpl_call *call, int i, int64_t fallback,
		  int64_t *ret)
{
	*ret = fallback;
	return !tmpl_given(call->arg[i]) ||
	       tmpl_need_int(e, call->builtin->name, call->arg[i], ret);
}

bool tmpl_arg_str(struct tmpl_eval *e, const struct tmpl_call *call, int i,
		  const struct tmpl_str *fallback, const struct tmpl_str **ret)
{
	*ret = fallback;
	if (!tmpl_set(call->arg[i]))
		return true;
	if (call->arg[i].kind != TV_STRING)
		return tmpl_fail_type(e, call->builtin->name, call->arg[i]);
	*ret = call->arg[i].str;
	return true;
}

bool tmpl_return(const struct tmpl_str *str, struct tmpl_value *ret)
{
	*ret = tmpl_str_value(str);
	return str != NULL;
}

/* One step of a path: all digits are an index. */
static bool step(struct tmpl_eval *e, struct tmpl_value part, struct tmpl_value *item)
{
	int64_t index;
	bool big = false, digits = part.str->len > 0;
	for (size_t i = 0; i < part.str->len; i++)
		digits = digits && part.str->ptr[i] >= '0' && part.str->ptr[i] <= '9';
	if (digits && tmpl_parse_int(tmpl_span(part.str), 10, &index, &big) && !big)
		return tmpl_get_item(e, *item, tmpl_int(index), item);
	return tmpl_get_item(e, *item, part, item);
}

bool tmpl_follow(struct tmpl_eval *e, struct tmpl_value item, struct tmpl_value path,
		 struct tmpl_value fallback, struct tmpl_value *ret)
{
	*ret = item;
	if (!tmpl_set(path))
		return true;
	if (path.kind != TV_STRING) {
		if (!tmpl_get_item(e, item, path, ret))
			return false;
		if (ret->kind == TV_UNDEFINED && tmpl_set(fallback))
			*ret = fallback;
		return true;
	}
	for (size_t at = 0; at <= path.str->len;) {
		const char *dot = memchr(path.str->ptr + at, '.', path.str->len - at);
		size_t end = dot ? (size_t)(dot - path.str->ptr) : path.str->len;
		const struct tmpl_str *part = tmpl_str_slice(e, path.str, at, end);
		if (!part || !step(e, tmpl_str_value(part), ret))
			return false;
		if (ret->kind == TV_UNDEFINED && tmpl_set(fallback))
			*ret = fallback;
		at = end + 1;
	}
	return true;
}

bool tmpl_fold_case(struct tmpl_eval *e, struct tmpl_value value, bool case_counts,
		    struct tmpl_value *ret)
{
	*ret = value;
	if (value.kind != TV_STRING || case_counts)
		return true;
	return tmpl_return(tmpl_recase(e, value.str, RECASE_LOWER), ret);
}
