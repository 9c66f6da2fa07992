/* The tokenizer of a GGUF file: byte-level BPE ("gpt2") and SentencePiece BPE ("llama"). */
#include <stdlib.h>
#include <string.h>

#include "model/gguf.h"
#include "tokenizer/tok_load.h"

#define KEY(name) "tokenizer.ggml." name

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

struct loader {
	struct tok *tok;
	const struct gguf *gguf;
	struct svc_err *err;
	bool byte_level;
	struct gguf_array tokens, scores, types;
};

#define BAD(loader, ...) svc_fail((loader)->err, SVC_BAD_MODEL, "tokenizer", __VA_ARGS__)

/* An array as long as the vocabulary; absent is fine unless needed. */
static enum svc_code find_array(struct loader *l, const char *key, bool needed,
				struct gguf_array *ret)
{
	if (!gguf_array(l->gguf, key, ret)) {
		*ret = (struct gguf_array){.type = GGUF_ARRAY};
		return needed ? BAD(l, "%s is missing or no array", key) : SVC_OK;
	}
	if (ret->count != l->tokens.count)
		return BAD(l, "%s has %llu elements for %llu tokens", key,
			   (unsigned long long)ret->count, (unsigned long long)l->tokens.count);
	return SVC_OK;
}

static bool all_spaces(struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.ptr[i] != ' ')
			return false;
	return text.len > 0;
}

/* A SentencePiece token of spaces is stored as such, but matched as "▁"s. */
static struct span respell(struct loader *l, struct span text)
{
	const struct span mark = span_of(TOK_SPACE);
	char *spelled = arena_alloc(&l->tok->arena, text.len * mark.len + 1);
	for (size_t i = 0; spelled && i < text.len; i++)
		memcpy(spelled + i * mark.len, mark.ptr, mark.len);
	return (struct span){spelled, text.len * mark.len};
}

static enum svc_code set_text(struct loader *l, struct tok_entry *entry, struct span text,
			      int64_t type)
{
	char bytes[TOK_MAX_TOKEN_BYTES];
	if (text.len > sizeof bytes)
		return BAD(l, KEY("tokens") "[%td] has %zu bytes; the limit is %zu",
			   entry - l->tok->entries, text.len, sizeof bytes);
	if (!l->byte_level && type == TYPE_USER_DEFINED && all_spaces(text)) {
		entry->text = respell(l, text);
	} else {
		size_t len = l->byte_level && type == TYPE_NORMAL
				     ? tok_byte_level_decode(text, bytes)
				     : SIZE_MAX;
		/* A token that isn't spelled in the byte-level alphabet is never made. */
		if (l->byte_level && type == TYPE_NORMAL && len == SIZE_MAX)
			entry->spelled = entry->makeable = false;
		struct span source = len == SIZE_MAX ? text : (struct span){bytes, len};
		entry->text = (struct span){arena_copy(&l->tok->arena, source), source.len};
	}
	return entry->text.ptr
		       ? SVC_OK
		       : svc_fail(l->err, SVC_NO_MEMORY, "tokenizer", "no memory for the tokens");
}

/* GGUF doesn't say which tokens swallow the white space behind them. Phi-3's control tokens do, but
 * for these. */
static bool swallows_space(const struct loader *l, struct span content)
{
	struct span architecture;
	return !l->byte_level && gguf_string(l->gguf, "general.architecture", &architecture) &&
	       span_is(architecture, "phi3") && !span_is(content, "<unk>") &&
	       !span_is(content, "<s>") && !span_is(content, "<|endoftext|>");
}

static void add_added(struct loader *l, uint32_t id, bool control)
{
	l->tok->added[l->tok->n_added++] = (struct tok_added){
		.id = (int32_t)id,
		.control = control,
		.rstrip = control && swallows_space(l, l->tokens.strings[id]),
	};
}

