#include "tokenizer/tokenizer_service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/log.h"
#include "services/slots.h"
#include "shm/trace.h"
#include "tokenizer/prompt.h"

#define TEMPLATE_MAX_BYTES (1u << 20)

static const struct opt tokenizer_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "model file; default: the run's"},
	{"chat-template", OPT_STRING, "", 0, 0, NULL,
	 "file with a chat template instead of the model's"},
	{0},
};

struct tokenizer {
	struct tok *tok;
	struct tmpl *tmpl;
	enum vocab_tools tools; /* that the template knows */
	bool thinks;
};

struct task {
	struct svc *svc;
	uint32_t slot;
	struct body *body;
};

/* A prompt and what it may generate must fit the context, before anything is computed. */
static enum svc_code check_length(struct task *task, size_t n_prompt, struct svc_err *err)
{
	const struct body_params *params = &task->body->params;
	bool embeds = task->body->kind == BODY_EMBED;
	bool scores_only = (params->flags & BODY_SCORE_ONLY) != 0;
	size_t wanted = scores_only ? 0 : params->max_tokens ? params->max_tokens : 1;
	size_t ctx = task->svc->run.ctx;
	if (n_prompt == 0)
		return svc_fail_param(err, SVC_INVALID, embeds ? "input" : "prompt",
				      "the prompt has no tokens");
	if (n_prompt + wanted <= ctx)
		return SVC_OK;
	if (embeds)
		return svc_fail_too_long(err, "input", "input", n_prompt, 0, ctx);
	return svc_fail_too_long(err,
				 n_prompt < ctx && params->max_tokens ? "max_tokens" : "messages",
				 "prompt", n_prompt, wanted, ctx);
}

static enum svc_code read_prompt(struct task *task, struct prompt *ret_prompt, struct svc_err *err)
{
	struct tokenizer *tokenizer = task->svc->role_state;
	struct span text;
	text.ptr = body_region(&task->svc->run, task->body, REGION_TEXT, 0, &text.len);
	if (!text.ptr)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body is damaged: no text");
	if (task->body->input != INPUT_CHAT)
		return prompt_from_text(text, ret_prompt, err);
	const struct prompt_source source = {tokenizer->tok, tokenizer->tmpl, tokenizer->tools,
					     task->body->template_time_s};
	return prompt_from_chat(&source, text, ret_prompt, err);
}

static enum svc_code encode(struct task *task, struct tok_ids *ret_ids, struct svc_err *err)
{
	struct tokenizer *tokenizer = task->svc->role_state;
	struct prompt prompt = {0};
	bool plain = (task->body->params.flags & BODY_NO_BOS) != 0;
	/* A template usually writes BOS itself: there must be exactly one, whoever brings it. */
	const struct tok_encode_options options = {.add = plain ? TOK_ADD_NONE : TOK_ADD_MISSING};
	enum svc_code code = read_prompt(task, &prompt, err);
	if (code == SVC_OK)
		code = tok_encode(tokenizer->tok, prompt.pieces, prompt.n_pieces, &options, ret_ids,
				  err);
	prompt_free(&prompt);
	return code;
}

static enum svc_code store_ids(struct task *task, const struct tok_ids *ids, struct svc_err *err)
{
	int32_t *room =
		body_region(&task->svc->run, task->body, REGION_IDS, ids->len * sizeof *room, NULL);
	if (!room)
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"the text has %zu tokens, more than the request has room for",
				ids->len);
	if (ids->len)
		memcpy(room, ids->ptr, ids->len * sizeof *room);
	atomic_store(&task->body->n_prompt, (uint32_t)ids->len);
	fault_point("tokenizer.commit");
	atomic_store_explicit(&task->body->tokenized, 1, memory_order_release);
	return SVC_OK;
}

static enum svc_code check_ids(struct task *task, size_t n, struct svc_err *err)
{
	uint32_t n_vocab = task->svc->run.n_vocab;
	const int32_t *ids =
		body_region(&task->svc->run, task->body, REGION_IDS, n * sizeof *ids, NULL);
	if (!ids)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body is damaged: no ids");
	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || (uint32_t)ids[i] >= n_vocab)
			return svc_fail_param(err, SVC_INVALID, "prompt",
					      "token id %d is not in the vocabulary (0 to %u)",
					      ids[i], n_vocab - 1);
	return SVC_OK;
}

