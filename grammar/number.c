/* grammar/number.c: numbers between bounds, digit by digit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/write.h"

#define DIGITS_MAX 15
#define INT_MAX_D  999999999999999.0

/* Digits behind the point that follow those of a bound: few enough that no rounding to a double
 * crosses it. */
#define ANY_DIGITS "[0-9]{0,8}"

/* ---- whole numbers ---- */

static void any_digits(struct buf *out, size_t n)
{
	if (n)
		buf_print(out, " [0-9]{%zu}", n);
}

static void digits_between(struct buf *out, char low, char high)
{
	buf_print(out, low == high ? "\"%c\"" : "[%c-%c]", low, high);
}

/* As many digits as `digits` has, of a number not below it (or not above it). */
static void digits_from(struct buf *out, const char *digits, bool above)
{
	size_t n = strlen(digits);
	if (n == 0) {
		buf_print(out, " \"\"");
		return;
	}
	buf_print(out, " (\"%c\"", digits[0]);
	digits_from(out, digits + 1, above);
	if (above ? digits[0] < '9' : digits[0] > '0') {
		buf_print(out, " | ");
		if (above)
			digits_between(out, (char)(digits[0] + 1), '9');
		else
			digits_between(out, '0', (char)(digits[0] - 1));
		any_digits(out, n - 1);
	}
	buf_print(out, ")");
}

/* Numbers of as many digits as both have. */
static void digits_within(struct buf *out, const char *low, const char *high)
{
	size_t same = 0, n = strlen(low);
	while (same < n && low[same] == high[same])
		same++;
	buf_print(out, "\"%.*s\"", (int)same, low);
	if (same == n)
		return;
	buf_print(out, " (\"%c\"", low[same]);
	digits_from(out, low + same + 1, true);
	if (high[same] - low[same] > 1) {
		buf_print(out, " | ");
		digits_between(out, (char)(low[same] + 1), (char)(high[same] - 1));
		any_digits(out, n - same - 1);
	}
	buf_print(out, " | \"%c\"", high[same]);
	digits_from(out, high + same + 1, false);
	buf_print(out, ")");
}

/* Whole numbers from low to high, both >= 0 and below 10^15. */
static void whole_put(struct buf *out, double low, double high)
{
	double least = 0, most = 9;
	bool any = false;
	buf_print(out, "(");
	for (int n = 1; n <= DIGITS_MAX; n++) {
		double from = low > least ? low : least, to = high < most ? high : most;
		char a[32], b[32];
		snprintf(a, sizeof a, "%.0f", from);
		snprintf(b, sizeof b, "%.0f", to);
		least = most + 1;
		most = most * 10 + 9;
		if (from > to)
			continue;
		buf_print(out, any ? " | " : "");
		digits_within(out, a, b);
		any = true;
	}
	buf_print(out, any ? ")" : "[])");
}

/* ---- both signs ---- */

/* Calls put for the part >= 0 and, mirrored behind a minus, for the part below. */
static void signs_put(struct buf *out, struct gr_bound low, struct gr_bound high,
		      void (*put)(struct buf *, struct gr_bound, struct gr_bound))
{
	struct gr_bound zero = {true, false, 0};
	bool above = !high.given || high.value > 0 || (high.value == 0 && !high.exclusive);
	bool below = !low.given || low.value < 0;
	buf_print(out, "(");
	if (above) {
		buf_print(out, "(");
		put(out, low.given && low.value >= 0 ? low : zero, high);
		buf_print(out, ")");
	}
	if (below) {
		struct gr_bound least = {low.given, low.exclusive, -low.value};
		struct gr_bound most = {true, high.exclusive, 0 - high.value};
		buf_print(out, above ? " | \"-\" (" : "\"-\" (");
		put(out, high.given && high.value <= 0 ? most : zero, least);
		buf_print(out, ")");
	}
	buf_print(out, above || below ? ")" : "[])");
}

static double whole_low(struct gr_bound low)
{
	double value = ceil(low.value);
	return value + (low.exclusive && value == low.value);
}

static double whole_high(struct gr_bound high)
{
	double value = high.given ? floor(high.value) : INT_MAX_D;
	return value - (high.given && high.exclusive && value == high.value);
}

static void integer_part(struct buf *out, struct gr_bound low, struct gr_bound high)
{
	double to = whole_high(high);
	whole_put(out, whole_low(low), to < INT_MAX_D ? to : INT_MAX_D);
}

static enum svc_code bound_check(struct gr_bound bound, struct svc_err *err)
{
	if (!bound.given || (isfinite(bound.value) && fabs(bound.value) <= INT_MAX_D))
		return SVC_OK;
	return svc_fail(err, SVC_INVALID, __func__, "a bound of more than %d digits", DIGITS_MAX);
}

