/* What % and format() share: one value, laid out. */
#include "tokenizer/tmpl_format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "tokenizer/tmpl_number.h"

#define MOST_PRECISION 350
#define DIGITS_BYTES   800 /* the longest: 309 digits, a point, MOST_PRECISION digits */

struct digits {
	char text[DIGITS_BYTES];
	size_t len;
	size_t whole; /* leading digits, which grouping is about */
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

static bool integer_digits(struct tmpl_eval *e, int64_t value, const struct tmpl_spec *spec,
			   struct digits *ret)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
			: spec->type == 'o'		       ? 8
			: spec->type == 'b'		       ? 2
							       : 10;
	const char *figures = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
	char reversed[66];
	size_t n = 0;
	if (spec->precision > MOST_PRECISION)
		return tmpl_fail(e, SVC_UNSUPPORTED, "a precision of more than %d", MOST_PRECISION);
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
	if (spec->alternate && base != 10)
		ret->prefix = spec->type == 'x'	  ? "0x"
			      : spec->type == 'X' ? "0X"
			      : spec->type == 'o' ? "0o"
						  : "0b";
	return true;
}

static bool real_digits(struct tmpl_eval *e, double value, const struct tmpl_spec *spec,
			struct digits *ret)
{
	int64_t precision = spec->precision < 0 ? 6 : spec->precision;
	if (precision > MOST_PRECISION)
		return tmpl_fail(e, SVC_UNSUPPORTED, "a precision of more than %d", MOST_PRECISION);
	bool percent = spec->type == '%',
	     upper = spec->type == 'F' || spec->type == 'E' || spec->type == 'G';
	ret->negative = signbit(value) && !isnan(value);
	value = fabs(percent ? value * 100 : value);
	if (!isfinite(value)) {
		const char *name = isnan(value) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf";
		ret->len = (size_t)snprintf(ret->text, sizeof ret->text, "%s", name);
	} else if (spec->type == 0 && spec->precision < 0) {
		ret->len = tmpl_print_double(value, ret->text);
	} else {
		char type = percent ? 'f' : spec->type ? spec->type : 'g';
		ret->len = tmpl_format_double(ret->text, sizeof ret->text - 1, value, type,
					      (int)precision, spec->alternate);
	}
	while (ret->whole < ret->len && ret->text[ret->whole] >= '0' &&
	       ret->text[ret->whole] <= '9')
		ret->whole++;
	if (percent)
		ret->text[ret->len++] = '%';
	return true;
}

/* Digits with a separator every third (every fourth of hexadecimal and its like), at least `width`
 * characters of them. */
static void add_grouped(struct tmpl_builder *b, const struct digits *digits,
			const struct tmpl_spec *spec, int64_t width)
{
	size_t every = spec->type && strchr("xXob", spec->type) ? 4 : 3;
	size_t rest = digits->len - digits->whole, count = digits->whole;
	int64_t room = width - (int64_t)rest;
	/* Zeros in front take part in the grouping, and none may follow a leading separator. */
	while ((int64_t)(count + 1 + (count + 1 - 1) / every) <= room && tmpl_charge(b->e, 1))
		count++;
	if ((int64_t)(count + (count - 1) / every) < room)
		count++;
	for (size_t left = count; left > 0 && !b->failed; left--) {
		char c = left > digits->whole ? '0' : digits->text[digits->whole - left];
		tmpl_add_bytes(b, &c, 1, digits->trusted);
		if (left > 1 && (left - 1) % every == 0)
			tmpl_add_bytes(b, &spec->group, 1, digits->trusted);
	}
	tmpl_add_bytes(b, digits->text + digits->whole, rest, digits->trusted);
}

bool tmpl_add_number(struct tmpl_builder *b, struct tmpl_value value, const struct tmpl_spec *spec)
{
	struct digits digits = {.prefix = "", .trusted = value.trusted};
	bool integer = tmpl_is_integer(value) && !(spec->type && strchr("eEfFgG%", spec->type));
	if (integer ? !integer_digits(b->e, tmpl_to_int64(value), spec, &digits)
		    : !real_digits(b->e, tmpl_to_double(value), spec, &digits))
		return false;
	char sign[2] = {digits.negative ? '-' : spec->sign == '-' ? 0 : spec->sign, 0};
	int64_t before = (sign[0] != 0) + (int64_t)strlen(digits.prefix);
	char align = spec->align ? spec->align : spec->zero ? '=' : '>';
	uint32_t code = spec->zero && !spec->fill ? '0' : spec->fill ? spec->fill : ' ';
	bool zeros = align == '=' && code == '0';
	int64_t length = before + (int64_t)digits.len, pad = spec->width - length;
	if (spec->group && digits.whole)
		pad -= (int64_t)((digits.whole - 1) /
				 (spec->type && strchr("xXob", spec->type) ? 4 : 3));
	pad = pad < 0 ? 0 : pad;
	int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
	fill(b, code, left, true);
	tmpl_add_text(b, sign, digits.trusted);
	tmpl_add_text(b, digits.prefix, digits.trusted);
	if (align == '=' && !(zeros && spec->group))
		fill(b, code, pad, true);
	if (spec->group && digits.whole)
		add_grouped(b, &digits, spec, zeros ? spec->width - before : 0);
	else
		tmpl_add_bytes(b, digits.text, digits.len, digits.trusted);
	if (align == '<' || align == '^')
		fill(b, code, pad - left, true);
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
	fill(b, code, left, true);
	tmpl_add_slice(b, text, 0, bytes);
	fill(b, code, pad - left, true);
	return !b->failed;
}
