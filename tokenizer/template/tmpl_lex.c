#include "tokenizer/template/tmpl_lex.h"

#include <stdio.h>

#include "base/buf.h"
#include "tokenizer/template/tmpl_number.h"
#include "tokenizer/template/tmpl_unicode.h"

#define MOST_BRACKETS 200

struct lexer {
	struct tmpl_eval *e;
	const char *source;
	size_t len, at;
	size_t counted;	 /* up to here, line ends are in e->line */
	bool line_start; /* the last tag ate a line end, or nothing came before */
	char brackets[MOST_BRACKETS];
	size_t open;
	struct tmpl_token *tokens;
	size_t count, room;
};

static void count_lines(struct lexer *lex, size_t upto)
{
	for (; lex->counted < upto; lex->counted++)
		lex->e->line += lex->source[lex->counted] == '\n';
}

static struct tmpl_token *add_token(struct lexer *lex, enum tmpl_token_type type, size_t from,
				    size_t to)
{
	if (lex->count == lex->room) {
		size_t room = lex->room ? lex->room * 2 : 256;
		struct tmpl_token *tokens = tmpl_alloc(lex->e, room, sizeof *tokens);
		if (!tokens)
			return NULL;
		if (lex->count)
			memcpy(tokens, lex->tokens, lex->count * sizeof *tokens);
		lex->tokens = tokens;
		lex->room = room;
	}
	count_lines(lex, from);
	struct tmpl_token *token = &lex->tokens[lex->count++];
	*token = (struct tmpl_token){
		.type = type, .line = lex->e->line, .text = {lex->source + from, to - from}};
	return token;
}

static bool starts(const struct lexer *lex, size_t at, const char *text)
{
	size_t len = strlen(text);
	return lex->len - at >= len && memcmp(lex->source + at, text, len) == 0;
}

static size_t skip_spaces(const struct lexer *lex, size_t at)
{
	uint32_t code;
	while (at < lex->len) {
		size_t len = tmpl_decode(lex->source + at, &code);
		if (!tmpl_is_space(code))
			break;
		at += len;
	}
	return at;
}

/* Where the white space before `to` begins, not before `from`. */
static size_t before_spaces(const struct lexer *lex, size_t from, size_t to)
{
	uint32_t code;
	size_t end = to;
	while (end > from) {
		size_t len = 1;
		while (((unsigned char)lex->source[end - len] & 0xC0) == 0x80)
			len++;
		tmpl_decode(lex->source + end - len, &code);
		if (!tmpl_is_space(code))
			break;
		end -= len;
	}
	return end;
}

/* Text before a tag whose sign is `sign`: where it ends once the tag's rule has stripped it. */
static size_t strip_before(const struct lexer *lex, size_t from, size_t to, char sign,
			   bool is_block)
{
	if (sign == '-')
		return before_spaces(lex, from, to);
	if (sign == '+' || !is_block)
		return to;
	size_t line = to;
	while (line > from && lex->source[line - 1] != '\n')
		line--;
	if (line == from && !lex->line_start)
		return to;
	return before_spaces(lex, line, to) == line ? line : to;
}

/* If a tag ends here ("-%}", "+%}", "%}" for '%'), the place after it and what it eats; else 0. */
static size_t tag_end(const struct lexer *lex, size_t at, char kind)
{
	char sign = at < lex->len ? lex->source[at] : 0;
	bool signed_end = sign == '-' || (sign == '+' && kind != '}');
	size_t end = at + signed_end;
	if (lex->len - end < 2 || lex->source[end] != kind || lex->source[end + 1] != '}')
		return 0;
	end += 2;
	if (sign == '-')
		return skip_spaces(lex, end);
	if (!signed_end && kind != '}' && end < lex->len && lex->source[end] == '\n')
		end++;
	return end;
}

static void tag_ended(struct lexer *lex, size_t end)
{
	lex->at = end;
	lex->line_start = lex->source[end - 1] == '\n';
}

static char sign_at(const struct lexer *lex, size_t at)
{
	char c = at < lex->len ? lex->source[at] : 0;
	return c == '-' || c == '+' ? c : 0;
}

