#include "tokenizer/tok_write.h"

#include <stdio.h>
#include <unistd.h>

#include "tokenizer/tok_load.h"
#include "tokenizer/tok_private.h"

/* A token in the characters of the byte-level alphabet: the inverse of tok_byte_level_decode. */
static void put_alphabet(struct span text, struct buf *out)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned byte = (unsigned char)text.ptr[i], point = byte;
		if (byte <= 0x20)
			point = 0x100 + byte;
		else if (byte >= 0x7F && byte <= 0xA0)
			point = 0x121 + byte - 0x7F;
		else if (byte == 0xAD)
			point = 0x143;
		if (point < 0x80) {
			buf_append(out, &(char){(char)point}, 1);
		} else {
			const char pair[2] = {(char)(0xC0 | point >> 6),
					      (char)(0x80 | (point & 63))};
			buf_append(out, pair, 2);
		}
	}
}

/* As the vocabulary spells it. */
static void put_token(const struct tok *tok, uint32_t id, struct buf *out)
{
	const struct tok_entry *entry = &tok->entries[id];
	struct buf spelled = {0};
	if (tok->bpe.byte_level && entry->spelled) {
		put_alphabet(entry->text, &spelled);
		out->failed = out->failed || spelled.failed;
		buf_json_string(out, (struct span){spelled.ptr ? spelled.ptr : "", spelled.len});
		buf_free(&spelled);
	} else {
		buf_json_string(out, entry->text);
	}
}

static void put_added(const struct tok *tok, struct buf *out)
{
	static const char *const truth[] = {"false", "true"};
	buf_print(out, "\"added_tokens\": [");
	for (size_t i = 0; i < tok->n_added; i++) {
		const struct tok_added *a = &tok->added[i];
		buf_print(out, "%s\n{\"id\": %d, \"content\": ", i ? "," : "", a->id);
		buf_json_string(out, tok->entries[a->id].text);
		buf_print(out,
			  ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, "
			  "\"normalized\": %s, \"special\": %s}",
			  truth[a->single_word], truth[a->lstrip], truth[a->rstrip],
			  truth[a->normalized], truth[a->control]);
	}
	buf_print(out, "],\n");
}

static void put_normalizer(const struct tok *tok, struct buf *out)
{
	buf_print(out, "\"normalizer\": ");
	if (!tok->n_normals) {
		buf_print(out, "null,\n");
		return;
	}
	buf_print(out, "{\"type\": \"Sequence\", \"normalizers\": [");
	for (size_t i = 0; i < tok->n_normals; i++) {
		const struct tok_normal *n = &tok->normals[i];
		buf_print(out, "%s", i ? ", " : "");
		if (n->kind == TOK_NORMAL_PREPEND) {
			buf_print(out, "{\"type\": \"Prepend\", \"prepend\": ");
			buf_json_string(out, n->content);
		} else if (n->kind == TOK_NORMAL_REPLACE) {
			buf_print(out, "{\"type\": \"Replace\", \"pattern\": {\"String\": ");
			buf_json_string(out, n->pattern);
			buf_print(out, "}, \"content\": ");
			buf_json_string(out, n->content);
		} else {
			buf_print(out, "{\"type\": \"NFC\"");
		}
		buf_print(out, "}");
	}
	buf_print(out, "]},\n");
}

