/* "..." % values: printf as Python has it. */
#include "tokenizer/template/tmpl_format.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"

struct percent {
	struct tmpl_builder b;
	const struct tmpl_str *format;
	size_t at;
	struct tmpl_value values; /* a tuple, or the one value */
	size_t used;
	bool named; /* a %(name) came: values is a dict */
};

static char peek(const struct percent *p)
{
	return p->at < p->format->len ? p->format->ptr[p->at] : 0;
}

static bool next_value(struct percent *p, struct tmpl_value *ret)
{
	bool tuple = p->values.kind == TV_TUPLE;
	size_t count = tuple ? p->values.list->count : 1;
	if (p->used >= count)
		return tmpl_fail(p->b.e, SVC_INVALID, "%%: not enough values for the format");
	*ret = tuple ? p->values.list->items[p->used] : p->values;
	p->used++;
	return true;
}

/* (name) after the %: the value of that key. */
static bool named_value(struct percent *p, struct tmpl_value *ret)
{
	size_t from = ++p->at, depth = 1;
	for (; p->at < p->format->len && depth > 0; p->at++)
		depth += (size_t)((peek(p) == '(') - (peek(p) == ')'));
	if (depth > 0)
		return tmpl_fail(p->b.e, SVC_INVALID, "%%: a name without its closing )");
	if (p->values.kind != TV_DICT)
		return tmpl_fail_type(p->b.e, "% with names", p->values);
	const struct tmpl_str *name = tmpl_str_slice(p->b.e, p->format, from, p->at - 1);
	if (!name || !tmpl_dict_get(p->b.e, p->values.dict, tmpl_str_value(name), ret))
		return false;
	p->named = true;
	return ret->kind != TV_MISSING ||
	       tmpl_fail(p->b.e, SVC_INVALID, "%%: no value of that name");
}

static void flags(struct percent *p, struct tmpl_spec *spec)
{
	for (;; p->at++) {
		char c = peek(p);
		if (c == '-')
			spec->align = '<';
		else if (c == '+' || (c == ' ' && spec->sign != '+'))
			spec->sign = c;
		else if (c == '#')
			spec->alternate = true;
		else if (c == '0')
			spec->zero = true;
		else if (c != ' ')
			return;
	}
}

/* Digits, or * for a value. */
static bool number(struct percent *p, int64_t *ret)
{
	struct tmpl_value value;
	if (peek(p) == '*') {
		p->at++;
		return next_value(p, &value) && tmpl_need_int(p->b.e, "% width", value, ret);
	}
	*ret = 0;
	for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
		if (*ret < INT32_MAX)
			*ret = *ret * 10 + (peek(p) - '0');
	return true;
}

static bool add_text(struct percent *p, struct tmpl_value value, struct tmpl_spec *spec)
{
	struct tmpl_eval *e = p->b.e;
	struct tmpl_builder text;
	tmpl_build(&text, e, 0);
	bool ok = spec->type == 'r' ? tmpl_repr(&text, value) : tmpl_print(&text, value);
	const struct tmpl_str *str = ok ? tmpl_built(&text) : NULL;
	if (str && p->format->markup)
		str = value.kind == TV_STRING && value.str->markup && spec->type == 's'
			      ? value.str
			      : tmpl_escape(e, str);
	return str && tmpl_add_padded(&p->b, str, spec);
}

static bool add_char(struct percent *p, struct tmpl_value value, const struct tmpl_spec *spec)
{
	struct tmpl_eval *e = p->b.e;
	if (value.kind == TV_STRING && value.str->chars == 1)
		return tmpl_add_padded(&p->b, value.str, spec);
	int64_t code;
	char bytes[4];
	if (!tmpl_need_int(e, "%c", value, &code))
		return false;
	if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
		return tmpl_fail(e, SVC_INVALID, "%%c: not a character");
	char *copy = tmpl_alloc(e, 4, 1);
	size_t len = tmpl_encode((uint32_t)code, bytes);
	if (!copy)
		return false;
	memcpy(copy, bytes, len);
	const struct tmpl_str *str = tmpl_str_new(e, (struct span){copy, len}, value.trusted);
	return str && tmpl_add_padded(&p->b, str, spec);
}