/* "{%- raw %}" at `at`: the place after it, else 0. word: "raw" or "endraw". */
static size_t raw_tag(const struct lexer *lex, size_t at, const char *word)
{
	size_t next = at + 2;
	next += sign_at(lex, next) != 0;
	next = skip_spaces(lex, next);
	if (!starts(lex, next, word))
		return 0;
	next = skip_spaces(lex, next + strlen(word));
	if (word[0] == 'e')
		return tag_end(lex, next, '%');
	if (starts(lex, next, "-%}"))
		return skip_spaces(lex, next + 3);
	return starts(lex, next, "%}") ? next + 2 : 0;
}

static bool lex_raw(struct lexer *lex)
{
	size_t from = lex->at;
	for (size_t at = from; at + 1 < lex->len; at++) {
		size_t end = starts(lex, at, "{%") ? raw_tag(lex, at, "endraw") : 0;
		if (end == 0)
			continue;
		size_t to = strip_before(lex, from, at, sign_at(lex, at + 2), true);
		if (to > from && !add_token(lex, TOKEN_DATA, from, to))
			return false;
		tag_ended(lex, end);
		return true;
	}
	return tmpl_fail(lex->e, SVC_INVALID, "a raw block without {%% endraw %%}");
}

static bool lex_comment(struct lexer *lex)
{
	for (size_t at = lex->at; at < lex->len; at++) {
		size_t end = tag_end(lex, at, '#');
		if (end == 0)
			continue;
		tag_ended(lex, end);
		return true;
	}
	return tmpl_fail(lex->e, SVC_INVALID, "a comment without #}");
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_name_char(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* digits, possibly with single underscores between: the place after them. */
static size_t skip_digits(const struct lexer *lex, size_t at)
{
	while (at < lex->len && (is_digit(lex->source[at]) ||
				 (lex->source[at] == '_' && at + 1 < lex->len &&
				  is_digit(lex->source[at + 1]) && is_digit(lex->source[at - 1]))))
		at++;
	return at;
}

/* The end of a float that starts here, or 0. */
static size_t float_end(const struct lexer *lex, size_t at)
{
	if (at > 0 && lex->source[at - 1] == '.')
		return 0;
	size_t whole = skip_digits(lex, at), end = whole;
	if (whole + 1 < lex->len && lex->source[whole] == '.' && is_digit(lex->source[whole + 1]))
		end = skip_digits(lex, whole + 1);
	size_t exponent = end;
	if (exponent < lex->len && (lex->source[exponent] | 0x20) == 'e') {
		exponent++;
		exponent += sign_at(lex, exponent) != 0;
		if (exponent < lex->len && is_digit(lex->source[exponent]))
			return skip_digits(lex, exponent);
	}
	return end > whole ? end : 0;
}

static size_t integer_end(const struct lexer *lex, size_t at)
{
	if (lex->source[at] != '0')
		return skip_digits(lex, at);
	char letter = at + 1 < lex->len ? (char)(lex->source[at + 1] | 0x20) : 0;
	size_t end = at + 1;
	if (letter == 'x' || letter == 'o' || letter == 'b') {
		end++;
		while (end < lex->len && is_name_char(lex->source[end]))
			end++;
		return end;
	}
	while (end < lex->len && lex->source[end] == '0')
		end++;
	return end;
}

static bool lex_number(struct lexer *lex)
{
	size_t end = float_end(lex, lex->at);
	bool real = end != 0, big = false, ok;
	if (!real)
		end = integer_end(lex, lex->at);
	struct tmpl_token *token = add_token(lex, TOKEN_NUMBER, lex->at, end);
	if (!token)
		return false;
	if (real) {
		token->value = tmpl_real(0);
		ok = tmpl_parse_double(token->text, &token->value.real);
	} else {
		token->value = tmpl_int(0);
		ok = tmpl_parse_int(token->text, 0, &token->value.integer, &big);
	}
	lex->at = end;
	if (big)
		return tmpl_fail(lex->e, SVC_UNSUPPORTED, "an integer of more than 64 bits");
	return ok || tmpl_fail(lex->e, SVC_INVALID, "not a number: %.*s",
			       (int)(token->text.len < 40 ? token->text.len : 40), token->text.ptr);
}

/* Reads up to `most` digits of an escape and returns how many there were. */
static size_t escape_digits(const char *text, size_t len, size_t most, unsigned base,
			    uint32_t *ret_code)
{
	size_t n = 0;
	*ret_code = 0;
	for (; n < len && n < most; n++) {
		unsigned char c = (unsigned char)text[n];
		unsigned digit = 99, letter = c | 0x20u;
		if (c >= '0' && c <= '9')
			digit = c - (unsigned)'0';
		else if (letter >= 'a' && letter <= 'f')
			digit = letter - (unsigned)'a' + 10;
		if (digit >= base)
			break;
		*ret_code = *ret_code * base + digit;
	}
	return n;
}

/* A numbered escape after its letter at text[0]. Returns the bytes read, or 0 for an error. */
static size_t numbered_escape(struct lexer *lex, const char *text, size_t len, struct buf *out)
{
	uint32_t code;
	char bytes[4];
	size_t want = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0, used;
	if (want) {
		used = escape_digits(text + 1, len - 1, want, 16, &code);
		if (used != want)
			return tmpl_fail(lex->e, SVC_INVALID, "a cut \\%c escape", text[0]);
		used++;
	} else {
		used = escape_digits(text, len, 3, 8, &code);
	}
	if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
		return tmpl_fail(lex->e, SVC_INVALID, "an escape that is no character: U+%04X",
				 code);
	buf_append(out, bytes, tmpl_encode(code, bytes));
	return used;
}

/* Python's escapes; an unknown one stays as it is. */
static bool unescape(struct lexer *lex, const char *text, size_t len, struct buf *out)
{
	static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
	for (size_t i = 0; i < len; i++) {
		if (text[i] != '\\') {
			buf_append(out, text + i, 1);
			continue;
		}
		char c = text[++i]; /* the string's own rule made sure that there is one */
		const char *known = c ? strchr(from, c) : NULL;
		if (known) {
			buf_append(out, &to[known - from], 1);
		} else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
			size_t used = numbered_escape(lex, text + i, len - i, out);
			if (used == 0)
				return false;
			i += used - 1;
		} else if (c == 'N') {
			return tmpl_fail(lex->e, SVC_UNSUPPORTED, "the escape \\N");
		} else if (c != '\n') {
			buf_append(out, text + i - 1, 2);
		}
	}
	return true;
}

static bool lex_string(struct lexer *lex)
{
	size_t from = lex->at + 1, end = from;
	bool escapes = false;
	while (end < lex->len && lex->source[end] != lex->source[lex->at]) {
		escapes = escapes || lex->source[end] == '\\';
		end += lex->source[end] == '\\' ? 2 : 1;
	}
	if (end >= lex->len)
		return tmpl_fail(lex->e, SVC_INVALID, "a string without its closing quote");
	struct tmpl_token *token = add_token(lex, TOKEN_STRING, from, end);
	if (!token)
		return false;
	lex->at = end + 1;
	if (!escapes)
		return true;
	struct buf out = {0};
	bool ok = unescape(lex, lex->source + from, end - from, &out);
	if (ok) {
		char *copy = out.failed ? NULL : tmpl_alloc(lex->e, out.len + 1, 1);
		if (copy && out.len)
			memcpy(copy, out.ptr, out.len);
		token->text = (struct span){copy, out.len};
		ok = copy || tmpl_fail(lex->e, SVC_NO_MEMORY, "no memory for a string");
	}
	buf_free(&out);
	return ok;
}

static bool lex_bracket(struct lexer *lex, char c)
{
	if (strchr("([{", c)) {
		if (lex->open == MOST_BRACKETS)
			return tmpl_fail(lex->e, SVC_TOO_LARGE, "more than %d nested brackets",
					 MOST_BRACKETS);
		lex->brackets[lex->open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
		return true;
	}
	if (lex->open == 0)
		return tmpl_fail(lex->e, SVC_INVALID, "unexpected '%c'", c);
	char want = lex->brackets[--lex->open];
	return want == c ||
	       tmpl_fail(lex->e, SVC_INVALID, "unexpected '%c', expected '%c'", c, want);
}

static bool lex_operator(struct lexer *lex)
{
	static const char pairs[][3] = {"**", "//", "==", "!=", ">=", "<="};
	static const char codes[] = "pf=ngl";
	char c = lex->source[lex->at], op = 0;
	size_t len = 2;
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !op; i++)
		if (starts(lex, lex->at, pairs[i]))
			op = codes[i];
	if (!op) {
		len = 1;
		if (c == 0 || !strchr("+-/*%~[](){}><=.:|,;", c))
			return tmpl_fail(lex->e, SVC_INVALID, "unexpected character '%c'",
					 c >= 0x20 && c < 0x7F ? c : '?');
		op = c == '=' ? 'a' : c;
	}
	if (strchr("()[]{}", c) && !lex_bracket(lex, c))
		return false;
	struct tmpl_token *token = add_token(lex, TOKEN_OPERATOR, lex->at, lex->at + len);
	if (!token)
		return false;
	token->op = op;
	lex->at += len;
	return true;
}

static bool lex_name(struct lexer *lex)
{
	size_t from = lex->at;
	while (lex->at < lex->len && is_name_char(lex->source[lex->at]))
		lex->at++;
	return add_token(lex, TOKEN_NAME, from, lex->at) != NULL;
}

/* One token within a tag. */
static bool lex_token(struct lexer *lex)
{
	char c = lex->source[lex->at];
	if (is_digit(c))
		return lex_number(lex);
	if (is_name_char(c))
		return lex_name(lex);
	return c == '"' || c == '\'' ? lex_string(lex) : lex_operator(lex);
}

/* What stands between {{ and }}, or {% and %}, and the end tag. */
static bool lex_inside(struct lexer *lex, char kind)
{
	lex->open = 0;
	for (;;) {
		lex->at = skip_spaces(lex, lex->at);
		count_lines(lex, lex->at);
		if (lex->at >= lex->len)
			return tmpl_fail(lex->e, SVC_INVALID, "the template ends within a tag");
		size_t end = lex->open == 0 ? tag_end(lex, lex->at, kind) : 0;
		if (end)
			return add_token(lex, kind == '}' ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END,
					 lex->at, end) &&
			       (tag_ended(lex, end), true);
		if (!lex_token(lex))
			return false;
	}
}

static bool tag_starts(const struct lexer *lex, size_t at)
{
	char next = lex->source[at + 1];
	return lex->source[at] == '{' && (next == '{' || next == '%' || next == '#');
}

/* Text up to the next tag, and the tag. */
static bool lex_next(struct lexer *lex)
{
	size_t from = lex->at, at = from;
	while (at + 1 < lex->len && !tag_starts(lex, at))
		at++;
	if (at + 1 >= lex->len) {
		lex->at = lex->len;
		return from == lex->len || add_token(lex, TOKEN_DATA, from, lex->len);
	}
	char kind = lex->source[at + 1], sign = sign_at(lex, at + 2);
	size_t raw = kind == '%' ? raw_tag(lex, at, "raw") : 0;
	size_t to = strip_before(lex, from, at, sign, kind != '{');
	if (to > from && !add_token(lex, TOKEN_DATA, from, to))
		return false;
	count_lines(lex, at);
	lex->at = at + 2 + (sign != 0);
	if (raw) {
		tag_ended(lex, raw);
		return lex_raw(lex);
	}
	if (kind == '#')
		return lex_comment(lex);
	bool block = kind == '%';
	return add_token(lex, block ? TOKEN_BLOCK_BEGIN : TOKEN_VARIABLE_BEGIN, at, lex->at) &&
	       lex_inside(lex, block ? '%' : '}');
}

/* Line ends become \n, and one at the very end is dropped. */
static bool normalise(struct lexer *lex, struct span source)
{
	char *copy = tmpl_alloc(lex->e, source.len + 1, 1);
	if (!copy)
		return false;
	size_t len = 0;
	for (size_t i = 0; i < source.len; i++) {
		if (source.ptr[i] == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n')
			continue;
		copy[len++] = source.ptr[i] == '\r' ? '\n' : source.ptr[i];
	}
	if (len && copy[len - 1] == '\n')
		len--;
	lex->source = copy;
	lex->len = len;
	for (size_t i = 0; i < len;) {
		size_t n = utf8_length(copy + i, len - i);
		if (n == 0)
			return tmpl_fail(lex->e, SVC_INVALID, "byte %zu is not UTF-8", i);
		i += n;
	}
	return true;
}

struct tmpl_token *tmpl_lex(struct tmpl_eval *e, struct span source)
{
	struct lexer lex = {.e = e, .line_start = true};
	e->line = 1;
	if (!normalise(&lex, source))
		return NULL;
	while (lex.at < lex.len)
		if (!lex_next(&lex))
			return NULL;
	return add_token(&lex, TOKEN_END, lex.len, lex.len) ? lex.tokens : NULL;
}
