/* The methods of strings. Those that exist in Python but have no run here are refused by name. */
#include "tokenizer/template/tmpl_method_string.h"

#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_format.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"
#include "tokenizer/template/tmpl_unicode.h"

static bool run_recase(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	return tmpl_return(tmpl_recase(e, call->self.str, (enum tmpl_recase)call->builtin->detail),
			   ret);
}

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

static bool run_strip(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *chars;
	int sides = call->builtin->detail;
	return tmpl_arg_str(e, call, 0, NULL, &chars) &&
	       tmpl_return(tmpl_strip(e, call->self.str, chars, sides & STRIP_LEFT,
				      sides & STRIP_RIGHT),
			   ret);
}

/* split (detail 0) and rsplit (1). */
static bool run_split(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *separator;
	int64_t most;
	if (!tmpl_arg_str(e, call, 0, NULL, &separator) || !tmpl_arg_int(e, call, 1, -1, &most))
		return false;
	struct tmpl_list *list = call->builtin->detail
					 ? tmpl_rsplit(e, call->self.str, separator, most)
					 : tmpl_split(e, call->self.str, separator, most);
	*ret = tmpl_list_value(TV_LIST, list);
	return list != NULL;
}

static bool run_splitlines(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	bool keep = tmpl_given(call->arg[0]) && tmpl_truth(call->arg[0]);
	struct tmpl_list *list = tmpl_split_lines(e, call->self.str, keep);
	*ret = tmpl_list_value(TV_LIST, list);
	return list != NULL;
}

/* partition (detail 0) and rpartition (1). */
static bool run_partition(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str, *separator;
	bool last = call->builtin->detail;
	size_t at, cuts[4] = {0, s->len, s->len, s->len};
	if (!tmpl_arg_str(e, call, 0, NULL, &separator))
		return false;
	if (!separator || separator->len == 0)
		return tmpl_fail(e, SVC_INVALID, "partition: a separator is needed");
	if (!last)
		at = tmpl_find(s, separator, 0, s->len);
	else if (!tmpl_rfind(e, s, separator, 0, s->len, &at))
		return false;
	if (at != SIZE_MAX) {
		cuts[1] = at;
		cuts[2] = at + separator->len;
	} else if (last) {
		cuts[1] = cuts[2] = 0;
	}
	struct tmpl_list *parts = tmpl_list_new(e, 3);
	if (!parts || !tmpl_charge(e, s->len / 64))
		return false;
	for (; parts->count < 3; parts->count++) {
		const struct tmpl_str *part =
			tmpl_str_slice(e, s, cuts[parts->count], cuts[parts->count + 1]);
		if (!tmpl_return(part, &parts->items[parts->count]))
			return false;
	}
	*ret = tmpl_list_value(TV_TUPLE, parts);
	return true;
}

/* The start and end arguments at i and i+1, as byte offsets; from > to if they select nothing. */
static bool span_args(struct tmpl_eval *e, const struct tmpl_call *call, int i, size_t *ret_from,
		      size_t *ret_to)
{
	const struct tmpl_str *s = call->self.str;
	int64_t count = (int64_t)s->chars, from = 0, to = count;
	if (tmpl_set(call->arg[i]) && !tmpl_arg_int(e, call, i, 0, &from))
		return false;
	if (tmpl_set(call->arg[i + 1]) && !tmpl_arg_int(e, call, i + 1, count, &to))
		return false;
	from = from < 0 ? from + count : from;
	to = to < 0 ? to + count : to;
	from = from < 0 ? 0 : from;
	to = to < 0 ? 0 : to > count ? count : to;
	*ret_to = tmpl_offset(s, (size_t)to);
	*ret_from = from > count ? SIZE_MAX : tmpl_offset(s, (size_t)from);
	return tmpl_charge(e, 1 + s->len / 64);
}

enum { FIND_LAST = 1, FIND_OR_FAIL = 2 };

static bool run_find(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str, *needle;
	size_t from, to, at = SIZE_MAX;
	if (!tmpl_arg_str(e, call, 0, NULL, &needle) || !span_args(e, call, 1, &from, &to))
		return false;
	if (!needle)
		return tmpl_fail_type(e, call->builtin->name, call->arg[0]);
	if (call->builtin->detail & FIND_LAST) {
		if (!tmpl_rfind(e, s, needle, from, to, &at))
			return false;
	} else {
		at = tmpl_find(s, needle, from, to);
	}
	if (at == SIZE_MAX && call->builtin->detail & FIND_OR_FAIL)
		return tmpl_fail(e, SVC_INVALID, "%s: not found", call->builtin->name);
	*ret = tmpl_int(at == SIZE_MAX ? -1 : (int64_t)tmpl_count_chars((struct span){s->ptr, at}));
	return true;
}

static bool run_count(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *needle;
	size_t from, to;
	if (!tmpl_arg_str(e, call, 0, NULL, &needle) || !span_args(e, call, 1, &from, &to))
		return false;
	if (!needle)
		return tmpl_fail_type(e, "count", call->arg[0]);
	*ret = tmpl_int((int64_t)tmpl_count(call->self.str, needle, from, to));
	return true;
}

