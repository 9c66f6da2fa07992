#include <stdio.h>

#include "gateway/api/dialect.h"
#include "gateway/api/surface_tools.h"

/* ---- requests ---- */

const struct gw_member gw_anthropic_members[GW_ANTHROPIC_MEMBERS] = {
	{"model", "model", NULL},
	{"max_tokens", "max_tokens", NULL},
	{"messages", NULL, NULL},
	{"system", NULL, NULL},
	{"stop_sequences", "stop", NULL},
	{"stream", "stream", NULL},
	{"temperature", "temperature", NULL},
	{"top_p", "top_p", NULL},
	{"top_k", "top_k", NULL},
	{"metadata", NULL, NULL},
	{"service_tier", NULL, NULL},
	{"thinking", NULL, NULL},
	{"tools", NULL, NULL},
	{"tool_choice", NULL, NULL},
	{"output_format", NULL, NULL},
	{"output_config", NULL, NULL},
	{"mcp_servers", NULL, "this server calls nobody"},
	{"container", NULL, "this server runs no code"},
};

static const char *const text_types[] = {"text", NULL};

/* ---- messages: their parts one after the other */

struct parts {
	json_t *messages;
	json_t *texts; /* not yet in a message */
	json_t *calls; /* an assistant's message that holds its calls, or NULL */
	const char *role, *place;
	struct svc_err *err;
};

static enum svc_code no_memory(struct svc_err *err)
{
	return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

/* The texts so far as a message of their own. */
static enum svc_code texts_flush(struct parts *parts)
{
	json_t *texts = parts->texts;
	if (json_array_size(texts) == 0)
		return SVC_OK;
	parts->texts = json_array();
	return gw_message_add(parts->messages, parts->role, texts, parts->err);
}

static enum svc_code text_read(struct parts *parts, const json_t *part)
{
	json_t *one = json_pack("[O]", part);
	json_t *text = one ? gw_content_read(one, text_types, parts->place, parts->err) : NULL;
	json_decref(one);
	int failed = text ? json_array_extend(parts->texts, text) : 1;
	json_decref(text);
	return failed ? parts->err->code : SVC_OK;
}

static enum svc_code call_read(struct parts *parts, const json_t *part)
{
	const char *id = gw_call_id_strip(json_string_value(json_object_get(part, "id")));
	const json_t *input = json_object_get(part, "input");
	if (!json_is_object(input))
		return svc_fail_param(parts->err, SVC_INVALID, parts->place,
				      "%s: the input of a tool_use must be an object",
				      parts->place);
	if (!parts->calls)
		parts->calls = json_object();
	return gw_call_add(parts->calls, id, json_object_get(part, "name"), input, parts->err);
}

/* What was said before it stands before it. */
static enum svc_code result_read(struct parts *parts, const json_t *part)
{
	const char *id = gw_call_id_strip(json_string_value(json_object_get(part, "tool_use_id")));
	const json_t *content = json_object_get(part, "content");
	enum svc_code code = texts_flush(parts);
	if (code != SVC_OK)
		return code;
	if (!id)
		return svc_fail_param(parts->err, SVC_INVALID, parts->place,
				      "%s: a tool_result needs a string member: tool_use_id",
				      parts->place);
	json_t *text = content ? gw_content_read(content, text_types, parts->place, parts->err)
			       : json_string("");
	return gw_result_add(parts->messages, id, text, parts->err);
}

static enum svc_code part_read(struct parts *parts, const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	bool assistant = strcmp(parts->role, "assistant") == 0;
	if (type && assistant && strcmp(type, "tool_use") == 0)
		return call_read(parts, part);
	if (type && !assistant && strcmp(type, "tool_result") == 0)
		return result_read(parts, part);
	return text_read(parts, part);
}

/* An assistant's text and calls are one message; a user's results and text are one after the other.
 */
static enum svc_code parts_end(struct parts *parts, bool empty)
{
	bool more = empty || parts->calls || json_array_size(parts->texts) > 0;
	if (!more)
		return SVC_OK;
	json_t *texts = parts->texts;
	parts->texts = NULL;
	enum svc_code code = gw_message_add(parts->messages, parts->role, texts, parts->err);
	json_t *message = json_array_get(parts->messages, json_array_size(parts->messages) - 1);
	if (code == SVC_OK && parts->calls && json_object_update(message, parts->calls) != 0)
		code = no_memory(parts->err);
	return code;
}

static enum svc_code content_read(const json_t *content, const char *role, const char *place,
				  json_t *messages, struct svc_err *err)
{
	struct parts parts = {messages, json_array(), NULL, role, place, err};
	size_t n = json_array_size(content);
	enum svc_code code = parts.texts ? SVC_OK : no_memory(err);
	for (size_t i = 0; code == SVC_OK && i < n; i++)
		code = part_read(&parts, json_array_get(content, i));
	if (code == SVC_OK)
		code = parts_end(&parts, n == 0);
	json_decref(parts.texts);
	json_decref(parts.calls);
	return code;
}

static enum svc_code message_read(const json_t *message, size_t index, json_t *messages,
				  struct svc_err *err)
{
	char place[64];
	const char *role = json_string_value(json_object_get(message, "role"));
	const json_t *content = json_object_get(message, "content");
	snprintf(place, sizeof place, "messages[%zu]", index);
	if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
		return svc_fail_param(err, SVC_INVALID, place,
				      "%s.role must be user or assistant; instructions go into "
				      "system",
				      place);
	if (json_is_array(content))
		return content_read(content, role, place, messages, err);
	return gw_message_add(messages, role, gw_content_read(content, text_types, place, err),
			      err);
}

static enum svc_code messages_read(const json_t *body, json_t *messages, struct svc_err *err)
{
	const json_t *given = json_object_get(body, "messages");
	const json_t *system = json_object_get(body, "system");
	size_t n = json_array_size(given);
	enum svc_code code = SVC_OK;
	if (n == 0)
		return svc_fail_param(err, SVC_INVALID, "messages",
				      "messages must be an array of at least one message");
	if (system && !json_is_null(system))
		code = gw_message_add(messages, "system",
				      gw_content_read(system, text_types, "system", err), err);
	for (size_t i = 0; i < n && code == SVC_OK; i++)
		code = message_read(json_array_get(given, i), i, messages, err);
	const char *last = json_string_value(
		json_object_get(json_array_get(messages, json_array_size(messages) - 1), "role"));
	if (code == SVC_OK && last && strcmp(last, "assistant") == 0)
		return svc_fail_param(err, SVC_UNSUPPORTED, "messages",
				      "the last message must be of role user: an assistant's "
				      "message is not gone on with");
	return code;
}

static enum svc_code thinking_check(const json_t *body, struct svc_err *err)
{
	const json_t *thinking = json_object_get(body, "thinking");
	const char *type = json_string_value(json_object_get(thinking, "type"));
	if (!thinking || json_is_null(thinking) || (type && strcmp(type, "disabled") == 0))
		return SVC_OK;
	return svc_fail_param(err, SVC_UNSUPPORTED, "thinking",
			      "thinking is supported only as {\"type\": \"disabled\"}");
}

/* ---- tools and the answer's form */

static enum svc_code choice_read(const json_t *choice, json_t *chat, struct svc_err *err)
{
	static const struct {
		const char *type, *word;
	} words[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}, {"tool", NULL}};
	const char *type = json_string_value(json_object_get(choice, "type"));
	const json_t *name = json_object_get(choice, "name");
	if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")) &&
	    json_object_set_new(chat, "parallel_tool_calls", json_false()) != 0)
		return no_memory(err);
	for (size_t i = 0; type && i < sizeof words / sizeof *words; i++)
		if (strcmp(words[i].type, type) == 0 && (words[i].word || json_is_string(name)))
			return gw_choice_set(chat, words[i].word, name, err);
	return svc_fail_param(err, SVC_INVALID, "tool_choice",
			      "tool_choice must be an object of type auto, any, none, or tool with "
			      "a name");
}

