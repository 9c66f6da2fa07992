/* grammar/gbnf.c: the text form. A rule is `name ::= alternatives`; it ends where the next name
 * with a `::=` begins, so line breaks mean nothing. */
#include <string.h>

#include "grammar/chars.h"
#include "grammar/draft.h"

struct reader {
	struct span text;
	size_t at;
	struct draft *draft;
	struct svc_err *err;
	unsigned depth;
};

struct place {
	size_t line, byte;
};

static struct place place_of(struct span text, size_t at)
{
	struct place place = {1, 1};
	for (size_t i = 0; i < at && i < text.len; i++) {
		place.byte++;
		if (text.ptr[i] == '\n')
			place = (struct place){place.line + 1, 1};
	}
	return place;
}

static enum svc_code wrong(struct reader *reader, const char *what)
{
	struct place place = place_of(reader->text, reader->at);
	return gr_wrong(reader->err, "grammar refused: %s, at line %zu, byte %zu", what, place.line,
			place.byte);
}

static int peek(const struct reader *reader)
{
	return reader->at < reader->text.len ? (unsigned char)reader->text.ptr[reader->at] : -1;
}

static void space_skip(struct reader *reader)
{
	for (int c = peek(reader); c >= 0; c = peek(reader)) {
		if (c == '#')
			while (peek(reader) >= 0 && peek(reader) != '\n')
				reader->at++;
		else if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
			reader->at++;
		else
			return;
	}
}

static bool is_name(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_';
}

static struct span name_take(struct reader *reader)
{
	size_t start = reader->at;
	while (is_name(peek(reader)))
		reader->at++;
	return (struct span){reader->text.ptr + start, reader->at - start};
}

static bool sign_take(struct reader *reader)
{
	struct span rest = {reader->text.ptr + reader->at, reader->text.len - reader->at};
	if (rest.len < 3 || memcmp(rest.ptr, "::=", 3) != 0)
		return false;
	reader->at += 3;
	return true;
}

/* Does a rule begin here? */
static bool at_rule(const struct reader *reader)
{
	struct reader ahead = *reader;
	if (name_take(&ahead).len == 0)
		return false;
	space_skip(&ahead);
	return sign_take(&ahead);
}

/* ---- literals and classes ---- */

static enum svc_code escape_read(struct reader *reader, uint32_t *ret_char)
{
	static const char plain[] = "\\\"'[]-^/.*+?(){}|$", letters[] = "ntrbf0",
			  values[] = "\n\t\r\b\f\0";
	int c = peek(reader);
	size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
	reader->at += c >= 0;
	if (digits) {
		if (!char_hex(reader->text, &reader->at, digits, ret_char))
			return wrong(reader, "hexadecimal digits are missing after the backslash");
		if (*ret_char > CHAR_LAST || (*ret_char >= 0xD800 && *ret_char <= 0xDFFF))
			return wrong(reader, "an escape names no character");
		return SVC_OK;
	}
	const char *letter = c > 0 ? strchr(letters, c) : NULL;
	if (letter)
		*ret_char = (unsigned char)values[letter - letters];
	else if (c > 0 && strchr(plain, c))
		*ret_char = (uint32_t)c;
	else
		return wrong(reader, "unknown escape");
	return SVC_OK;
}

static enum svc_code char_read(struct reader *reader, uint32_t *ret_char)
{
	if (peek(reader) == '\\') {
		reader->at++;
		return escape_read(reader, ret_char);
	}
	if (!char_next(reader->text, &reader->at, ret_char))
		return wrong(reader, peek(reader) < 0 ? "the text ends within quotes or brackets"
						      : "the text is not UTF-8");
	return SVC_OK;
}

static enum svc_code literal_read(struct reader *reader, struct draft_part *ret_part)
{
	struct buf bytes = {0};
	enum svc_code code = SVC_OK;
	reader->at++;
	while (code == SVC_OK && peek(reader) != '"') {
		uint32_t c = 0;
		code = char_read(reader, &c);
		if (code == SVC_OK)
			char_append(&bytes, c);
	}
	reader->at += code == SVC_OK;
	*ret_part = draft_bytes(reader->draft, (struct span){bytes.ptr, bytes.len});
	reader->draft->full |= bytes.failed;
	buf_free(&bytes);
	return code;
}

static enum svc_code ranges_read(struct reader *reader, struct char_set *set)
{
	while (peek(reader) != ']') {
		uint32_t low = 0, high = 0;
		enum svc_code code = char_read(reader, &low);
		high = low;
		if (code == SVC_OK && peek(reader) == '-' && reader->at + 1 < reader->text.len &&
		    reader->text.ptr[reader->at + 1] != ']') {
			reader->at++;
			code = char_read(reader, &high);
		}
		if (code == SVC_OK && low > high)
			code = wrong(reader, "a range goes backwards");
		if (code != SVC_OK)
			return code;
		char_set_add(set, low, high);
	}
	reader->at++;
	return SVC_OK;
}

