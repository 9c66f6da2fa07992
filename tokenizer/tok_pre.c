/* Pre-tokenizers by name: of a GGUF file, and by the regular expression of a tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/tok_load.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES	     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS	     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPERS	     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS	     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define ONE_BEFORE   "[^\\r\\n\\p{L}\\p{N}]?"

static const struct known_regex {
	const char *regex;
	struct tok_splitter splitter;
} known_regexes[] = {
	{"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
	 {.kind = TOK_SPLIT_GPT2}},
	{"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
	 {.kind = TOK_SPLIT_GPT2}},
	{CONTRACTIONS "|" ONE_BEFORE "\\p{L}+|\\p{N}{1,3}" OTHERS SPACES,
	 {.kind = TOK_SPLIT_WORDS, .digits = 3}},
	{"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
	 "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
	 "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
	 {.kind = TOK_SPLIT_WORDS, .digits = 3}},
	{CONTRACTIONS "|" ONE_BEFORE "\\p{L}+|\\p{N}" OTHERS SPACES,
	 {.kind = TOK_SPLIT_WORDS, .digits = 1}},
	{CONTRACTIONS "|" ONE_BEFORE
		      "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES,
	 {.kind = TOK_SPLIT_WORDS, .digits = 1, .marks = true}},
	{ONE_BEFORE UPPERS "*" LOWERS "+" CONTRACTIONS "?|" ONE_BEFORE UPPERS "+" LOWERS
			   "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
	 {.kind = TOK_SPLIT_CASED, .digits = 3, .contractions = true}},
	{ONE_BEFORE UPPERS "*" LOWERS "+|" ONE_BEFORE UPPERS "+" LOWERS
			   "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
	 {.kind = TOK_SPLIT_CASED, .digits = 1}},
	{"[!\"#$%&'()*+,\\-./"
	 ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
	 "| ?[\\p{P}\\p{S}]+[\\r\\n]*" SPACES,
	 {.kind = TOK_SPLIT_DEEPSEEK}},
	{"\\p{N}{1,3}", {.kind = TOK_SPLIT_NUMBERS, .digits = 3}},
	{"\\p{N}", {.kind = TOK_SPLIT_NUMBERS, .digits = 1}},
	{"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
	 {.kind = TOK_SPLIT_CJK}},
};

/* Whether the two are the same but for \r and \n, which some files write as the characters
 * themselves. */
static bool same_regex(struct span regex, const char *known)
{
	for (size_t i = 0; i < regex.len; i++) {
		char c = regex.ptr[i];
		if (c == '\r' || c == '\n') {
			if (*known++ != '\\')
				return false;
			c = c == '\r' ? 'r' : 'n';
		}
		if (c == 0 || *known++ != c)
			return false;
	}
	return *known == 0;
}

bool tok_split_by_regex(struct span regex, struct tok_splitter *ret_splitter)
{
	for (size_t i = 0; i < sizeof known_regexes / sizeof *known_regexes; i++) {
		if (!same_regex(regex, known_regexes[i].regex))
			continue;
		*ret_splitter = known_regexes[i].splitter;
		return true;
	}
	return false;
}

const char *tok_split_regex(const struct tok_splitter *splitter)
{
	for (size_t i = 0; i < sizeof known_regexes / sizeof *known_regexes; i++) {
		const struct tok_splitter *known = &known_regexes[i].splitter;
		if (known->kind == splitter->kind && known->digits == splitter->digits &&
		    known->marks == splitter->marks &&
		    known->contractions == splitter->contractions)
			return known_regexes[i].regex;
	}
	return NULL;
}

/* A family of GGUF pre-tokenizers, as the models' own tokenizer.json has them. */
static const struct family {
	const char *name;
	const char *names; /* each between two spaces */
	struct tok_splitter splitters[3];
	size_t n_splitters;
	bool nfc, ignore_merges, adds_bos;
} families[] = {
	{.name = "gpt-2",
	 .names = " gpt-2 phi-2 ",
	 .splitters = {{.kind = TOK_SPLIT_GPT2}},
	 .n_splitters = 1},
	{.name = "smollm",
	 .names = " smollm starcoder refact ",
	 .splitters = {{.kind = TOK_SPLIT_DIGITS, .digits = 1}, {.kind = TOK_SPLIT_GPT2}},
	 .n_splitters = 2},
	{.name = "llama-bpe",
	 .names = " llama-bpe llama3 llama-v3 falcon3 ",
	 .splitters = {{.kind = TOK_SPLIT_WORDS, .digits = 3}},
	 .n_splitters = 1,
	 .ignore_merges = true,
	 .adds_bos = true},
	{.name = "cl100k",
	 .names = " dbrx smaug-bpe ",
	 .splitters = {{.kind = TOK_SPLIT_WORDS, .digits = 3}},
	 .n_splitters = 1},
	{.name = "qwen2",
	 .names = " qwen2 qwen3 deepseek-r1-qwen ",
	 .splitters = {{.kind = TOK_SPLIT_WORDS, .digits = 1}},
	 .n_splitters = 1,
	 .nfc = true},
	{.name = "qwen35",
	 .names = " qwen35 ",
	 .splitters = {{.kind = TOK_SPLIT_WORDS, .digits = 1, .marks = true}},
	 .n_splitters = 1,
	 .nfc = true},
	{.name = "gpt-4o",
	 .names = " gpt-4o o200k llama4 ",
	 .splitters = {{.kind = TOK_SPLIT_CASED, .digits = 3, .contractions = true}},
	 .n_splitters = 1,
	 .ignore_merges = true},
	{.name = "tekken",
	 .names = " tekken ",
	 .splitters = {{.kind = TOK_SPLIT_CASED, .digits = 1}},
	 .n_splitters = 1,
	 .ignore_merges = true,
	 .adds_bos = true},
	{.name = "deepseek-v3",
	 .names = " deepseek-v3 ",
	 .splitters = {{.kind = TOK_SPLIT_NUMBERS, .digits = 3},
		       {.kind = TOK_SPLIT_CJK},
		       {.kind = TOK_SPLIT_DEEPSEEK}},
	 .n_splitters = 3},
};

static bool listed(const char *names, struct span name)
{
	char padded[64];
	if (name.len == 0 || name.len > sizeof padded - 3 || memchr(name.ptr, ' ', name.len))
		return false;
	snprintf(padded, sizeof padded, " %.*s ", (int)name.len, name.ptr);
	return strstr(names, padded) != NULL;
}

bool tok_pre_by_name(struct tok *tok, struct span name)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
		const struct family *family = &families[i];
		if (!listed(family->names, name))
			continue;
		memcpy(tok->splitters, family->splitters, sizeof family->splitters);
		tok->n_splitters = family->n_splitters;
		if (family->nfc)
			tok->normals[tok->n_normals++] =
				(struct tok_normal){.kind = TOK_NORMAL_NFC};
		tok->bpe.ignore_merges = family->ignore_merges;
		tok->n_before = family->adds_bos;
		return true;
	}
	return false;
}
