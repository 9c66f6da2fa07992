#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "gateway/api/api_error.h"
#include "gateway/api/dialect.h"

/* ---- requests ---- */

#define REFUSE_FORMAT "use response_format at /v1/chat/completions"

static const struct gw_member chat_members[] = {
	{"model", NULL, NULL},
	{"messages", NULL, NULL},
	{"stream", NULL, NULL},
	{"options", NULL, NULL},
	{"keep_alive", NULL, NULL},
	{"format", NULL, REFUSE_FORMAT},
	{"think", NULL, "this server shows no thoughts apart"},
	{"tools", NULL, "use /v1/chat/completions"},
};

static const struct gw_member generate_members[] = {
	{"model", NULL, NULL},
	{"prompt", NULL, NULL},
	{"system", NULL, NULL},
	{"raw", NULL, NULL},
	{"stream", NULL, NULL},
	{"options", NULL, NULL},
	{"keep_alive", NULL, NULL},
	{"format", NULL, REFUSE_FORMAT},
	{"think", NULL, "this server shows no thoughts apart"},
	{"suffix", NULL, "put the text after the gap into a raw prompt, in the model's own form"},
	{"images", NULL, "this server reads text only"},
	{"template", NULL, "the model's own is used; raw leaves it out"},
	{"context", NULL, "use /api/chat"},
};

static const struct gw_member option_members[] = {
	{"temperature", "temperature", NULL},
	{"top_p", "top_p", NULL},
	{"min_p", "min_p", NULL},
	{"typical_p", "typical_p", NULL},
	{"top_k", "top_k", NULL},
	{"seed", "seed", NULL},
	{"stop", "stop", NULL},
	{"repeat_penalty", "repetition_penalty", NULL},
	{"presence_penalty", "presence_penalty", NULL},
	{"frequency_penalty", "frequency_penalty", NULL},
	{"num_predict", NULL, NULL},
	/* How the model is loaded is the operator's to say. */
	{"num_ctx", NULL, NULL},
	{"num_batch", NULL, NULL},
	{"num_gpu", NULL, NULL},
	{"main_gpu", NULL, NULL},
	{"num_thread", NULL, NULL},
	{"num_keep", NULL, NULL},
	{"use_mmap", NULL, NULL},
	{"use_mlock", NULL, NULL},
	{"low_vram", NULL, NULL},
	{"numa", NULL, NULL},
	{"mirostat", NULL, "leave it out"},
	{"mirostat_eta", NULL, NULL},
	{"mirostat_tau", NULL, NULL},
	{"tfs_z", NULL, NULL},
	{"repeat_last_n", NULL, NULL},
	{"penalize_newline", NULL, NULL},
};

static const struct gw_member embed_members[] = {
	{"model", NULL, NULL},
	{"input", "input", NULL},
	{"dimensions", "dimensions", NULL},
	{"keep_alive", NULL, NULL},
	{"options", NULL, NULL},
	/* Nothing is cut silently: what is too long is an error, whatever this says. */
	{"truncate", NULL, NULL},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const text_types[] = {"text", NULL};

/* -1 and -2: as many as fit. */
static enum svc_code options_read(const json_t *body, bool strict, json_t *chat,
				  struct svc_err *err)
{
	const json_t *options = json_object_get(body, "options");
	json_t *most = json_object_get(options, "num_predict");
	const struct gw_translation translation = {
		options, chat, option_members, COUNT(option_members), strict, err};
	if (!options || json_is_null(options))
		return SVC_OK;
	if (!json_is_object(options))
		return svc_fail_param(err, SVC_INVALID, "options", "options must be an object");
	if (json_is_integer(most) && json_integer_value(most) < 0)
		most = NULL;
	if (most && json_object_set(chat, "max_tokens", most) != 0)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return gw_members_copy(&translation);
}

/* Without ":latest". */
static size_t name_length(const json_t *model)
{
	static const char latest[] = ":latest";
	const size_t tail = sizeof latest - 1;
	const char *name = json_string_value(model);
	size_t len = json_string_length(model);
	return len > tail && strcmp(name + len - tail, latest) == 0 ? len - tail : len;
}

bool gw_ollama_name_is(const json_t *name, const struct gw_api_limits *limits)
{
	return json_is_string(name) &&
	       gw_model_is(limits, (struct span){json_string_value(name), name_length(name)});
}

static enum svc_code model_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *model = json_object_get(body, "model");
	const char *name = json_string_value(model);
	if (!name || !*name)
		return svc_fail_param(err, SVC_INVALID, "model", "model must be a model's name");
	return json_object_set_new(chat, "model", json_stringn(name, name_length(model))) == 0
		       ? SVC_OK
		       : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

/* A stream unless told otherwise. */
static enum svc_code common_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	json_t *stream = json_object_get(body, "stream");
	enum svc_code code = model_read(body, chat, err);
	if (code != SVC_OK)
		return code;
	int failed = stream && !json_is_null(stream)
			     ? json_object_set(chat, "stream", stream)
			     : json_object_set_new(chat, "stream", json_true());
	return failed ? svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory") : SVC_OK;
}

