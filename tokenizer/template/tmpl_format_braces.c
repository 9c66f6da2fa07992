/* "...".format(values): {}, {0}, {name}, {name.attribute[item]}, !s and !r, and format specs. */
#include "tokenizer/template/tmpl_eval.h"
#include "tokenizer/template/tmpl_format.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_print.h"
#include "tokenizer/template/tmpl_text.h"

struct braces {
	struct tmpl_eval *e;
	const struct tmpl_args *args;
	bool markup;
	bool trusted; /* all of the format; one that is partly the request's is not, in any part */
	int64_t next; /* of {}: -1 once numbers were given, which then excludes {} */
	bool counted; /* a {} came */
};

static bool fail(struct braces *f, const char *why)
{
	return tmpl_fail(f->e, SVC_INVALID, "format: %s", why);
}

static bool one_of(char c, const char *set)
{
	return c != 0 && strchr(set, c) != NULL;
}

/* The value that a field's name begins with. */
static bool first_value(struct braces *f, struct span name, struct tmpl_value *ret)
{
	int64_t index = 0;
	bool big = false, digits = name.len > 0;
	for (size_t i = 0; i < name.len; i++)
		digits = digits && name.ptr[i] >= '0' && name.ptr[i] <= '9';
	if (digits && (!tmpl_parse_int(name, 10, &index, &big) || big))
		return fail(f, "a number too large");
	if (!digits && name.len) {
		const struct tmpl_str *key = tmpl_str_new(f->e, name, true);
		if (!key || !tmpl_dict_get(f->e, &f->args->named, tmpl_str_value(key), ret))
			return false;
		return ret->kind != TV_MISSING || fail(f, "no argument of that name");
	}
	if (digits ? f->counted : f->next < 0)
		return fail(f, "{} and {0} don't mix");
	if (digits)
		f->next = -1;
	else {
		f->counted = true;
		index = f->next++;
	}
	if ((uint64_t)index >= f->args->list.count)
		return fail(f, "not enough arguments");
	*ret = f->args->list.items[index];
	return true;
}

/* One .attribute or [item] at the beginning of path: its name, and the bytes that it takes. */
static bool read_part(struct braces *f, struct span path, struct span *ret_name, size_t *ret_len)
{
	bool attribute = path.ptr[0] == '.';
	if (!attribute && path.ptr[0] != '[')
		return fail(f, "only . or [ may follow ]");
	const char *ends = attribute ? ".[" : "]";
	size_t at = 1;
	while (at < path.len && !one_of(path.ptr[at], ends))
		at++;
	if (at == 1 || (!attribute && at == path.len))
		return fail(f, "an empty or open attribute");
	*ret_name = (struct span){path.ptr + 1, at - 1};
	*ret_len = at + !attribute;
	return true;
}

static bool get_item(struct braces *f, const struct tmpl_str *name, struct tmpl_value *value)
{
	int64_t index;
	bool big = false;
	bool number = name->ptr[0] >= '0' && name->ptr[0] <= '9' &&
		      tmpl_parse_int(tmpl_span(name), 10, &index, &big) && !big;
	return tmpl_get_item(f->e, *value, number ? tmpl_int(index) : tmpl_str_value(name), value);
}

/* .attribute and [item], one after the other. */
static bool follow(struct braces *f, struct span path, struct tmpl_value *value)
{
	while (path.len) {
		struct span name;
		size_t len;
		if (!read_part(f, path, &name, &len))
			return false;
		const struct tmpl_str *text = tmpl_str_new(f->e, name, f->trusted);
		if (!text)
			return false;
		if (path.ptr[0] == '.' ? !tmpl_get_attr(f->e, *value, text, value)
				       : !get_item(f, text, value))
			return false;
		path = (struct span){path.ptr + len, path.len - len};
	}
	return true;
}

static int64_t read_digits(struct span spec, size_t *at)
{
	int64_t value = 0;
	for (; *at < spec.len && spec.ptr[*at] >= '0' && spec.ptr[*at] <= '9'; ++*at)
		if (value < INT32_MAX)
			value = value * 10 + (spec.ptr[*at] - '0');
	return value;
}

/* [[fill]align][sign][#][0][width][group][.precision][type] */
static bool read_spec(struct braces *f, struct span text, struct tmpl_spec *spec)
{
	size_t at = 0, first = 0;
	uint32_t code = 0;
	*spec = (struct tmpl_spec){.precision = -1, .trusted = f->trusted};
	if (text.len)
		first = tmpl_decode(text.ptr, &code);
	if (first < text.len && one_of(text.ptr[first], "<>^=")) {
		spec->fill = code;
		spec->align = text.ptr[first];
		at = first + 1;
	} else if (text.len && one_of(text.ptr[0], "<>^=")) {
		spec->align = text.ptr[at++];
	}
	if (at < text.len && one_of(text.ptr[at], "+- "))
		spec->sign = text.ptr[at++];
	if (at < text.len && text.ptr[at] == '#')
		spec->alternate = text.ptr[at++];
	if (at < text.len && text.ptr[at] == '0')
		spec->zero = text.ptr[at++];
	spec->width = read_digits(text, &at);
	if (at < text.len && one_of(text.ptr[at], ",_"))
		spec->group = text.ptr[at++];
	if (at < text.len && text.ptr[at] == '.') {
		size_t digits = ++at;
		spec->precision = read_digits(text, &at);
		if (at == digits)
			return fail(f, "a precision is missing");
	}
	if (at < text.len)
		spec->type = text.ptr[at++];
	return at == text.len || fail(f, "a format specifier that isn't one");
}