static bool affix_at(const struct tmpl_str *s, struct tmpl_value affix, bool at_end, size_t from,
		     size_t to)
{
	size_t len = affix.str->len;
	if (from > to || len > to - from)
		return false;
	return memcmp(s->ptr + (at_end ? to - len : from), affix.str->ptr, len) == 0;
}

/* startswith (detail 0) and endswith (1), of a string or any of a tuple. */
static bool run_affix(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value affix = call->arg[0];
	bool tuple = affix.kind == TV_TUPLE, found = false;
	size_t from, to, count = tuple ? affix.list->count : 1;
	if (!span_args(e, call, 1, &from, &to))
		return false;
	for (size_t i = 0; i < count && !found; i++) {
		struct tmpl_value each = tuple ? affix.list->items[i] : affix;
		if (each.kind != TV_STRING)
			return tmpl_fail_type(e, call->builtin->name, each);
		found = affix_at(call->self.str, each, call->builtin->detail, from, to);
	}
	*ret = tmpl_bool(found);
	return tmpl_charge(e, count);
}

/* removeprefix (detail 0) and removesuffix (1). */
static bool run_remove(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str;
	if (call->arg[0].kind != TV_STRING)
		return tmpl_fail_type(e, call->builtin->name, call->arg[0]);
	size_t len = call->arg[0].str->len, from = 0, to = s->len;
	if (affix_at(s, call->arg[0], call->builtin->detail, 0, s->len)) {
		from = call->builtin->detail ? 0 : len;
		to = call->builtin->detail ? s->len - len : s->len;
	}
	return tmpl_return(tmpl_str_slice(e, s, from, to), ret);
}

static bool run_replace(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str, *old, *with;
	int64_t most;
	if (!tmpl_arg_str(e, call, 0, NULL, &old) || !tmpl_arg_str(e, call, 1, NULL, &with) ||
	    !tmpl_arg_int(e, call, 2, -1, &most))
		return false;
	if (!old || !with)
		return tmpl_fail_type(e, "replace", old ? call->arg[1] : call->arg[0]);
	if (s->markup && !(with = tmpl_escape(e, with)))
		return false;
	return tmpl_return(tmpl_replace(e, s, old, with, most), ret);
}

static bool run_join(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *between = call->self.str;
	struct tmpl_iter iter;
	struct tmpl_builder b;
	struct tmpl_value item;
	tmpl_build(&b, e, 0);
	if (!tmpl_iter_start(e, call->arg[0], &iter))
		return false;
	for (bool first = true;; first = false) {
		if (!tmpl_iter_next(e, &iter, &item))
			return false;
		if (item.kind == TV_MISSING)
			return tmpl_return(tmpl_built(&b), ret);
		if (item.kind != TV_STRING && !between->markup)
			return tmpl_fail_type(e, "join", item);
		const struct tmpl_str *text = tmpl_to_str(e, item);
		if (text && between->markup)
			text = tmpl_escape(e, text);
		if (!text)
			return false;
		if (!first)
			tmpl_add(&b, between);
		tmpl_add(&b, text);
	}
}

enum { PAD_LEFT, PAD_RIGHT, PAD_BOTH };

/* rjust, ljust and center. */
static bool run_pad(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str, *fill = tmpl_str_static(e, " ");
	int64_t width;
	if (!fill || !tmpl_arg_int(e, call, 0, 0, &width) || !tmpl_arg_str(e, call, 1, fill, &fill))
		return false;
	if (s->markup && !(fill = tmpl_escape(e, fill)))
		return false;
	if (fill->chars != 1)
		return tmpl_fail(e, SVC_INVALID, "%s: fill with one character",
				 call->builtin->name);
	int64_t pad = width - (int64_t)s->chars, left = 0;
	pad = pad < 0 ? 0 : pad;
	if (call->builtin->detail == PAD_LEFT)
		left = pad;
	else if (call->builtin->detail == PAD_BOTH)
		left = pad / 2 + (pad & width & 1); /* as str.center has it */
	return tmpl_return(tmpl_pad(e, s, left, pad - left, fill), ret);
}

static bool run_zfill(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str;
	int64_t width;
	if (!tmpl_arg_int(e, call, 0, 0, &width))
		return false;
	size_t sign = s->len && (s->ptr[0] == '-' || s->ptr[0] == '+');
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	tmpl_add_slice(&b, s, 0, sign);
	if (width > (int64_t)s->chars)
		tmpl_add_repeat(&b, '0', (size_t)width - s->chars, true);
	tmpl_add_slice(&b, s, sign, s->len);
	return tmpl_return(tmpl_built(&b), ret);
}

static bool run_format(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	return tmpl_format_braces(e, call->self.str, call->args, ret);
}