static enum svc_code message_read(const json_t *message, size_t index, json_t *messages,
				  struct svc_err *err)
{
	char place[64];
	const char *role = json_string_value(json_object_get(message, "role"));
	const json_t *images = json_object_get(message, "images");
	const json_t *calls = json_object_get(message, "tool_calls");
	snprintf(place, sizeof place, "messages[%zu]", index);
	if (!role)
		return svc_fail_param(err, SVC_INVALID, place, "%s.role must be a string", place);
	if (json_array_size(images) || json_array_size(calls))
		return svc_fail_param(err, SVC_UNSUPPORTED, place,
				      "%s: only text is supported here", place);
	return gw_message_add(
		messages, role,
		gw_content_read(json_object_get(message, "content"), text_types, place, err), err);
}

static enum svc_code chat_end(enum svc_code code, json_t *chat, json_t *messages_take,
			      json_t **ret_chat, struct svc_err *err)
{
	if (code == SVC_OK && messages_take && json_object_set(chat, "messages", messages_take))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	json_decref(messages_take);
	if (code == SVC_OK)
		*ret_chat = chat;
	else
		json_decref(chat);
	return code;
}

enum svc_code gw_ollama_chat_read(const json_t *body, bool strict, json_t **ret_chat,
				  struct svc_err *err)
{
	json_t *chat = json_object(), *messages = json_array();
	const json_t *given = json_object_get(body, "messages");
	const struct gw_translation translation = {body,   chat, chat_members, COUNT(chat_members),
						   strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = common_read(body, chat, err);
	if (code == SVC_OK)
		code = options_read(body, strict, chat, err);
	if (code == SVC_OK && json_array_size(given) == 0)
		code = svc_fail_param(err, SVC_INVALID, "messages",
				      "messages must be an array of at least one message");
	for (size_t i = 0; i < json_array_size(given) && code == SVC_OK; i++)
		code = message_read(json_array_get(given, i), i, messages, err);
	return chat_end(code, chat, messages, ret_chat, err);
}

static enum svc_code prompt_read(const json_t *body, bool raw, json_t *chat, json_t *messages,
				 struct svc_err *err)
{
	json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
	bool has_system = json_is_string(system) && json_string_length(system) > 0;
	if (!json_is_string(prompt) || (system && !json_is_string(system)))
		return svc_fail_param(err, SVC_INVALID, "prompt",
				      "prompt and system must be strings");
	if (raw && has_system)
		return svc_fail_param(err, SVC_INVALID, "system",
				      "a raw prompt has no system prompt");
	if (raw)
		return json_object_set(chat, "prompt", prompt) == 0
			       ? SVC_OK
			       : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code =
		has_system ? gw_message_add(messages, "system", json_incref(system), err) : SVC_OK;
	return code == SVC_OK ? gw_message_add(messages, "user", json_incref(prompt), err) : code;
}

enum svc_code gw_ollama_generate_read(const json_t *body, bool strict, json_t **ret_chat,
				      bool *ret_raw, struct svc_err *err)
{
	const bool raw = json_is_true(json_object_get(body, "raw"));
	json_t *chat = json_object(), *messages = raw ? NULL : json_array();
	const struct gw_translation translation = {
		body, chat, generate_members, COUNT(generate_members), strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = common_read(body, chat, err);
	if (code == SVC_OK)
		code = options_read(body, strict, chat, err);
	if (code == SVC_OK)
		code = prompt_read(body, raw, chat, messages, err);
	*ret_raw = raw;
	return chat_end(code, chat, messages, ret_chat, err);
}

enum svc_code gw_ollama_embed_read(const json_t *body, bool strict, json_t **ret_embed,
				   struct svc_err *err)
{
	json_t *embed = json_object();
	const struct gw_translation translation = {
		body, embed, embed_members, COUNT(embed_members), strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = model_read(body, embed, err);
	return chat_end(code, embed, NULL, ret_embed, err);
}

/* ---- answers: one JSON object a line ---- */

static bool has_opening(const struct gw_meta *meta)
{
	(void)meta;
	return false;
}

/* Up to the text: {"model":…,"created_at":…,"message":{"role":"assistant","content": */
static void line_begin(const struct gw_render *render, bool chat)
{
	struct tm tm = {0};
	char created[40] = "";
	time_t seconds = (time_t)render->meta->created_s;
	if (gmtime_r(&seconds, &tm))
		snprintf(created, sizeof created, "%04d-%02d-%02dT%02d:%02d:%02dZ",
			 1900 + tm.tm_year, 1 + tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
			 tm.tm_sec);
	buf_span(render->out, span_of("{\"model\":"));
	buf_json_string(render->out, span_of(render->meta->model));
	buf_print(render->out, ",\"created_at\":\"%s\",%s", created,
		  chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"response\":");
}

static void text_print(const struct gw_render *render, bool chat, struct span text)
{
	line_begin(render, chat);
	buf_json_string(render->out, text);
	buf_span(render->out, span_of(chat ? "}" : ""));
}

/* Durations in nanoseconds, as far as this gateway has seen them. */
static void done_print(const struct gw_render *render, const struct gw_view *view)
{
	uint64_t begin = render->arrived_us, first = view->first_us, last = view->last_us;
	uint64_t prompt_us = begin && first > begin ? first - begin : 0;
	uint64_t eval_us = last > first ? last - first : 0;
	buf_print(render->out,
		  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
		  ",\"load_duration\":0,\"prompt_eval_count\":%u,\"prompt_eval_duration\":%" PRIu64
		  ",\"eval_count\":%u,\"eval_duration\":%" PRIu64 "}",
		  view->finish == FINISH_LENGTH ? "length" : "stop", 1000 * (prompt_us + eval_us),
		  view->n_prompt, 1000 * prompt_us, view->n_tokens, 1000 * eval_us);
}

static void token_print(const struct gw_render *render, bool chat, const struct gw_view *view,
			uint32_t k)
{
	struct span text = gw_view_text(view, k);
	if (text.len == 0)
		return;
	text_print(render, chat, text);
	buf_span(render->out, span_of(",\"done\":false}\n"));
}

static void chat_token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		       uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	token_print(render, true, view, k);
}

static void generate_token(const struct gw_render *render, uint32_t choice,
			   const struct gw_view *view, uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	token_print(render, false, view, k);
}

static void chat_finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	text_print(render, true, span_of(""));
	done_print(render, view);
	buf_span(render->out, span_of("\n"));
}

static void generate_finish(const struct gw_render *render, uint32_t choice,
			    const struct gw_view *view)
{
	(void)choice;
	text_print(render, false, span_of(""));
	done_print(render, view);
	buf_span(render->out, span_of("\n"));
}

static void end(const struct gw_render *render, const struct gw_usage *usage)
{
	(void)render;
	(void)usage;
}

static void chat_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	text_print(render, true, gw_view_answer(&views[0]));
	done_print(render, &views[0]);
}

