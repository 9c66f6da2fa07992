#include <stdio.h>

#include "gateway/api/dialect.h"
#include "gateway/api/surface_tools.h"

/* ---- requests ---- */

const struct gw_member gw_responses_members[GW_RESPONSES_MEMBERS] = {
	{"model", "model", NULL},
	{"input", NULL, NULL},
	{"instructions", NULL, NULL},
	{"previous_response_id", NULL, NULL},
	{"max_output_tokens", "max_tokens", NULL},
	{"temperature", "temperature", NULL},
	{"top_p", "top_p", NULL},
	{"stream", "stream", NULL},
	{"store", NULL, NULL},
	{"user", "user", NULL},
	{"metadata", NULL, NULL},
	{"parallel_tool_calls", "parallel_tool_calls", NULL},
	{"prompt_cache_key", NULL, NULL},
	{"safety_identifier", NULL, NULL},
	{"service_tier", NULL, NULL},
	{"stream_options", NULL, NULL},
	{"tool_choice", NULL, NULL},
	{"text", NULL, NULL},
	{"truncation", NULL, NULL},
	{"tools", NULL, NULL},
	{"reasoning", NULL,
	 "what the model thinks is text here; /v1/chat/completions tells it apart"},
	{"include", NULL, "use logprobs at /v1/chat/completions"},
	{"top_logprobs", NULL, "use logprobs at /v1/chat/completions"},
	{"background", NULL, "send an Idempotency-Key, and come back for the answer"},
	{"conversation", NULL, "use previous_response_id"},
	{"prompt", NULL, "send input"},
	{"max_tool_calls", NULL, "use parallel_tool_calls"},
};

static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

/* Calls belong to the assistant's message before them. */
static enum svc_code call_read(const json_t *item, json_t *messages, struct svc_err *err)
{
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	const char *role = json_string_value(json_object_get(last, "role"));
	enum svc_code code = SVC_OK;
	if (!role || strcmp(role, "assistant") != 0) {
		code = gw_message_add(messages, "assistant", json_string(""), err);
		last = json_array_get(messages, json_array_size(messages) - 1);
	}
	if (code != SVC_OK)
		return code;
	return gw_call_add(last,
			   gw_call_id_strip(json_string_value(json_object_get(item, "call_id"))),
			   json_object_get(item, "name"), json_object_get(item, "arguments"), err);
}

static enum svc_code result_read(const json_t *item, const char *place, json_t *messages,
				 struct svc_err *err)
{
	const char *id = gw_call_id_strip(json_string_value(json_object_get(item, "call_id")));
	if (!id)
		return svc_fail_param(err, SVC_INVALID, place, "%s.call_id must be a string",
				      place);
	return gw_result_add(
		messages, id,
		gw_content_read(json_object_get(item, "output"), text_types, place, err), err);
}

static enum svc_code item_read(const json_t *item, size_t index, json_t *messages,
			       struct svc_err *err)
{
	char place[64];
	const char *role = json_string_value(json_object_get(item, "role"));
	const char *type = json_string_value(json_object_get(item, "type"));
	snprintf(place, sizeof place, "input[%zu]", index);
	if (type && strcmp(type, "function_call") == 0)
		return call_read(item, messages, err);
	if (type && strcmp(type, "function_call_output") == 0)
		return result_read(item, place, messages, err);
	if (type && strcmp(type, "message") != 0)
		return svc_fail_param(err, SVC_UNSUPPORTED, place,
				      "%s: only items of type message, function_call and "
				      "function_call_output are supported",
				      place);
	if (!role)
		return svc_fail_param(err, SVC_INVALID, place, "%s.role must be a string", place);
	/* OpenAI's newer name for the same; templates know the older one. */
	if (strcmp(role, "developer") == 0)
		role = "system";
	return gw_message_add(
		messages, role,
		gw_content_read(json_object_get(item, "content"), text_types, place, err), err);
}

static enum svc_code input_read(const json_t *input, json_t *messages, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	if (json_is_string(input))
		return gw_message_add(messages, "user", json_incref((json_t *)(uintptr_t)input),
				      err);
	if (json_array_size(input) == 0)
		return svc_fail_param(err, SVC_INVALID, "input",
				      "input must be a string, or an array of at least one item");
	for (size_t i = 0; i < json_array_size(input) && code == SVC_OK; i++)
		code = item_read(json_array_get(input, i), i, messages, err);
	return code;
}