enum { ALL_SPACE, ALL_UPPER, ALL_LOWER, ALL_DIGIT, ALL_ALPHA, ALL_ALNUM, ALL_ASCII };

/* One character of ASCII. */
static bool is_class(uint32_t code, int class)
{
	bool digit = code >= '0' && code <= '9';
	bool letter = (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
	return (digit && class != ALL_ALPHA) || (letter && class != ALL_DIGIT);
}

/* isspace and its like. Letters and digits beyond ASCII would need tables nobody has asked for. */
static bool run_class(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str;
	int class = call->builtin->detail;
	bool cases = class == ALL_UPPER || class == ALL_LOWER, all = cases || s->len > 0,
	     any = false;
	uint32_t code;
	for (size_t at = 0; at < s->len && all;) {
		at += tmpl_decode(s->ptr + at, &code);
		if (cases) {
			any = any || tmpl_is_cased(code);
			all = !tmpl_is_cased(code) ||
			      (class == ALL_LOWER ? tmpl_is_lowercase(code)
						  : tmpl_is_uppercase(code));
		} else if (class == ALL_SPACE) {
			all = tmpl_is_space(code);
		} else if (class == ALL_ASCII) {
			all = code < 0x80;
		} else if (code >= 0x80) {
			return tmpl_fail(e, SVC_UNSUPPORTED, "%s of other than ASCII",
					 call->builtin->name);
		} else {
			all = is_class(code, class);
		}
	}
	*ret = tmpl_bool(class == ALL_ASCII ? all || s->len == 0 : all && (any || !cases));
	return tmpl_charge(e, s->len / 16);
}

const struct tmpl_builtin tmpl_string_methods[] = {
	{"capitalize", run_recase, "", 0, RECASE_CAPITALIZE, true},
	{"center", run_pad, "/width,fillchar", 1, PAD_BOTH, true},
	{"count", run_count, "/sub,start,end", 1, 0, false},
	{"endswith", run_affix, "/suffix,start,end", 1, 1, false},
	{"find", run_find, "/sub,start,end", 1, 0, false},
	{"format", run_format, NULL, 0, 0, false},
	{"index", run_find, "/sub,start,end", 1, FIND_OR_FAIL, false},
	{"isalnum", run_class, "", 0, ALL_ALNUM, false},
	{"isalpha", run_class, "", 0, ALL_ALPHA, false},
	{"isascii", run_class, "", 0, ALL_ASCII, false},
	{"isdecimal", run_class, "", 0, ALL_DIGIT, false},
	{"isdigit", run_class, "", 0, ALL_DIGIT, false},
	{"islower", run_class, "", 0, ALL_LOWER, false},
	{"isnumeric", run_class, "", 0, ALL_DIGIT, false},
	{"isspace", run_class, "", 0, ALL_SPACE, false},
	{"isupper", run_class, "", 0, ALL_UPPER, false},
	{"join", run_join, "/iterable", 1, 0, true},
	{"ljust", run_pad, "/width,fillchar", 1, PAD_RIGHT, true},
	{"lower", run_recase, "", 0, RECASE_LOWER, true},
	{"lstrip", run_strip, "/chars", 0, STRIP_LEFT, true},
	{"partition", run_partition, "/sep", 1, 0, true},
	{"removeprefix", run_remove, "/prefix", 1, 0, true},
	{"removesuffix", run_remove, "/suffix", 1, 1, true},
	{"replace", run_replace, "/old,new,count", 2, 0, true},
	{"rfind", run_find, "/sub,start,end", 1, FIND_LAST, false},
	{"rindex", run_find, "/sub,start,end", 1, FIND_LAST | FIND_OR_FAIL, false},
	{"rjust", run_pad, "/width,fillchar", 1, PAD_LEFT, true},
	{"rpartition", run_partition, "/sep", 1, 1, true},
	{"rsplit", run_split, "sep,maxsplit", 0, 1, true},
	{"rstrip", run_strip, "/chars", 0, STRIP_RIGHT, true},
	{"split", run_split, "sep,maxsplit", 0, 0, true},
	{"splitlines", run_splitlines, "keepends", 0, 0, true},
	{"startswith", run_affix, "/prefix,start,end", 1, 0, false},
	{"strip", run_strip, "/chars", 0, STRIP_LEFT | STRIP_RIGHT, true},
	{"swapcase", run_recase, "", 0, RECASE_SWAP, true},
	{"title", run_recase, "", 0, RECASE_TITLE, true},
	{"upper", run_recase, "", 0, RECASE_UPPER, true},
	{"zfill", run_zfill, "/width", 1, 0, true},
	{.name = "casefold"},
	{.name = "encode"},
	{.name = "expandtabs"},
	{.name = "format_map"},
	{.name = "isidentifier"},
	{.name = "isprintable"},
	{.name = "istitle"},
	{.name = "maketrans"},
	{.name = "translate"},
};
const size_t tmpl_string_method_count = sizeof tmpl_string_methods / sizeof *tmpl_string_methods;