static void generate_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	text_print(render, false, gw_view_answer(&views[0]));
	done_print(render, &views[0]);
}

void gw_error_print_ollama(struct buf *out, const struct svc_err *err)
{
	buf_span(out, span_of("{\"error\":"));
	buf_json_string(out, span_of(err->msg));
	buf_span(out, span_of("}"));
}

static void error(struct buf *out, const struct svc_err *err)
{
	gw_error_print_ollama(out, err);
	buf_span(out, span_of("\n"));
}

const struct gw_dialect gw_dialect_ollama_chat = {
	.id_prefix = "",
	.stream_type = "application/x-ndjson",
	.waiting = "",
	.has_opening = has_opening,
	.opening = NULL,
	.token = chat_token,
	.finish = chat_finish,
	.end = end,
	.error = error,
	.members = option_members,
	.n_members = COUNT(option_members),
	.answer = chat_answer,
};

const struct gw_dialect gw_dialect_ollama_generate = {
	.id_prefix = "",
	.stream_type = "application/x-ndjson",
	.waiting = "",
	.has_opening = has_opening,
	.opening = NULL,
	.token = generate_token,
	.finish = generate_finish,
	.end = end,
	.error = error,
	.members = option_members,
	.n_members = COUNT(option_members),
	.answer = generate_answer,
};
