/* Filters of sequences and dicts. */
#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_sort.h"
#include "tokenizer/template/tmpl_text.h"

static bool flag(const struct tmpl_call *call, int i)
{
	return tmpl_given(call->arg[i]) && tmpl_truth(call->arg[i]);
}

static bool run_length(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	size_t length;
	if (!tmpl_length(e, call->self, &length))
		return false;
	return *ret = tmpl_int((int64_t)length), true;
}

static bool run_list(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_collect(e, call->self);
	*ret = tmpl_list_value(TV_LIST, list);
	ret->trusted = call->self.trusted;
	return list != NULL;
}

static bool run_first(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_iter iter;
	if (!tmpl_iter_start(e, call->self, &iter) || !tmpl_iter_next(e, &iter, ret))
		return false;
	if (ret->kind == TV_MISSING)
		*ret = tmpl_undefined(tmpl_str_static(e, "first of an empty sequence"), WHY_HINT);
	return e->code == SVC_OK;
}

static bool run_last(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (call->self.kind == TV_GENERATOR)
		return tmpl_fail_type(e, "last", call->self);
	struct tmpl_list *list = tmpl_collect(e, call->self);
	if (!list)
		return false;
	*ret = list->count
		       ? list->items[list->count - 1]
		       : tmpl_undefined(tmpl_str_static(e, "last of an empty sequence"), WHY_HINT);
	return e->code == SVC_OK;
}

static bool run_join(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *between = NULL;
	struct tmpl_iter iter;
	struct tmpl_value item, nothing = {.kind = TV_MISSING};
	struct tmpl_builder b;
	if (tmpl_given(call->arg[0]) && !(between = tmpl_to_str(e, call->arg[0])))
		return false;
	if (!tmpl_iter_start(e, call->self, &iter))
		return false;
	tmpl_build(&b, e, 0);
	for (bool first = true;; first = false) {
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return tmpl_return(tmpl_built(&b), ret);
		if (!first && between)
			tmpl_add(&b, between);
		if (!tmpl_follow(e, item, call->arg[1], nothing, &item) || !tmpl_print(&b, item))
			return false;
	}
}

static const struct tmpl_str *reverse_string(struct tmpl_eval *e, const struct tmpl_str *s)
{
	struct tmpl_value backwards[3] = {[2] = tmpl_int(-1)}, result;
	return tmpl_slice(e, tmpl_str_value(s), backwards, &result) ? result.str : NULL;
}

static bool run_reverse(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (call->self.kind == TV_STRING)
		return tmpl_return(reverse_string(e, call->self.str), ret);
	struct tmpl_list *list = tmpl_collect(e, call->self);
	if (!list)
		return false;
	for (size_t i = 0, j = list->count; i + 1 < j; i++) {
		struct tmpl_value swap = list->items[i];
		list->items[i] = list->items[--j];
		list->items[j] = swap;
	}
	/* reversed() can't walk a generator: Jinja makes a list of that. */
	bool again = call->self.kind == TV_GENERATOR;
	*ret = tmpl_list_value(again ? TV_LIST : TV_GENERATOR, list);
	return true;
}

static bool run_items(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value items = call->self;
	if (items.kind != TV_DICT && items.kind != TV_UNDEFINED)
		return tmpl_fail_type(e, "items", items);
	if (items.kind == TV_DICT) {
		items.kind = TV_VIEW;
		items.detail = VIEW_ITEMS;
	}
	struct tmpl_list *list = tmpl_collect(e, items);
	*ret = tmpl_list_value(TV_GENERATOR, list);
	return list != NULL;
}

static bool run_dictsort(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *by;
	if (call->self.kind != TV_DICT)
		return tmpl_fail_type(e, "dictsort", call->self);
	if (!tmpl_arg_str(e, call, 1, NULL, &by))
		return false;
	bool by_value = by && span_is(tmpl_span(by), "value");
	if (by && !by_value && !span_is(tmpl_span(by), "key"))
		return tmpl_fail(e, SVC_INVALID, "dictsort: by is key or value");
	const struct tmpl_dict *dict = call->self.dict;
	struct tmpl_entry *sorted = tmpl_alloc(e, dict->count + 1, sizeof *sorted);
	struct tmpl_list *list = tmpl_list_new(e, dict->count);
	if (!sorted || !list)
		return false;
	for (size_t i = 0; i < dict->count; i++) {
		struct tmpl_entry entry = dict->entries[i];
		if (!tmpl_pair(e, entry.key, entry.value, &sorted[i].value) ||
		    !tmpl_fold_case(e, by_value ? entry.value : entry.key, flag(call, 0),
				    &sorted[i].key))
			return false;
		sorted[i].value.trusted = call->self.trusted;
	}
	if (!tmpl_sort(e, sorted, dict->count, flag(call, 2)))
		return false;
	for (; list->count < dict->count; list->count++)
		list->items[list->count] = sorted[list->count].value;
	*ret = tmpl_list_value(TV_LIST, list);
	ret->trusted = call->self.trusted;
	return true;
}