enum svc_code gr_put_integer(struct buf *out, struct gr_bound low, struct gr_bound high,
			     struct svc_err *err)
{
	enum svc_code code = bound_check(low, err);
	if (code == SVC_OK)
		code = bound_check(high, err);
	if (code == SVC_OK)
		signs_put(out, low, high, integer_part);
	return code;
}

/* ---- fractions ---- */

/* The fewest digits behind the point that read back as the same number, at least one. */
static void fraction_digits(double value, char out[40])
{
	char text[64];
	int digits = 1;
	do {
		snprintf(text, sizeof text, "%.*f", digits, value);
	} while (strtod(text, NULL) != value && ++digits < 36);
	const char *point = strchr(text, '.');
	snprintf(out, 40, "%s", point ? point + 1 : "");
}

/* Digits behind the point of a number above (or below) that with these digits; equal: also of that
 * number itself. */
static void fraction_from(struct buf *out, const char *digits, bool above, bool equal)
{
	if (*digits == 0) {
		if (above)
			buf_print(out, equal ? " " ANY_DIGITS : " [0]{0,6} [1-9] " ANY_DIGITS);
		else
			buf_print(out, equal ? " [0]{0,8}" : " []");
		return;
	}
	buf_print(out, " (\"%c\"", *digits);
	fraction_from(out, digits + 1, above, equal);
	/* A number that has only the first of these digits is smaller. */
	if (!above && (digits[1] || equal))
		buf_print(out, " | \"%c\"", *digits);
	if (above ? *digits < '9' : *digits > '0') {
		buf_print(out, " | ");
		if (above)
			digits_between(out, (char)(*digits + 1), '9');
		else
			digits_between(out, '0', (char)(*digits - 1));
		buf_print(out, " " ANY_DIGITS);
	}
	buf_print(out, ")");
}

/* Digits behind the point between two bounds with the same whole part; the texts of both have at
 * least one. */
static void fraction_within(struct buf *out, const char *low, const char *high, bool low_equal,
			    bool high_equal)
{
	if (*low == 0 && *high == 0) {
		buf_print(out, low_equal && high_equal ? " [0]{0,8}" : " []");
		return;
	}
	char from = *low ? *low : '0', to = *high ? *high : '0';
	if (from > to) {
		buf_print(out, " []");
		return;
	}
	const char *low_rest = *low ? low + 1 : low, *high_rest = *high ? high + 1 : high;
	buf_print(out, " (\"%c\"", from);
	if (from == to) {
		fraction_within(out, low_rest, high_rest, low_equal, high_equal);
		/* The text may end here if this is the first bound itself. */
		if (*low_rest == 0 && low_equal && (*high_rest || high_equal))
			buf_print(out, " | \"%c\"", from);
		buf_print(out, ")");
		return;
	}
	fraction_from(out, low_rest, true, low_equal);
	if (to - from > 1) {
		buf_print(out, " | ");
		digits_between(out, (char)(from + 1), (char)(to - 1));
		buf_print(out, " " ANY_DIGITS);
	}
	if (*high_rest || high_equal) {
		buf_print(out, " | \"%c\" | \"%c\"", to, to);
		fraction_from(out, high_rest, false, high_equal);
	}
	buf_print(out, ")");
}

/* 0 <= low <= high. */
static void number_part(struct buf *out, struct gr_bound low, struct gr_bound high)
{
	double top = high.given ? high.value : INT_MAX_D + 1;
	double first = floor(low.value), last = floor(top);
	char low_digits[40], high_digits[40];
	fraction_digits(low.value, low_digits);
	fraction_digits(top, high_digits);
	bool low_equal = !low.exclusive, high_equal = high.given && !high.exclusive;
	integer_part(out, low, high);
	/* Whole parts strictly between have any fraction. */
	if (last - first > 1) {
		buf_print(out, " | ");
		whole_put(out, first + 1, last - 1);
		buf_print(out, " \".\" [0-9]{1,15}");
	}
	if (first == last && low.value <= top) {
		buf_print(out, " | \"%.0f.\"", first);
		fraction_within(out, low_digits, high_digits, low_equal, high_equal);
	} else if (first < last) {
		buf_print(out, " | \"%.0f.\"", first);
		fraction_from(out, low_digits, true, low_equal);
		if (last <= INT_MAX_D) {
			buf_print(out, " | \"%.0f.\"", last);
			fraction_from(out, high_digits, false, high_equal);
		}
	}
}

enum svc_code gr_put_number(struct buf *out, struct gr_bound low, struct gr_bound high,
			    struct svc_err *err)
{
	enum svc_code code = bound_check(low, err);
	if (code == SVC_OK)
		code = bound_check(high, err);
	if (code == SVC_OK)
		signs_put(out, low, high, number_part);
	return code;
}