/* What each of the file's token types means. */
static const struct {
	uint8_t flags;
	bool makeable;
} meanings[] = {
	[TYPE_NORMAL] = {0, true},
	[TYPE_UNKNOWN] = {VOCAB_UNKNOWN, false},
	[TYPE_CONTROL] = {VOCAB_CONTROL | VOCAB_ADDED, false},
	[TYPE_USER_DEFINED] = {VOCAB_ADDED, true},
	[TYPE_UNUSED] = {VOCAB_UNUSED, false},
	[TYPE_BYTE] = {VOCAB_BYTE, true},
};

static enum svc_code load_token(struct loader *l, uint32_t id)
{
	struct tok_entry *entry = &l->tok->entries[id];
	struct span text = l->tokens.strings[id];
	int64_t type = 0;
	gguf_array_i64(&l->types, id, &type);
	if (type < TYPE_NORMAL || type > TYPE_BYTE)
		return BAD(l, KEY("token_type") " of token %u is %lld; 1 to 6 are known", id,
			   (long long)type);
	if (l->scores.count && !gguf_array_f64(&l->scores, id, &entry->score))
		return BAD(l, KEY("scores") " is no array of numbers");
	if (!(entry->score > -1e30 && entry->score < 1e30))
		return BAD(l, KEY("scores") " of token %u is not a finite number", id);
	entry->flags = meanings[type].flags;
	entry->spelled = entry->makeable = meanings[type].makeable && text.len > 0;
	if (type == TYPE_USER_DEFINED)
		entry->score = 0; /* what SentencePiece gives them; files say something else */
	if (type == TYPE_UNKNOWN && l->tok->unk_id < 0)
		l->tok->unk_id = (int32_t)id;
	if ((entry->flags & VOCAB_ADDED) && text.len)
		add_added(l, id, type == TYPE_CONTROL);
	return set_text(l, entry, text, type);
}

static enum svc_code load_tokens(struct loader *l)
{
	struct tok *tok = l->tok;
	if (!gguf_array(l->gguf, KEY("tokens"), &l->tokens) || l->tokens.type != GGUF_STRING)
		return BAD(l, KEY("tokens") " is missing or no array of strings");
	enum svc_code code = tok_vocab_reserve(tok, l->tokens.count, l->err);
	if (code == SVC_OK)
		code = find_array(l, KEY("scores"), !l->byte_level, &l->scores);
	if (code == SVC_OK)
		code = find_array(l, KEY("token_type"), true, &l->types);
	if (code != SVC_OK)
		return code;
	tok->added = arena_alloc(&tok->arena, tok->n_vocab * sizeof *tok->added);
	if (!tok->added)
		return svc_fail(l->err, SVC_NO_MEMORY, "tokenizer", "no memory for the tokens");
	for (uint32_t id = 0; code == SVC_OK && id < tok->n_vocab; id++)
		code = load_token(l, id);
	return code;
}

/* "left right". The halves are spelled as in the vocabulary, where a byte-level one has no space.
 */
static enum svc_code load_merge(struct loader *l, struct tok_merge_list *list, struct span text)
{
	char bytes[2 * TOK_MAX_TOKEN_BYTES];
	const char *space = text.len > 1 ? memchr(text.ptr + 1, ' ', text.len - 1) : NULL;
	if (!space || text.len > sizeof bytes)
		return BAD(l, KEY("merges") "[%zu] is not two tokens with a space between: '%s'",
			   list->len, tok_name(text).text);
	struct span left = {text.ptr, (size_t)(space - text.ptr)};
	struct span right = {space + 1, text.len - left.len - 1};
	if (l->byte_level) {
		size_t a = tok_byte_level_decode(left, bytes);
		size_t b = a == SIZE_MAX ? a : tok_byte_level_decode(right, bytes + a);
		if (b == SIZE_MAX)
			return BAD(l, KEY("merges") "[%zu] is not in the byte-level alphabet: '%s'",
				   list->len, tok_name(text).text);
		left = (struct span){bytes, a};
		right = (struct span){bytes + a, b};
	}
	return tok_merge_add(l->tok, list, left, right, l->err);
}

