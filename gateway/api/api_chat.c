#include <stdio.h>
#include <stdlib.h>

#include "gateway/api/api_read.h"
#include "gateway/api/json_read.h"

#define TEMPLATE_BYTES_MAX (1u << 20)

/* Where in the conversation something is wrong: "messages[3].content". */
struct place {
	char text[64];
};

static struct place place_of(size_t message, const char *member)
{
	struct place place;
	snprintf(place.text, sizeof place.text, "messages[%zu]%s%s", message, *member ? "." : "",
		 member);
	return place;
}

/* A role goes into the prompt's text as it is; templates of some models know other roles than
 * OpenAI's. */
static bool role_is_valid(const json_t *role)
{
	struct span text = gw_json_span(role);
	if (!json_is_string(role) || text.len == 0 || text.len > 64)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		char c = text.ptr[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		      c == '_' || c == '-'))
			return false;
	}
	return true;
}

static enum svc_code part_check(struct gw_reading *reading, size_t message, const json_t *part)
{
	struct place place = place_of(message, "content");
	const json_t *type = json_object_get(part, "type");
	if (!json_is_object(part) || !json_is_string(type))
		return gw_wrong(reading, place.text,
				"%s: a part must be an object with a string member: type",
				place.text);
	if (!span_is(gw_json_span(type), "text"))
		return svc_fail_param(reading->err, SVC_UNSUPPORTED, place.text,
				      "%s: only parts of type text are supported", place.text);
	if (!json_is_string(json_object_get(part, "text")))
		return gw_wrong(reading, place.text, "%s: a text part needs a string member: text",
				place.text);
	return SVC_OK;
}

/* null and [] become "": templates differ in what they make of them, and all mean no text. */
static enum svc_code content_read(struct gw_reading *reading, size_t index, json_t *message)
{
	struct place place = place_of(index, "content");
	const json_t *content = json_object_get(message, "content");
	if (!content && !json_object_get(message, "tool_calls"))
		return gw_wrong(reading, place.text, "%s is missing", place.text);
	if (json_is_array(content) && json_array_size(content) > 0) {
		for (size_t i = 0; i < json_array_size(content); i++) {
			enum svc_code code = part_check(reading, index, json_array_get(content, i));
			if (code != SVC_OK)
				return code;
		}
		return SVC_OK;
	}
	if (json_is_string(content))
		return SVC_OK;
	if (content && !json_is_null(content) && !json_is_array(content))
		return gw_wrong(reading, place.text,
				"%s must be a string, null or an array of text parts", place.text);
	return json_object_set_new(message, "content", json_string("")) == 0
		       ? SVC_OK
		       : gw_no_memory(reading);
}

/* Templates want the arguments of a call as an object; OpenAI's clients send them as JSON in a
 * string. */
static enum svc_code arguments_read(struct gw_reading *reading, size_t message, json_t *function)
{
	struct place place = place_of(message, "tool_calls");
	const json_t *text = json_object_get(function, "arguments");
	if (json_is_object(text))
		return SVC_OK;
	if (!text || json_is_null(text) || (json_is_string(text) && json_string_length(text) == 0))
		return json_object_set_new(function, "arguments", json_object()) == 0
			       ? SVC_OK
			       : gw_no_memory(reading);
	if (!json_is_string(text))
		return gw_wrong(reading, place.text,
				"%s: arguments must be JSON in a string, or an object", place.text);
	reading->argument_bytes += json_string_length(text);
	if (reading->argument_bytes > GW_ARGUMENTS_BYTES_MAX)
		return gw_wrong(reading, place.text, "%s: more than %u bytes of arguments in all",
				place.text, GW_ARGUMENTS_BYTES_MAX);
	json_t *arguments = NULL;
	enum svc_code code = gw_json_read(gw_json_span(text), NULL, &arguments, NULL);
	if (code != SVC_OK || !json_is_object(arguments)) {
		json_decref(arguments);
		return gw_wrong(reading, place.text,
				"%s: arguments must be a JSON object in a string", place.text);
	}
	return json_object_set_new(function, "arguments", arguments) == 0 ? SVC_OK
									  : gw_no_memory(reading);
}

