/* tokenizer/template/tmpl_format.h: "..." % values and "...".format(values). Internal to tmpl_*.c.
 */
#pragma once
#include "tokenizer/template/tmpl_program.h"

/* One value as format() or % writes it. */
struct tmpl_spec {
	uint32_t fill; /* code point */
	char align;    /* < > ^ = or 0 */
	char sign;     /* + - space or 0 */
	bool alternate, zero;
	char group;		  /* , _ or 0 */
	int64_t width, precision; /* precision: -1 where none is given */
	char type;		  /* 0 where none is given */
	bool trusted;		  /* the format is: so is what it fills with */
};

/* Digits with sign, prefix and grouping, padded. type one of d x X o b e E f F g G %, for a number.
 */
bool tmpl_add_number(struct tmpl_builder *b, struct tmpl_value value, const struct tmpl_spec *spec);
/* Cut to the precision and padded. */
bool tmpl_add_padded(struct tmpl_builder *b, const struct tmpl_str *text,
		     const struct tmpl_spec *spec);

bool tmpl_format_percent(struct tmpl_eval *e, const struct tmpl_str *format,
			 struct tmpl_value values, struct tmpl_value *ret);
bool tmpl_format_braces(struct tmpl_eval *e, const struct tmpl_str *format,
			const struct tmpl_args *args, struct tmpl_value *ret);
