/* tokenizer/template/tmpl_text.h: Python's string algorithms on strings that carry trust. All
 * return NULL after a failure; all are linear in their operands and their result. Internal to
 * tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_state.h"

enum tmpl_recase {
	RECASE_UPPER,
	RECASE_LOWER,
	RECASE_TITLE,
	RECASE_CAPITALIZE,
	RECASE_SWAP,
};

/* chars: NULL for white space. */
const struct tmpl_str *tmpl_strip(struct tmpl_eval *e, const struct tmpl_str *s,
				  const struct tmpl_str *chars, bool left, bool right);
/* sep: NULL for runs of white space; most: at most so many cuts, < 0 for all. */
struct tmpl_list *tmpl_split(struct tmpl_eval *e, const struct tmpl_str *s,
			     const struct tmpl_str *sep, int64_t most);
/* As tmpl_split, counting the cuts from the end. */
struct tmpl_list *tmpl_rsplit(struct tmpl_eval *e, const struct tmpl_str *s,
			      const struct tmpl_str *sep, int64_t most);
struct tmpl_list *tmpl_split_lines(struct tmpl_eval *e, const struct tmpl_str *s, bool keep_ends);
const struct tmpl_str *tmpl_replace(struct tmpl_eval *e, const struct tmpl_str *s,
				    const struct tmpl_str *old, const struct tmpl_str *with,
				    int64_t most);
const struct tmpl_str *tmpl_recase(struct tmpl_eval *e, const struct tmpl_str *s,
				   enum tmpl_recase how);
/* left and right: so many fill characters (one code point) before and after. */
const struct tmpl_str *tmpl_pad(struct tmpl_eval *e, const struct tmpl_str *s, int64_t left,
				int64_t right, const struct tmpl_str *fill);
/* & < > ' " as HTML entities, which makes it markup; markup is left as it is. */
const struct tmpl_str *tmpl_escape(struct tmpl_eval *e, const struct tmpl_str *s);
/* The bytes at which needle starts, from..to, or SIZE_MAX. */
size_t tmpl_find(const struct tmpl_str *s, const struct tmpl_str *needle, size_t from, size_t to);
/* The last such place. */
bool tmpl_rfind(struct tmpl_eval *e, const struct tmpl_str *s, const struct tmpl_str *needle,
		size_t from, size_t to, size_t *ret_at);
/* How often, without overlaps, within bytes from..to. */
size_t tmpl_count(const struct tmpl_str *s, const struct tmpl_str *needle, size_t from, size_t to);