static bool is_absent_or(const json_t *value, const char *text)
{
	return !value || json_is_null(value) ||
	       (json_is_string(value) && strcmp(json_string_value(value), text) == 0);
}

/* Members that are fine with the one value they have anyway. */
static enum svc_code fixed_check(const json_t *body, struct svc_err *err)
{
	if (!is_absent_or(json_object_get(body, "truncation"), "disabled"))
		return svc_fail_param(
			err, SVC_UNSUPPORTED, "truncation",
			"truncation must be disabled: a prompt is never cut silently");
	return SVC_OK;
}

/* text.format: text, json_object, or json_schema with its schema beside. */
static enum svc_code format_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *text = json_object_get(body, "text");
	const json_t *format = json_object_get(text, "format");
	const json_t *type = json_object_get(format, "type");
	if ((text && !json_is_null(text) && !json_is_object(text)) ||
	    (format && !json_is_null(format) && !json_is_object(format)))
		return svc_fail_param(err, SVC_INVALID, "text",
				      "text and text.format must be objects");
	if (is_absent_or(type, "text"))
		return SVC_OK;
	if (is_absent_or(type, "json_schema") && !json_object_get(format, "schema"))
		return svc_fail_param(err, SVC_INVALID, "text", "text.format.schema is missing");
	if (is_absent_or(type, "json_schema"))
		return gw_schema_set(chat, json_object_get(format, "schema"), err);
	if (!is_absent_or(type, "json_object"))
		return svc_fail_param(err, SVC_UNSUPPORTED, "text",
				      "text.format.type must be text, json_object or json_schema");
	return json_object_set_new(chat, "response_format",
				   json_pack("{s:s}", "type", "json_object")) == 0
		       ? SVC_OK
		       : svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

static enum svc_code tools_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *tools = json_object_get(body, "tools");
	const json_t *choice = json_object_get(body, "tool_choice");
	const json_t *name = json_object_get(choice, "name");
	const char *type = json_string_value(json_object_get(choice, "type"));
	enum svc_code code = SVC_OK;
	if (tools && !json_is_null(tools))
		code = gw_flat_tools_read(tools, "parameters", "function", chat, err);
	if (code != SVC_OK || !choice || json_is_null(choice))
		return code;
	if (json_is_string(choice))
		return gw_choice_set(chat, json_string_value(choice), NULL, err);
	if (type && strcmp(type, "function") == 0 && json_is_string(name))
		return gw_choice_set(chat, NULL, name, err);
	return svc_fail_param(err, SVC_UNSUPPORTED, "tool_choice",
			      "tool_choice must be auto, none, required, or an object of type "
			      "function with a name");
}

static enum svc_code messages_read(const json_t *body, const json_t *before, json_t *messages,
				   struct svc_err *err)
{
	json_t *instructions = json_object_get(body, "instructions");
	enum svc_code code = SVC_OK;
	if (instructions && !json_is_null(instructions) && !json_is_string(instructions))
		return svc_fail_param(err, SVC_INVALID, "instructions",
				      "instructions must be a string");
	if (json_is_string(instructions))
		code = gw_message_add(messages, "system", json_incref(instructions), err);
	if (code == SVC_OK && before && json_array_extend(messages, (json_t *)(uintptr_t)before))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return code == SVC_OK ? input_read(json_object_get(body, "input"), messages, err) : code;
}

enum svc_code gw_responses_read(const json_t *body, bool strict, const json_t *before,
				json_t **ret_chat, struct svc_err *err)
{
	json_t *chat = json_object(), *messages = json_array();
	const struct gw_translation translation = {
		body, chat, gw_responses_members, GW_RESPONSES_MEMBERS, strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = fixed_check(body, err);
	if (code == SVC_OK)
		code = gw_responses_metadata_check(body, err);
	if (code == SVC_OK)
		code = format_read(body, chat, err);
	if (code == SVC_OK)
		code = tools_read(body, chat, err);
	if (code == SVC_OK)
		code = messages_read(body, before, messages, err);
	return gw_translation_end(&translation, code, messages, ret_chat);
}