static enum svc_code class_read(struct reader *reader, struct draft_part *ret_part)
{
	struct char_set set = {0};
	reader->at++;
	bool inverted = peek(reader) == '^';
	reader->at += inverted;
	enum svc_code code = ranges_read(reader, &set);
	if (inverted)
		char_set_invert(&set);
	else
		char_set_tidy(&set);
	*ret_part = draft_class(reader->draft, set.ranges, set.n);
	reader->draft->full |= set.failed;
	char_set_free(&set);
	return code;
}

/* ---- items ---- */

static enum svc_code alternatives_read(struct reader *reader, struct draft_part *ret_part);

static enum svc_code group_read(struct reader *reader, struct draft_part *ret_part)
{
	if (++reader->depth > GR_NESTING)
		return wrong(reader, "brackets are nested deeper than 128 levels");
	reader->at++;
	enum svc_code code = alternatives_read(reader, ret_part);
	if (code == SVC_OK && peek(reader) != ')')
		code = wrong(reader, "expected ) or an item");
	reader->at += code == SVC_OK;
	reader->depth--;
	return code;
}

void gr_token_code(uint32_t id, char ret_code[GR_TOKEN_CODE_BYTES])
{
	const unsigned char code[GR_TOKEN_CODE_BYTES] = {
		0xFF, (unsigned char)(id >> 16), (unsigned char)(id >> 8), (unsigned char)id};
	memcpy(ret_code, code, sizeof code);
}

bool gr_is_text(struct span bytes)
{
	return bytes.len == 0 || !memchr(bytes.ptr, 0xFF, bytes.len);
}

/* <[ID]> */
static enum svc_code token_read(struct reader *reader, struct draft_part *ret_part)
{
	char code[GR_TOKEN_CODE_BYTES];
	struct span rest = {reader->text.ptr + reader->at, reader->text.len - reader->at};
	uint32_t id = 0;
	size_t n = 2;
	if (rest.len < n || rest.ptr[1] != '[')
		return wrong(reader, "expected <[ID]>: a token's number");
	for (; n < rest.len && rest.ptr[n] >= '0' && rest.ptr[n] <= '9' && id <= GR_TOKEN_MAX; n++)
		id = 10 * id + (uint32_t)(rest.ptr[n] - '0');
	if (n == 2 || id > GR_TOKEN_MAX || rest.len - n < 2 || memcmp(rest.ptr + n, "]>", 2) != 0)
		return wrong(reader, "expected <[ID]>: a token's number");
	reader->at += n + 2;
	gr_token_code(id, code);
	reader->draft->names_tokens = true;
	*ret_part = draft_bytes(reader->draft, (struct span){code, sizeof code});
	return SVC_OK;
}

static enum svc_code item_read(struct reader *reader, struct draft_part *ret_part)
{
	static const struct draft_range all = {0, CHAR_LAST};
	size_t at = reader->at;
	switch (peek(reader)) {
	case '"':
		return literal_read(reader, ret_part);
	case '[':
		return class_read(reader, ret_part);
	case '(':
		return group_read(reader, ret_part);
	case '<':
		return token_read(reader, ret_part);
	case '.':
		reader->at++;
		*ret_part = draft_class(reader->draft, &all, 1);
		return SVC_OK;
	default:
		break;
	}
	struct span name = name_take(reader);
	if (name.len == 0)
		return wrong(reader, "expected a literal, a class, a group or a rule's name");
	*ret_part = draft_call(reader->draft, draft_rule(reader->draft, name, at));
	return SVC_OK;
}

static enum svc_code number_read(struct reader *reader, uint32_t *ret_number)
{
	uint32_t number = 0;
	size_t start = reader->at;
	for (int c = peek(reader); c >= '0' && c <= '9'; c = peek(reader)) {
		number = 10 * number + (uint32_t)(c - '0');
		if (number > GR_REPEAT_MAX)
			return wrong(reader, "more than 65536 repetitions");
		reader->at++;
	}
	if (reader->at == start)
		return wrong(reader, "expected a number");
	*ret_number = number;
	space_skip(reader);
	return SVC_OK;
}