static enum svc_code prepare_generation(struct task *task, struct svc_err *err)
{
	struct tok_ids ids = {0};
	enum svc_code code;
	if (task->body->input == INPUT_IDS) {
		size_t n = atomic_load(&task->body->n_prompt);
		code = check_ids(task, n, err);
		return code == SVC_OK ? check_length(task, n, err) : code;
	}
	code = encode(task, &ids, err);
	if (code == SVC_OK)
		code = check_length(task, ids.len, err);
	if (code == SVC_OK)
		code = store_ids(task, &ids, err);
	tok_ids_free(&ids);
	return code;
}

static enum svc_code answer_ids(struct task *task, struct svc_err *err)
{
	struct tok_ids ids = {0};
	enum svc_code code = encode(task, &ids, err);
	if (code == SVC_OK)
		code = store_ids(task, &ids, err);
	tok_ids_free(&ids);
	return code;
}

static enum svc_code answer_text(struct task *task, struct span text, struct svc_err *err)
{
	char *out = body_region(&task->svc->run, task->body, REGION_OUT, text.len, NULL);
	if (!out)
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"the text has %zu bytes, more than the request has room for",
				text.len);
	if (text.len)
		memcpy(out, text.ptr, text.len);
	atomic_store_explicit(&task->body->n_out, (uint32_t)text.len, memory_order_release);
	return SVC_OK;
}

static enum svc_code detokenize(struct task *task, struct svc_err *err)
{
	struct tokenizer *tokenizer = task->svc->role_state;
	struct buf text = {0};
	size_t n = atomic_load(&task->body->n_prompt);
	enum svc_code code = check_ids(task, n, err);
	const int32_t *ids =
		code == SVC_OK ? body_region(&task->svc->run, task->body, REGION_IDS, n * 4, NULL)
			       : NULL;
	for (size_t i = 0; ids && i < n; i++)
		buf_span(&text, tok_token_bytes(tokenizer->tok, ids[i]));
	size_t strip =
		ids && n ? tok_strip_bytes(tokenizer->tok, tok_token_bytes(tokenizer->tok, ids[0]))
			 : 0;
	if (code == SVC_OK && text.failed)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	if (code == SVC_OK)
		code = answer_text(
			task, (struct span){text.ptr ? text.ptr + strip : "", text.len - strip},
			err);
	buf_free(&text);
	return code;
}

static enum svc_code render(struct task *task, struct svc_err *err)
{
	struct prompt prompt = {0};
	enum svc_code code = read_prompt(task, &prompt, err);
	if (code == SVC_OK)
		code = answer_text(task, (struct span){prompt.rendered.text, prompt.rendered.len},
				   err);
	prompt_free(&prompt);
	return code;
}

static enum svc_code perform(struct task *task, struct svc_err *err)
{
	switch ((enum body_kind)task->body->kind) {
	case BODY_GENERATE:
	case BODY_EMBED:
		return prepare_generation(task, err);
	case BODY_TOKENIZE:
		return answer_ids(task, err);
	case BODY_DETOKENIZE:
		return detokenize(task, err);
	case BODY_TEMPLATE:
		return render(task, err);
	}
	return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged: kind %u",
			task->body->kind);
}

static void look(struct svc *svc, uint32_t slot)
{
	struct slot_state mine;
	struct svc_err err = {0};
	struct task task = {svc, slot, NULL};
	if (slot_load(&svc->run, slot).stage != STAGE_TOKENIZE ||
	    (svc->draining && inc_find(&svc->run, ROLE_TOKENIZER, 0)))
		return;
	if (svc_slot_own(svc, slot, STAGE_TOKENIZE, &mine, &task.body) == CLAIM_NO)
		return;
	uint64_t start = svc_now_us(), start_ns = trace_begin(&svc->run);
	enum svc_code code;
	if (slot_is_cancelled(&svc->run, slot))
		code = svc_fail(&err, SVC_CANCELLED, __func__, "the client went away");
	else
		code = perform(&task, &err);
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	atomic_fetch_add_explicit(&inc->busy_us, svc_now_us() - start, memory_order_relaxed);
	atomic_fetch_add_explicit(&inc->gauge[GAUGE_TOKENIZED], 1, memory_order_relaxed);
	trace_put(&svc->run, TRACE_TOKENIZE, slot, 0, start_ns);
	fault_point("tokenizer.pass");
	if (!svc_beat(svc))
		return;
	if (code != SVC_OK)
		svc_slot_fail(svc, slot, &mine, task.body, &err);
	else if (task.body->kind != BODY_GENERATE && task.body->kind != BODY_EMBED)
		svc_slot_end(svc, slot, &mine, task.body);
	else if (svc_slot_pass(svc, slot, &mine, STAGE_COMPUTE, 0) != SVC_OK)
		return;
}

