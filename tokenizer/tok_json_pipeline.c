/* normalizer, pre_tokenizer, post_processor and decoder of a tokenizer.json. What isn't known is
 * refused by name. */
#include <string.h>

#include "tokenizer/tok_json.h"

#define BAD(err, ...)	      svc_fail(err, SVC_BAD_MODEL, "tokenizer", __VA_ARGS__)
#define UNSUPPORTED(err, ...) svc_fail(err, SVC_UNSUPPORTED, "tokenizer", __VA_ARGS__)

struct reader {
	struct tok *tok;
	struct svc_err *err;
	bool closed; /* ByteLevel was read: nothing may follow */
};

typedef enum svc_code part_fn(struct reader *r, const json_t *part);

/* A part, or the parts of a Sequence, one after the other. Sequences in sequences don't occur and
 * aren't allowed. */
static enum svc_code each_part(struct reader *r, const json_t *part, const char *list,
			       part_fn *read)
{
	enum svc_code code = SVC_OK;
	size_t i;
	json_t *item;
	if (!part || json_is_null(part))
		return SVC_OK;
	if (strcmp(tok_json_word(part, "type"), "Sequence") != 0)
		return read(r, part);
	json_array_foreach(json_object_get(part, list), i, item)
	{
		code = read(r, item);
		if (code != SVC_OK)
			break;
	}
	return code;
}

static enum svc_code copy_string(struct reader *r, const json_t *string, const char *field,
				 struct span *ret)
{
	if (!json_is_string(string) || json_string_length(string) == 0)
		return BAD(r->err, "%s is not a string, or empty", field);
	ret->len = json_string_length(string);
	ret->ptr = arena_copy(&r->tok->arena, tok_json_span(string));
	return ret->ptr ? SVC_OK
			: svc_fail(r->err, SVC_NO_MEMORY, "tokenizer", "no memory for %s", field);
}

/* ---- normalizer */

static enum svc_code read_normalizer(struct reader *r, const json_t *part)
{
	struct tok *tok = r->tok;
	const char *type = tok_json_word(part, "type");
	struct tok_normal normal = {.kind = TOK_NORMAL_NFC};
	enum svc_code code = SVC_OK;
	if (tok->n_normals == TOK_MAX_STEPS)
		return UNSUPPORTED(r->err, "normalizer: more than %u steps", TOK_MAX_STEPS);
	if (strcmp(type, "Prepend") == 0) {
		normal.kind = TOK_NORMAL_PREPEND;
		code = copy_string(r, json_object_get(part, "prepend"), "normalizer.prepend",
				   &normal.content);
	} else if (strcmp(type, "Replace") == 0) {
		const json_t *string = json_object_get(json_object_get(part, "pattern"), "String");
		normal.kind = TOK_NORMAL_REPLACE;
		if (!string)
			return UNSUPPORTED(
				r->err,
				"normalizer Replace with a regular expression is not supported");
		code = copy_string(r, string, "normalizer.pattern", &normal.pattern);
		const json_t *content = json_object_get(part, "content");
		if (code == SVC_OK && json_string_length(content))
			code = copy_string(r, content, "normalizer.content", &normal.content);
	} else if (strcmp(type, "NFC") != 0) {
		return UNSUPPORTED(r->err,
				   "normalizer '%s' is not supported; NFC, Prepend and Replace are",
				   type);
	}
	if (code == SVC_OK)
		tok->normals[tok->n_normals++] = normal;
	return code;
}

/* ---- pre_tokenizer */

static enum svc_code add_splitter(struct reader *r, struct tok_splitter splitter)
{
	struct tok *tok = r->tok;
	if (tok->n_splitters == TOK_MAX_STEPS - 1)
		return UNSUPPORTED(r->err, "pre_tokenizer: more than %u steps", TOK_MAX_STEPS - 1);
	tok->splitters[tok->n_splitters++] = splitter;
	return SVC_OK;
}

/* Isolated: matches and what lies between are pieces. Removed and inverted: only the matches are,
 * which is the same for an expression that leaves nothing between. */
static bool splits_by_matches(const json_t *part, enum tok_split_kind kind)
{
	const char *behaviour = tok_json_word(part, "behavior");
	if (json_is_true(json_object_get(part, "invert")))
		return strcmp(behaviour, "Removed") == 0 &&
		       (kind == TOK_SPLIT_GPT2 || kind == TOK_SPLIT_WORDS ||
			kind == TOK_SPLIT_CASED);
	return strcmp(behaviour, "Isolated") == 0;
}

