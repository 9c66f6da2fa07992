/* tokenizer/template/tmpl_print.h: values as text: Python's str() and repr(), and JSON. What the
 * engine writes for a value (quotes, brackets, digits) is trusted as that value is. Internal to
 * tmpl_*.c.
 */
#pragma once
#include "tokenizer/template/tmpl_state.h"

/* str(); false after a failure. */
bool tmpl_print(struct tmpl_builder *b, struct tmpl_value value);
bool tmpl_repr(struct tmpl_builder *b, struct tmpl_value value);
/* str() as a string of its own; keeps markup. NULL after a failure. */
const struct tmpl_str *tmpl_to_str(struct tmpl_eval *e, struct tmpl_value value);

/* As json.dumps has them. */
struct tmpl_json_style {
	bool ensure_ascii, sort_keys, multi_line;
	const struct tmpl_str *indent; /* once per level, if multi_line */
	const struct tmpl_str *item_separator, *key_separator;
};
bool tmpl_print_json(struct tmpl_builder *b, struct tmpl_value value,
		     const struct tmpl_json_style *style);

/* A value of the request: strings are borrowed and untrusted. */
bool tmpl_from_json(struct tmpl_eval *e, const json_t *json, struct tmpl_value *ret);
