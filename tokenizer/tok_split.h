/* tokenizer/tok_split.h: pre-tokenizers. Each splitter cuts a text into pieces that the model never
 * joins: the matches of one regular expression and the gaps between them. They are written out by
 * hand; one pass, no backtracking beyond one run of characters of a kind. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"

enum tok_split_kind {
	/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
	TOK_SPLIT_GPT2,
	/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
	 * ?[^\s\p{L}\p{N}]+[\r\n]*| \s*[\r\n]+|\s+(?!\S)|\s+; with marks: \p{M} belongs to the
	 * letters */
	TOK_SPLIT_WORDS,
	/* [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(contraction)?|
	 * [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(contraction)?|
	 * \p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
	TOK_SPLIT_CASED,
	/* ASCII punctuation and [A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
	 * ?[\p{P}\p{S}]+[\r\n]*| \s*[\r\n]+|\s+(?!\S)|\s+ */
	TOK_SPLIT_DEEPSEEK,
	TOK_SPLIT_NUMBERS,    /* \p{N}{1,digits} */
	TOK_SPLIT_DIGITS,     /* the Digits pre-tokenizer; digits 1: each alone, 0: runs */
	TOK_SPLIT_CJK,	      /* [一-龥぀-ゟ゠-ヿ]+ */
	TOK_SPLIT_LITERAL,    /* a string, with behaviour */
	TOK_SPLIT_WORD_START, /* before each "▁" that no merge can reach over; changes no result */
};

enum tok_split_behaviour { TOK_SPLIT_ISOLATED, TOK_SPLIT_WITH_PREVIOUS, TOK_SPLIT_WITH_NEXT };

struct tok_splitter {
	enum tok_split_kind kind;
	unsigned digits;
	bool marks;			    /* WORDS */
	bool contractions;		    /* CASED: 's and so on stay with the word */
	enum tok_split_behaviour behaviour; /* LITERAL */
	struct span literal;
	const bool *glue; /* WORD_START: bytes after which a merge may go on over "▁" */
};

/* The end of the piece that begins at `at` (< text.len). */
size_t tok_split_next(const struct tok_splitter *splitter, struct span text, size_t at);
/* The splitter of a regular expression as tokenizer.json spells it; false: not one of those known.
 */
bool tok_split_by_regex(struct span regex, struct tok_splitter *ret_splitter);
/* And the inverse; NULL: none stands for it. */
const char *tok_split_regex(const struct tok_splitter *splitter);