static enum svc_code read_split_regex(struct reader *r, const json_t *part, const json_t *regex)
{
	struct tok_splitter splitter;
	if (!tok_split_by_regex(tok_json_span(regex), &splitter))
		return UNSUPPORTED(r->err,
				   "pre_tokenizer Split by '%.300s' is not supported: "
				   "not one of the known expressions",
				   json_string_value(regex));
	if (!splits_by_matches(part, splitter.kind))
		return UNSUPPORTED(
			r->err,
			"pre_tokenizer Split by an expression with behavior '%s' is not supported",
			tok_json_word(part, "behavior"));
	return add_splitter(r, splitter);
}

static enum svc_code read_split(struct reader *r, const json_t *part)
{
	const json_t *pattern = json_object_get(part, "pattern"),
		     *regex = json_object_get(pattern, "Regex");
	const char *behaviour = tok_json_word(part, "behavior");
	struct tok_splitter splitter = {.kind = TOK_SPLIT_LITERAL};
	if (json_is_string(regex))
		return read_split_regex(r, part, regex);
	if (json_is_true(json_object_get(part, "invert")))
		return UNSUPPORTED(r->err, "pre_tokenizer Split with invert is not supported");
	if (strcmp(behaviour, "MergedWithPrevious") == 0)
		splitter.behaviour = TOK_SPLIT_WITH_PREVIOUS;
	else if (strcmp(behaviour, "MergedWithNext") == 0)
		splitter.behaviour = TOK_SPLIT_WITH_NEXT;
	else if (strcmp(behaviour, "Isolated") != 0)
		return UNSUPPORTED(r->err,
				   "pre_tokenizer Split with behavior '%s' is not supported",
				   behaviour);
	enum svc_code code = copy_string(r, json_object_get(pattern, "String"),
					 "pre_tokenizer.pattern", &splitter.literal);
	return code == SVC_OK ? add_splitter(r, splitter) : code;
}

static enum svc_code read_byte_level(struct reader *r, const json_t *part)
{
	const json_t *use_regex = json_object_get(part, "use_regex");
	if (json_is_true(json_object_get(part, "add_prefix_space")))
		return UNSUPPORTED(
			r->err, "pre_tokenizer ByteLevel with add_prefix_space is not supported");
	r->tok->bpe.byte_level = r->closed = true;
	if (use_regex && !json_is_true(use_regex))
		return SVC_OK;
	return add_splitter(r, (struct tok_splitter){.kind = TOK_SPLIT_GPT2});
}

static bool metaspace_prepend(const json_t *part, enum tok_prepend *ret)
{
	const json_t *scheme = json_object_get(part, "prepend_scheme");
	const char *word = json_is_string(scheme) ? json_string_value(scheme) : "";
	if (!scheme) /* how older files say it */
		word = json_is_false(json_object_get(part, "add_prefix_space")) ? "never"
										: "always";
	*ret = strcmp(word, "first") == 0   ? TOK_PREPEND_FIRST
	       : strcmp(word, "never") == 0 ? TOK_PREPEND_NEVER
					    : TOK_PREPEND_ALWAYS;
	return *ret != TOK_PREPEND_ALWAYS || strcmp(word, "always") == 0;
}

static enum svc_code read_metaspace(struct reader *r, const json_t *part)
{
	struct tok *tok = r->tok;
	const json_t *split = json_object_get(part, "split");
	if (strcmp(tok_json_word(part, "replacement"), TOK_SPACE) != 0 || tok->n_splitters ||
	    tok->metaspace)
		return UNSUPPORTED(
			r->err,
			"pre_tokenizer Metaspace is supported with the replacement '" TOK_SPACE
			"' and as the first step");
	tok->metaspace = true;
	tok->metaspace_step.kind = TOK_NORMAL_METASPACE;
	if (!metaspace_prepend(part, &tok->metaspace_step.prepend))
		return UNSUPPORTED(r->err,
				   "pre_tokenizer Metaspace: prepend_scheme '%s' is not supported",
				   tok_json_word(part, "prepend_scheme"));
	if (split && !json_is_true(split))
		return SVC_OK;
	return add_splitter(r, (struct tok_splitter){.kind = TOK_SPLIT_LITERAL,
						     .behaviour = TOK_SPLIT_WITH_NEXT,
						     .literal = span_of(TOK_SPACE)});
}

static enum svc_code read_pre_tokenizer(struct reader *r, const json_t *part)
{
	const char *type = tok_json_word(part, "type");
	if (r->closed)
		return UNSUPPORTED(r->err, "pre_tokenizer '%s' after ByteLevel is not supported",
				   type);
	if (strcmp(type, "Split") == 0)
		return read_split(r, part);
	if (strcmp(type, "ByteLevel") == 0)
		return read_byte_level(r, part);
	if (strcmp(type, "Metaspace") == 0)
		return read_metaspace(r, part);
	if (strcmp(type, "Digits") == 0)
		return add_splitter(r, (struct tok_splitter){.kind = TOK_SPLIT_DIGITS,
							     .digits = json_is_true(json_object_get(
								     part, "individual_digits"))});
	return UNSUPPORTED(
		r->err,
		"pre_tokenizer '%s' is not supported; Split, ByteLevel, Metaspace and Digits are",
		type);
}

