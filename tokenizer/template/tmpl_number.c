#include "tokenizer/template/tmpl_number.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/template/tmpl_unicode.h"

int64_t tmpl_to_int64(struct tmpl_value integer)
{
	return integer.kind == TV_BOOL ? integer.flag : integer.integer;
}

double tmpl_to_double(struct tmpl_value number)
{
	return number.kind == TV_FLOAT ? number.real : (double)tmpl_to_int64(number);
}

int tmpl_number_order(struct tmpl_value a, struct tmpl_value b)
{
	if (tmpl_is_integer(a) && tmpl_is_integer(b)) {
		int64_t x = tmpl_to_int64(a), y = tmpl_to_int64(b);
		return (x > y) - (x < y);
	}
	/* long double holds every int64 and every double. */
	long double x = a.kind == TV_FLOAT ? (long double)a.real : (long double)tmpl_to_int64(a);
	long double y = b.kind == TV_FLOAT ? (long double)b.real : (long double)tmpl_to_int64(b);
	if (isnan(x) || isnan(y))
		return 2;
	return (x > y) - (x < y);
}

static bool fail_big(struct tmpl_eval *e)
{
	return tmpl_fail(e, SVC_UNSUPPORTED, "an integer of more than 64 bits");
}

static bool fail_zero(struct tmpl_eval *e)
{
	return tmpl_fail(e, SVC_INVALID, "division by zero");
}

/* Rounds towards minus infinity, as Python does. */
static bool floor_divide(struct tmpl_eval *e, int64_t x, int64_t y, int64_t *ret_quotient,
			 int64_t *ret_rest)
{
	if (y == 0)
		return fail_zero(e);
	if (x == INT64_MIN && y == -1)
		return fail_big(e);
	*ret_quotient = x / y;
	*ret_rest = x % y;
	if (*ret_rest != 0 && (*ret_rest < 0) != (y < 0)) {
		*ret_quotient -= 1;
		*ret_rest += y;
	}
	return true;
}

static bool power_int(struct tmpl_eval *e, int64_t base, int64_t exponent, int64_t *ret)
{
	*ret = 1;
	for (; exponent > 0; exponent >>= 1) {
		if ((exponent & 1) && __builtin_mul_overflow(*ret, base, ret))
			return fail_big(e);
		if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
			return fail_big(e);
	}
	return true;
}

static bool arithmetic_int(struct tmpl_eval *e, char op, int64_t x, int64_t y, int64_t *ret)
{
	int64_t quotient, rest;
	bool big = false;
	switch (op) {
	case '+':
		big = __builtin_add_overflow(x, y, ret);
		break;
	case '-':
		big = __builtin_sub_overflow(x, y, ret);
		break;
	case '*':
		big = __builtin_mul_overflow(x, y, ret);
		break;
	case 'p':
		return power_int(e, x, y, ret);
	default:
		if (!floor_divide(e, x, y, &quotient, &rest))
			return false;
		*ret = op == '%' ? rest : quotient;
		break;
	}
	return !big || fail_big(e);
}

static bool power_real(struct tmpl_eval *e, double x, double y, double *ret)
{
	if (x == 0 && y < 0)
		return fail_zero(e);
	*ret = pow(x, y);
	if (isnan(*ret) && !isnan(x) && !isnan(y))
		return tmpl_fail(e, SVC_UNSUPPORTED, "a complex number");
	if (isinf(*ret) && isfinite(x) && isfinite(y))
		return tmpl_fail(e, SVC_INVALID, "the result of ** is too large");
	return true;
}

static bool arithmetic_real(struct tmpl_eval *e, char op, double x, double y, double *ret)
{
	if (y == 0 && (op == '/' || op == 'f' || op == '%'))
		return fail_zero(e);
	switch (op) {
	case '+':
		*ret = x + y;
		return true;
	case '-':
		*ret = x - y;
		return true;
	case '*':
		*ret = x * y;
		return true;
	case '/':
		*ret = x / y;
		return true;
	case 'p':
		return power_real(e, x, y, ret);
	default:
		break;
	}
	double rest = fmod(x, y), quotient = (x - rest) / y;
	if (rest != 0 && (rest < 0) != (y < 0)) {
		rest += y;
		quotient -= 1;
	} else if (rest == 0) {
		rest = copysign(0, y);
	}
	double whole = floor(quotient);
	if (quotient - whole > 0.5)
		whole += 1;
	*ret = op == '%' ? rest : quotient == 0 ? copysign(0, x / y) : whole;
	return true;
}

