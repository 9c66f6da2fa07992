#include "gateway/api/surface_tools.h"

#include <stdio.h>
#include <string.h>

#include "gateway/api/dialect.h"

static enum svc_code no_memory(struct svc_err *err)
{
	return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

static enum svc_code tool_read(const json_t *tool, const char *place, const char *schema,
			       json_t *function, struct svc_err *err)
{
	json_t *name = json_object_get(tool, "name");
	json_t *about = json_object_get(tool, "description");
	json_t *parameters = json_object_get(tool, schema);
	if (!json_is_string(name))
		return svc_fail_param(err, SVC_INVALID, "tools", "%s.name must be a string", place);
	int failed = json_object_set(function, "name", name);
	if (json_is_string(about))
		failed |= json_object_set(function, "description", about);
	if (parameters && !json_is_null(parameters))
		failed |= json_object_set(function, "parameters", parameters);
	return failed ? no_memory(err) : SVC_OK;
}

enum svc_code gw_flat_tools_read(const json_t *tools, const char *schema, const char *type,
				 json_t *chat, struct svc_err *err)
{
	json_t *made = json_array();
	enum svc_code code = made ? SVC_OK : no_memory(err);
	if (!json_is_array(tools))
		code = svc_fail_param(err, SVC_INVALID, "tools", "tools must be an array");
	for (size_t i = 0; code == SVC_OK && i < json_array_size(tools); i++) {
		char place[32];
		const json_t *tool = json_array_get(tools, i);
		const char *own = json_string_value(json_object_get(tool, "type"));
		json_t *function = json_object();
		snprintf(place, sizeof place, "tools[%zu]", i);
		if (own && strcmp(own, type) != 0)
			code = svc_fail_param(err, SVC_UNSUPPORTED, "tools",
					      "%s: only tools of type %s are supported: this "
					      "server runs none itself",
					      place, type);
		if (code == SVC_OK)
			code = tool_read(tool, place, schema, function, err);
		json_t *entry = json_pack("{s:s, s:o}", "type", "function", "function", function);
		if (json_array_append_new(made, entry) != 0 && code == SVC_OK)
			code = no_memory(err);
	}
	if (code == SVC_OK && json_object_set(chat, "tools", made) != 0)
		code = no_memory(err);
	json_decref(made);
	return code;
}

enum svc_code gw_choice_set(json_t *chat, const char *word, const json_t *name, struct svc_err *err)
{
	json_t *choice =
		word ? json_string(word)
		     : json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
	return json_object_set_new(chat, "tool_choice", choice) == 0 ? SVC_OK : no_memory(err);
}

enum svc_code gw_schema_set(json_t *chat, const json_t *schema, struct svc_err *err)
{
	json_t *format = json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema",
				   "name", "answer", "schema", schema);
	return json_object_set_new(chat, "response_format", format) == 0 ? SVC_OK : no_memory(err);
}

const char *gw_call_id_strip(const char *id)
{
	static const char *const prefixes[] = {"toolu_", "call_"};
	for (size_t i = 0; id && i < sizeof prefixes / sizeof *prefixes; i++)
		if (strncmp(id, prefixes[i], strlen(prefixes[i])) == 0)
			return id + strlen(prefixes[i]);
	return id;
}

enum svc_code gw_call_add(json_t *message, const char *id, const json_t *name,
			  const json_t *arguments, struct svc_err *err)
{
	json_t *calls = json_object_get(message, "tool_calls");
	if (!id || !json_is_string(name))
		return svc_fail_param(err, SVC_INVALID, "messages",
				      "a call needs an id and a name, both strings");
	if (!calls) {
		calls = json_array();
		if (json_object_set_new(message, "tool_calls", calls) != 0)
			return no_memory(err);
	}
	json_t *call = json_pack("{s:s, s:s, s:{s:O, s:O*}}", "id", id, "type", "function",
				 "function", "name", name, "arguments", arguments);
	return json_array_append_new(calls, call) == 0 ? SVC_OK : no_memory(err);
}

enum svc_code gw_result_add(json_t *messages, const char *id, json_t *content_take,
			    struct svc_err *err)
{
	enum svc_code code = gw_message_add(messages, "tool", content_take, err);
	json_t *message = json_array_get(messages, json_array_size(messages) - 1);
	if (code == SVC_OK && id && json_object_set_new(message, "tool_call_id", json_string(id)))
		code = no_memory(err);
	return code;
}
