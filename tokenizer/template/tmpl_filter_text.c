/* Filters of text and of single values. */
#include <math.h>

#include "tokenizer/template/tmpl_builtin.h"
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_format.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"
#include "tokenizer/template/tmpl_unicode.h"

/* upper, lower, capitalize: detail says which. */
static bool run_recase(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	const struct tmpl_str *made =
		s ? tmpl_recase(e, s, (enum tmpl_recase)call->builtin->detail) : NULL;
	return tmpl_return(made ? tmpl_str_mark(e, made, s->markup) : NULL, ret);
}

static bool starts_word(uint32_t code)
{
	return tmpl_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' ||
	       code == '<';
}

/* Jinja's own idea of words: what begins after white space, - ( { [ or <. */
static bool run_title(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	struct tmpl_builder b;
	if (!s)
		return false;
	tmpl_build(&b, e, s->len);
	for (size_t at = 0; at < s->len && !b.failed;) {
		uint32_t code;
		size_t first = at + tmpl_decode(s->ptr + at, &code), end = first;
		bool between = starts_word(code);
		while (end < s->len) {
			size_t len = tmpl_decode(s->ptr + end, &code);
			if (starts_word(code) != between)
				break;
			end += len;
		}
		const struct tmpl_str *head = tmpl_str_slice(e, s, at, first);
		const struct tmpl_str *tail = tmpl_str_slice(e, s, first, end);
		if (!head || !tail || !(head = tmpl_recase(e, head, RECASE_UPPER)) ||
		    !(tail = tmpl_recase(e, tail, RECASE_LOWER)))
			return false;
		tmpl_add(&b, head);
		tmpl_add(&b, tail);
		at = end;
	}
	return tmpl_return(tmpl_built(&b), ret);
}

static bool run_trim(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self), *chars;
	return s && tmpl_arg_str(e, call, 0, NULL, &chars) &&
	       tmpl_return(tmpl_strip(e, s, chars, true, true), ret);
}

static bool run_replace(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	const struct tmpl_str *old = s ? tmpl_to_str(e, call->arg[0]) : NULL;
	const struct tmpl_str *with = old ? tmpl_to_str(e, call->arg[1]) : NULL;
	int64_t most = -1;
	if (!with || (tmpl_set(call->arg[2]) && !tmpl_arg_int(e, call, 2, -1, &most)))
		return false;
	return tmpl_return(tmpl_replace(e, s, old, with, most), ret);
}

static bool run_default(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	bool falsy = tmpl_given(call->arg[1]) && tmpl_truth(call->arg[1]);
	*ret = call->self;
	if (call->self.kind != TV_UNDEFINED && !(falsy && !tmpl_truth(call->self)))
		return true;
	*ret = call->arg[0];
	return tmpl_given(*ret) || tmpl_return(tmpl_str_static(e, ""), ret);
}

static bool run_string(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	return tmpl_return(tmpl_to_str(e, call->self), ret);
}

/* safe (detail 0): markup as it is. escape (1): unless it is markup. forceescape (2): always. */
static bool run_markup(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	if (s && call->builtin->detail == 2)
		s = tmpl_str_mark(e, s, false);
	if (!s)
		return false;
	return tmpl_return(call->builtin->detail ? tmpl_escape(e, s) : tmpl_str_mark(e, s, true),
			   ret);
}

/* int(text, base), or else int(float(text)). *ret_ok: whether there was a number. */
static bool int_of_text(struct tmpl_eval *e, struct span text, int base, int64_t *ret, bool *ret_ok)
{
	bool big = false;
	double real;
	*ret_ok = tmpl_parse_int(text, base, ret, &big);
	if (big)
		return tmpl_fail(e, SVC_UNSUPPORTED, "an integer of more than 64 bits");
	if (*ret_ok || !tmpl_parse_double(text, &real) || !isfinite(real))
		return true;
	*ret_ok = true;
	return tmpl_double_to_int(e, real, ret);
}

static bool run_int(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value self = call->self;
	int64_t base, integer = 0;
	bool ok = false;
	if (self.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, self);
	if (!tmpl_arg_int(e, call, 1, 10, &base))
		return false;
	if (base != 0 && (base < 2 || base > 36))
		return tmpl_fail(e, SVC_INVALID, "int: base %lld", (long long)base);
	if (self.kind == TV_STRING) {
		if (!int_of_text(e, tmpl_span(self.str), (int)base, &integer, &ok))
			return false;
	} else if (tmpl_is_integer(self)) {
		ok = true;
		integer = tmpl_to_int64(self);
	} else if (self.kind == TV_FLOAT && !isnan(self.real)) {
		ok = true;
		if (!tmpl_double_to_int(e, self.real, &integer))
			return false;
	}
	*ret = ok ? tmpl_int(integer) : tmpl_given(call->arg[0]) ? call->arg[0] : tmpl_int(0);
	if (ok)
		ret->trusted = self.kind == TV_STRING ? tmpl_trusted(self.str) : self.trusted;
	return true;
}

