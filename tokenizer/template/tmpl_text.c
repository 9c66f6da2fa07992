#include "tokenizer/template/tmpl_text.h"

#include "tokenizer/template/tmpl_unicode.h"

/* The code point that ends at byte `end`. Returns its length. */
static size_t decode_before(const struct tmpl_str *s, size_t end, uint32_t *ret_code)
{
	size_t len = 1;
	while (((unsigned char)s->ptr[end - len] & 0xC0) == 0x80)
		len++;
	tmpl_decode(s->ptr + end - len, ret_code);
	return len;
}

static bool in_set(const struct tmpl_str *chars, uint32_t code)
{
	if (!chars)
		return tmpl_is_space(code);
	uint32_t each;
	for (size_t at = 0; at < chars->len;) {
		at += tmpl_decode(chars->ptr + at, &each);
		if (each == code)
			return true;
	}
	return false;
}

const struct tmpl_str *tmpl_strip(struct tmpl_eval *e, const struct tmpl_str *s,
				  const struct tmpl_str *chars, bool left, bool right)
{
	size_t from = 0, to = s->len;
	uint32_t code;
	uint64_t each = chars ? 1 + chars->len / 16 : 1;
	while (left && from < to) {
		size_t len = tmpl_decode(s->ptr + from, &code);
		if (!in_set(chars, code))
			break;
		from += len;
		if (!tmpl_charge(e, each))
			return NULL;
	}
	while (right && from < to) {
		size_t len = decode_before(s, to, &code);
		if (!in_set(chars, code))
			break;
		to -= len;
		if (!tmpl_charge(e, each))
			return NULL;
	}
	return tmpl_str_slice(e, s, from, to);
}

size_t tmpl_find(const struct tmpl_str *s, const struct tmpl_str *needle, size_t from, size_t to)
{
	if (from > to || needle->len > to - from)
		return SIZE_MAX;
	const char *hit = memmem(s->ptr + from, to - from, needle->ptr, needle->len);
	return hit ? (size_t)(hit - s->ptr) : SIZE_MAX;
}

/* Naive, since memrmem doesn't exist; a needle long enough to make that slow is charged for. */
bool tmpl_rfind(struct tmpl_eval *e, const struct tmpl_str *s, const struct tmpl_str *needle,
		size_t from, size_t to, size_t *ret_at)
{
	*ret_at = SIZE_MAX;
	if (from > to || needle->len > to - from)
		return true;
	for (size_t at = to - needle->len + 1; at-- > from;) {
		if (memcmp(s->ptr + at, needle->ptr, needle->len) == 0)
			return *ret_at = at, true;
		if (at % 1024 == 0 && !tmpl_charge(e, 16 + needle->len))
			return false;
	}
	return true;
}

size_t tmpl_count(const struct tmpl_str *s, const struct tmpl_str *needle, size_t from, size_t to)
{
	if (from > to)
		return 0;
	if (needle->len == 0)
		return tmpl_count_chars((struct span){s->ptr + from, to - from}) + 1;
	size_t count = 0;
	while ((from = tmpl_find(s, needle, from, to)) != SIZE_MAX) {
		count++;
		from += needle->len;
	}
	return count;
}

static bool add_slice(struct tmpl_eval *e, struct tmpl_list *list, const struct tmpl_str *s,
		      size_t from, size_t to)
{
	const struct tmpl_str *slice = tmpl_str_slice(e, s, from, to);
	return slice && tmpl_charge(e, 1) && tmpl_list_add(e, list, tmpl_str_value(slice));
}

static size_t skip_spaces(const struct tmpl_str *s, size_t at)
{
	uint32_t code;
	while (at < s->len) {
		size_t len = tmpl_decode(s->ptr + at, &code);
		if (!tmpl_is_space(code))
			break;
		at += len;
	}
	return at;
}

static size_t skip_word(const struct tmpl_str *s, size_t at)
{
	uint32_t code;
	while (at < s->len) {
		size_t len = tmpl_decode(s->ptr + at, &code);
		if (tmpl_is_space(code))
			break;
		at += len;
	}
	return at;
}

static bool split_spaces(struct tmpl_eval *e, const struct tmpl_str *s, int64_t most,
			 struct tmpl_list *list)
{
	size_t at = skip_spaces(s, 0);
	for (; at < s->len && most != 0; most--) {
		size_t end = skip_word(s, at);
		if (!add_slice(e, list, s, at, end))
			return false;
		at = skip_spaces(s, end);
	}
	return at >= s->len || add_slice(e, list, s, at, s->len);
}