/* ---- decoder: what it does to "▁" and to the first space; bytes are always bytes */

static enum svc_code read_decoder(struct reader *r, const json_t *part)
{
	struct tok *tok = r->tok;
	const char *type = tok_json_word(part, "type");
	if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "ByteFallback") == 0 ||
	    strcmp(type, "Fuse") == 0)
		return SVC_OK;
	if (strcmp(type, "Replace") == 0) {
		if (strcmp(tok_json_word(json_object_get(part, "pattern"), "String"), TOK_SPACE) !=
			    0 ||
		    strcmp(tok_json_word(part, "content"), " ") != 0)
			return UNSUPPORTED(r->err, "decoder Replace other than of '" TOK_SPACE
						   "' by a space is not supported");
		tok->spaces = true;
	} else if (strcmp(type, "Strip") == 0) {
		if (strcmp(tok_json_word(part, "content"), " ") != 0 ||
		    json_integer_value(json_object_get(part, "start")) > 1 ||
		    json_integer_value(json_object_get(part, "stop")) != 0)
			return UNSUPPORTED(
				r->err,
				"decoder Strip other than of one space in front is not supported");
		if (json_integer_value(json_object_get(part, "start")) == 1)
			tok->strip = VOCAB_STRIP_FIRST;
	} else if (strcmp(type, "Metaspace") == 0) {
		enum tok_prepend prepend;
		if (!metaspace_prepend(part, &prepend))
			return UNSUPPORTED(r->err,
					   "decoder Metaspace: prepend_scheme is not supported");
		tok->spaces = true;
		tok->strip = prepend == TOK_PREPEND_NEVER ? VOCAB_STRIP_NONE : VOCAB_STRIP_FIRST;
	} else {
		return UNSUPPORTED(r->err, "decoder '%s' is not supported", type);
	}
	return SVC_OK;
}

enum svc_code tok_json_pipeline(struct tok *tok, const json_t *root, struct svc_err *err)
{
	struct reader r = {.tok = tok, .err = err};
	enum svc_code code =
		each_part(&r, json_object_get(root, "normalizer"), "normalizers", read_normalizer);
	if (code == SVC_OK)
		code = each_part(&r, json_object_get(root, "pre_tokenizer"), "pretokenizers",
				 read_pre_tokenizer);
	if (code == SVC_OK)
		code = each_part(&r, json_object_get(root, "decoder"), "decoders", read_decoder);
	return code;
}

/* ---- post_processor: the tokens around a text */

static enum svc_code add_around(struct reader *r, const json_t *ids, bool before)
{
	struct tok *tok = r->tok;
	size_t i, *n = before ? &tok->n_before : &tok->n_after;
	json_t *id;
	json_array_foreach(ids, i, id)
	{
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= tok->n_vocab)
			return BAD(r->err, "post_processor: a token's id is not a number below %u",
				   tok->n_vocab);
		if (*n == TOK_MAX_AROUND)
			return UNSUPPORTED(
				r->err,
				"post_processor: more than %u tokens before or after a text",
				TOK_MAX_AROUND);
		(before ? tok->before : tok->after)[(*n)++] = (int32_t)json_integer_value(id);
	}
	return SVC_OK;
}

static enum svc_code read_template(struct reader *r, const json_t *part)
{
	const json_t *tokens = json_object_get(part, "special_tokens");
	bool before = true;
	size_t i;
	json_t *piece;
	json_array_foreach(json_object_get(part, "single"), i, piece)
	{
		const json_t *special = json_object_get(piece, "SpecialToken");
		if (!special) {
			before = false;
			continue;
		}
		const json_t *ids = json_object_get(
			json_object_get(tokens, tok_json_word(special, "id")), "ids");
		if (!json_is_array(ids))
			return BAD(r->err, "post_processor: '%s' is not among its special_tokens",
				   tok_json_word(special, "id"));
		enum svc_code code = add_around(r, ids, before);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

static enum svc_code read_post(struct reader *r, const json_t *part)
{
	const char *type = tok_json_word(part, "type");
	if (strcmp(type, "ByteLevel") == 0)
		return SVC_OK;
	if (strcmp(type, "TemplateProcessing") == 0)
		return read_template(r, part);
	return UNSUPPORTED(
		r->err,
		"post_processor '%s' is not supported; TemplateProcessing and ByteLevel are", type);
}

enum svc_code tok_json_post(struct tok *tok, const json_t *root, struct svc_err *err)
{
	struct reader r = {.tok = tok, .err = err};
	return each_part(&r, json_object_get(root, "post_processor"), "processors", read_post);
}
