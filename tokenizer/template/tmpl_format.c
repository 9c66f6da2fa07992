/* What % and format() share: one value, laid out. */
#include "tokenizer/template/tmpl_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tokenizer/template/tmpl_number.h"

#define MOST_PRECISION 350
#define DIGITS_BYTES   800 /* the longest: 309 digits, a point, MOST_PRECISION digits */

struct digits {
	char text[DIGITS_BYTES];
	size_t len;
	size_t whole; /* leading digits, which grouping is about */
	size_t group; /* so many between two separators */
	bool negative;
	const char *prefix;
	bool trusted;
};

static void fill(struct tmpl_builder *b, uint32_t code, int64_t count, bool trusted)
{
	char bytes[4];
	size_t len = tmpl_encode(code, bytes);
	for (; count > 0 && !b->failed && tmpl_charge(b->e, 1); count--)
		tmpl_add_bytes(b, bytes, len, trusted);
	if (count > 0)
		b->failed = true;
}

/* The base that a type writes in; *ret_prefix: what the alternate form puts before it. */
static unsigned base_of(char type, const char **ret_prefix)
{
	switch (type) {
	case 'x':
	case 'X':
		return *ret_prefix = type == 'x' ? "0x" : "0X", 16;
	case 'o':
		return *ret_prefix = "0o", 8;
	case 'b':
		return *ret_prefix = "0b", 2;
	default:
		return *ret_prefix = "", 10;
	}
}

static void integer_digits(int64_t value, const struct tmpl_spec *spec, struct digits *ret)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	unsigned base = base_of(spec->type, &ret->prefix);
	const char *figures = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
	char reversed[66];
	size_t n = 0;
	do {
		reversed[n++] = figures[rest % base];
		rest /= base;
	} while (rest);
	for (int64_t zeros = (int64_t)n; zeros < spec->precision; zeros++)
		ret->text[ret->len++] = '0';
	while (n)
		ret->text[ret->len++] = reversed[--n];
	ret->whole = ret->len;
	ret->negative = value < 0;
	if (!spec->alternate)
		ret->prefix = "";
}

static size_t finite_digits(double value, const struct tmpl_spec *spec, char *text)
{
	if (spec->type == 0 && spec->precision < 0)
		return tmpl_print_double(value, text);
	char type = spec->type == 0 ? 'g' : spec->type == '%' ? 'f' : spec->type;
	int precision = spec->precision < 0 ? 6 : (int)spec->precision;
	return tmpl_format_double(text, DIGITS_BYTES - 1, value, type, precision, spec->alternate);
}

static void real_digits(double value, const struct tmpl_spec *spec, struct digits *ret)
{
	bool percent = spec->type == '%', upper = spec->type && strchr("EFG", spec->type);
	ret->negative = signbit(value) && !isnan(value);
	value = fabs(percent ? value * 100 : value);
	if (isnan(value))
		ret->len = (size_t)snprintf(ret->text, DIGITS_BYTES, "%s", upper ? "NAN" : "nan");
	else if (isinf(value))
		ret->len = (size_t)snprintf(ret->text, DIGITS_BYTES, "%s", upper ? "INF" : "inf");
	else
		ret->len = finite_digits(value, spec, ret->text);
	while (ret->whole < ret->len && ret->text[ret->whole] >= '0' &&
	       ret->text[ret->whole] <= '9')
		ret->whole++;
	if (percent)
		ret->text[ret->len++] = '%';
}

/* Digits with a separator every third (every fourth of hexadecimal and its like), at least `width`
 * characters of them. */