struct tmpl_list *tmpl_split(struct tmpl_eval *e, const struct tmpl_str *s,
			     const struct tmpl_str *sep, int64_t most)
{
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list || !tmpl_charge(e, s->len / 64))
		return NULL;
	if (!sep)
		return split_spaces(e, s, most, list) ? list : NULL;
	if (sep->len == 0) {
		tmpl_failed(e, SVC_INVALID, "split: the separator is empty");
		return NULL;
	}
	size_t at = 0;
	for (; most != 0; most--) {
		size_t hit = tmpl_find(s, sep, at, s->len);
		if (hit == SIZE_MAX)
			break;
		if (!add_slice(e, list, s, at, hit))
			return NULL;
		at = hit + sep->len;
	}
	return add_slice(e, list, s, at, s->len) ? list : NULL;
}

static void reverse(struct tmpl_list *list)
{
	for (size_t i = 0, j = list->count; i + 1 < j; i++) {
		struct tmpl_value swap = list->items[i];
		list->items[i] = list->items[--j];
		list->items[j] = swap;
	}
}

static bool rsplit_spaces(struct tmpl_eval *e, const struct tmpl_str *s, int64_t most,
			  struct tmpl_list *list)
{
	size_t end = s->len;
	uint32_t code;
	for (;; most--) {
		size_t len = 0;
		while (end > 0 && (len = decode_before(s, end, &code)) && tmpl_is_space(code))
			end -= len;
		if (end == 0)
			return true;
		if (most == 0)
			return add_slice(e, list, s, skip_spaces(s, 0), end);
		size_t at = end;
		while (at > 0 && (len = decode_before(s, at, &code)) && !tmpl_is_space(code))
			at -= len;
		if (!add_slice(e, list, s, at, end))
			return false;
		end = at;
	}
}

struct tmpl_list *tmpl_rsplit(struct tmpl_eval *e, const struct tmpl_str *s,
			      const struct tmpl_str *sep, int64_t most)
{
	if (most < 0 && sep)
		return tmpl_split(e, s, sep, most);
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list || !tmpl_charge(e, s->len / 16))
		return NULL;
	if (sep && sep->len == 0) {
		tmpl_failed(e, SVC_INVALID, "rsplit: the separator is empty");
		return NULL;
	}
	size_t end = s->len;
	for (; sep && most != 0; most--) {
		size_t hit;
		if (!tmpl_rfind(e, s, sep, 0, end, &hit))
			return NULL;
		if (hit == SIZE_MAX)
			break;
		if (!add_slice(e, list, s, hit + sep->len, end))
			return NULL;
		end = hit;
	}
	if (sep ? !add_slice(e, list, s, 0, end) : !rsplit_spaces(e, s, most, list))
		return NULL;
	reverse(list);
	return list;
}

struct tmpl_list *tmpl_split_lines(struct tmpl_eval *e, const struct tmpl_str *s, bool keep_ends)
{
	struct tmpl_list *list = tmpl_list_new(e, 0);
	if (!list || !tmpl_charge(e, s->len / 64))
		return NULL;
	for (size_t at = 0, start = 0; at < s->len;) {
		uint32_t code;
		size_t end = at;
		at += tmpl_decode(s->ptr + at, &code);
		bool cut = tmpl_is_line_end(code);
		if (code == '\r' && at < s->len && s->ptr[at] == '\n')
			at++;
		if (!cut && at < s->len)
			continue;
		if (!add_slice(e, list, s, start, cut && !keep_ends ? end : at))
			return NULL;
		start = at;
	}
	return list;
}

/* An empty `old` matches before every character and at the end. */
static const struct tmpl_str *replace_between(struct tmpl_eval *e, const struct tmpl_str *s,
					      const struct tmpl_str *with, int64_t most)
{
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	uint32_t code;
	size_t at = 0;
	for (; at < s->len && most != 0 && !b.failed; most--) {
		size_t len = tmpl_decode(s->ptr + at, &code);
		tmpl_add(&b, with);
		tmpl_add_slice(&b, s, at, at + len);
		at += len;
		if (!tmpl_charge(e, 1))
			return NULL;
	}
	tmpl_add_slice(&b, s, at, s->len);
	if (most != 0)
		tmpl_add(&b, with);
	return tmpl_built(&b);
}