static enum svc_code tool_calls_read(struct gw_reading *reading, size_t index, json_t *message)
{
	struct place place = place_of(index, "tool_calls");
	const json_t *calls = json_object_get(message, "tool_calls");
	if (!calls)
		return SVC_OK;
	/* Templates ask whether the member is there, so null must not be. */
	if (json_is_null(calls))
		return json_object_del(message, "tool_calls") == 0 ? SVC_OK : gw_no_memory(reading);
	if (!json_is_array(calls))
		return gw_wrong(reading, place.text, "%s must be an array", place.text);
	for (size_t i = 0; i < json_array_size(calls); i++) {
		json_t *function = json_object_get(json_array_get(calls, i), "function");
		if (!json_is_string(json_object_get(function, "name")))
			return gw_wrong(
				reading, place.text,
				"%s: each entry needs an object function with a string name",
				place.text);
		enum svc_code code = arguments_read(reading, index, function);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

/* What no template shows: without it the conversation would be another one. Clients write null for
 * what a message hasn't. */
static enum svc_code unseen_refuse(struct gw_reading *reading, size_t index, const json_t *message)
{
	static const struct {
		const char *name, *remedy;
	} members[] = {{"function_call", "use tool_calls, and role tool for what it gave back"},
		       {"audio", "this server reads text only"}};
	for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
		const json_t *value = json_object_get(message, members[i].name);
		struct place place = place_of(index, members[i].name);
		if (value && !json_is_null(value))
			return svc_fail_param(reading->err, SVC_UNSUPPORTED, place.text,
					      "%s is not supported: %s", place.text,
					      members[i].remedy);
	}
	return SVC_OK;
}

static enum svc_code message_read(struct gw_reading *reading, size_t index, json_t *message)
{
	static const char *const strings[] = {"name", "tool_call_id"};
	if (!json_is_object(message)) {
		struct place place = place_of(index, "");
		return gw_wrong(reading, place.text, "%s must be an object", place.text);
	}
	if (!role_is_valid(json_object_get(message, "role"))) {
		struct place place = place_of(index, "role");
		return gw_wrong(reading, place.text,
				"%s must be a string of 1 to 64 letters, digits, _ and -, such as "
				"system, user, assistant or tool",
				place.text);
	}
	for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
		json_t *value = json_object_get(message, strings[i]);
		struct place place = place_of(index, strings[i]);
		if (value && !json_is_null(value) && !json_is_string(value))
			return gw_wrong(reading, place.text, "%s must be a string", place.text);
	}
	enum svc_code code = unseen_refuse(reading, index, message);
	if (code == SVC_OK)
		code = content_read(reading, index, message);
	return code == SVC_OK ? tool_calls_read(reading, index, message) : code;
}

enum svc_code gw_read_messages(struct gw_reading *reading, const char *name, json_t *value)
{
	size_t n = json_array_size(value);
	if (!json_is_array(value) || n == 0 || n > GW_MESSAGES_MAX)
		return gw_wrong(reading, name, "messages must be an array of 1 to %u messages",
				GW_MESSAGES_MAX);
	for (size_t i = 0; i < n; i++) {
		enum svc_code code = message_read(reading, i, json_array_get(value, i));
		if (code != SVC_OK)
			return code;
	}
	reading->messages = value;
	return SVC_OK;
}

static enum svc_code trust_check(struct gw_reading *reading, const char *name)
{
	if (reading->limits->trust_request_template)
		return SVC_OK;
	return gw_wrong(
		reading, name,
		"%s is accepted only when the server runs with --trust-request-chat-template",
		name);
}

enum svc_code gw_read_template(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_string(value) || json_string_length(value) > TEMPLATE_BYTES_MAX)
		return gw_wrong(reading, name, "chat_template must be a string of at most %u bytes",
				TEMPLATE_BYTES_MAX);
	reading->template_text = value;
	return trust_check(reading, name);
}

/* Whether to think is the client's to say: it chooses between texts of the template's author. */
static bool is_about_thinking(const json_t *kwargs)
{
	static const char *const names[] = {"enable_thinking", "thinking"};
	size_t n = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		n += json_is_boolean(json_object_get(kwargs, names[i]));
	return json_object_size(kwargs) == n;
}

enum svc_code gw_read_template_kwargs(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_object(value))
		return gw_wrong(reading, name, "chat_template_kwargs must be an object");
	if (json_object_get(value, "messages"))
		return gw_wrong(reading, name,
				"chat_template_kwargs must not have a member: messages");
	reading->template_kwargs = value;
	return is_about_thinking(value) ? SVC_OK : trust_check(reading, name);
}

/* Takes a new reference; a value of NULL is left out. */
static int member_add(json_t *object, const char *name, json_t *value)
{
	return value ? json_object_set(object, name, value) : 0;
}

enum svc_code gw_chat_build(struct gw_reading *reading)
{
	struct gw_request *request = reading->request;
	json_t *chat = json_object();
	int failed = member_add(chat, "messages", reading->messages) |
		     member_add(chat, "tools", reading->tools) |
		     json_object_set_new(chat, "add_generation_prompt",
					 json_boolean(reading->add_generation_prompt)) |
		     member_add(chat, "chat_template", reading->template_text) |
		     member_add(chat, "chat_template_kwargs", reading->template_kwargs);
	/* 17 digits: every double comes back the same. */
	request->chat_text =
		failed ? NULL : json_dumps(chat, JSON_COMPACT | JSON_REAL_PRECISION(17));
	json_decref(chat);
	if (!request->chat_text)
		return gw_no_memory(reading);
	request->chat = span_of(request->chat_text);
	return SVC_OK;
}