static void put_splitter(const struct tok_splitter *s, struct buf *out)
{
	const char *regex = tok_split_regex(s);
	if (s->kind == TOK_SPLIT_DIGITS) {
		buf_print(out, "{\"type\": \"Digits\", \"individual_digits\": %s}, ",
			  s->digits ? "true" : "false");
	} else if (regex) {
		buf_print(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
		buf_json_string(out, span_of(regex));
		buf_print(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
	}
}

static void put_pre_tokenizer(const struct tok *tok, struct buf *out)
{
	if (!tok->bpe.byte_level) {
		buf_print(out, "\"pre_tokenizer\": null,\n");
		return;
	}
	buf_print(out, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
	for (size_t i = 0; i < tok->n_splitters; i++)
		put_splitter(&tok->splitters[i], out);
	buf_print(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
		       "\"trim_offsets\": true, \"use_regex\": false}]},\n");
}

static void put_special(const struct tok *tok, int32_t id, const char *after, struct buf *out)
{
	buf_print(out, "{\"SpecialToken\": {\"id\": ");
	buf_json_string(out, tok->entries[id].text);
	buf_print(out, ", \"type_id\": 0}}%s", after);
}

static void put_around(const struct tok *tok, const char *sequence, bool first, struct buf *out)
{
	for (size_t i = 0; i < tok->n_before; i++)
		put_special(tok, tok->before[i], ", ", out);
	buf_print(out, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", sequence, !first);
	for (size_t i = 0; i < tok->n_after; i++) {
		buf_print(out, ", ");
		put_special(tok, tok->after[i], "", out);
	}
}

/* What stands around a text. */
static void put_post_processor(const struct tok *tok, struct buf *out)
{
	int32_t seen[2 * TOK_MAX_AROUND];
	size_t n_seen = 0;
	if (!tok->n_before && !tok->n_after) {
		buf_print(out, "\"post_processor\": null,\n");
		return;
	}
	buf_print(out, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
	put_around(tok, "A", true, out);
	buf_print(out, "], \"pair\": [");
	put_around(tok, "A", true, out);
	buf_print(out, ", ");
	put_around(tok, "B", false, out);
	buf_print(out, "], \"special_tokens\": {");
	for (size_t i = 0; i < tok->n_before + tok->n_after; i++) {
		int32_t id = i < tok->n_before ? tok->before[i] : tok->after[i - tok->n_before];
		bool known = false;
		for (size_t s = 0; s < n_seen; s++)
			known = known || seen[s] == id;
		if (known)
			continue;
		buf_print(out, "%s", n_seen ? ", " : "");
		seen[n_seen++] = id;
		buf_json_string(out, tok->entries[id].text);
		buf_print(out, ": {\"id\": ");
		buf_json_string(out, tok->entries[id].text);
		buf_print(out, ", \"ids\": [%d], \"tokens\": [", id);
		buf_json_string(out, tok->entries[id].text);
		buf_print(out, "]}");
	}
	buf_print(out, "}},\n");
}

static void put_decoder(const struct tok *tok, struct buf *out)
{
	if (tok->bpe.byte_level) {
		buf_print(out, "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
			       "\"trim_offsets\": true, \"use_regex\": true},\n");
		return;
	}
	buf_print(out,
		  "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", "
		  "\"pattern\": {\"String\": \"%s\"}, \"content\": \" \"}, "
		  "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}%s]},\n",
		  TOK_SPACE,
		  tok->strip == VOCAB_STRIP_FIRST
			  ? ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"
			  : "");
}

/* Two tokens of one spelling would be one key. */
static enum svc_code put_vocab(const struct tok *tok, struct buf *out, struct svc_err *err)
{
	struct arena arena;
	struct tok_map seen = {0};
	enum svc_code code = SVC_OK;
	const char *comma = "";
	arena_init(&arena, 0);
	if (!tok_map_init(&seen, &arena, tok->entries, tok->n_vocab))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %u tokens",
				tok->n_vocab);
	buf_print(out, "\"vocab\": {");
	for (uint32_t id = 0; id < tok->n_vocab && code == SVC_OK; id++) {
		const struct tok_entry *entry = &tok->entries[id];
		if (!entry->text.len || (entry->flags & VOCAB_UNUSED))
			continue;
		int32_t other = tok_map_put(&seen, (int32_t)id);
		if (other >= 0)
			code = svc_fail(err, SVC_UNSUPPORTED, __func__,
					"tokens %d and %u are both spelled '%s'", other, id,
					tok_name(entry->text).text);
		buf_print(out, "%s\n", comma);
		put_token(tok, id, out);
		buf_print(out, ": %u", id);
		comma = ",";
	}
	buf_print(out, "},\n");
	arena_free(&arena);
	return code;
}

static void put_merges(const struct tok *tok, struct buf *out)
{
	const char *comma = "";
	buf_print(out, "\"merges\": [");
	for (uint32_t rank = 0; rank < tok->bpe.n_merges; rank++) {
		const struct tok_merge *m = &tok->bpe.table[tok->bpe.slots[rank]];
		if (m->rank != rank)
			continue;
		buf_print(out, "%s\n[", comma);
		put_token(tok, m->left, out);
		buf_print(out, ", ");
		put_token(tok, m->right, out);
		buf_print(out, "]");
		comma = ",";
	}
	buf_print(out, "]");
}

static enum svc_code write_json(const struct tok *tok, struct buf *out, struct svc_err *err)
{
	static const char *const truth[] = {"false", "true"};
	const struct tok_bpe *bpe = &tok->bpe;
	if (tok->model != TOK_MODEL_BPE || tok->metaspace)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"only vocabularies of GGUF files are written");
	buf_print(out, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n");
	put_added(tok, out);
	put_normalizer(tok, out);
	put_pre_tokenizer(tok, out);
	put_post_processor(tok, out);
	put_decoder(tok, out);
	buf_print(out, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
	if (tok->model_unk_id >= 0)
		buf_json_string(out, tok->entries[tok->model_unk_id].text);
	else
		buf_print(out, "null");
	buf_print(out,
		  ", \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
		  "\"fuse_unk\": %s, \"byte_fallback\": %s, \"ignore_merges\": %s,\n",
		  truth[bpe->fuse_unk], truth[bpe->byte_fallback], truth[bpe->ignore_merges]);
	enum svc_code code = put_vocab(tok, out, err);
	put_merges(tok, out);
	buf_print(out, "}}\n");
	return code;
}

static void put_name(const struct tok *tok, const char *field, int32_t id, struct buf *out)
{
	if (id < 0)
		return;
	buf_print(out, "  \"%s\": ", field);
	buf_json_string(out, tok->entries[id].text);
	buf_print(out, ",\n");
}

static void put_templates(const struct tok *tok, struct buf *out)
{
	struct span text;
	bool named = false;
	for (size_t i = 0; i < tok->n_templates; i++)
		named = named || tok->templates[i].name;
	if (!named && tok_chat_template(tok, NULL, &text)) {
		buf_print(out, "  \"chat_template\": ");
		buf_json_string(out, text);
		buf_print(out, ",\n");
	} else if (named) {
		buf_print(out, "  \"chat_template\": [");
		for (size_t i = 0; i < tok->n_templates; i++) {
			const char *name = tok->templates[i].name;
			buf_print(out, "%s{\"name\": ", i ? ", " : "");
			buf_json_string(out, span_of(name ? name : "default"));
			buf_print(out, ", \"template\": ");
			buf_json_string(out, tok->templates[i].text);
			buf_print(out, "}");
		}
		buf_print(out, "],\n");
	}
}

static void write_config(const struct tok *tok, struct buf *out)
{
	buf_print(out, "{\n");
	put_name(tok, "bos_token", tok->bos_id, out);
	put_name(tok, "eos_token", tok->eos_id, out);
	put_name(tok, "unk_token", tok->unk_id, out);
	put_name(tok, "pad_token", tok->pad_id, out);
	put_templates(tok, out);
	buf_print(out,
		  "  \"add_bos_token\": %s,\n  \"add_eos_token\": %s,\n"
		  "  \"clean_up_tokenization_spaces\": false,\n"
		  "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n",
		  tok->n_before ? "true" : "false", tok->n_after ? "true" : "false");
}

static enum svc_code put_file(const char *folder, const char *name, const struct buf *text,
			      struct svc_err *err)
{
	char path[4400];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	if (text->failed)
		return svc_fail(err, SVC_NO_MEMORY, "tok_write", "no memory for %s", name);
	FILE *file = fopen(path, "wbe");
	if (!file)
		return svc_fail_errno(err, "tok_write", "cannot create %s", path);
	bool written = fwrite(text->ptr, 1, text->len, file) == text->len;
	written = fflush(file) == 0 && fsync(fileno(file)) == 0 && written;
	written = fclose(file) == 0 && written;
	return written ? SVC_OK : svc_fail_errno(err, "tok_write", "cannot write %s", path);
}

enum svc_code tok_write_folder(const char *source, const char *folder, struct svc_err *err)
{
	const struct tok_options options = {source, NULL};
	struct tok *tok = NULL;
	struct buf text = {0};
	enum svc_code code = tok_open(&options, &tok, err);
	if (code == SVC_OK)
		code = write_json(tok, &text, err);
	if (code == SVC_OK)
		code = put_file(folder, "tokenizer.json", &text, err);
	buf_clear(&text);
	if (code == SVC_OK) {
		write_config(tok, &text);
		code = put_file(folder, "tokenizer_config.json", &text, err);
	}
	buf_free(&text);
	tok_free(tok);
	return code;
}