static bool run_float(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_value self = call->self;
	double real = 0;
	bool ok = tmpl_is_number(self);
	if (self.kind == TV_UNDEFINED)
		return tmpl_fail_undefined(e, self);
	if (ok)
		real = tmpl_to_double(self);
	else if (self.kind == TV_STRING)
		ok = tmpl_parse_double(tmpl_span(self.str), &real);
	*ret = ok ? tmpl_real(real) : tmpl_given(call->arg[0]) ? call->arg[0] : tmpl_real(0);
	if (ok)
		ret->trusted = self.kind == TV_STRING ? tmpl_trusted(self.str) : self.trusted;
	return true;
}

static bool run_abs(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (!tmpl_is_number(call->self))
		return tmpl_fail_type(e, "abs", call->self);
	double real = tmpl_to_double(call->self);
	*ret = call->self;
	if (call->self.kind == TV_FLOAT)
		return ret->real = fabs(real), true;
	return real < 0 ? tmpl_negate(e, call->self, ret)
			: (ret->kind = TV_INT, ret->integer = tmpl_to_int64(call->self), true);
}

/* To a number of decimals as Python rounds: the decimal nearest to the exact value, ties to even.
 * Printing with that many digits is just that. */
static double round_decimals(double real, int64_t decimals)
{
	char text[400];
	double result = real;
	if (!isfinite(real) || decimals > 330)
		return real;
	if (decimals >= 0) {
		size_t len = tmpl_format_double(text, sizeof text, real, 'f', (int)decimals, false);
		if (len && tmpl_parse_double((struct span){text, len}, &result))
			return result;
		return real;
	}
	double unit = decimals < -308 ? INFINITY : pow(10, (double)-decimals);
	return isinf(unit) ? copysign(0, real) : nearbyint(real / unit) * unit;
}

/* The integer nearest to value in tens, hundreds ...; ties to even. */
static bool round_integer(struct tmpl_eval *e, int64_t value, int64_t decimals, int64_t *ret)
{
	int64_t unit = 1;
	for (; decimals < 0; decimals++)
		if (__builtin_mul_overflow(unit, 10, &unit))
			return *ret = 0, true;
	int64_t rest = value % unit, half = unit / 2;
	int64_t down = value - rest, magnitude = rest < 0 ? -rest : rest;
	bool up = magnitude > half || (unit > 1 && magnitude == half && (down / unit) % 2 != 0);
	*ret = down;
	if (up && __builtin_add_overflow(down, value < 0 ? -unit : unit, ret))
		return tmpl_fail(e, SVC_UNSUPPORTED, "an integer of more than 64 bits");
	return true;
}

