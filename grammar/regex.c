/* grammar/regex.c: regular expressions, written as a grammar's item. */
#include <string.h>

#include "grammar/write.h"

#define REGEX_NESTING 100u

struct regex {
	struct span text;
	size_t at;
	struct buf *out;
	enum gr_regex_kind kind;
	unsigned depth;
	struct svc_err *err;
};

static enum svc_code wrong(struct regex *regex, const char *what)
{
	return svc_fail(regex->err, SVC_INVALID, __func__,
			"regular expression refused: %s, at byte %zu", what, regex->at + 1);
}

static int peek(const struct regex *regex)
{
	return regex->at < regex->text.len ? (unsigned char)regex->text.ptr[regex->at] : -1;
}

static bool take(struct regex *regex, const char *what)
{
	size_t n = strlen(what);
	if (regex->text.len - regex->at < n || memcmp(regex->text.ptr + regex->at, what, n) != 0)
		return false;
	regex->at += n;
	return true;
}

/* ---- characters ---- */

/* A character of a JSON string that is written as it is, or the escape of one that isn't. */
static void json_class_put(struct buf *out, struct char_set *set)
{
	static const char shorts[] = "\bb\ff\nn\rr\tt\"\"\\\\";
	struct buf escapes = {0};
	for (uint32_t c = 0; c <= '\\'; c++) {
		if ((c >= 0x20 && c != '"' && c != '\\') || !char_set_has(set, c))
			continue;
		const char *letter = NULL;
		for (const char *at = shorts; *at; at += 2)
			letter = (unsigned char)*at == c ? at + 1 : letter;
		char text[8];
		size_t n = 2;
		text[0] = '\\';
		text[1] = letter ? *letter : 'u';
		for (unsigned shift = 16; !letter && shift > 0; shift -= 4)
			text[n++] = "0123456789abcdef"[c >> (shift - 4) & 15];
		buf_print(&escapes, " | ");
		gr_put_literal(&escapes, (struct span){text, n});
	}
	struct char_set special = {0};
	char_set_add(&special, 0, 0x1F);
	char_set_add(&special, '"', '"');
	char_set_add(&special, '\\', '\\');
	/* set \ special = not (not set or special) */
	char_set_invert(set);
	for (size_t i = 0; i < special.n; i++)
		char_set_add(set, special.ranges[i].low, special.ranges[i].high);
	char_set_invert(set);
	set->failed |= special.failed;
	buf_print(out, "(");
	gr_put_class(out, set);
	buf_span(out, (struct span){escapes.ptr, escapes.len});
	buf_print(out, ")");
	out->failed |= escapes.failed;
	char_set_free(&special);
	buf_free(&escapes);
}

static void set_put(struct regex *regex, struct char_set *set)
{
	char_set_tidy(set);
	if (regex->kind == GR_REGEX_JSON)
		json_class_put(regex->out, set);
	else
		gr_put_class(regex->out, set);
	regex->out->failed |= set->failed;
	char_set_free(set);
}

static void char_put(struct regex *regex, uint32_t c)
{
	struct char_set set = {0};
	char_set_add(&set, c, c);
	set_put(regex, &set);
}

/* \d \w \s and their opposites. What is a digit beyond ASCII, implementations don't agree upon: the
 * opposites leave all of that out. */
static bool shorthand_add(struct char_set *set, int letter)
{
	static const struct draft_range digits[] = {{'0', '9'}},
					words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
					spaces[] = {{'\t', '\r'}, {' ', ' '}};
	const struct draft_range *ranges = digits;
	size_t n = 1;
	if ((letter | 32) == 'w') {
		ranges = words;
		n = 4;
	} else if ((letter | 32) == 's') {
		ranges = spaces;
		n = 2;
	} else if ((letter | 32) != 'd') {
		return false;
	}
	struct char_set own = {0};
	for (size_t i = 0; i < n; i++)
		char_set_add(&own, ranges[i].low, ranges[i].high);
	if (letter < 'a') {
		char_set_add(&own, 0x80, CHAR_LAST);
		/* Python takes these for white space. */
		char_set_add(&own, 0x1C, 0x1F);
		char_set_invert(&own);
	}
	for (size_t i = 0; i < own.n; i++)
		char_set_add(set, own.ranges[i].low, own.ranges[i].high);
	set->failed |= own.failed;
	char_set_free(&own);
	return true;
}

/* Behind a backslash: one character, or a set of them (ret_set). */
static enum svc_code escape_read(struct regex *regex, uint32_t *ret_char, struct char_set *ret_set)
{
	static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v\0";
	int c = peek(regex);
	if (c < 0)
		return wrong(regex, "it ends with a backslash");
	if (shorthand_add(ret_set, c)) {
		regex->at++;
		return SVC_OK;
	}
	const char *letter = strchr(letters, c);
	size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 0;
	if (letter) {
		*ret_char = (unsigned char)values[letter - letters];
		regex->at++;
	} else if (digits) {
		regex->at++;
		if (!char_hex(regex->text, &regex->at, digits, ret_char) ||
		    (*ret_char >= 0xD800 && *ret_char <= 0xDFFF))
			return wrong(regex, "\\x and \\u need the digits of a character");
	} else if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) {
		return wrong(regex, "this escape (a back reference, a word boundary, a property) "
				    "is not supported");
	} else if (!char_next(regex->text, &regex->at, ret_char)) {
		return wrong(regex, "it is not UTF-8");
	}
	return SVC_OK;
}