/* {n}, {min,}, {min,max}, {,max} */
static enum svc_code bounds_read(struct reader *reader, uint32_t *ret_min, uint32_t *ret_max)
{
	enum svc_code code = SVC_OK;
	*ret_min = 0;
	reader->at++;
	space_skip(reader);
	if (peek(reader) != ',')
		code = number_read(reader, ret_min);
	*ret_max = *ret_min;
	if (code == SVC_OK && peek(reader) == ',') {
		reader->at++;
		space_skip(reader);
		*ret_max = GR_NONE;
		if (peek(reader) != '}')
			code = number_read(reader, ret_max);
	}
	if (code == SVC_OK && peek(reader) != '}')
		code = wrong(reader, "expected }");
	if (code == SVC_OK && *ret_max < *ret_min)
		code = wrong(reader, "a repetition's maximum is below its minimum");
	reader->at += code == SVC_OK;
	return code;
}

static enum svc_code repeats_read(struct reader *reader, uint32_t first, struct draft_part *part)
{
	for (;;) {
		uint32_t min = 0, max = GR_NONE;
		enum svc_code code = SVC_OK;
		space_skip(reader);
		int c = peek(reader);
		if (c == '+')
			min = 1;
		else if (c == '?')
			max = 1;
		else if (c == '{')
			code = bounds_read(reader, &min, &max);
		else if (c != '*')
			return SVC_OK;
		if (code != SVC_OK)
			return code;
		reader->at += c != '{';
		*part = draft_repeat(reader->draft, first, *part, min, max);
	}
}

static enum svc_code sequence_read(struct reader *reader, struct draft_part *ret_part)
{
	struct draft_part whole = draft_empty(reader->draft);
	for (space_skip(reader);; space_skip(reader)) {
		int c = peek(reader);
		if (c < 0 || c == '|' || c == ')' || at_rule(reader))
			break;
		uint32_t first = reader->draft->n_states;
		struct draft_part part = whole;
		enum svc_code code = item_read(reader, &part);
		if (code == SVC_OK)
			code = repeats_read(reader, first, &part);
		if (code != SVC_OK)
			return code;
		whole = draft_join(reader->draft, whole, part);
		if (reader->draft->full)
			return gr_large(reader->err,
					"grammar refused: more than %u states or %u rules; shorten "
					"lists and repetitions",
					GR_STATES_MAX, GR_RULES_MAX);
	}
	*ret_part = whole;
	return SVC_OK;
}

static enum svc_code alternatives_read(struct reader *reader, struct draft_part *ret_part)
{
	struct draft_part whole = {0}, part = {0};
	enum svc_code code = sequence_read(reader, &whole);
	while (code == SVC_OK && peek(reader) == '|') {
		reader->at++;
		code = sequence_read(reader, &part);
		if (code == SVC_OK)
			whole = draft_either(reader->draft, whole, part);
	}
	*ret_part = whole;
	return code;
}

static enum svc_code rule_read(struct reader *reader)
{
	struct draft_part part = {0};
	size_t at = reader->at;
	struct span name = name_take(reader);
	space_skip(reader);
	if (name.len == 0 || !sign_take(reader))
		return wrong(reader, "expected a rule: name ::= ...");
	uint32_t rule = draft_rule(reader->draft, name, at);
	if (!reader->draft->full && reader->draft->rules[rule].start != GR_NONE) {
		reader->at = at;
		return wrong(reader, "this rule is there already");
	}
	enum svc_code code = alternatives_read(reader, &part);
	if (code == SVC_OK && peek(reader) >= 0 && !at_rule(reader))
		code = wrong(reader, "expected an item or the next rule");
	if (code == SVC_OK && reader->draft->full)
		code = svc_fail(reader->err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	if (code != SVC_OK)
		return code;
	reader->draft->rules[rule].start = part.start;
	reader->draft->rules[rule].end = part.end;
	return SVC_OK;
}

enum svc_code draft_read(struct draft *draft, struct span text, uint32_t *ret_root,
			 struct svc_err *err)
{
	struct reader reader = {.text = text, .draft = draft, .err = err};
	if (text.len > GR_TEXT_MAX)
		return gr_large(err, "grammar refused: %zu bytes, more than %u", text.len,
				GR_TEXT_MAX);
	uint32_t root = draft_rule(draft, span_of("root"), 0);
	for (space_skip(&reader); peek(&reader) >= 0; space_skip(&reader)) {
		enum svc_code code = rule_read(&reader);
		if (code != SVC_OK)
			return code;
	}
	for (uint32_t i = 0; i < draft->n_rules; i++) {
		if (draft->rules[i].start != GR_NONE)
			continue;
		if (i == root)
			return gr_wrong(err, "grammar refused: there is no rule root");
		struct place place = place_of(text, draft->rules[i].used_at);
		return gr_wrong(err,
				"grammar refused: the rule that line %zu, byte %zu names is "
				"missing",
				place.line, place.byte);
	}
	if (draft->full)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a grammar");
	*ret_root = root;
	return SVC_OK;
}