const struct tmpl_str *tmpl_replace(struct tmpl_eval *e, const struct tmpl_str *s,
				    const struct tmpl_str *old, const struct tmpl_str *with,
				    int64_t most)
{
	if (old->len == 0)
		return replace_between(e, s, with, most);
	size_t hit = tmpl_find(s, old, 0, s->len), at = 0;
	if (hit == SIZE_MAX || most == 0)
		return tmpl_charge(e, s->len / 64) ? tmpl_str_mark(e, s, false) : NULL;
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	for (; hit != SIZE_MAX && most != 0 && !b.failed; most--) {
		tmpl_add_slice(&b, s, at, hit);
		tmpl_add(&b, with);
		at = hit + old->len;
		hit = tmpl_find(s, old, at, s->len);
		if (!tmpl_charge(e, 1))
			return NULL;
	}
	tmpl_add_slice(&b, s, at, s->len);
	return tmpl_built(&b);
}

/* A capital sigma ends a word: something cased before it, nothing cased after it. */
static bool final_sigma(const struct tmpl_str *s, size_t at, size_t next, uint64_t *steps)
{
	uint32_t code = 0;
	bool cased = false;
	while (at > 0) {
		at -= decode_before(s, at, &code);
		++*steps;
		if (!tmpl_is_case_ignorable(code)) {
			cased = tmpl_is_cased(code);
			break;
		}
	}
	while (cased && next < s->len) {
		next += tmpl_decode(s->ptr + next, &code);
		++*steps;
		if (!tmpl_is_case_ignorable(code))
			return !tmpl_is_cased(code);
	}
	return cased;
}

static enum tmpl_case case_for(enum tmpl_recase how, uint32_t code, bool first, bool after_cased)
{
	switch (how) {
	case RECASE_UPPER:
		return CASE_UPPER;
	case RECASE_LOWER:
		return CASE_LOWER;
	case RECASE_TITLE:
		return after_cased ? CASE_LOWER : CASE_TITLE;
	case RECASE_CAPITALIZE:
		return first ? CASE_TITLE : CASE_LOWER;
	case RECASE_SWAP:
		/* What is neither keeps its title case. */
		return tmpl_is_lowercase(code)	 ? CASE_UPPER
		       : tmpl_is_uppercase(code) ? CASE_LOWER
						 : CASE_TITLE;
	}
	return CASE_LOWER;
}

const struct tmpl_str *tmpl_recase(struct tmpl_eval *e, const struct tmpl_str *s,
				   enum tmpl_recase how)
{
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	bool after_cased = false;
	for (size_t at = 0; at < s->len && !b.failed;) {
		uint32_t code, to[TMPL_CASE_CODES];
		char bytes[4 * TMPL_CASE_CODES];
		size_t next = at + tmpl_decode(s->ptr + at, &code), len = 0;
		enum tmpl_case which = case_for(how, code, at == 0, after_cased);
		size_t count = tmpl_map_case(code, which, to);
		uint64_t steps = code < 0x80 ? 0 : 2; /* the tables are walked */
		if (which == CASE_LOWER && code == 0x3A3 && final_sigma(s, at, next, &steps))
			to[0] = 0x3C2;
		for (size_t i = 0; i < count; i++)
			len += tmpl_encode(to[i], bytes + len);
		tmpl_add_bytes(&b, bytes, len, tmpl_trusted_at(s, at));
		after_cased = tmpl_is_cased(code);
		at = next;
		if (!tmpl_charge(e, steps + (at % 16 == 0)))
			return NULL;
	}
	return tmpl_built(&b);
}

const struct tmpl_str *tmpl_pad(struct tmpl_eval *e, const struct tmpl_str *s, int64_t left,
				int64_t right, const struct tmpl_str *fill)
{
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	for (; left > 0 && !b.failed && tmpl_charge(e, 1); left--)
		tmpl_add(&b, fill);
	tmpl_add(&b, s);
	for (; right > 0 && !b.failed && tmpl_charge(e, 1); right--)
		tmpl_add(&b, fill);
	return tmpl_built(&b);
}

static const char *entity(char c)
{
	switch (c) {
	case '&':
		return "&amp;";
	case '<':
		return "&lt;";
	case '>':
		return "&gt;";
	case '\'':
		return "&#39;";
	case '"':
		return "&#34;";
	default:
		return NULL;
	}
}

const struct tmpl_str *tmpl_escape(struct tmpl_eval *e, const struct tmpl_str *s)
{
	if (s->markup)
		return s;
	struct tmpl_builder b;
	tmpl_build(&b, e, s->len);
	size_t start = 0;
	for (size_t at = 0; at < s->len && !b.failed; at++) {
		const char *as = entity(s->ptr[at]);
		if (!as)
			continue;
		tmpl_add_slice(&b, s, start, at);
		tmpl_add_text(&b, as, tmpl_trusted_at(s, at));
		start = at + 1;
	}
	tmpl_add_slice(&b, s, start, s->len);
	const struct tmpl_str *escaped = tmpl_built(&b);
	return escaped ? tmpl_str_mark(e, escaped, true) : NULL;
}
