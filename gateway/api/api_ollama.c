#include <stdio.h>

#include "gateway/api/dialect.h"
#include "gateway/api/surface_tools.h"

/* ---- requests ---- */

static const struct gw_member chat_members[] = {
	{"model", NULL, NULL},	 {"messages", NULL, NULL},   {"stream", NULL, NULL},
	{"options", NULL, NULL}, {"keep_alive", NULL, NULL}, {"format", NULL, NULL},
	{"think", NULL, NULL},	 {"tools", "tools", NULL},
};

static const struct gw_member generate_members[] = {
	{"model", NULL, NULL},
	{"prompt", NULL, NULL},
	{"system", NULL, NULL},
	{"raw", NULL, NULL},
	{"stream", NULL, NULL},
	{"options", NULL, NULL},
	{"keep_alive", NULL, NULL},
	{"format", NULL, NULL},
	{"think", NULL, NULL},
	{"suffix", NULL, "put the text after the gap into a raw prompt, in the model's own form"},
	{"images", NULL, "this server reads text only"},
	{"template", NULL, "the model's own is used; raw leaves it out"},
	{"context", NULL, "use /api/chat"},
};

const struct gw_member gw_ollama_options[GW_OLLAMA_OPTIONS] = {
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
	const struct gw_translation translation = {options,	      chat,   gw_ollama_options,
						   GW_OLLAMA_OPTIONS, strict, err};
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

/* "json", or a schema. */
static enum svc_code format_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *format = json_object_get(body, "format");
	const char *word = json_string_value(format);
	if (!format || json_is_null(format) || (word && !*word))
		return SVC_OK;
	if (json_is_object(format))
		return gw_schema_set(chat, format, err);
	if (!word || strcmp(word, "json") != 0)
		return svc_fail_param(err, SVC_INVALID, "format",
				      "format must be \"json\" or a JSON schema");
	return json_object_set_new(chat, "response_format",
				   json_pack("{s:s}", "type", "json_object")) == 0
		       ? SVC_OK
		       : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

/* A template that knows thoughts is told whether there are to be any. apart: the answer has a place
 * for them. */
static enum svc_code think_read(const json_t *body, bool apart, json_t *chat, struct svc_err *err)
{
	json_t *think = json_object_get(body, "think");
	if (!think || json_is_null(think))
		return SVC_OK;
	if (!json_is_boolean(think))
		return svc_fail_param(err, SVC_UNSUPPORTED, "think",
				      "think must be true or false: this server knows no levels");
	if (json_is_true(think) && !apart)
		return svc_fail_param(err, SVC_UNSUPPORTED, "think",
				      "think: what the model thinks is text here; /api/chat tells "
				      "it apart");
	return json_object_set_new(chat, "chat_template_kwargs",
				   json_pack("{s:O}", "enable_thinking", think)) == 0
		       ? SVC_OK
		       : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

/* Ollama's calls and results have no ids; what some templates demand is their place. */
struct places {
	unsigned calls, results;
};

static enum svc_code calls_read(const json_t *calls, struct places *places, json_t *message,
				struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	for (size_t i = 0; code == SVC_OK && i < json_array_size(calls); i++) {
		char id[16];
		const json_t *function = json_object_get(json_array_get(calls, i), "function");
		snprintf(id, sizeof id, "%09u", ++places->calls);
		code = gw_call_add(message, id, json_object_get(function, "name"),
				   json_object_get(function, "arguments"), err);
	}
	return code;
}

static enum svc_code message_read(const json_t *message, size_t index, struct places *places,
				  json_t *messages, struct svc_err *err)
{
	char place[64], id[16];
	const char *role = json_string_value(json_object_get(message, "role"));
	const json_t *images = json_object_get(message, "images");
	const json_t *calls = json_object_get(message, "tool_calls");
	json_t *thoughts = json_object_get(message, "thinking");
	snprintf(place, sizeof place, "messages[%zu]", index);
	if (!role)
		return svc_fail_param(err, SVC_INVALID, place, "%s.role must be a string", place);
	if (json_array_size(images))
		return svc_fail_param(err, SVC_UNSUPPORTED, place,
				      "%s: only text is supported here", place);
	if (calls && !json_is_null(calls) && !json_is_array(calls))
		return svc_fail_param(err, SVC_INVALID, place, "%s.tool_calls must be an array",
				      place);
	const json_t *given = json_object_get(message, "content");
	json_t *content =
		!given && calls ? json_string("") : gw_content_read(given, text_types, place, err);
	if (strcmp(role, "tool") == 0) {
		snprintf(id, sizeof id, "%09u", ++places->results);
		return gw_result_add(messages, id, content, err);
	}
	enum svc_code code = gw_message_add(messages, role, content, err);
	json_t *own = json_array_get(messages, json_array_size(messages) - 1);
	if (code == SVC_OK && json_is_string(thoughts) &&
	    json_object_set(own, "reasoning_content", thoughts) != 0)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return code == SVC_OK ? calls_read(calls, places, own, err) : code;
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
	struct places places = {0};
	const struct gw_translation translation = {body,   chat, chat_members, COUNT(chat_members),
						   strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = common_read(body, chat, err);
	if (code == SVC_OK)
		code = options_read(body, strict, chat, err);
	if (code == SVC_OK)
		code = format_read(body, chat, err);
	if (code == SVC_OK)
		code = think_read(body, true, chat, err);
	if (code == SVC_OK && json_array_size(given) == 0)
		code = svc_fail_param(err, SVC_INVALID, "messages",
				      "messages must be an array of at least one message");
	for (size_t i = 0; i < json_array_size(given) && code == SVC_OK; i++)
		code = message_read(json_array_get(given, i), i, &places, messages, err);
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
		code = format_read(body, chat, err);
	if (code == SVC_OK)
		code = prompt_read(body, raw, chat, messages, err);
	/* Without a template there is nothing to tell not to think. */
	if (code == SVC_OK && !(raw && json_is_false(json_object_get(body, "think"))))
		code = think_read(body, false, chat, err);
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
