#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenizer/tok_load.h"
#include "tokenizer/unicode/unicode.h"

/* Tokens that end a turn, an answer or a document in one family or another. They count where a
 * vocabulary has them as added tokens. */
static const char *const known_ends[] = {
	"<|im_end|>",	   /* ChatML: Qwen, SmolLM, Hermes */
	"<|endoftext|>",   /* GPT-2, Qwen, Phi */
	"<|end_of_text|>", /* Llama 3, Granite */
	"<|eot_id|>",	   /* Llama 3 */
	"<|eom_id|>",
	"<|eot|>", /* Llama 4 */
	"<|eom|>",
	"<end_of_turn>", /* Gemma */
	"<eos>",
	"</s>",	   /* Llama 2, Mistral */
	"<|end|>", /* Phi 3; not in gpt-oss, where it ends one of several messages of an answer */
	"<|return|>", /* gpt-oss */
	"<|call|>",
	"<|end_of_turn|>",
	"<|END_OF_TURN_TOKEN|>",					      /* Command R */
	"<\xEF\xBD\x9C\x65nd\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>", /* DeepSeek */
};

enum svc_code tok_end_add(struct tok *tok, const char *field, int64_t id, struct svc_err *err)
{
	if (id < 0 || id >= tok->n_vocab)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer",
				"%s is %lld; the vocabulary has %u tokens", field, (long long)id,
				tok->n_vocab);
	for (uint32_t i = 0; i < tok->n_ends; i++)
		if (tok->ends[i] == id)
			return SVC_OK;
	if (tok->n_ends == VOCAB_MAX_ENDS)
		return svc_fail(err, SVC_BAD_MODEL, "tokenizer", "%s: more than %u end tokens",
				field, VOCAB_MAX_ENDS);
	uint32_t at = tok->n_ends++;
	for (; at > 0 && tok->ends[at - 1] > id; at--)
		tok->ends[at] = tok->ends[at - 1];
	tok->ends[at] = (int32_t)id;
	return SVC_OK;
}

static int32_t find_added(const struct tok *tok, const char *content)
{
	return tok_map_get(&tok->added_map, span_of(content));
}

enum svc_code tok_ends_collect(struct tok *tok, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	bool harmony = find_added(tok, "<|return|>") >= 0 && find_added(tok, "<|call|>") >= 0;
	if (tok->eos_id >= 0)
		code = tok_end_add(tok, "the EOS token", tok->eos_id, err);
	for (size_t i = 0; code == SVC_OK && i < sizeof known_ends / sizeof *known_ends; i++) {
		int32_t id = find_added(tok, known_ends[i]);
		if (id >= 0 && !(harmony && strcmp(known_ends[i], "<|end|>") == 0))
			code = tok_end_add(tok, known_ends[i], id, err);
	}
	return code;
}

enum svc_code tok_template_add(struct tok *tok, struct span name, struct span text,
			       struct svc_err *err)
{
	char *copied_name = NULL, *copied = arena_copy(&tok->arena, text);
	bool is_default = name.len == 0 || span_is(name, "default");
	if (!is_default)
		copied_name = arena_copy(&tok->arena, name);
	if (tok->n_templates == tok->template_room) {
		size_t room = tok->template_room ? 2 * tok->template_room : 4;
		struct tok_template *grown = realloc(tok->templates, room * sizeof *grown);
		if (!grown)
			copied = NULL;
		tok->templates = grown ? grown : tok->templates;
		tok->template_room = grown ? room : tok->template_room;
	}
	if (!copied || (!is_default && !copied_name))
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer",
				"no memory for a chat template of %zu bytes", text.len);
	tok->templates[tok->n_templates++] = (struct tok_template){copied_name, {copied, text.len}};
	return SVC_OK;
}