bool tmpl_arithmetic(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b,
		     struct tmpl_value *ret)
{
	bool trusted = a.trusted && b.trusted;
	bool whole = tmpl_is_integer(a) && tmpl_is_integer(b) && op != '/' &&
		     !(op == 'p' && tmpl_to_int64(b) < 0);
	bool ok;
	if (whole) {
		int64_t result = 0;
		ok = arithmetic_int(e, op, tmpl_to_int64(a), tmpl_to_int64(b), &result);
		*ret = tmpl_int(result);
	} else {
		double result = 0;
		ok = arithmetic_real(e, op, tmpl_to_double(a), tmpl_to_double(b), &result);
		*ret = tmpl_real(result);
	}
	ret->trusted = trusted;
	return ok;
}

bool tmpl_negate(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value *ret)
{
	if (a.kind == TV_FLOAT)
		*ret = tmpl_real(-a.real);
	else if (tmpl_to_int64(a) == INT64_MIN)
		return fail_big(e);
	else
		*ret = tmpl_int(-tmpl_to_int64(a));
	ret->trusted = a.trusted;
	return true;
}

bool tmpl_double_to_int(struct tmpl_eval *e, double real, int64_t *ret)
{
	if (!isfinite(real))
		return tmpl_fail(e, SVC_INVALID, "infinity or NaN is no integer");
	if (real >= 9223372036854775808.0 || real < -9223372036854775808.0)
		return fail_big(e);
	*ret = (int64_t)real;
	return true;
}

bool tmpl_need_int(struct tmpl_eval *e, const char *what, struct tmpl_value value, int64_t *ret)
{
	if (!tmpl_is_integer(value))
		return tmpl_fail_type(e, what, value);
	*ret = tmpl_to_int64(value);
	return true;
}

static locale_t c_locale;

static void open_locale(void)
{
	c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* strtod in the C locale, whatever the process has set. */
static double read_double(const char *text, char **ret_end)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_locale);
	return c_locale ? strtod_l(text, ret_end, c_locale) : strtod(text, ret_end);
}

size_t tmpl_format_double(char *ret, size_t size, double real, char type, int precision,
			  bool alternate)
{
	char format[] = {'%', '#', '.', '*', type, 0};
	if (!alternate)
		memmove(format + 1, format + 2, 4);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	int len = snprintf(ret, size, format, precision, real);
#pragma GCC diagnostic pop
	if (len < 0 || (size_t)len >= size)
		return 0;
	/* The only bytes that are no digit, letter or sign are the locale's decimal point. */
	size_t out = 0;
	for (size_t in = 0; in < (size_t)len; in++) {
		char c = ret[in];
		bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
			     (c >= 'A' && c <= 'Z') || c == '+' || c == '-';
		if (plain)
			ret[out++] = c;
		else if (out == 0 || ret[out - 1] != '.')
			ret[out++] = '.';
	}
	ret[out] = 0;
	return out;
}

/* digits and the decimal exponent of the first, from "d.ddde+dd". */
static size_t split_digits(const char *text, char *ret_digits, int *ret_exponent)
{
	size_t count = 0;
	for (; *text != 'e'; text++)
		if (*text != '.')
			ret_digits[count++] = *text;
	*ret_exponent = (int)strtol(text + 1, NULL, 10);
	while (count > 1 && ret_digits[count - 1] == '0')
		count--;
	return count;
}

static size_t lay_out(const char *digits, size_t count, int exponent, char *out)
{
	size_t len = 0;
	if (exponent < -4 || exponent >= 16) {
		out[len++] = digits[0];
		if (count > 1)
			out[len++] = '.';
		memcpy(out + len, digits + 1, count - 1);
		len += count - 1;
		return len + (size_t)snprintf(out + len, 8, "e%+03d", exponent);
	}
	if (exponent < 0) {
		memset(out, '0', 6);
		out[1] = '.';
		len = (size_t)(1 - exponent);
		memcpy(out + len, digits, count);
		return len + count;
	}
	size_t whole = (size_t)exponent + 1;
	for (size_t i = 0; i < whole; i++)
		out[len++] = i < count ? digits[i] : '0';
	out[len++] = '.';
	for (size_t i = whole; i < count; i++)
		out[len++] = digits[i];
	if (count <= whole)
		out[len++] = '0';
	return len;
}