/* One member of a class; a set has no ends for a range. */
static enum svc_code member_read(struct regex *regex, uint32_t *ret_char, struct char_set *set,
				 bool *ret_is_set)
{
	size_t before = set->n;
	enum svc_code code = SVC_OK;
	if (take(regex, "\\b"))
		*ret_char = '\b';
	else if (take(regex, "\\"))
		code = escape_read(regex, ret_char, set);
	else if (!char_next(regex->text, &regex->at, ret_char))
		code = wrong(regex, peek(regex) < 0 ? "] is missing" : "it is not UTF-8");
	*ret_is_set = set->n > before;
	return code;
}

static enum svc_code members_read(struct regex *regex, struct char_set *set)
{
	if (peek(regex) == ']')
		return wrong(regex,
			     "a class begins with ], which implementations read differently");
	while (!take(regex, "]")) {
		uint32_t low = 0, high = 0;
		bool is_set = false, high_is_set = false;
		enum svc_code code = member_read(regex, &low, set, &is_set);
		if (code != SVC_OK)
			return code;
		if (is_set)
			continue;
		high = low;
		bool range = peek(regex) == '-' && regex->at + 1 < regex->text.len &&
			     regex->text.ptr[regex->at + 1] != ']';
		if (range) {
			regex->at++;
			code = member_read(regex, &high, set, &high_is_set);
		}
		if (code == SVC_OK && (low > high || high_is_set))
			code = wrong(regex, "a range in a class goes backwards or has no end");
		if (code != SVC_OK)
			return code;
		char_set_add(set, low, high);
	}
	return SVC_OK;
}

static enum svc_code class_read(struct regex *regex)
{
	struct char_set set = {0};
	bool inverted = take(regex, "^");
	size_t start = regex->at;
	enum svc_code code = members_read(regex, &set);
	if (inverted) {
		/* As with \D: what isn't in \d beyond ASCII is left open. */
		struct span text = {regex->text.ptr + start, regex->at - start};
		if (memmem(text.ptr, text.len, "\\d", 2) || memmem(text.ptr, text.len, "\\w", 2) ||
		    memmem(text.ptr, text.len, "\\s", 2)) {
			char_set_add(&set, 0x80, CHAR_LAST);
			char_set_add(&set, 0x1C, 0x1F);
		}
		char_set_invert(&set);
	}
	if (code == SVC_OK)
		set_put(regex, &set);
	else
		char_set_free(&set);
	return code;
}

/* Any character but a line's end. */
static void dot_put(struct regex *regex)
{
	struct char_set set = {0};
	char_set_add(&set, '\n', '\n');
	char_set_add(&set, '\r', '\r');
	char_set_add(&set, 0x2028, 0x2029);
	char_set_invert(&set);
	set_put(regex, &set);
}

/* ---- structure ---- */

static enum svc_code alternatives_read(struct regex *regex);

static enum svc_code group_read(struct regex *regex)
{
	if (++regex->depth > REGEX_NESTING)
		return wrong(regex, "groups are nested deeper than 100 levels");
	if (take(regex, "?P<") || (peek(regex) == '?' && !take(regex, "?:") && take(regex, "?<"))) {
		if (peek(regex) == '=' || peek(regex) == '!')
			return wrong(regex, "looking back is not supported");
		while (peek(regex) >= 0 && peek(regex) != '>')
			regex->at++;
		if (!take(regex, ">"))
			return wrong(regex, "a group's name has no end");
	} else if (peek(regex) == '?') {
		return wrong(regex,
			     "this kind of group (looking ahead, a flag, a condition) is not "
			     "supported");
	}
	enum svc_code code = alternatives_read(regex);
	if (code == SVC_OK && !take(regex, ")"))
		code = wrong(regex, ") is missing");
	regex->depth--;
	return code;
}

static enum svc_code atom_read(struct regex *regex)
{
	uint32_t c = 0;
	struct char_set set = {0};
	enum svc_code code = SVC_OK;
	switch (peek(regex)) {
	case '(':
		regex->at++;
		return group_read(regex);
	case '[':
		regex->at++;
		return class_read(regex);
	case '.':
		regex->at++;
		dot_put(regex);
		return SVC_OK;
	case '^':
	case '$':
		return wrong(regex,
			     "^ and $ are supported only at the ends of the expression, or of "
			     "its outermost alternatives");
	case '*':
	case '+':
	case '?':
		return wrong(regex, "there is nothing to repeat");
	case '\\':
		regex->at++;
		code = escape_read(regex, &c, &set);
		if (code == SVC_OK && set.n == 0)
			char_set_add(&set, c, c);
		if (code == SVC_OK)
			set_put(regex, &set);
		return code;
	default:
		if (!char_next(regex->text, &regex->at, &c))
			return wrong(regex, "it is not UTF-8");
		char_put(regex, c);
		return SVC_OK;
	}
}