/* What sort compares: a list of the attributes "a,b.c", or of the item itself. */
static bool sort_key(struct tmpl_eval *e, struct tmpl_value item, struct tmpl_value paths,
		     bool case_counts, struct tmpl_value *ret)
{
	struct tmpl_value nothing = {.kind = TV_MISSING}, value;
	struct tmpl_list *key = tmpl_list_new(e, 1);
	if (!key)
		return false;
	const struct tmpl_str *all = paths.kind == TV_STRING ? paths.str : NULL;
	size_t at = 0, end;
	do {
		struct tmpl_value path = paths;
		end = all ? all->len : 0;
		if (all) {
			const char *comma = memchr(all->ptr + at, ',', all->len - at);
			end = comma ? (size_t)(comma - all->ptr) : all->len;
			path = tmpl_str_value(tmpl_str_slice(e, all, at, end));
			if (!path.str)
				return false;
		}
		if (!tmpl_follow(e, item, path, nothing, &value) ||
		    !tmpl_fold_case(e, value, case_counts, &value) || !tmpl_list_add(e, key, value))
			return false;
		at = end + 1;
	} while (all && end < all->len);
	*ret = tmpl_list_value(TV_LIST, key);
	return true;
}

static bool run_sort(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_collect(e, call->self);
	if (!list)
		return false;
	struct tmpl_entry *sorted = tmpl_alloc(e, list->count + 1, sizeof *sorted);
	if (!sorted)
		return false;
	for (size_t i = 0; i < list->count; i++) {
		sorted[i].value = list->items[i];
		if (!sort_key(e, list->items[i], call->arg[2], flag(call, 1), &sorted[i].key))
			return false;
	}
	if (!tmpl_sort(e, sorted, list->count, flag(call, 0)))
		return false;
	for (size_t i = 0; i < list->count; i++)
		list->items[i] = sorted[i].value;
	*ret = tmpl_list_value(TV_LIST, list);
	ret->trusted = call->self.trusted;
	return true;
}

static bool run_unique(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value nothing = {.kind = TV_MISSING}, key, seen;
	struct tmpl_list *list = tmpl_collect(e, call->self), *kept = tmpl_list_new(e, 0);
	struct tmpl_dict *keys = tmpl_dict_new(e);
	if (!list || !kept || !keys)
		return false;
	for (size_t i = 0; i < list->count; i++) {
		if (!tmpl_follow(e, list->items[i], call->arg[1], nothing, &key) ||
		    !tmpl_fold_case(e, key, flag(call, 0), &key) ||
		    !tmpl_dict_get(e, keys, key, &seen))
			return false;
		if (seen.kind != TV_MISSING)
			continue;
		if (!tmpl_dict_set(e, keys, key, tmpl_bool(true)) ||
		    !tmpl_list_add(e, kept, list->items[i]))
			return false;
	}
	*ret = tmpl_list_value(TV_GENERATOR, kept);
	return true;
}

/* min (detail 0) and max (1): the first of those that are least, or greatest. */
static bool run_extreme(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value nothing = {.kind = TV_MISSING}, key, best;
	struct tmpl_list *list = tmpl_collect(e, call->self);
	if (!list)
		return false;
	*ret = tmpl_undefined(tmpl_str_static(e, "min or max of an empty sequence"), WHY_HINT);
	for (size_t i = 0; i < list->count; i++) {
		bool better = i == 0;
		if (!tmpl_follow(e, list->items[i], call->arg[1], nothing, &key) ||
		    !tmpl_fold_case(e, key, flag(call, 0), &key))
			return false;
		if (i > 0 && !(call->builtin->detail ? tmpl_less(e, best, key, &better)
						     : tmpl_less(e, key, best, &better)))
			return false;
		if (better) {
			best = key;
			*ret = list->items[i];
		}
	}
	return e->code == SVC_OK;
}

