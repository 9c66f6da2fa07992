/* The global functions: range, dict, namespace, raise_exception, strftime_now. */
#include <stdio.h>
#include <time.h>

#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"

#define MOST_RANGE 100000u /* as Jinja's sandbox has it */

static bool run_range(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_list *args = &call->args->list;
	struct tmpl_range *range = tmpl_alloc(e, 1, sizeof *range);
	int64_t bounds[3] = {0, 0, 1};
	if (!range)
		return false;
	if (args->count == 0 || args->count > 3 || call->args->named.count)
		return tmpl_fail(e, SVC_INVALID, "range takes 1 to 3 integers");
	for (size_t i = 0; i < args->count; i++)
		if (!tmpl_need_int(e, "range", args->items[i], &bounds[args->count == 1 ? 1 : i]))
			return false;
	if (bounds[2] == 0)
		return tmpl_fail(e, SVC_INVALID, "range: step 0");
	*range = (struct tmpl_range){bounds[0], bounds[1], bounds[2], 0};
	/* In unsigned arithmetic, where no distance overflows. */
	uint64_t distance = 0, step = (uint64_t)range->step;
	if (range->step > 0 && range->stop > range->start)
		distance = (uint64_t)range->stop - (uint64_t)range->start;
	if (range->step < 0 && range->stop < range->start) {
		distance = (uint64_t)range->start - (uint64_t)range->stop;
		step = -step;
	}
	uint64_t count = distance ? (distance - 1) / step + 1 : 0;
	if (count > MOST_RANGE)
		return tmpl_fail(e, SVC_INVALID, "range: more than %u items", MOST_RANGE);
	range->count = (size_t)count;
	*ret = (struct tmpl_value){.kind = TV_RANGE, .trusted = true, .range = range};
	for (size_t i = 0; i < args->count; i++)
		ret->trusted = ret->trusted && args->items[i].trusted;
	return true;
}

/* The entries of a mapping, or pairs. */
static bool add_pairs(struct tmpl_eval *e, struct tmpl_value from, struct tmpl_dict *dict)
{
	struct tmpl_iter iter;
	struct tmpl_value pair;
	if (from.kind == TV_DICT) {
		from.kind = TV_VIEW;
		from.detail = VIEW_ITEMS;
	}
	if (!tmpl_iter_start(e, from, &iter))
		return false;
	for (;;) {
		if (!tmpl_iter_next(e, &iter, &pair))
			return false;
		if (pair.kind == TV_MISSING)
			return true;
		struct tmpl_list *both = tmpl_collect(e, pair);
		if (!both)
			return false;
		if (both->count != 2)
			return tmpl_fail(e, SVC_INVALID, "dict: not a pair");
		if (!tmpl_dict_set(e, dict, both->items[0], both->items[1]))
			return false;
	}
}

/* A mapping, or pairs, then names. */
static bool fill_dict(struct tmpl_eval *e, const struct tmpl_args *args, struct tmpl_dict *dict)
{
	if (args->list.count > 1)
		return tmpl_fail(e, SVC_INVALID, "dict and namespace take one mapping at most");
	if (args->list.count == 1 && !add_pairs(e, args->list.items[0], dict))
		return false;
	for (size_t i = 0; i < args->named.count; i++)
		if (!tmpl_dict_set(e, dict, args->named.entries[i].key,
				   args->named.entries[i].value))
			return false;
	return true;
}

static bool run_dict(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_dict *dict = tmpl_dict_new(e);
	*ret = tmpl_dict_value(dict);
	return dict && fill_dict(e, call->args, dict);
}

static bool run_namespace(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (!run_dict(e, call, ret))
		return false;
	ret->kind = TV_NAMESPACE;
	for (size_t i = 0; i < ret->dict->count; i++) {
		struct tmpl_value key = ret->dict->entries[i].key;
		if (key.kind == TV_STRING && key.str->len && key.str->ptr[0] == '_')
			return tmpl_fail(e, SVC_INVALID,
					 "a namespace's attribute can't begin with _");
	}
	return true;
}