bool tok_chat_template(const struct tok *tok, const char *name, struct span *ret_text)
{
	if (name && strcmp(name, "default") == 0)
		name = NULL;
	/* The one that was added last counts: the file beside a configuration wins over what that
	 * says. */
	for (size_t i = tok->n_templates; i > 0; i--) {
		const struct tok_template *template = &tok->templates[i - 1];
		if (name ? !template->name || strcmp(template->name, name) != 0
			 : template->name != NULL)
			continue;
		*ret_text = template->text;
		return true;
	}
	return false;
}

/* A model folder that was converted from GGUF keeps that file's keys, the vocabulary among them. */
static bool has_keys(const char *folder, char *path, size_t size)
{
	int n = snprintf(path, size, "%s/metadata.gguf", folder);
	return n > 0 && (size_t)n < size && access(path, R_OK) == 0;
}

/* What path is: a file that begins with "GGUF" is one, any other file is a tokenizer.json. */
static enum svc_code detect(const char *path, bool *ret_gguf, struct svc_err *err)
{
	struct stat stat_buf;
	char magic[4] = {0};
	if (stat(path, &stat_buf) < 0)
		return svc_fail_errno(err, "tokenizer", "cannot open");
	*ret_gguf = false;
	if (S_ISDIR(stat_buf.st_mode))
		return SVC_OK;
	FILE *file = fopen(path, "rbe");
	if (!file)
		return svc_fail_errno(err, "tokenizer", "cannot open");
	size_t n = fread(magic, 1, sizeof magic, file);
	fclose(file);
	*ret_gguf = n == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0;
	return SVC_OK;
}

enum svc_code tok_open(const struct tok_options *options, struct tok **ret_tok, struct svc_err *err)
{
	struct svc_err unread;
	bool gguf = false;
	struct tok *tok = calloc(1, sizeof *tok);
	err = err ? err : &unread;
	if (!tok)
		return svc_fail(err, SVC_NO_MEMORY, "tokenizer", "no memory");
	struct tok_options found = *options;
	char keys[4096];
	if (has_keys(options->path, keys, sizeof keys))
		found.path = keys;
	unicode_init();
	arena_init(&tok->arena, 0);
	tok->bos_id = tok->eos_id = tok->unk_id = tok->pad_id = tok->model_unk_id = -1;
	enum svc_code code = detect(found.path, &gguf, err);
	if (code == SVC_OK)
		code = gguf ? tok_load_gguf(tok, &found, err) : tok_load_json(tok, found.path, err);
	if (code == SVC_OK)
		code = tok_finish(tok, err);
	if (code != SVC_OK) {
		if (strncmp(err->msg, options->path, strlen(options->path)) != 0)
			svc_err_prefix(err, "%s", options->path);
		tok_free(tok);
		return code;
	}
	*ret_tok = tok;
	return SVC_OK;
}

struct tok *tok_free(struct tok *tok)
{
	if (!tok)
		return NULL;
	tok_trie_free(&tok->raw.trie);
	tok_trie_free(&tok->normalized.trie);
	tok_trie_free(&tok->unigram.trie);
	free(tok->templates);
	arena_free(&tok->arena);
	free(tok);
	return NULL;
}

int32_t tok_bos_id(const struct tok *tok)
{
	return tok->bos_id;
}

int32_t tok_eos_id(const struct tok *tok)
{
	return tok->eos_id;
}

int32_t tok_unk_id(const struct tok *tok)
{
	return tok->unk_id;
}

int32_t tok_pad_id(const struct tok *tok)
{
	return tok->pad_id;
}

bool tok_adds_bos(const struct tok *tok)
{
	return tok->n_before > 0;
}

bool tok_adds_eos(const struct tok *tok)
{
	return tok->n_after > 0;
}

const int32_t *tok_end_ids(const struct tok *tok, size_t *ret_count)
{
	*ret_count = tok->n_ends;
	return tok->ends;
}

const char *tok_model_name(const struct tok *tok)
{
	if (tok->model == TOK_MODEL_UNIGRAM)
		return "unigram";
	return tok->bpe.byte_level ? "byte-level BPE" : "BPE";
}