static bool run_sum(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value nothing = {.kind = TV_MISSING}, item;
	struct tmpl_iter iter;
	*ret = tmpl_given(call->arg[1]) ? call->arg[1] : tmpl_int(0);
	if (ret->kind == TV_STRING)
		return tmpl_fail_type(e, "sum", *ret);
	if (!tmpl_iter_start(e, call->self, &iter))
		return false;
	for (;;) {
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return true;
		if (!tmpl_follow(e, item, call->arg[0], nothing, &item) ||
		    !tmpl_binary(e, '+', *ret, item, ret))
			return false;
	}
}

/* Lists of `size` items, the last one filled up if asked. */
static bool run_batch(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_collect(e, call->self), *all = tmpl_list_new(e, 0);
	struct tmpl_list *batch = NULL;
	int64_t size;
	if (!list || !all || !tmpl_arg_int(e, call, 0, 1, &size))
		return false;
	for (size_t i = 0; i < list->count; i++) {
		if (!batch || (int64_t)batch->count == size) {
			batch = tmpl_list_new(e, 0);
			if (!batch || !tmpl_list_add(e, all, tmpl_list_value(TV_LIST, batch)))
				return false;
		}
		if (!tmpl_list_add(e, batch, list->items[i]))
			return false;
	}
	while (batch && tmpl_set(call->arg[1]) && (int64_t)batch->count < size)
		if (!tmpl_charge(e, 1) || !tmpl_list_add(e, batch, call->arg[1]))
			return false;
	*ret = tmpl_list_value(TV_GENERATOR, all);
	return true;
}

/* `count` lists of about equal length. */
static bool run_slice(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_list *list = tmpl_collect(e, call->self), *all = tmpl_list_new(e, 0);
	int64_t count;
	if (!list || !all || !tmpl_arg_int(e, call, 0, 1, &count))
		return false;
	if (count == 0)
		return tmpl_fail(e, SVC_INVALID, "slice: division by zero");
	size_t at = 0;
	for (int64_t i = 0; i < count; i++) {
		bool longer = (uint64_t)i < list->count % (uint64_t)count;
		size_t length = list->count / (uint64_t)count + longer;
		struct tmpl_list *part = tmpl_list_new(e, length + 1);
		if (!part || !tmpl_charge(e, 1 + length))
			return false;
		for (; part->count < length; part->count++)
			part->items[part->count] = list->items[at++];
		if (tmpl_set(call->arg[1]) && !longer)
			part->items[part->count++] = call->arg[1];
		if (!tmpl_list_add(e, all, tmpl_list_value(TV_LIST, part)))
			return false;
	}
	*ret = tmpl_list_value(TV_GENERATOR, all);
	return true;
}

static bool run_attr(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *name;
	if (!tmpl_arg_str(e, call, 0, NULL, &name))
		return false;
	if (!name)
		return tmpl_fail_type(e, "attr", call->arg[0]);
	if (!tmpl_own_attr(e, call->self, name, ret))
		return false;
	if (ret->kind == TV_MISSING)
		*ret = tmpl_undefined(name, WHY_ATTRIBUTE);
	return true;
}

const struct tmpl_builtin tmpl_sequence_filters[] = {
	{"attr", run_attr, "name", 1, 0, false},
	{"batch", run_batch, "linecount,fill_with", 1, 0, false},
	{"count", run_length, "", 0, 0, false},
	{"dictsort", run_dictsort, "case_sensitive,by,reverse", 0, 0, false},
	{"first", run_first, "", 0, 0, false},
	{"items", run_items, "", 0, 0, false},
	{"join", run_join, "d,attribute", 0, 0, false},
	{"last", run_last, "", 0, 0, false},
	{"length", run_length, "", 0, 0, false},
	{"list", run_list, "", 0, 0, false},
	{"max", run_extreme, "case_sensitive,attribute", 0, 1, false},
	{"min", run_extreme, "case_sensitive,attribute", 0, 0, false},
	{"reverse", run_reverse, "", 0, 0, false},
	{"slice", run_slice, "slices,fill_with", 1, 0, false},
	{"sort", run_sort, "reverse,case_sensitive,attribute", 0, 0, false},
	{"sum", run_sum, "attribute,start", 0, 0, false},
	{"unique", run_unique, "case_sensitive,attribute", 0, 0, false},
};
const size_t tmpl_sequence_filter_count =
	sizeof tmpl_sequence_filters / sizeof *tmpl_sequence_filters;
