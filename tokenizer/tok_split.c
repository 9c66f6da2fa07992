#include "tokenizer/tok_split.h"

#include <string.h>

#include "tokenizer/tok_private.h"
#include "tokenizer/unicode/unicode.h"

/* Every match_… returns the end of what it matches at `at`, or `at` if it doesn't match. */

static struct unicode_char char_at(struct span text, size_t at)
{
	return unicode_at(text.ptr, text.len, at);
}

static size_t run(struct span text, size_t at, unsigned mask)
{
	return unicode_run(text.ptr, text.len, at, mask);
}

/* 's 't 'm 'd 're 've 'll. Ignoring case, "ſ" (U+017F) is an s too. */
static size_t match_contraction(struct span text, size_t at, bool any_case)
{
	const char *s = text.ptr + at;
	size_t left = text.len - at;
	if (left < 2 || s[0] != '\'')
		return at;
	char fold = any_case ? 0x20 : 0, a = (char)(s[1] | fold),
	     b = left > 2 ? (char)(s[2] | fold) : 0;
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return at + 2;
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return at + 3;
	if (any_case && left > 2 && s[1] == '\xC5' && s[2] == '\xBF')
		return at + 3;
	return at;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+, the first alternative only if newlines. Whitespace before a word leaves
 * its last character to the word. */
static size_t match_space(struct span text, size_t at, bool newlines)
{
	size_t end = at, last = at, after_newline = at;
	while (end < text.len) {
		struct unicode_char c = char_at(text, end);
		if (!(c.flags & UNICODE_SPACE))
			break;
		last = end;
		end += c.len;
		if (c.flags & UNICODE_NEWLINE)
			after_newline = end;
	}
	if (newlines && after_newline > at)
		return after_newline;
	return end == text.len || last == at ? end : last;
}

/* \p{N}{1,most} */
static size_t match_numbers(struct span text, size_t at, unsigned most)
{
	for (unsigned i = 0; i < most && at < text.len; i++) {
		struct unicode_char c = char_at(text, at);
		if (!(c.flags & UNICODE_NUMBER))
			break;
		at += c.len;
	}
	return at;
}

static size_t skip_any(struct span text, size_t at, const char *bytes)
{
	while (at < text.len && text.ptr[at] && strchr(bytes, text.ptr[at]))
		at++;
	return at;
}

/* " ?[mask]+[tail]*" */
static size_t match_after_space(struct span text, size_t at, unsigned mask, const char *tail)
{
	size_t start = at + (text.ptr[at] == ' ');
	size_t end = run(text, start, mask);
	return end > start ? skip_any(text, end, tail) : at;
}

/* " ?[^mask]+[tail]*"; mask includes \s. */
static size_t match_others(struct span text, size_t at, unsigned mask, const char *tail)
{
	size_t start = at + (text.ptr[at] == ' ');
	size_t end = unicode_run_without(text.ptr, text.len, start, mask);
	return end > start ? skip_any(text, end, tail) : at;
}

/* "[^\r\n\p{N} not_before]?[letters]+": letters, perhaps with one other character before them. */
static size_t match_word(struct span text, size_t at, unsigned letters, unsigned not_before)
{
	struct unicode_char c = char_at(text, at);
	if (c.flags & letters)
		return run(text, at, letters);
	if (c.flags & not_before)
		return at;
	size_t end = run(text, at + c.len, letters);
	return end > at + c.len ? end : at;
}

static size_t next_gpt2(struct span text, size_t at)
{
	size_t end = match_contraction(text, at, false);
	if (end == at)
		end = match_after_space(text, at, UNICODE_LETTER, "");
	if (end == at)
		end = match_after_space(text, at, UNICODE_NUMBER, "");
	if (end == at)
		end = match_others(text, at, UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER, "");
	if (end == at)
		end = match_space(text, at, false);
	return end;
}

static size_t next_words(const struct tok_splitter *splitter, struct span text, size_t at)
{
	unsigned letters = UNICODE_LETTER | (splitter->marks ? UNICODE_MARK : 0);
	size_t end = match_contraction(text, at, true);
	if (end == at)
		end = match_word(text, at, letters, UNICODE_NEWLINE | UNICODE_NUMBER);
	if (end == at)
		end = match_numbers(text, at, splitter->digits);
	if (end == at)
		end = match_others(text, at, UNICODE_SPACE | UNICODE_NUMBER | letters, "\r\n");
	if (end == at)
		end = match_space(text, at, true);
	return end;
}

enum {
	UPPER_LIKE = UNICODE_UPPER | UNICODE_OTHER_LETTER | UNICODE_MARK,
	LOWER_LIKE = UNICODE_LOWER | UNICODE_OTHER_LETTER | UNICODE_MARK,
};

/* [upper]*[lower]+, greedy: most characters are in both classes, so where no lower-case letter
 * follows the upper run, the match gives back characters up to the last one that is in both. */
static size_t match_capitalised(struct span text, size_t at)
{
	size_t end = at, both = at;
	while (end < text.len) {
		struct unicode_char c = char_at(text, end);
		if (!(c.flags & UPPER_LIKE))
			break;
		end += c.len;
		if (c.flags & LOWER_LIKE)
			both = end;
	}
	size_t lower = run(text, end, LOWER_LIKE);
	return lower > end ? lower : both;
}

/* The two word alternatives of TOK_SPLIT_CASED, each first with and then without a character before
 * the word. */
static size_t match_cased(const struct tok_splitter *splitter, struct span text, size_t at)
{
	struct unicode_char c = char_at(text, at);
	bool may_precede = !(c.flags & (UNICODE_NEWLINE | UNICODE_LETTER | UNICODE_NUMBER));
	size_t start = may_precede ? at + c.len : at;
	size_t end = match_capitalised(text, start);
	if (end == start)
		end = may_precede ? match_capitalised(text, at) : at;
	if (end == at)
		end = run(text, start, UPPER_LIKE) > start ? run(text, start, UPPER_LIKE) : at;
	if (end == at && may_precede)
		end = run(text, at, UPPER_LIKE);
	return end > at && splitter->contractions ? match_contraction(text, end, true) : end;
}

static size_t next_cased(const struct tok_splitter *splitter, struct span text, size_t at)
{
	size_t end = match_cased(splitter, text, at);
	if (end == at)
		end = match_numbers(text, at, splitter->digits);
	if (end == at)
		end = match_others(text, at, UNICODE_SPACE | UNICODE_LETTER | UNICODE_NUMBER,
				   "\r\n/");
	if (end == at)
		end = match_space(text, at, true);
	return end;
}

static bool ascii_letter(char c)
{
	return (unsigned char)((c | 0x20) - 'a') < 26;
}

static size_t match_deepseek(struct span text, size_t at)
{
	struct unicode_char c = char_at(text, at);
	if (c.point < 0x80 && (c.flags & (UNICODE_PUNCT | UNICODE_SYMBOL)) && at + 1 < text.len &&
	    ascii_letter(text.ptr[at + 1])) {
		for (at++; at < text.len && ascii_letter(text.ptr[at]);)
			at++;
		return at;
	}
	size_t end = match_word(text, at, UNICODE_LETTER | UNICODE_MARK,
				UNICODE_NEWLINE | UNICODE_PUNCT | UNICODE_SYMBOL);
	if (end == at)
		end = match_after_space(text, at, UNICODE_PUNCT | UNICODE_SYMBOL, "\r\n");
	if (end == at)
		end = match_space(text, at, true);
	return end;
}

/* The one expression here that doesn't match everything: what lies between two matches is a piece
 * too. */
static size_t next_deepseek(struct span text, size_t at)
{
	size_t end = match_deepseek(text, at);
	if (end > at)
		return end;
	do
		at += char_at(text, at).len;
	while (at < text.len && match_deepseek(text, at) == at);
	return at;
}

/* Runs of at most `most` characters with (without) the flag; the gaps are pieces of any length. */
static size_t next_flagged(struct span text, size_t at, unsigned flag, unsigned most)
{
	if (!(char_at(text, at).flags & flag))
		return unicode_run_without(text.ptr, text.len, at, flag);
	size_t end = at;
	for (unsigned i = 0; i < most && end < text.len; i++) {
		struct unicode_char c = char_at(text, end);
		if (!(c.flags & flag))
			break;
		end += c.len;
	}
	return end;
}

static bool is_cjk(uint32_t point)
{
	return (point >= 0x4E00 && point <= 0x9FA5) || (point >= 0x3040 && point <= 0x30FF);
}

static size_t next_cjk(struct span text, size_t at)
{
	struct unicode_char c = char_at(text, at);
	bool cjk = is_cjk(c.point);
	do {
		at += c.len;
		c = char_at(text, at);
	} while (at < text.len && is_cjk(c.point) == cjk);
	return at;
}

static size_t find_literal(const struct tok_splitter *splitter, struct span text, size_t at)
{
	const char *found = at < text.len ? memmem(text.ptr + at, text.len - at,
						   splitter->literal.ptr, splitter->literal.len)
					  : NULL;
	return found ? (size_t)(found - text.ptr) : text.len;
}

static size_t next_literal(const struct tok_splitter *splitter, struct span text, size_t at)
{
	size_t len = splitter->literal.len, found = find_literal(splitter, text, at);
	if (splitter->behaviour == TOK_SPLIT_WITH_PREVIOUS)
		return found == text.len ? found : found + len;
	if (found > at)
		return found;
	return splitter->behaviour == TOK_SPLIT_WITH_NEXT ? find_literal(splitter, text, at + len)
							  : at + len;
}

static size_t skip_spaces(struct span text, size_t at)
{
	const size_t mark = strlen(TOK_SPACE);
	while (at + mark <= text.len && memcmp(text.ptr + at, TOK_SPACE, mark) == 0)
		at += mark;
	return at;
}

/* Before a run of "▁", unless a merge may reach into it. */
static size_t next_word_start(const struct tok_splitter *splitter, struct span text, size_t at)
{
	for (;;) {
		at = skip_spaces(text, at);
		const char *found = at < text.len ? memmem(text.ptr + at, text.len - at, TOK_SPACE,
							   strlen(TOK_SPACE))
						  : NULL;
		if (!found)
			return text.len;
		at = (size_t)(found - text.ptr);
		if (!splitter->glue[(unsigned char)text.ptr[at - 1]])
			return at;
	}
}

size_t tok_split_next(const struct tok_splitter *splitter, struct span text, size_t at)
{
	switch (splitter->kind) {
	case TOK_SPLIT_GPT2:
		return next_gpt2(text, at);
	case TOK_SPLIT_WORDS:
		return next_words(splitter, text, at);
	case TOK_SPLIT_CASED:
		return next_cased(splitter, text, at);
	case TOK_SPLIT_DEEPSEEK:
		return next_deepseek(text, at);
	case TOK_SPLIT_NUMBERS:
		return next_flagged(text, at, UNICODE_NUMBER, splitter->digits);
	case TOK_SPLIT_DIGITS:
		return next_flagged(text, at, UNICODE_NUMERIC,
				    splitter->digits ? splitter->digits : UINT32_MAX);
	case TOK_SPLIT_CJK:
		return next_cjk(text, at);
	case TOK_SPLIT_LITERAL:
		return next_literal(splitter, text, at);
	case TOK_SPLIT_WORD_START:
		return next_word_start(splitter, text, at);
	}
	return text.len;
}