static enum svc_code load_merges(struct loader *l)
{
	struct gguf_array merges;
	struct tok_merge_list list = {0};
	enum svc_code code = SVC_OK;
	bool there = gguf_array(l->gguf, KEY("merges"), &merges);
	if (there && merges.type != GGUF_STRING)
		return BAD(l, KEY("merges") " is no array of strings");
	if (!there && l->byte_level)
		return BAD(l, KEY("merges") " is missing");
	if (!there)
		code = tok_merges_from_scores(l->tok, &list, l->err);
	for (uint64_t i = 0; there && code == SVC_OK && i < merges.count; i++)
		code = load_merge(l, &list, merges.strings[i]);
	if (code == SVC_OK)
		code = tok_bpe_build(l->tok, &list, l->err);
	free(list.ptr);
	return code;
}

/* An id under key, -1 if there is none. */
static enum svc_code load_id(struct loader *l, const char *key, int32_t *ret_id)
{
	int64_t id;
	if (!gguf_i64(l->gguf, key, &id) || id == UINT32_MAX || id == -1)
		return SVC_OK;
	if (id < 0 || id >= l->tok->n_vocab)
		return BAD(l, "%s is %lld; the vocabulary has %u tokens", key, (long long)id,
			   l->tok->n_vocab);
	*ret_id = (int32_t)id;
	return SVC_OK;
}

static enum svc_code load_ids(struct loader *l)
{
	static const char *const end_keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
	struct tok *tok = l->tok;
	enum svc_code code = load_id(l, KEY("bos_token_id"), &tok->bos_id);
	if (code == SVC_OK)
		code = load_id(l, KEY("eos_token_id"), &tok->eos_id);
	if (code == SVC_OK)
		code = load_id(l, KEY("unknown_token_id"), &tok->unk_id);
	if (code == SVC_OK)
		code = load_id(l, KEY("padding_token_id"), &tok->pad_id);
	/* A byte-level vocabulary drops what it has no token for. */
	if (!l->byte_level)
		tok->model_unk_id = tok->unk_id;
	for (size_t i = 0; code == SVC_OK && i < 2; i++) {
		int32_t id = -1;
		code = load_id(l, end_keys[i], &id);
		if (code == SVC_OK && id >= 0)
			code = tok_end_add(tok, end_keys[i], id, l->err);
	}
	return code;
}

/* Whether BOS goes before and EOS after a text: the file's word, else what the family does. */
static enum svc_code load_around(struct loader *l)
{
	struct tok *tok = l->tok;
	bool bos = tok->n_before > 0, eos = false;
	gguf_bool(l->gguf, KEY("add_bos_token"), &bos);
	gguf_bool(l->gguf, KEY("add_eos_token"), &eos);
	if ((bos && tok->bos_id < 0) || (eos && tok->eos_id < 0))
		return BAD(l, "%s is set, but %s is missing",
			   bos && tok->bos_id < 0 ? KEY("add_bos_token") : KEY("add_eos_token"),
			   bos && tok->bos_id < 0 ? KEY("bos_token_id") : KEY("eos_token_id"));
	tok->n_before = bos;
	tok->before[0] = tok->bos_id;
	tok->n_after = eos;
	tok->after[0] = tok->eos_id;
	return SVC_OK;
}

static enum svc_code load_templates(struct loader *l)
{
	static const char prefix[] = "tokenizer.chat_template";
	struct span key, text;
	enum gguf_type type;
	enum svc_code code = SVC_OK;
	for (size_t i = 0; code == SVC_OK && gguf_key_at(l->gguf, i, &key, &type); i++) {
		char name[256];
		size_t used = sizeof prefix - 1;
		if (type != GGUF_STRING || key.len >= sizeof name || key.len < used ||
		    memcmp(key.ptr, prefix, used) != 0 || (key.len > used && key.ptr[used] != '.'))
			continue;
		memcpy(name, key.ptr, key.len);
		name[key.len] = 0;
		if (gguf_string(l->gguf, name, &text))
			code = tok_template_add(l->tok,
						span_of(key.len > used ? name + used + 1 : ""),
						text, l->err);
	}
	return code;
}