/* Digits of a repetition's bound; false: there are none. What is too large is GR_REPEAT_MAX + 1. */
static bool bound_take(struct regex *regex, uint32_t *ret_bound)
{
	size_t start = regex->at;
	*ret_bound = 0;
	for (int c = peek(regex); c >= '0' && c <= '9'; c = peek(regex)) {
		regex->at++;
		*ret_bound = 10 * *ret_bound + (uint32_t)(c - '0');
		*ret_bound = *ret_bound > GR_REPEAT_MAX ? GR_REPEAT_MAX + 1 : *ret_bound;
	}
	return regex->at > start;
}

/* {n}, {n,} or {n,m}; ret_found false: the brace is a character. */
static enum svc_code bounds_read(struct regex *regex, bool *ret_found)
{
	struct regex ahead = *regex;
	uint32_t min = 0, max = 0;
	*ret_found = false;
	ahead.at++;
	if (take(&ahead, ","))
		return wrong(regex, "{,n} is read differently by implementations: write {0,n}");
	if (!bound_take(&ahead, &min))
		return SVC_OK;
	bool comma = take(&ahead, ",");
	bool upper = comma && bound_take(&ahead, &max);
	if (!take(&ahead, "}"))
		return SVC_OK;
	if (min > GR_REPEAT_MAX || (upper && (max > GR_REPEAT_MAX || max < min)))
		return wrong(regex, "a repetition's bounds must ascend and not exceed 65536");
	*ret_found = true;
	buf_append(regex->out, regex->text.ptr + regex->at, ahead.at - regex->at);
	regex->at = ahead.at;
	return SVC_OK;
}

static enum svc_code repeats_read(struct regex *regex)
{
	int c = peek(regex);
	bool found = c == '*' || c == '+' || c == '?';
	if (found) {
		buf_print(regex->out, "%c", c);
		regex->at++;
	} else if (c == '{') {
		enum svc_code code = bounds_read(regex, &found);
		if (code != SVC_OK)
			return code;
	}
	if (!found)
		return SVC_OK;
	if (take(regex, "?")) /* lazy: the same texts */
		return SVC_OK;
	c = peek(regex);
	if (c == '*' || c == '+')
		return wrong(regex, "a repetition of a repetition, or a possessive one, is not "
				    "supported");
	return SVC_OK;
}

static bool at_end_anchor(const struct regex *regex)
{
	struct regex ahead = *regex;
	if (regex->depth || !(take(&ahead, "$") || take(&ahead, "\\Z") || take(&ahead, "\\z")))
		return false;
	return peek(&ahead) < 0 || peek(&ahead) == '|';
}

static enum svc_code sequence_read(struct regex *regex)
{
	buf_print(regex->out, "\"\"");
	for (int c = peek(regex); c >= 0 && c != '|' && c != ')'; c = peek(regex)) {
		if (at_end_anchor(regex))
			break;
		buf_print(regex->out, " ");
		enum svc_code code = atom_read(regex);
		if (code == SVC_OK)
			code = repeats_read(regex);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

/* An outermost alternative: without an anchor, a pattern is looked for anywhere. */
static enum svc_code anchored_read(struct regex *regex)
{
	static const char any[] = " ([^\\\"\\\\\\x00-\\x1F] | \"\\\\\" json-escape)* ";
	bool search = regex->kind == GR_REGEX_JSON;
	if (!take(regex, "^") && !take(regex, "\\A") && search)
		buf_print(regex->out, "%s", any);
	enum svc_code code = sequence_read(regex);
	if (at_end_anchor(regex))
		regex->at += peek(regex) == '$' ? 1 : 2;
	else if (search)
		buf_print(regex->out, "%s", any);
	return code;
}

static enum svc_code alternatives_read(struct regex *regex)
{
	enum svc_code code = SVC_OK;
	buf_print(regex->out, "(");
	do {
		code = regex->depth ? sequence_read(regex) : anchored_read(regex);
		if (code == SVC_OK && peek(regex) == '|')
			buf_print(regex->out, " | ");
	} while (code == SVC_OK && take(regex, "|"));
	buf_print(regex->out, ")");
	return code;
}

enum svc_code gr_put_regex(struct buf *out, struct span regex, enum gr_regex_kind kind,
			   struct svc_err *err)
{
	struct regex reading = {.text = regex, .out = out, .kind = kind, .err = err};
	enum svc_code code = alternatives_read(&reading);
	if (code == SVC_OK && reading.at < regex.len)
		code = wrong(&reading, ") without (");
	return code;
}