static void add_grouped(struct tmpl_builder *b, const struct digits *digits, char group,
			int64_t width)
{
	size_t rest = digits->len - digits->whole, count = digits->whole, every = digits->group;
	int64_t room = width - (int64_t)rest;
	/* Zeros in front take part in the grouping, and none may follow a leading separator. */
	while ((int64_t)(count + 1 + count / every) <= room && tmpl_charge(b->e, 1))
		count++;
	if ((int64_t)(count + (count - 1) / every) < room)
		count++;
	for (size_t left = count; left > 0 && !b->failed; left--) {
		char c = left > digits->whole ? '0' : digits->text[digits->whole - left];
		tmpl_add_bytes(b, &c, 1, digits->trusted);
		if (left > 1 && (left - 1) % every == 0)
			tmpl_add_bytes(b, &group, 1, digits->trusted);
	}
	tmpl_add_bytes(b, digits->text + digits->whole, rest, digits->trusted);
}

/* Where the padding of a number goes, and what it is. */
struct padding {
	uint32_t code;
	int64_t left, inner, right;
	bool zeros; /* the inner one is digits, which are grouped with the others */
};

static struct padding pad_number(const struct tmpl_spec *spec, int64_t length)
{
	struct padding padding = {.code = ' '};
	char align = spec->align ? spec->align : spec->zero ? '=' : '>';
	int64_t pad = spec->width > length ? spec->width - length : 0;
	if (spec->fill)
		padding.code = spec->fill;
	else if (spec->zero)
		padding.code = '0';
	padding.zeros = align == '=' && padding.code == '0';
	if (align == '=')
		padding.inner = pad;
	else if (align == '^')
		padding.left = pad / 2;
	else if (align == '>')
		padding.left = pad;
	padding.right = pad - padding.left - padding.inner;
	return padding;
}

bool tmpl_add_number(struct tmpl_builder *b, struct tmpl_value value, const struct tmpl_spec *spec)
{
	bool integer = tmpl_is_integer(value) && !(spec->type && strchr("eEfFgG%", spec->type));
	struct digits digits = {.prefix = "", .trusted = value.trusted && spec->trusted};
	if (spec->precision > MOST_PRECISION)
		return tmpl_fail(b->e, SVC_UNSUPPORTED, "a precision of more than %d",
				 MOST_PRECISION);
	if (integer)
		integer_digits(tmpl_to_int64(value), spec, &digits);
	else
		real_digits(tmpl_to_double(value), spec, &digits);
	digits.group = spec->type && strchr("xXob", spec->type) ? 4 : 3;
	bool grouped = spec->group && digits.whole;
	char sign[2] = {digits.negative ? '-' : spec->sign == '-' ? 0 : spec->sign, 0};
	size_t before = strlen(sign) + strlen(digits.prefix);
	size_t separators = grouped ? (digits.whole - 1) / digits.group : 0;
	struct padding padding = pad_number(spec, (int64_t)(before + digits.len + separators));
	fill(b, padding.code, padding.left, spec->trusted);
	tmpl_add_text(b, sign, digits.trusted);
	tmpl_add_text(b, digits.prefix, digits.trusted);
	if (!(padding.zeros && grouped))
		fill(b, padding.code, padding.inner, spec->trusted);
	if (grouped)
		add_grouped(b, &digits, spec->group,
			    padding.zeros ? spec->width - (int64_t)before : 0);
	else
		tmpl_add_bytes(b, digits.text, digits.len, digits.trusted);
	fill(b, padding.code, padding.right, spec->trusted);
	return !b->failed;
}

bool tmpl_add_padded(struct tmpl_builder *b, const struct tmpl_str *text,
		     const struct tmpl_spec *spec)
{
	size_t chars = text->chars, bytes = text->len;
	if (spec->precision >= 0 && (uint64_t)spec->precision < chars) {
		chars = (size_t)spec->precision;
		bytes = tmpl_offset(text, chars);
	}
	int64_t pad = spec->width > (int64_t)chars ? spec->width - (int64_t)chars : 0;
	int64_t left = spec->align == '>' ? pad : spec->align == '^' ? pad / 2 : 0;
	uint32_t code = spec->fill ? spec->fill : ' ';
	fill(b, code, left, spec->trusted);
	tmpl_add_slice(b, text, 0, bytes);
	fill(b, code, pad - left, spec->trusted);
	return !b->failed;
}