static bool add_string(struct braces *f, struct tmpl_builder *b, const struct tmpl_str *str,
		       struct tmpl_spec *spec)
{
	if ((spec->type && spec->type != 's') || spec->sign || spec->align == '=' || spec->group ||
	    spec->alternate)
		return fail(f, "a specifier that is not for text");
	if (spec->zero && !spec->fill)
		spec->fill = '0';
	return tmpl_add_padded(b, str, spec);
}

static bool add_numeric(struct braces *f, struct tmpl_builder *b, struct tmpl_value value,
			struct tmpl_spec *spec)
{
	bool integer = tmpl_is_integer(value);
	if (!spec->type && integer)
		spec->type = 'd';
	if (!one_of(spec->type, integer ? "dxXobeEfFgG%" : "eEfFgG%") && spec->type)
		return tmpl_fail(f->e, one_of(spec->type, "nc") ? SVC_UNSUPPORTED : SVC_INVALID,
				 "format: the type '%c' for this value", spec->type);
	if (integer && one_of(spec->type, "dxXob") && spec->precision >= 0)
		return fail(f, "a precision is not for integers");
	if (!spec->type && spec->precision >= 0)
		return tmpl_fail(f->e, SVC_UNSUPPORTED, "format: a precision without a type");
	return tmpl_add_number(b, value, spec);
}

static bool add_value(struct braces *f, struct tmpl_builder *b, struct tmpl_value value,
		      char conversion, struct span spec_text)
{
	struct tmpl_spec spec;
	if (conversion) {
		struct tmpl_builder text;
		tmpl_build(&text, f->e, 0);
		if (!(conversion == 'r' ? tmpl_repr(&text, value) : tmpl_print(&text, value)))
			return false;
		value = tmpl_str_value(tmpl_built(&text));
		if (!value.str)
			return false;
	}
	if (!read_spec(f, spec_text, &spec))
		return false;
	if (tmpl_is_number(value) && (spec_text.len || value.kind != TV_BOOL))
		return add_numeric(f, b, value, &spec);
	if (value.kind != TV_STRING && spec_text.len)
		return tmpl_fail_type(f->e, "a format specifier", value);
	const struct tmpl_str *str = tmpl_to_str(f->e, value);
	if (str && f->markup && !str->markup)
		str = tmpl_escape(f->e, str);
	return str && add_string(f, b, str, &spec);
}

static bool expand(struct braces *f, struct span format, int depth, struct tmpl_builder *b);

/* What stands between { and }. */
static bool add_field(struct braces *f, struct span field, int depth, struct tmpl_builder *b)
{
	size_t name = 0, end, brackets = 0;
	while (name < field.len && (brackets || !one_of(field.ptr[name], "!:"))) {
		brackets += field.ptr[name] == '[';
		brackets -= brackets && field.ptr[name] == ']';
		name++;
	}
	end = name;
	char conversion = 0;
	if (end + 1 < field.len && field.ptr[end] == '!') {
		conversion = field.ptr[end + 1];
		end += 2;
		if (!one_of(conversion, "sr"))
			return tmpl_fail(f->e, conversion == 'a' ? SVC_UNSUPPORTED : SVC_INVALID,
					 "format: the conversion !%c", conversion);
	}
	if (end < field.len && field.ptr[end] != ':')
		return fail(f, "expected : after the conversion");
	size_t first = 0;
	while (first < name && !one_of(field.ptr[first], ".["))
		first++;
	struct tmpl_value value;
	if (!first_value(f, (struct span){field.ptr, first}, &value) ||
	    !follow(f, (struct span){field.ptr + first, name - first}, &value))
		return false;
	struct tmpl_builder spec;
	tmpl_build(&spec, f->e, 0);
	if (end < field.len &&
	    !expand(f, (struct span){field.ptr + end + 1, field.len - end - 1}, depth + 1, &spec))
		return false;
	const struct tmpl_str *text = tmpl_built(&spec);
	return text && add_value(f, b, value, conversion, tmpl_span(text));
}

/* The end of the field that starts at `at`, its closing brace; len if there is none. */
static size_t field_end(struct span format, size_t at)
{
	size_t depth = 1;
	for (; at < format.len; at++) {
		depth += format.ptr[at] == '{';
		depth -= format.ptr[at] == '}';
		if (depth == 0)
			break;
	}
	return at;
}

static bool expand(struct braces *f, struct span format, int depth, struct tmpl_builder *b)
{
	if (depth > 2)
		return fail(f, "specifiers within specifiers");
	for (size_t at = 0; at < format.len && !b->failed;) {
		char c = format.ptr[at];
		bool twice = at + 1 < format.len && format.ptr[at + 1] == c;
		if (!tmpl_charge(f->e, at % 16 == 0))
			return false;
		if ((c != '{' && c != '}') || (twice && depth == 1)) {
			tmpl_add_bytes(b, &c, 1, f->trusted);
			at += c == '{' || c == '}' ? 2 : 1;
			continue;
		}
		size_t end = field_end(format, at + 1);
		if (c == '}' || end == format.len)
			return fail(f, "a single brace");
		struct span field = {format.ptr + at + 1, end - at - 1};
		if (!add_field(f, field, depth, b))
			return false;
		at = end + 1;
	}
	return !b->failed;
}

bool tmpl_format_braces(struct tmpl_eval *e, const struct tmpl_str *format,
			const struct tmpl_args *args, struct tmpl_value *ret)
{
	struct braces f = {
		.e = e, .args = args, .markup = format->markup, .trusted = tmpl_trusted(format)};
	struct tmpl_builder b;
	tmpl_build(&b, e, format->len);
	if (!expand(&f, tmpl_span(format), 1, &b))
		return false;
	const struct tmpl_str *str = tmpl_built(&b);
	if (!str || !(str = tmpl_str_mark(e, str, format->markup)))
		return false;
	*ret = tmpl_str_value(str);
	return true;
}