static enum svc_code load_pre(struct loader *l, const struct tok_options *options)
{
	struct span pre = {"", 0};
	gguf_string(l->gguf, KEY("pre"), &pre);
	if (options->pre)
		pre = span_of(options->pre);
	if (pre.len == 0)
		return svc_fail(l->err, SVC_UNSUPPORTED, "tokenizer",
				KEY("pre") " is missing, so how text is cut before "
					   "merging isn't known: name the pre-tokenizer as an "
					   "option, or convert the model again");
	if (!tok_pre_by_name(l->tok, pre))
		return svc_fail(l->err, SVC_UNSUPPORTED, "tokenizer",
				KEY("pre") " is '%s', a pre-tokenizer that isn't "
					   "supported (docs/tokenizer.md has the list)",
				tok_name(pre).text);
	return SVC_OK;
}

static bool is_gemma(const struct loader *l)
{
	struct span architecture;
	return gguf_string(l->gguf, "general.architecture", &architecture) &&
	       architecture.len >= 5 && memcmp(architecture.ptr, "gemma", 5) == 0;
}

/* SentencePiece: every space is "▁", and one may stand before each text. */
static enum svc_code set_sentencepiece(struct loader *l)
{
	struct tok *tok = l->tok;
	struct gguf_array charsmap;
	bool prefix = !is_gemma(l), squeeze = false;
	gguf_bool(l->gguf, KEY("add_space_prefix"), &prefix);
	gguf_bool(l->gguf, KEY("remove_extra_whitespaces"), &squeeze);
	if (squeeze ||
	    (gguf_array(l->gguf, KEY("precompiled_charsmap"), &charsmap) && charsmap.count))
		return svc_fail(l->err, SVC_UNSUPPORTED, "tokenizer", "%s is not supported",
				squeeze ? KEY("remove_extra_whitespaces")
					: KEY("precompiled_charsmap"));
	if (prefix)
		tok->normals[tok->n_normals++] = (struct tok_normal){.kind = TOK_NORMAL_PREPEND,
								     .content = span_of(TOK_SPACE)};
	tok->normals[tok->n_normals++] = (struct tok_normal){
		.kind = TOK_NORMAL_REPLACE, .pattern = span_of(" "), .content = span_of(TOK_SPACE)};
	tok->strip = prefix ? VOCAB_STRIP_FIRST : VOCAB_STRIP_NONE;
	tok->spaces = true;
	tok->bpe.byte_fallback = tok->bpe.fuse_unk = true;
	tok->n_before = 1;
	return SVC_OK;
}

static enum svc_code load(struct loader *l, const struct tok_options *options)
{
	struct span model = {"", 0};
	gguf_string(l->gguf, KEY("model"), &model);
	l->byte_level = span_is(model, "gpt2");
	if (!l->byte_level && !span_is(model, "llama"))
		return svc_fail(l->err, SVC_UNSUPPORTED, "tokenizer",
				KEY("model") " is '%s'; 'gpt2' and 'llama' are "
					     "supported",
				tok_name(model).text);
	l->tok->bpe.byte_level = l->byte_level;
	enum svc_code code = l->byte_level ? load_pre(l, options) : set_sentencepiece(l);
	if (code == SVC_OK)
		code = load_tokens(l);
	if (code == SVC_OK)
		code = load_ids(l);
	if (code == SVC_OK)
		code = load_around(l);
	if (code == SVC_OK)
		code = tok_vocab_index(l->tok, l->err);
	if (code == SVC_OK)
		code = load_merges(l);
	return code == SVC_OK ? load_templates(l) : code;
}

enum svc_code tok_load_gguf(struct tok *tok, const struct tok_options *options, struct svc_err *err)
{
	struct gguf *gguf;
	enum svc_code code = gguf_open(options->path, &gguf, err);
	if (code != SVC_OK)
		return code;
	struct loader l = {.tok = tok, .gguf = gguf, .err = err};
	code = load(&l, options);
	gguf_close(gguf);
	return code;
}
