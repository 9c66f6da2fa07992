/* tokenizer/template/tmpl_number.h: numbers as Python has them, integers up to 64 bits (a larger
 * result is an error, never wrong). Nothing here depends on the locale. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_state.h"

static inline bool tmpl_is_number(struct tmpl_value value)
{
	return value.kind == TV_BOOL || value.kind == TV_INT || value.kind == TV_FLOAT;
}

/* A bool counts as 0 or 1. */
static inline bool tmpl_is_integer(struct tmpl_value value)
{
	return value.kind == TV_BOOL || value.kind == TV_INT;
}

int64_t tmpl_to_int64(struct tmpl_value integer);
double tmpl_to_double(struct tmpl_value number);
/* -1, 0, 1, or 2 if one is not a number (NaN). Exact also between int and float. */
int tmpl_number_order(struct tmpl_value a, struct tmpl_value b);

/* op: one of + - * / % p (power) f (floor division). The result is trusted if both are. */
bool tmpl_arithmetic(struct tmpl_eval *e, char op, struct tmpl_value a, struct tmpl_value b,
		     struct tmpl_value *ret);
bool tmpl_negate(struct tmpl_eval *e, struct tmpl_value a, struct tmpl_value *ret);
/* Truncates; fails for NaN and what doesn't fit in 64 bits. */
bool tmpl_double_to_int(struct tmpl_eval *e, double real, int64_t *ret);

/* An integer argument; "what" names it in the error. */
bool tmpl_need_int(struct tmpl_eval *e, const char *what, struct tmpl_value value, int64_t *ret);

#define TMPL_NUMBER_BYTES 40
/* Shortest digits that read back as the same double, as Python's repr. Returns the length. */
size_t tmpl_print_double(double real, char ret[TMPL_NUMBER_BYTES]);
/* printf's "%.{precision}{type}", type one of eEfFgG, its '#' form if alternate, with a point in
 * every locale; ret holds size bytes. Returns the length, 0 if it doesn't fit. */
size_t tmpl_format_double(char *ret, size_t size, double real, char type, int precision,
			  bool alternate);

/* What Python's int(text, base) and float(text) accept; false if they'd raise. An integer of more
 * than 64 bits sets *ret_big. */
bool tmpl_parse_int(struct span text, int base, int64_t *ret, bool *ret_big);
bool tmpl_parse_double(struct span text, double *ret);