/* The template refuses the conversation. Its message is all that the client sees. */
static bool run_raise(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *text = tmpl_to_str(e, call->arg[0]);
	if (!text)
		return false;
	size_t len = text->len < 500 ? text->len : 500;
	while (len > 0 && len < text->len && ((unsigned char)text->ptr[len] & 0xC0) == 0x80)
		len--;
	e->code = svc_fail_param(e->err, SVC_INVALID, "messages", "%.*s", (int)len, text->ptr);
	*ret = call->self;
	return false;
}

static const char *const day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
					"Thursday", "Friday", "Saturday"};
static const char *const month_names[] = {"January",   "February", "March",    "April",
					  "May",       "June",	   "July",     "August",
					  "September", "October",  "November", "December"};

/* ISO 8601 week and its year: the week that holds the year's first Thursday is week 1. */
static void iso_week(const struct tm *t, int *ret_year, int *ret_week)
{
	int weekday = (t->tm_wday + 6) % 7; /* Monday is 0 */
	int week = (t->tm_yday - weekday + 10) / 7, year = t->tm_year + 1900;
	int before = year - 1;
	int first = (t->tm_wday - t->tm_yday % 7 + 7) % 7; /* weekday of January 1st, Sunday is 0 */
	bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	bool leap_before = before % 4 == 0 && (before % 100 != 0 || before % 400 == 0);
	int first_before = (first + 6 - (leap_before ? 1 : 0)) % 7;
	bool long_year = first == 4 || (leap && first == 3);
	bool long_before = first_before == 4 || (leap_before && first_before == 3);
	*ret_year = year;
	*ret_week = week;
	if (week < 1) {
		*ret_year = before;
		*ret_week = long_before ? 53 : 52;
	} else if (week == 53 && !long_year) {
		*ret_year = year + 1;
		*ret_week = 1;
	}
}

/* A number with `width` digits; `pad` fills it: '0', ' ' or 0 for none. */
static void add_digits(struct tmpl_builder *b, int64_t number, int width, char pad, bool trusted)
{
	char text[32];
	if (pad == ' ')
		snprintf(text, sizeof text, "%*lld", width, (long long)number);
	else
		snprintf(text, sizeof text, "%0*lld", pad ? width : 1, (long long)number);
	tmpl_add_text(b, text, trusted);
}

struct clock_text {
	struct tmpl_eval *e;
	struct tmpl_builder b;
	struct tm tm;
	int64_t now;
	bool trusted;
};

static bool expand(struct clock_text *c, struct span format, int depth);

/* The directives that stand for others. */
static const char *shorthand(char directive)
{
	switch (directive) {
	case 'c':
		return "%a %b %e %H:%M:%S %Y";
	case 'D':
	case 'x':
		return "%m/%d/%y";
	case 'F':
		return "%Y-%m-%d";
	case 'R':
		return "%H:%M";
	case 'T':
	case 'X':
		return "%H:%M:%S";
	case 'r':
		return "%I:%M:%S %p";
	default:
		return NULL;
	}
}

/* The directives that are words. */
static bool add_word(struct clock_text *c, char directive)
{
	const char *day = day_names[c->tm.tm_wday], *month = month_names[c->tm.tm_mon];
	switch (directive) {
	case 'a':
		tmpl_add_bytes(&c->b, day, 3, c->trusted);
		return true;
	case 'A':
		tmpl_add_text(&c->b, day, c->trusted);
		return true;
	case 'b':
	case 'h':
		tmpl_add_bytes(&c->b, month, 3, c->trusted);
		return true;
	case 'B':
		tmpl_add_text(&c->b, month, c->trusted);
		return true;
	case 'p':
		tmpl_add_text(&c->b, c->tm.tm_hour < 12 ? "AM" : "PM", c->trusted);
		return true;
	case 'n':
	case 't':
		tmpl_add_text(&c->b, directive == 'n' ? "\n" : "\t", c->trusted);
		return true;
	case '%':
		tmpl_add_text(&c->b, "%", c->trusted);
		return true;
	case 'Z': /* Python's clock has no zone either: empty */
	case 'z':
		return true;
	default:
		return false;
	}
}

