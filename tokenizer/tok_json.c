/* The vocabulary of a tokenizer.json: model and added_tokens. */
#include "tokenizer/tok_json.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FILE_BYTES (256u << 20)
#define UNKNOWN_PENALTY                                                                      \
	10.0 /* how much worse an unknown character is than the worst token; SentencePiece's \
		constant */

#define BAD(err, ...) svc_fail(err, SVC_BAD_MODEL, "tokenizer", __VA_ARGS__)

enum svc_code tok_json_file(const char *path, size_t limit, bool needed, json_t **ret_json,
			    struct svc_err *err)
{
	struct stat stat_buf;
	json_error_t error;
	*ret_json = NULL;
	if (stat(path, &stat_buf) < 0) {
		if (errno == ENOENT && !needed)
			return SVC_OK;
		return svc_fail_errno(err, "tokenizer", "%s: cannot open", path);
	}
	if (!S_ISREG(stat_buf.st_mode) || (uint64_t)stat_buf.st_size > limit)
		return BAD(err, "%s: not a file of at most %zu bytes", path, limit);
	json_t *json = json_load_file(path,
				      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
					      (needed ? 0 : JSON_DECODE_INT_AS_REAL),
				      &error);
	if (!json)
		return BAD(err, "%s: line %d: %s", path, error.line, error.text);
	if (!json_is_object(json)) {
		json_decref(json);
		return BAD(err, "%s: not a JSON object", path);
	}
	*ret_json = json;
	return SVC_OK;
}

const char *tok_json_word(const json_t *object, const char *key)
{
	const char *word = json_string_value(json_object_get(object, key));
	return word ? word : "";
}

/* An id of the file, and the highest so far. */
static bool take_id(const json_t *id, json_int_t *most)
{
	json_int_t value = json_integer_value(id);
	if (!json_is_integer(id) || value < 0 || value >= TOK_MAX_VOCAB)
		return false;
	*most = value > *most ? value : *most;
	return true;
}

/* Ids may have holes between them; more holes than tokens mean a forged id. */
static enum svc_code reserve(struct tok *tok, const json_t *vocab, const json_t *added,
			     struct svc_err *err)
{
	size_t i, count = json_is_array(vocab) ? json_array_size(vocab) : json_object_size(vocab);
	json_int_t most = json_is_array(vocab) ? (json_int_t)count - 1 : -1;
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
	{
		if (!take_id(value, &most))
			return BAD(err, "model.vocab: the id of '%s' is not a number from 0 to %u",
				   tok_name(span_of(key)).text, TOK_MAX_VOCAB - 1);
	}
	json_array_foreach(added, i, value)
	{
		if (!take_id(json_object_get(value, "id"), &most))
			return BAD(err, "added_tokens[%zu].id is not a number from 0 to %u", i,
				   TOK_MAX_VOCAB - 1);
	}
	count += json_array_size(added);
	if (most >= 2 * (json_int_t)count + 65536)
		return BAD(err, "the highest token id is %lld, but there are only %zu tokens",
			   (long long)most, count);
	return tok_vocab_reserve(tok, (uint64_t)(most + 1), err);
}

static enum svc_code set_token(struct tok *tok, uint32_t id, struct span text, struct svc_err *err)
{
	struct tok_entry *entry = &tok->entries[id];
	char bytes[TOK_MAX_TOKEN_BYTES];
	size_t len = SIZE_MAX;
	if (text.len > sizeof bytes)
		return BAD(err, "model.vocab: token %u has %zu bytes; the limit is %zu", id,
			   text.len, sizeof bytes);
	if (entry->text.ptr)
		return BAD(err, "model.vocab: id %u is given to '%s' and to '%s'", id,
			   tok_name(entry->text).text, tok_name(text).text);
	if (tok->bpe.byte_level)
		len = tok_byte_level_decode(text, bytes);
	/* A token that isn't spelled in the byte-level alphabet is never made. */
	entry->spelled = entry->makeable =
		text.len > 0 && (!tok->bpe.byte_level || len != SIZE_MAX);
	entry->flags = 0;
	if (len != SIZE_MAX)
		text = (struct span){bytes, len};
	entry->text = (struct span){arena_copy(&tok->arena, text), text.len};
	return entry->text.ptr
		       ? SVC_OK
		       : svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for the vocabulary");
}