static bool add_number(struct percent *p, struct tmpl_value value, struct tmpl_spec *spec)
{
	struct tmpl_eval *e = p->b.e;
	bool whole = strchr("diuxXo", spec->type) != NULL;
	if (!tmpl_is_number(value))
		return tmpl_fail_type(e, "% of a number", value);
	if (whole && value.kind == TV_FLOAT) {
		bool trusted = value.trusted;
		if (!strchr("diu", spec->type))
			return tmpl_fail_type(e, "% of an integer", value);
		int64_t integer;
		if (!tmpl_double_to_int(e, value.real, &integer))
			return false;
		value = tmpl_int(integer);
		value.trusted = trusted;
	}
	if (whole && strchr("iu", spec->type))
		spec->type = 'd';
	if (spec->align == '<')
		spec->zero = false;
	return tmpl_add_number(&p->b, value, spec);
}

/* Flags, width, precision and the letter after them. */
static bool read_spec(struct percent *p, struct tmpl_spec *spec)
{
	flags(p, spec);
	if (!number(p, &spec->width))
		return false;
	if (spec->width < 0) {
		spec->align = '<';
		spec->width = -spec->width;
	}
	if (peek(p) == '.') {
		p->at++;
		if (!number(p, &spec->precision))
			return false;
	}
	p->at += peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L';
	spec->type = peek(p);
	p->at++;
	return true;
}

/* One conversion, after its %. */
static bool convert(struct percent *p)
{
	struct tmpl_spec spec = {.precision = -1, .trusted = tmpl_trusted(p->format)};
	struct tmpl_value value = {.kind = TV_MISSING};
	if (peek(p) == '(' && !named_value(p, &value))
		return false;
	if (!read_spec(p, &spec))
		return false;
	if (spec.type == '%') {
		tmpl_add_text(&p->b, "%", spec.trusted);
		return !p->b.failed;
	}
	if (!spec.type || !strchr("srdiuxXoeEfFgGc", spec.type))
		return tmpl_fail(p->b.e, spec.type == 'a' ? SVC_UNSUPPORTED : SVC_INVALID,
				 "%%: no such conversion");
	if (value.kind == TV_MISSING && !next_value(p, &value))
		return false;
	if (!strchr("src", spec.type))
		return add_number(p, value, &spec);
	if (spec.align != '<')
		spec.align = '>';
	return spec.type == 'c' ? add_char(p, value, &spec) : add_text(p, value, &spec);
}

bool tmpl_format_percent(struct tmpl_eval *e, const struct tmpl_str *format,
			 struct tmpl_value values, struct tmpl_value *ret)
{
	struct percent p = {.format = format, .values = values};
	tmpl_build(&p.b, e, format->len);
	while (p.at < format->len && !p.b.failed) {
		const char *hit = memchr(format->ptr + p.at, '%', format->len - p.at);
		size_t end = hit ? (size_t)(hit - format->ptr) : format->len;
		tmpl_add_slice(&p.b, format, p.at, end);
		p.at = end + 1;
		if (hit && (!tmpl_charge(e, 1) || !convert(&p)))
			return false;
	}
	/* Python lets values be left over only where they could have been looked up by name. */
	bool lookups = values.kind == TV_DICT || values.kind == TV_LIST || values.kind == TV_RANGE;
	size_t given = values.kind == TV_TUPLE ? values.list->count : 1;
	if (p.used < given && !lookups)
		return tmpl_fail(e, SVC_INVALID, "%%: more values than the format uses");
	const struct tmpl_str *str = tmpl_built(&p.b);
	if (!str || !(str = tmpl_str_mark(e, str, format->markup)))
		return false;
	*ret = tmpl_str_value(str);
	return true;
}
