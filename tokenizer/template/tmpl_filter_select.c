/* map, select, reject, selectattr, rejectattr: filters that run a filter or test on every item.
 * Jinja's are lazy; here all items are gone through at once, which differs only in when an error
 * is seen. */
#include "tokenizer/template/tmpl_builtin.h"

static bool fail_name(struct tmpl_eval *e, const char *what, struct tmpl_value name)
{
	if (name.kind != TV_STRING)
		return tmpl_fail_type(e, what, name);
	struct span text = tmpl_span(name.str);
	return tmpl_fail(e, SVC_UNSUPPORTED, "the %s '%.*s'", what,
			 (int)(text.len < 60 ? text.len : 60), text.ptr);
}

/* map('filter', arguments) or map(attribute='name', default=value). */
struct mapping {
	const struct tmpl_builtin *filter;
	struct tmpl_args args;
	struct tmpl_value path, fallback;
};

static bool read_mapping(struct tmpl_eval *e, const struct tmpl_args *given, struct mapping *ret)
{
	*ret = (struct mapping){.args = *given};
	ret->path = tmpl_dict_named(&given->named, "attribute");
	if (given->list.count == 0 && tmpl_given(ret->path)) {
		ret->fallback = tmpl_dict_named(&given->named, "default");
		if (given->named.count > 1u + tmpl_given(ret->fallback))
			return tmpl_fail(e, SVC_INVALID, "map: only attribute and default");
		return true;
	}
	if (given->list.count == 0)
		return tmpl_fail(e, SVC_INVALID, "map: a filter's name or attribute= is needed");
	struct tmpl_value name = given->list.items[0];
	ret->filter = name.kind == TV_STRING ? tmpl_filter_find(tmpl_span(name.str)) : NULL;
	ret->args.list.items++;
	ret->args.list.count--;
	return ret->filter || fail_name(e, "filter", name);
}

static bool run_map(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct mapping mapping;
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list)
		return false;
	*ret = tmpl_list_value(TV_GENERATOR, list);
	if (!tmpl_truth(call->self))
		return true;
	struct tmpl_list *items = tmpl_collect(e, call->self);
	if (!items || !read_mapping(e, call->args, &mapping))
		return false;
	for (size_t i = 0; i < items->count; i++) {
		struct tmpl_value item = items->items[i], mapped;
		bool ok = mapping.filter
				  ? tmpl_enter(e) && tmpl_builtin_call(e, mapping.filter, item,
								       &mapping.args, &mapped)
				  : tmpl_follow(e, item, mapping.path, mapping.fallback, &mapped);
		if (!ok || !tmpl_list_add(e, list, mapped))
			return false;
		if (mapping.filter)
			tmpl_leave(e);
	}
	return true;
}

enum { SELECT_REJECTS = 1, SELECT_BY_ATTRIBUTE = 2 };

static bool run_select(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_args args = *call->args;
	struct tmpl_value path = {.kind = TV_MISSING}, nothing = path;
	const struct tmpl_builtin *test = NULL;
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list)
		return false;
	*ret = tmpl_list_value(TV_GENERATOR, list);
	if (!tmpl_truth(call->self))
		return true;
	if (call->builtin->detail & SELECT_BY_ATTRIBUTE) {
		if (args.list.count == 0)
			return tmpl_fail(e, SVC_INVALID, "%s: an attribute's name is needed",
					 call->builtin->name);
		path = *args.list.items++;
		args.list.count--;
	}
	if (args.list.count) {
		struct tmpl_value name = *args.list.items++;
		args.list.count--;
		test = name.kind == TV_STRING ? tmpl_is_find(tmpl_span(name.str)) : NULL;
		if (!test)
			return fail_name(e, "test", name);
	}
	struct tmpl_list *items = tmpl_collect(e, call->self);
	if (!items)
		return false;
	for (size_t i = 0; i < items->count; i++) {
		struct tmpl_value value, passes;
		if (!tmpl_follow(e, items->items[i], path, nothing, &value))
			return false;
		passes = value;
		if (test && !tmpl_builtin_call(e, test, value, &args, &passes))
			return false;
		bool keep = tmpl_truth(passes) != (call->builtin->detail & SELECT_REJECTS);
		if (keep && !tmpl_list_add(e, list, items->items[i]))
			return false;
	}
	return true;
}

const struct tmpl_builtin tmpl_select_filters[] = {
	{"map", run_map, NULL, 0, 0, false},
	{"reject", run_select, NULL, 0, SELECT_REJECTS, false},
	{"rejectattr", run_select, NULL, 0, SELECT_REJECTS | SELECT_BY_ATTRIBUTE, false},
	{"select", run_select, NULL, 0, 0, false},
	{"selectattr", run_select, NULL, 0, SELECT_BY_ATTRIBUTE, false},
};
const size_t tmpl_select_filter_count = sizeof tmpl_select_filters / sizeof *tmpl_select_filters;