static enum svc_code load_bpe_vocab(struct tok *tok, const json_t *vocab, struct svc_err *err)
{
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
	{
		enum svc_code code =
			set_token(tok, (uint32_t)json_integer_value(value), span_of(key), err);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

static enum svc_code load_unigram_vocab(struct tok *tok, const json_t *vocab, struct svc_err *err)
{
	double worst = 0;
	size_t id;
	json_t *pair;
	json_array_foreach(vocab, id, pair)
	{
		const json_t *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
		if (!json_is_string(text) || !json_is_number(score))
			return BAD(err, "model.vocab[%zu] is not a token with its score", id);
		enum svc_code code = set_token(tok, (uint32_t)id, tok_json_span(text), err);
		if (code != SVC_OK)
			return code;
		tok->entries[id].score = json_number_value(score);
		if (id == 0 || tok->entries[id].score < worst)
			worst = tok->entries[id].score;
	}
	tok->unigram.unk_score = worst - UNKNOWN_PENALTY;
	return SVC_OK;
}

/* Files mark some tokens that steer the model as ordinary ones (DeepSeek its roles); by the look of
 * them they are not. */
static bool looks_like_control(struct span content)
{
	static const char *const frames[][2] = {{"<|", "|>"}, {"<\xEF\xBD\x9C", "\xEF\xBD\x9C>"}};
	for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
		size_t open = strlen(frames[i][0]), close = strlen(frames[i][1]);
		if (content.len >= open + close && memcmp(content.ptr, frames[i][0], open) == 0 &&
		    memcmp(content.ptr + content.len - close, frames[i][1], close) == 0)
			return true;
	}
	return span_is(content, "<start_of_turn>") || span_is(content, "<end_of_turn>") ||
	       span_is(content, "[INST]") || span_is(content, "[/INST]");
}

/* Whether the model's vocabulary has this token in these characters. */
static bool is_spelled(const struct tok *tok, const struct tok_entry *entry, struct span content)
{
	char bytes[TOK_MAX_ADDED_BYTES];
	size_t len = SIZE_MAX;
	if (span_equal(entry->text, content))
		return true;
	if (tok->bpe.byte_level && content.len <= sizeof bytes)
		len = tok_byte_level_decode(content, bytes);
	return len != SIZE_MAX && span_equal(entry->text, (struct span){bytes, len});
}

static enum svc_code load_added_token(struct tok *tok, const json_t *token, size_t index,
				      struct svc_err *err)
{
	const json_t *content = json_object_get(token, "content");
	uint32_t id = (uint32_t)json_integer_value(json_object_get(token, "id"));
	struct tok_entry *entry = &tok->entries[id];
	if (!json_is_string(content))
		return BAD(err, "added_tokens[%zu].content is not a string", index);
	struct span text = tok_json_span(content);
	if (entry->text.ptr && !is_spelled(tok, entry, text))
		return BAD(err, "added_tokens[%zu]: '%s' has id %u, which is '%s' already", index,
			   tok_name(text).text, id, tok_name(entry->text).text);
	if (!entry->text.ptr || !span_equal(entry->text, text)) {
		entry->spelled = entry->makeable = false;
		entry->text = (struct span){arena_copy(&tok->arena, text), text.len};
	}
	if (!entry->text.ptr)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for the added tokens");
	bool control = json_is_true(json_object_get(token, "special")) || looks_like_control(text);
	entry->flags = (uint8_t)((entry->flags & ~VOCAB_UNUSED) | VOCAB_ADDED |
				 (control ? VOCAB_CONTROL : 0));
	entry->makeable = entry->makeable && !control;
	tok->added[tok->n_added++] = (struct tok_added){
		.id = (int32_t)id,
		.control = control,
		.single_word = json_is_true(json_object_get(token, "single_word")),
		.lstrip = json_is_true(json_object_get(token, "lstrip")),
		.rstrip = json_is_true(json_object_get(token, "rstrip")),
		.normalized = json_is_true(json_object_get(token, "normalized")),
	};
	return SVC_OK;
}

static enum svc_code load_added(struct tok *tok, const json_t *added, struct svc_err *err)
{
	size_t i;
	json_t *token;
	enum svc_code code = SVC_OK;
	tok->added = arena_alloc(&tok->arena, (json_array_size(added) + 1) * sizeof *tok->added);
	if (!tok->added)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory for the added tokens");
	json_array_foreach(added, i, token)
	{
		code = load_added_token(tok, token, i, err);
		if (code != SVC_OK)
			break;
	}
	return code;
}

/* One half of a merge as it is looked up. */
static bool spell_half(const struct tok *tok, struct span half, char *bytes, struct span *ret)
{
	*ret = half;
	if (!tok->bpe.byte_level)
		return true;
	if (half.len > TOK_MAX_TOKEN_BYTES)
		return false;
	size_t len = tok_byte_level_decode(half, bytes);
	*ret = (struct span){bytes, len};
	return len != SIZE_MAX;
}

/* "left right", or ["left", "right"] as newer files have it. */
static enum svc_code load_merge(struct tok *tok, const json_t *merge, struct tok_merge_list *list,
				struct svc_err *err)
{
	char bytes[2][TOK_MAX_TOKEN_BYTES];
	struct span left = {0}, right = {0};
	if (json_is_string(merge)) {
		struct span text = tok_json_span(merge);
		const char *space = memchr(text.ptr, ' ', text.len);
		if (space) {
			left = (struct span){text.ptr, (size_t)(space - text.ptr)};
			right = (struct span){space + 1, text.len - left.len - 1};
		}
	} else if (json_is_string(json_array_get(merge, 0)) &&
		   json_is_string(json_array_get(merge, 1))) {
		left = tok_json_span(json_array_get(merge, 0));
		right = tok_json_span(json_array_get(merge, 1));
	}
	if (!left.len || !right.len)
		return BAD(err, "model.merges[%zu] is not two tokens", list->len);
	if (!spell_half(tok, left, bytes[0], &left) || !spell_half(tok, right, bytes[1], &right))
		return BAD(err, "model.merges[%zu] is not in the byte-level alphabet", list->len);
	return tok_merge_add(tok, list, left, right, err);
}

static enum svc_code load_merges(struct tok *tok, const json_t *merges, struct svc_err *err)
{
	struct tok_merge_list list = {0};
	enum svc_code code = SVC_OK;
	size_t i;
	json_t *merge;
	if (!json_is_array(merges))
		return BAD(err, "model.merges is not an array");
	json_array_foreach(merges, i, merge)
	{
		code = load_merge(tok, merge, &list, err);
		if (code != SVC_OK)
			break;
	}
	if (code == SVC_OK)
		code = tok_bpe_build(tok, &list, err);
	free(list.ptr);
	return code;
}

/* The token for what has none, by name (BPE) or by id (unigram). */
static enum svc_code load_unknown(struct tok *tok, const json_t *model, struct svc_err *err)
{
	const json_t *name = json_object_get(model, "unk_token"),
		     *unk = json_object_get(model, "unk_id");
	if (json_is_integer(unk)) {
		if (json_integer_value(unk) < 0 || json_integer_value(unk) >= tok->n_vocab)
			return BAD(err, "model.unk_id is %lld; the vocabulary has %u tokens",
				   (long long)json_integer_value(unk), tok->n_vocab);
		tok->model_unk_id = (int32_t)json_integer_value(unk);
	} else if (json_is_string(name)) {
		const json_t *id =
			json_object_get(json_object_get(model, "vocab"), json_string_value(name));
		if (!json_is_integer(id))
			return BAD(err, "model.unk_token '%s' is not in the vocabulary",
				   tok_name(tok_json_span(name)).text);
		tok->model_unk_id = (int32_t)json_integer_value(id);
	}
	tok->unk_id = tok->model_unk_id;
	if (tok->model_unk_id >= 0) {
		tok->entries[tok->model_unk_id].flags |= VOCAB_UNKNOWN;
		tok->entries[tok->model_unk_id].makeable = false;
	}
	return SVC_OK;
}

static void mark_bytes(struct tok *tok)
{
	for (uint32_t id = 0; id < tok->n_vocab; id++) {
		struct span text = tok->entries[id].text;
		if (tok->entries[id].makeable && text.len == 6 && tok_byte_value(text) >= 0)
			tok->entries[id].flags |= VOCAB_BYTE;
	}
}

/* A byte without a token is dropped, or is the unknown token where the model has one. */
static enum svc_code fill_missing_bytes(struct tok *tok, struct svc_err *err)
{
	for (int byte = 0; tok->bpe.byte_level && tok->model_unk_id >= 0 && byte < 256; byte++) {
		if (tok->byte_ids[byte] >= 0)
			continue;
		if (tok->bpe.fuse_unk)
			return svc_fail(err, SVC_UNSUPPORTED, "tokenizer",
					"model.fuse_unk with a byte-level vocabulary "
					"that has no token for byte 0x%02X",
					(unsigned)byte);
		tok->byte_ids[byte] = tok->model_unk_id;
	}
	return SVC_OK;
}

static enum svc_code check_model(const json_t *model, struct svc_err *err)
{
	static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
	const json_t *dropout = json_object_get(model, "dropout");
	for (size_t i = 0; i < 2; i++)
		if (tok_json_word(model, affixes[i])[0])
			return svc_fail(err, SVC_UNSUPPORTED, "tokenizer",
					"model.%s '%s' is not supported", affixes[i],
					tok_json_word(model, affixes[i]));
	if (json_is_number(dropout) && json_number_value(dropout) != 0)
		return svc_fail(err, SVC_UNSUPPORTED, "tokenizer",
				"model.dropout is not supported: ids would be random");
	return SVC_OK;
}

/* Which kind of model it is, and its switches. */
static enum svc_code read_model(struct tok *tok, const json_t *model, struct svc_err *err)
{
	const char *type = tok_json_word(model, "type");
	const json_t *vocab = json_object_get(model, "vocab");
	bool bpe = strcmp(type, "BPE") == 0 || (!type[0] && json_object_get(model, "merges"));
	if (!bpe && strcmp(type, "Unigram") != 0)
		return svc_fail(err, SVC_UNSUPPORTED, "tokenizer",
				"model.type is '%s'; BPE and Unigram are supported", type);
	if (bpe ? !json_is_object(vocab) : !json_is_array(vocab))
		return BAD(err, "model.vocab is not %s", bpe ? "an object" : "an array");
	tok->model = bpe ? TOK_MODEL_BPE : TOK_MODEL_UNIGRAM;
	tok->bpe.byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
	tok->unigram.byte_fallback = tok->bpe.byte_fallback;
	tok->bpe.fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
	tok->bpe.ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
	return check_model(model, err);
}

static enum svc_code load_vocab(struct tok *tok, const json_t *model, const json_t *added,
				struct svc_err *err)
{
	const json_t *vocab = json_object_get(model, "vocab");
	enum svc_code code = reserve(tok, vocab, added, err);
	if (code == SVC_OK)
		code = tok->model == TOK_MODEL_BPE ? load_bpe_vocab(tok, vocab, err)
						   : load_unigram_vocab(tok, vocab, err);
	if (code == SVC_OK)
		code = load_added(tok, added, err);
	if (code == SVC_OK)
		code = load_unknown(tok, model, err);
	return code;
}

static enum svc_code load_model(struct tok *tok, const json_t *model, const json_t *added,
				struct svc_err *err)
{
	enum svc_code code = read_model(tok, model, err);
	if (code == SVC_OK)
		code = load_vocab(tok, model, added, err);
	if (code != SVC_OK)
		return code;
	if (tok->bpe.byte_fallback)
		mark_bytes(tok);
	code = tok_vocab_index(tok, err);
	if (code == SVC_OK)
		code = fill_missing_bytes(tok, err);
	if (code != SVC_OK)
		return code;
	return tok->model == TOK_MODEL_BPE ? load_merges(tok, json_object_get(model, "merges"), err)
					   : tok_unigram_build(tok, err);
}

static enum svc_code load(struct tok *tok, const json_t *root, struct svc_err *err)
{
	const json_t *model = json_object_get(root, "model"),
		     *added = json_object_get(root, "added_tokens");
	if (!json_is_object(model))
		return BAD(err, "model is missing: this is not a tokenizer.json");
	if (added && !json_is_null(added) && !json_is_array(added))
		return BAD(err, "added_tokens is not an array");
	enum svc_code code = tok_json_pipeline(tok, root, err);
	if (code == SVC_OK)
		code = load_model(tok, model, added, err);
	return code == SVC_OK ? tok_json_post(tok, root, err) : code;
}

enum svc_code tok_load_json(struct tok *tok, const char *path, struct svc_err *err)
{
	char file[4096], folder[4096];
	struct stat stat_buf;
	json_t *root;
	bool is_folder = stat(path, &stat_buf) == 0 && S_ISDIR(stat_buf.st_mode);
	const char *slash = strrchr(path, '/');
	if (strlen(path) > sizeof file - 64)
		return BAD(err, "a path of %zu bytes is too long", strlen(path));
	snprintf(file, sizeof file, "%s%s", path, is_folder ? "/tokenizer.json" : "");
	if (is_folder)
		snprintf(folder, sizeof folder, "%s", path);
	else
		snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1,
			 slash ? path : ".");
	enum svc_code code = tok_json_file(file, MAX_FILE_BYTES, true, &root, err);
	if (code != SVC_OK)
		return code;
	code = load(tok, root, err);
	json_decref(root);
	malloc_trim(0); /* the document took several times what is kept of it */
	return code == SVC_OK ? tok_json_config(tok, folder, err) : code;
}