static enum svc_code publish_vocab(struct svc *svc, const struct tokenizer *tokenizer,
				   struct svc_err *err)
{
	const struct tok *tok = tokenizer->tok;
	struct segment seg;
	bool won = false;
	struct svc_err none;
	if (run_map_vocab(&svc->run, &none) == SVC_OK)
		return SVC_OK;
	struct vocab_parts parts = tok_vocab_parts(tok);
	parts.tools = tokenizer->tools;
	parts.thinks = tokenizer->thinks;
	size_t size = vocab_size(&parts);
	if (size == 0)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"the vocabulary is larger than the pipeline can carry");
	const struct seg_place place = {svc->run.dir, "vocab", SEG_VOCAB,
					svc->run.ctl->header.run_id};
	enum svc_code code = seg_create(&place, sizeof(struct seg_header) + size, &seg, err);
	if (code != SVC_OK)
		return code;
	vocab_write(&parts, (char *)seg.base + sizeof(struct seg_header));
	code = seg_publish(&place, &seg, &won, err);
	seg_unmap(&seg);
	return code;
}

static enum svc_code read_file(const char *path, struct buf *ret_text, struct svc_err *err)
{
	char block[4096];
	FILE *file = fopen(path, "re");
	if (!file)
		return svc_fail_errno(err, __func__, "--chat-template: cannot open %s", path);
	ret_text->limit = TEMPLATE_MAX_BYTES;
	for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
		buf_append(ret_text, block, n);
	fclose(file);
	if (ret_text->failed)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"--chat-template: %s is larger than %u bytes", path,
				TEMPLATE_MAX_BYTES);
	return SVC_OK;
}

static void traits_note(struct tokenizer *tokenizer, struct span template_text)
{
	tokenizer->tools = vocab_tools_of(template_text);
	tokenizer->thinks = vocab_thinks_of(template_text);
}

/* A model whose own template can't be compiled still serves completions: chat requests are told
 * why. */
static enum svc_code load_template(struct svc *svc, struct tokenizer *tokenizer,
				   struct svc_err *err)
{
	const char *path = opt_string(svc->options, "chat-template");
	struct buf file = {0};
	struct span text;
	struct svc_err why;
	enum svc_code code = SVC_OK;
	if (*path) {
		code = read_file(path, &file, err);
		text = (struct span){file.ptr ? file.ptr : "", file.len};
		if (code == SVC_OK)
			code = tmpl_compile(text, &tokenizer->tmpl, err);
		traits_note(tokenizer, text);
		if (code != SVC_OK)
			svc_err_prefix(err, "%s", path);
		buf_free(&file);
		return code;
	}
	if (!tok_chat_template(tokenizer->tok, NULL, &text))
		log_info("the model has no chat template: chat requests need --chat-template");
	else if (tmpl_compile(text, &tokenizer->tmpl, &why) != SVC_OK)
		log_error(why.code,
			  "the model's chat template is not usable, chat requests are refused: %s",
			  why.msg);
	else
		traits_note(tokenizer, text);
	return SVC_OK;
}

static enum svc_code start(struct svc *svc, struct svc_err *err)
{
	struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
	if (!tokenizer)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->role_state = tokenizer;
	const char *path = opt_string(svc->options, "model");
	const struct tok_options options = {.path = *path ? path : svc->run.ctl->config.model_path};
	enum svc_code code = tok_open(&options, &tokenizer->tok, err);
	if (code == SVC_OK && tok_vocab_count(tokenizer->tok) > svc->run.n_vocab)
		code = svc_fail(err, SVC_BAD_MODEL, __func__,
				"the tokenizer has %u tokens, the model's embedding %u: they don't "
				"belong together",
				tok_vocab_count(tokenizer->tok), svc->run.n_vocab);
	if (code == SVC_OK)
		code = load_template(svc, tokenizer, err);
	if (code == SVC_OK)
		code = publish_vocab(svc, tokenizer, err);
	return code;
}

static void stop(struct svc *svc)
{
	struct tokenizer *tokenizer = svc->role_state;
	tok_free(tokenizer->tok);
	tmpl_free(tokenizer->tmpl);
	free(tokenizer);
	svc->role_state = NULL;
}

const struct svc_spec tokenizer_spec = {
	.role = ROLE_TOKENIZER,
	.summary = "text and conversations to token ids; publishes the vocabulary",
	.options = tokenizer_options,
	.start = start,
	.look = look,
	.stop = stop,
};