size_t tmpl_print_double(double real, char ret[TMPL_NUMBER_BYTES])
{
	if (!isfinite(real)) {
		const char *name = isnan(real) ? "nan" : real < 0 ? "-inf" : "inf";
		memcpy(ret, name, strlen(name) + 1);
		return strlen(name);
	}
	char text[TMPL_NUMBER_BYTES], digits[24];
	int exponent;
	/* 15 digits print every decimal of up to 15; few doubles need 16 or 17. */
	for (int precision = 14; precision <= 16; precision++) {
		tmpl_format_double(text, sizeof text, fabs(real), 'e', precision, false);
		if (read_double(text, NULL) == fabs(real))
			break;
	}
	size_t count = split_digits(text, digits, &exponent);
	size_t len = 0;
	if (signbit(real))
		ret[len++] = '-';
	len += lay_out(digits, count, exponent, ret + len);
	ret[len] = 0;
	return len;
}

static struct span strip(struct span text)
{
	uint32_t code;
	while (text.len) {
		size_t len = tmpl_decode(text.ptr, &code);
		if (!tmpl_is_space(code))
			break;
		text.ptr += len;
		text.len -= len;
	}
	while (text.len) {
		size_t len = 1;
		while (len < text.len && ((unsigned char)text.ptr[text.len - len] & 0xC0) == 0x80)
			len++;
		tmpl_decode(text.ptr + text.len - len, &code);
		if (!tmpl_is_space(code))
			break;
		text.len -= len;
	}
	return text;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* "0x" and its like, where the base allows it. Returns the base. */
static int take_prefix(struct span *text, int base)
{
	if (text->len < 2 || text->ptr[0] != '0')
		return base == 0 ? 10 : base;
	char letter = (char)(text->ptr[1] | 0x20);
	int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
	if (named == 0 || (base != 0 && base != named))
		return base == 0 ? 10 : base;
	text->ptr += 2;
	text->len -= 2;
	if (text->len > 1 && text->ptr[0] == '_') {
		text->ptr++;
		text->len--;
	}
	return named;
}

bool tmpl_parse_int(struct span text, int base, int64_t *ret, bool *ret_big)
{
	text = strip(text);
	bool negative = text.len && text.ptr[0] == '-';
	if (text.len && (text.ptr[0] == '-' || text.ptr[0] == '+'))
		text = (struct span){text.ptr + 1, text.len - 1};
	bool any_base = base == 0;
	base = take_prefix(&text, base);
	int64_t result = 0;
	bool digit_before = false, big = false;
	if (any_base && base == 10 && text.len > 1 && text.ptr[0] == '0')
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (text.ptr[i] == '_' && digit_before) {
			digit_before = false;
			continue;
		}
		int digit = digit_of(text.ptr[i]);
		if (digit >= base)
			return false;
		big = big || __builtin_mul_overflow(result, base, &result) ||
		      __builtin_sub_overflow(result, digit, &result);
		digit_before = true;
	}
	if (!digit_before)
		return false;
	big = big || (!negative && result == INT64_MIN);
	*ret_big = big;
	*ret = big ? 0 : negative ? result : -result;
	return true;
}

bool tmpl_parse_double(struct span text, double *ret)
{
	text = strip(text);
	char *plain = malloc(text.len + 1);
	if (!plain)
		return false;
	size_t len = 0;
	bool ok = text.len > 0;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];
		bool between = i > 0 && i + 1 < text.len && digit_of(text.ptr[i - 1]) < 10 &&
			       digit_of(text.ptr[i + 1]) < 10;
		/* strtod also takes hexadecimal and "nan(...)", which Python doesn't. */
		ok = ok && !strchr("xXpP() \t\n", c) && (c != '_' || between);
		if (c != '_')
			plain[len++] = c;
	}
	plain[len] = 0;
	char *end = plain;
	if (ok)
		*ret = read_double(plain, &end);
	ok = ok && end == plain + len && len == strlen(plain);
	free(plain);
	return ok;
}
