/* tokenizer/template/tmpl_unicode.h: what Python's str methods need to know of a code point. The
 * tables are pinned (tmpl_unicode_generate.py): a prompt is the same on every machine. Internal to
 * tmpl_*.c.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tmpl_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };

#define TMPL_CASE_CODES 3

/* str.isspace: what strip() and split() drop. */
bool tmpl_is_space(uint32_t code);
/* str.isprintable: what repr() writes as it is. */
bool tmpl_is_printable(uint32_t code);
/* Has upper or lower case. */
bool tmpl_is_cased(uint32_t code);
bool tmpl_is_lowercase(uint32_t code);
/* Neither is a title case letter, such as U+01C5. */
bool tmpl_is_uppercase(uint32_t code);
/* Final sigma looks through it, as through an apostrophe. */
bool tmpl_is_case_ignorable(uint32_t code);
/* Where str.splitlines() cuts. */
bool tmpl_is_line_end(uint32_t code);
/* Full mapping, without regard to context. Returns how many code points it became. */
size_t tmpl_map_case(uint32_t code, enum tmpl_case which, uint32_t ret_codes[TMPL_CASE_CODES]);