/* output_format, or output_config.format, as newer clients say it. */
static enum svc_code form_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *config = json_object_get(body, "output_config");
	const json_t *form = json_object_get(body, "output_format");
	bool only = !config || json_is_null(config) ||
		    (json_is_object(config) &&
		     json_object_size(config) == (json_object_get(config, "format") ? 1 : 0));
	if (!form || json_is_null(form))
		form = json_object_get(config, "format");
	const char *type = json_string_value(json_object_get(form, "type"));
	const json_t *schema = json_object_get(form, "schema");
	if (!only)
		return svc_fail_param(err, SVC_UNSUPPORTED, "output_config",
				      "output_config is supported with the member format only");
	if (!form || json_is_null(form))
		return SVC_OK;
	if (!type || strcmp(type, "json_schema") != 0 || !schema)
		return svc_fail_param(err, SVC_UNSUPPORTED, "output_format",
				      "the answer's format must be {\"type\": \"json_schema\", "
				      "\"schema\": ...}");
	return gw_schema_set(chat, schema, err);
}

static enum svc_code tools_read(const json_t *body, json_t *chat, struct svc_err *err)
{
	const json_t *tools = json_object_get(body, "tools");
	const json_t *choice = json_object_get(body, "tool_choice");
	enum svc_code code = SVC_OK;
	if (tools && !json_is_null(tools))
		code = gw_flat_tools_read(tools, "input_schema", "custom", chat, err);
	if (code == SVC_OK && choice && !json_is_null(choice))
		code = choice_read(choice, chat, err);
	return code == SVC_OK ? form_read(body, chat, err) : code;
}

enum svc_code gw_anthropic_read(const json_t *body, bool strict, json_t **ret_chat,
				struct svc_err *err)
{
	json_t *chat = json_object(), *messages = json_array();
	const struct gw_translation translation = {
		body, chat, gw_anthropic_members, GW_ANTHROPIC_MEMBERS, strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK && !json_is_integer(json_object_get(body, "max_tokens")))
		code = svc_fail_param(err, SVC_INVALID, "max_tokens",
				      "max_tokens must be an integer");
	if (code == SVC_OK)
		code = thinking_check(body, err);
	if (code == SVC_OK)
		code = tools_read(body, chat, err);
	if (code == SVC_OK)
		code = messages_read(body, messages, err);
	return gw_translation_end(&translation, code, messages, ret_chat);
}
