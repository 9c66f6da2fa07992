/* The files beside a tokenizer.json: which tokens are BOS, EOS and so on, the chat templates, and
 * what ends an answer. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tokenizer/tok_json.h"

#define MAX_FILE_BYTES (16u << 20)

#define BAD(err, ...) svc_fail(err, SVC_BAD_MODEL, "tokenizer", __VA_ARGS__)

/* "<s>", or {"content": "<s>", …}. A name that is no token is as good as none: files carry
 * leftovers. */
static void find_token(const struct tok *tok, const json_t *config, const char *key, int32_t *id)
{
	const json_t *name = json_object_get(config, key);
	if (json_is_object(name))
		name = json_object_get(name, "content");
	if (*id >= 0 || !json_is_string(name))
		return;
	for (size_t i = 0; i < tok->n_added; i++)
		if (span_equal(tok->entries[tok->added[i].id].text, tok_json_span(name)))
			*id = tok->added[i].id;
	if (*id < 0)
		*id = tok_map_get(&tok->pieces, tok_json_span(name));
}

static void find_tokens(struct tok *tok, const json_t *config)
{
	find_token(tok, config, "bos_token", &tok->bos_id);
	find_token(tok, config, "eos_token", &tok->eos_id);
	find_token(tok, config, "unk_token", &tok->unk_id);
	find_token(tok, config, "pad_token", &tok->pad_id);
}

/* A template, or a list of them with names. */
static enum svc_code read_templates(struct tok *tok, const json_t *templates, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	size_t i;
	json_t *item;
	if (json_is_string(templates))
		return tok_template_add(tok, span_of(""), tok_json_span(templates), err);
	json_array_foreach(templates, i, item)
	{
		const json_t *name = json_object_get(item, "name"),
			     *text = json_object_get(item, "template");
		if (!json_is_string(name) || !json_is_string(text))
			return BAD(err, "chat_template[%zu] is not a name with a template", i);
		code = tok_template_add(tok, tok_json_span(name), tok_json_span(text), err);
		if (code != SVC_OK)
			break;
	}
	return code;
}

static enum svc_code read_tokenizer_config(struct tok *tok, const json_t *config,
					   struct svc_err *err)
{
	find_tokens(tok, config);
	/* The post-processor says what stands around a text; these can only take it away, as in
	 * transformers. */
	if (json_is_false(json_object_get(config, "add_bos_token")))
		tok->n_before = 0;
	if (json_is_false(json_object_get(config, "add_eos_token")))
		tok->n_after = 0;
	return read_templates(tok, json_object_get(config, "chat_template"), err);
}

static enum svc_code read_special_tokens(struct tok *tok, const json_t *config, struct svc_err *err)
{
	(void)err;
	find_tokens(tok, config);
	return SVC_OK;
}

static enum svc_code read_ends(struct tok *tok, const json_t *config, struct svc_err *err)
{
	const json_t *eos = json_object_get(config, "eos_token_id");
	size_t n = json_is_array(eos) ? json_array_size(eos) : json_is_number(eos);
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
		double number = json_number_value(id);
		if (!json_is_number(id) || number != (double)(int32_t)number)
			return BAD(err, "eos_token_id[%zu] is not a token id", i);
		enum svc_code code = tok_end_add(tok, "eos_token_id", (int64_t)number, err);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

static enum svc_code read_template_json(struct tok *tok, const json_t *config, struct svc_err *err)
{
	return read_templates(tok, json_object_get(config, "chat_template"), err);
}

/* chat_template.jinja: the template itself. */
static enum svc_code read_template_file(struct tok *tok, const char *path, struct svc_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? SVC_OK
				       : svc_fail_errno(err, "tokenizer", "%s: cannot open", path);
	struct buf text = {.limit = MAX_FILE_BYTES};
	char block[65536];
	ssize_t n;
	while ((n = read(fd, block, sizeof block)) > 0)
		buf_append(&text, block, (size_t)n);
	enum svc_code code =
		n < 0 ? svc_fail_errno(err, "tokenizer", "%s: cannot read", path) : SVC_OK;
	close(fd);
	if (code == SVC_OK && text.failed)
		code = BAD(err, "%s: more than %u bytes", path, MAX_FILE_BYTES);
	if (code == SVC_OK)
		code = tok_template_add(tok, span_of(""),
					(struct span){text.ptr ? text.ptr : "", text.len}, err);
	buf_free(&text);
	return code;
}

enum svc_code tok_json_config(struct tok *tok, const char *folder, struct svc_err *err)
{
	static const struct {
		const char *name;
		enum svc_code (*read)(struct tok *, const json_t *, struct svc_err *);
	} files[] = {{"tokenizer_config.json", read_tokenizer_config},
		     {"special_tokens_map.json", read_special_tokens},
		     {"generation_config.json", read_ends},
		     {"config.json", read_ends},
		     {"chat_template.json", read_template_json}};
	char path[4200];
	enum svc_code code = SVC_OK;
	for (size_t i = 0; code == SVC_OK && i < sizeof files / sizeof *files; i++) {
		json_t *config;
		snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
		code = tok_json_file(path, MAX_FILE_BYTES, false, &config, err);
		if (code != SVC_OK || !config)
			continue;
		code = files[i].read(tok, config, err);
		json_decref(config);
		if (code != SVC_OK)
			svc_err_prefix(err, "%s", files[i].name);
	}
	if (tok->bos_id < 0 && tok->n_before)
		tok->bos_id = tok->before[0];
	if (code != SVC_OK)
		return code;
	snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
	return read_template_file(tok, path, err);
}
