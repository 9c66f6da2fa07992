#include "tokenizer/tool_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static bool role_is(const json_t *message, const char *role)
{
	const char *own = json_string_value(json_object_get(message, "role"));
	return own && strcmp(own, role) == 0;
}

static void string_append(struct buf *out, const json_t *string)
{
	if (json_is_string(string))
		buf_append(out, json_string_value(string), json_string_length(string));
}

/* The text of a message: a string, or parts. */
static void content_append(struct buf *out, const json_t *message)
{
	const json_t *content = json_object_get(message, "content");
	string_append(out, content);
	for (size_t i = 0; i < json_array_size(content); i++)
		string_append(out, json_object_get(json_array_get(content, i), "text"));
}

static void json_append(struct buf *out, const json_t *json)
{
	char *text = json_dumps(json, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
	out->failed |= !text;
	if (text)
		buf_append(out, text, strlen(text));
	free(text);
}

/* Puts the text in the message's place. Frees it. */
static bool content_set(json_t *message, struct buf *text)
{
	bool done = !text->failed &&
		    json_object_set_new(message, "content",
					json_stringn(text->ptr ? text->ptr : "", text->len)) == 0;
	buf_free(text);
	return done;
}

static bool calls_write(json_t *message)
{
	const json_t *calls = json_object_get(message, "tool_calls");
	struct buf text = {0};
	content_append(&text, message);
	for (size_t i = 0; i < json_array_size(calls); i++) {
		const json_t *function = json_object_get(json_array_get(calls, i), "function");
		buf_print(&text, "%s<tool_call>\n{\"name\": ", text.len ? "\n" : "");
		json_append(&text, json_object_get(function, "name"));
		buf_print(&text, ", \"arguments\": ");
		json_append(&text, json_object_get(function, "arguments"));
		buf_print(&text, "}\n</tool_call>");
	}
	return content_set(message, &text) && json_object_del(message, "tool_calls") == 0;
}

/* Results come from the user; those of several calls in one message, as templates want the roles to
 * alternate. */
static bool results_write(json_t *messages, size_t index)
{
	json_t *message = json_array_get(messages, index);
	struct buf text = {0};
	do {
		buf_print(&text, "%s<tool_response>\n", text.len ? "\n" : "");
		content_append(&text, json_array_get(messages, index));
		buf_print(&text, "\n</tool_response>");
		if (!role_is(json_array_get(messages, index + 1), "tool"))
			break;
		if (json_array_remove(messages, index) != 0)
			return false;
		message = json_array_get(messages, index);
	} while (true);
	return json_object_set_new(message, "role", json_string("user")) == 0 &&
	       content_set(message, &text);
}

static bool messages_write(json_t *messages)
{
	for (size_t i = 0; i < json_array_size(messages); i++) {
		json_t *message = json_array_get(messages, i);
		if (json_object_get(message, "tool_calls") && !calls_write(message))
			return false;
		if (role_is(message, "tool") && !results_write(messages, i))
			return false;
	}
	return true;
}

static void tools_append(struct buf *out, const json_t *tools)
{
	buf_print(out, "You can call functions. Each line is one of them, as JSON:\n");
	for (size_t i = 0; i < json_array_size(tools); i++) {
		json_append(out, json_array_get(tools, i));
		buf_print(out, "\n");
	}
	buf_print(out, "To call one, write its name and its arguments as a JSON object:\n"
		       "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>\n"
		       "What it returns comes back within <tool_response></tool_response>.");
}

static bool system_write(json_t *messages, const json_t *tools)
{
	json_t *first = json_array_get(messages, 0);
	struct buf text = {0};
	if (!role_is(first, "system")) {
		first = json_object();
		if (!first || json_array_insert_new(messages, 0, first) != 0 ||
		    json_object_set_new(first, "role", json_string("system")) != 0)
			return false;
	}
	content_append(&text, first);
	buf_print(&text, "%s", text.len ? "\n\n" : "");
	tools_append(&text, tools);
	return content_set(first, &text);
}

enum svc_code tool_prompt_add(json_t *chat, struct svc_err *err)
{
	json_t *messages = json_object_get(chat, "messages"),
	       *tools = json_object_get(chat, "tools");
	bool done = messages_write(messages);
	if (done && json_array_size(tools) > 0)
		done = system_write(messages, tools) && json_object_del(chat, "tools") == 0;
	return done ? SVC_OK
		    : svc_fail(err, SVC_NO_MEMORY, __func__,
			       "out of memory for a prompt with tools");
}