/* The directives that are numbers; pad '-' means none. */
static bool add_number(struct clock_text *c, char directive, char pad)
{
	const struct tm *t = &c->tm;
	int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12, year, week;
	iso_week(t, &year, &week);
	const struct {
		int64_t value;
		int width;
		char directive, pad;
	} numbers[] = {
		{(t->tm_year + 1900) / 100, 2, 'C', '0'},
		{t->tm_mday, 2, 'd', '0'},
		{t->tm_mday, 2, 'e', ' '},
		{0, 6, 'f', '0'},
		{year, 4, 'G', 0},
		{year % 100, 2, 'g', '0'},
		{t->tm_hour, 2, 'H', '0'},
		{hour, 2, 'I', '0'},
		{t->tm_yday + 1, 3, 'j', '0'},
		{t->tm_hour, 2, 'k', ' '},
		{hour, 2, 'l', ' '},
		{t->tm_min, 2, 'M', '0'},
		{t->tm_mon + 1, 2, 'm', '0'},
		{t->tm_sec, 2, 'S', '0'},
		{c->now, 1, 's', 0},
		{(t->tm_yday + 7 - t->tm_wday) / 7, 2, 'U', '0'},
		{t->tm_wday ? t->tm_wday : 7, 1, 'u', 0},
		{week, 2, 'V', '0'},
		{(t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7, 2, 'W', '0'},
		{t->tm_wday, 1, 'w', 0},
		{t->tm_year + 1900, 4, 'Y', 0},
		{t->tm_year % 100, 2, 'y', '0'},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (numbers[i].directive == directive) {
			char fill = pad == '-' ? 0 : pad ? pad : numbers[i].pad;
			add_digits(&c->b, numbers[i].value, numbers[i].width, fill, c->trusted);
			return true;
		}
	return false;
}

static bool add_directive(struct clock_text *c, char directive, char pad, int depth)
{
	const char *as = shorthand(directive);
	if (as)
		return depth == 0 && expand(c, span_of(as), 1);
	return add_word(c, directive) || add_number(c, directive, pad) ||
	       tmpl_fail(c->e, SVC_UNSUPPORTED, "strftime_now: %%%c",
			 directive >= 0x20 && directive < 0x7F ? directive : '?');
}

static bool expand(struct clock_text *c, struct span format, int depth)
{
	for (size_t at = 0; at < format.len; at++) {
		char pad = 0;
		if (!tmpl_charge(c->e, 1))
			return false;
		if (format.ptr[at] != '%' || at + 1 == format.len) {
			tmpl_add_bytes(&c->b, format.ptr + at, 1, c->trusted);
			continue;
		}
		at++;
		if (at + 1 < format.len &&
		    (format.ptr[at] == '-' || format.ptr[at] == '_' || format.ptr[at] == '0')) {
			pad = format.ptr[at] == '_' ? ' ' : format.ptr[at];
			at++;
		}
		if (!add_directive(c, format.ptr[at], pad, depth))
			return false;
	}
	return !c->b.failed;
}

/* strftime in the C locale, written out: it depends neither on the process's locale nor, as the
 * time is UTC, on the machine's zone. */
static bool run_strftime_now(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (call->arg[0].kind != TV_STRING)
		return tmpl_fail_type(e, "strftime_now", call->arg[0]);
	const struct tmpl_str *format = call->arg[0].str;
	struct clock_text c = {.e = e, .now = e->input->now_s, .trusted = tmpl_trusted(format)};
	time_t now = (time_t)c.now;
	if (!gmtime_r(&now, &c.tm))
		return tmpl_fail(e, SVC_INVALID, "strftime_now: no such time");
	tmpl_build(&c.b, e, 0);
	return expand(&c, tmpl_span(format), 0) && tmpl_return(tmpl_built(&c.b), ret);
}

static const struct tmpl_builtin functions[] = {
	{"dict", run_dict, NULL, 0, 0, false},
	{"namespace", run_namespace, NULL, 0, 0, false},
	{"raise_exception", run_raise, "message", 1, 0, false},
	{"range", run_range, NULL, 0, 0, false},
	{"strftime_now", run_strftime_now, "format", 1, 0, false},
};

const struct tmpl_builtin *tmpl_function_find(struct span name)
{
	return tmpl_builtin_find(functions, sizeof functions / sizeof *functions, name);
}