static bool run_round(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *method;
	int64_t decimals;
	struct tmpl_value self = call->self;
	if (!tmpl_is_number(self))
		return tmpl_fail_type(e, "round", self);
	if (!tmpl_arg_int(e, call, 0, 0, &decimals) || !tmpl_arg_str(e, call, 1, NULL, &method))
		return false;
	*ret = self;
	if (!method || span_is(tmpl_span(method), "common")) {
		if (self.kind == TV_FLOAT)
			return ret->real = round_decimals(self.real, decimals), true;
		ret->kind = TV_INT;
		return round_integer(e, tmpl_to_int64(self), decimals, &ret->integer);
	}
	bool ceiling = span_is(tmpl_span(method), "ceil");
	if (!ceiling && !span_is(tmpl_span(method), "floor"))
		return tmpl_fail(e, SVC_INVALID, "round: the method is common, ceil or floor");
	double unit = pow(10, (double)decimals), scaled = tmpl_to_double(self) * unit;
	if (!isfinite(scaled) || unit == 0)
		return tmpl_fail(e, SVC_INVALID, "round: too large");
	/* Python rounds to an integer here, which has no -0. */
	*ret = tmpl_real(((ceiling ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
	ret->trusted = self.trusted;
	return true;
}

/* Whether the text ends in a line end that a further \n doesn't become one with. */
static bool ends_line(const struct tmpl_str *s)
{
	uint32_t code;
	size_t at = s->len - 1;
	while (((unsigned char)s->ptr[at] & 0xC0) == 0x80)
		at--;
	tmpl_decode(s->ptr + at, &code);
	return code != '\r' && tmpl_is_line_end(code);
}

/* What a line begins with: `width` spaces, or a text. */
static const struct tmpl_str *indentation(struct tmpl_eval *e, const struct tmpl_call *call)
{
	int64_t width;
	struct tmpl_builder spaces;
	if (call->arg[0].kind == TV_STRING)
		return call->arg[0].str;
	if (!tmpl_arg_int(e, call, 0, 4, &width))
		return NULL;
	tmpl_build(&spaces, e, 0);
	tmpl_add_repeat(&spaces, ' ', width > 0 ? (size_t)width : 0, true);
	return tmpl_built(&spaces);
}

static bool run_indent(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	if (call->self.kind != TV_STRING)
		return tmpl_fail_type(e, "indent", call->self);
	const struct tmpl_str *s = call->self.str, *by = indentation(e, call);
	const struct tmpl_str *empty = tmpl_str_static(e, "");
	bool first = tmpl_given(call->arg[1]) && tmpl_truth(call->arg[1]);
	bool blank = tmpl_given(call->arg[2]) && tmpl_truth(call->arg[2]);
	struct tmpl_list *lines = by && empty ? tmpl_split_lines(e, s, false) : NULL;
	if (!lines)
		return false;
	/* Jinja adds a line end before it splits: text that ends in one keeps an empty last line.
	 */
	bool open = s->len == 0 || ends_line(s);
	if (open && !tmpl_list_add(e, lines, tmpl_str_value(empty)))
		return false;
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	for (size_t i = 0; i < lines->count && !b.failed; i++) {
		const struct tmpl_str *line = lines->items[i].str;
		bool indented = i == 0 ? first : blank || line->len > 0;
		tmpl_add_text(&b, i > 0 ? "\n" : "", true);
		tmpl_add(&b, indented ? by : empty);
		tmpl_add(&b, line);
	}
	const struct tmpl_str *made = tmpl_built(&b);
	return tmpl_return(made ? tmpl_str_mark(e, made, s->markup) : NULL, ret);
}

static bool run_center(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	const struct tmpl_str *space = tmpl_str_static(e, " ");
	int64_t width;
	if (!s || !space || !tmpl_arg_int(e, call, 0, 80, &width))
		return false;
	int64_t pad = width - (int64_t)s->chars;
	pad = pad < 0 ? 0 : pad;
	int64_t left = pad / 2 + (pad & width & 1); /* as str.center has it */
	const struct tmpl_str *made = tmpl_pad(e, s, left, pad - left, space);
	return tmpl_return(made ? tmpl_str_mark(e, made, s->markup) : NULL, ret);
}

static bool run_format(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	struct tmpl_list positional = call->args->list;
	struct tmpl_dict named = call->args->named;
	if (!s)
		return false;
	if (positional.count && named.count)
		return tmpl_fail(e, SVC_INVALID, "format: values by position or by name, not both");
	struct tmpl_value values = tmpl_list_value(TV_TUPLE, &positional);
	if (named.count)
		values = tmpl_dict_value(&named);
	return tmpl_format_percent(e, s, values, ret);
}

static bool run_truncate(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = call->self.str, *end = tmpl_str_static(e, "...");
	int64_t length, leeway;
	size_t chars;
	if (!tmpl_length(e, call->self, &chars) || !end ||
	    !tmpl_arg_int(e, call, 0, 255, &length) || !tmpl_arg_str(e, call, 2, end, &end))
		return false;
	if (!tmpl_set(call->arg[3]))
		leeway = 5;
	else if (!tmpl_arg_int(e, call, 3, 5, &leeway))
		return false;
	if (length < (int64_t)end->chars || leeway < 0)
		return tmpl_fail(e, SVC_INVALID, "truncate: the length is below that of the end");
	if ((int64_t)chars <= length || (int64_t)chars - length <= leeway)
		return *ret = call->self, true;
	if (call->self.kind != TV_STRING)
		return tmpl_fail_type(e, "truncate", call->self);
	size_t cut = tmpl_offset(s, (size_t)length - end->chars);
	if (!tmpl_given(call->arg[1]) || !tmpl_truth(call->arg[1]))
		for (size_t at = cut; at-- > 0;)
			if (s->ptr[at] == ' ') {
				cut = at;
				break;
			}
	struct tmpl_builder b;
	tmpl_build(&b, e, cut + end->len);
	tmpl_add_slice(&b, s, 0, cut);
	tmpl_add(&b, end);
	return tmpl_return(tmpl_built(&b), ret);
}

/* indent of tojson: spaces for a number, else the text itself. */
static bool json_indent(struct tmpl_eval *e, struct tmpl_value indent,
			struct tmpl_json_style *style)
{
	style->multi_line = true;
	style->indent = indent.str;
	if (indent.kind == TV_STRING)
		return true;
	int64_t width;
	struct tmpl_builder b;
	if (!tmpl_need_int(e, "tojson's indent", indent, &width))
		return false;
	tmpl_build(&b, e, 0);
	tmpl_add_repeat(&b, ' ', width > 0 ? (size_t)width : 0, true);
	style->indent = tmpl_built(&b);
	return style->indent != NULL;
}

/* json.dumps, as transformers has it in the place of Jinja's own. */
static bool run_tojson(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	struct tmpl_json_style style = {0};
	struct tmpl_value separators = call->arg[2];
	if (tmpl_set(call->arg[1]) && !json_indent(e, call->arg[1], &style))
		return false;
	style.item_separator = tmpl_str_static(e, style.multi_line ? "," : ", ");
	style.key_separator = tmpl_str_static(e, ": ");
	if (!style.item_separator || !style.key_separator)
		return false;
	if (tmpl_set(separators)) {
		bool pair = (separators.kind == TV_TUPLE || separators.kind == TV_LIST) &&
			    separators.list->count == 2 &&
			    separators.list->items[0].kind == TV_STRING &&
			    separators.list->items[1].kind == TV_STRING;
		if (!pair)
			return tmpl_fail(e, SVC_INVALID, "tojson: separators is a pair of strings");
		style.item_separator = separators.list->items[0].str;
		style.key_separator = separators.list->items[1].str;
	}
	style.ensure_ascii = tmpl_given(call->arg[0]) && tmpl_truth(call->arg[0]);
	style.sort_keys = tmpl_given(call->arg[3]) && tmpl_truth(call->arg[3]);
	struct tmpl_builder b;
	tmpl_build(&b, e, 0);
	return tmpl_print_json(&b, call->self, &style) && tmpl_return(tmpl_built(&b), ret);
}

static bool run_wordcount(struct tmpl_eval *e, struct tmpl_call *call, struct tmpl_value *ret)
{
	const struct tmpl_str *s = tmpl_to_str(e, call->self);
	int64_t count = 0;
	bool inside = false;
	if (!s)
		return false;
	for (size_t at = 0; at < s->len; at++) {
		char c = s->ptr[at];
		if ((unsigned char)c >= 0x80)
			return tmpl_fail(e, SVC_UNSUPPORTED, "wordcount of other than ASCII");
		bool word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
			    c == '_';
		count += word && !inside;
		inside = word;
	}
	return *ret = tmpl_int(count), tmpl_charge(e, s->len / 64);
}

const struct tmpl_builtin tmpl_text_filters[] = {
	{"abs", run_abs, "", 0, 0, false},
	{"capitalize", run_recase, "", 0, RECASE_CAPITALIZE, false},
	{"center", run_center, "width", 0, 0, false},
	{"d", run_default, "default_value,boolean", 0, 0, false},
	{"default", run_default, "default_value,boolean", 0, 0, false},
	{"e", run_markup, "", 0, 1, false},
	{"escape", run_markup, "", 0, 1, false},
	{"float", run_float, "default", 0, 0, false},
	{"forceescape", run_markup, "", 0, 2, false},
	{"format", run_format, NULL, 0, 0, false},
	{"indent", run_indent, "width,first,blank", 0, 0, false},
	{"int", run_int, "default,base", 0, 0, false},
	{"lower", run_recase, "", 0, RECASE_LOWER, false},
	{"replace", run_replace, "old,new,count", 2, 0, false},
	{"round", run_round, "precision,method", 0, 0, false},
	{"safe", run_markup, "", 0, 0, false},
	{"string", run_string, "", 0, 0, false},
	{"title", run_title, "", 0, 0, false},
	{"tojson", run_tojson, "ensure_ascii,indent,separators,sort_keys", 0, 0, false},
	{"trim", run_trim, "chars", 0, 0, false},
	{"truncate", run_truncate, "length,killwords,end,leeway", 0, 0, false},
	{"upper", run_recase, "", 0, RECASE_UPPER, false},
	{"wordcount", run_wordcount, "", 0, 0, false},
};
const size_t tmpl_text_filter_count = sizeof tmpl_text_filters / sizeof *tmpl_text_filters;
