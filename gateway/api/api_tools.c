/* gateway/api/api_tools.c: tools and tool_choice. */
#include <string.h>

#include "gateway/api/api_read.h"

static bool name_is_valid(const json_t *name)
{
	struct span text = gw_json_span(name);
	return json_is_string(name) && text.len > 0 && text.len <= 64 &&
	       strspn(text.ptr, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
				".") == text.len;
}

static enum svc_code tool_check(struct gw_reading *reading, const char *name, const json_t *tools,
				size_t index)
{
	const json_t *tool = json_array_get(tools, index);
	const json_t *type = json_object_get(tool, "type");
	const json_t *function = json_object_get(tool, "function");
	const json_t *own = json_object_get(function, "name");
	const json_t *parameters = json_object_get(function, "parameters");
	if (!json_is_string(type) || !span_is(gw_json_span(type), "function") ||
	    !name_is_valid(own))
		return gw_wrong(
			reading, name,
			"tools: entry %zu must be an object with type \"function\" and an "
			"object function with a name of 1 to 64 letters, digits, _, - and .",
			index);
	if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
		return gw_wrong(reading, name,
				"tools: the parameters of entry %zu must be a JSON schema", index);
	for (size_t i = 0; i < index; i++) {
		const json_t *other = json_object_get(json_array_get(tools, i), "function");
		if (json_equal(json_object_get(other, "name"), own))
			return gw_wrong(reading, name, "tools: entries %zu and %zu have one name",
					i, index);
	}
	return SVC_OK;
}

enum svc_code gw_read_tools(struct gw_reading *reading, const char *name, json_t *value)
{
	size_t n = json_array_size(value);
	if (!json_is_array(value) || n > GW_TOOLS_MAX)
		return gw_wrong(reading, name, "tools must be an array of at most %u functions",
				GW_TOOLS_MAX);
	for (size_t i = 0; i < n; i++) {
		enum svc_code code = tool_check(reading, name, value, i);
		if (code != SVC_OK)
			return code;
	}
	if (n > 0)
		reading->tools = value;
	return SVC_OK;
}

/* {"type": "function", "function": {"name": ...}} */
static enum svc_code named_read(struct gw_reading *reading, const char *name, const json_t *value)
{
	const json_t *type = json_object_get(value, "type");
	const json_t *own = json_object_get(json_object_get(value, "function"), "name");
	if (!json_is_string(type) || !span_is(gw_json_span(type), "function") ||
	    !json_is_string(own))
		return svc_fail_param(reading->err, SVC_UNSUPPORTED, name,
				      "tool_choice as an object must be {\"type\": \"function\", "
				      "\"function\": {\"name\": ...}}");
	reading->tool_choice = GW_TOOL_NAMED;
	reading->tool_name = json_string_value(own);
	return SVC_OK;
}

enum svc_code gw_read_tool_choice(struct gw_reading *reading, const char *name, json_t *value)
{
	static const char *const words[] = {"auto", "none", "required"};
	if (json_is_object(value))
		return named_read(reading, name, value);
	for (size_t i = 0; json_is_string(value) && i < sizeof words / sizeof *words; i++)
		if (span_is(gw_json_span(value), words[i])) {
			reading->tool_choice = (enum gw_tool_choice)i;
			return SVC_OK;
		}
	return gw_wrong(
		reading, name,
		"tool_choice must be auto, none, required, or an object that names a function");
}

static bool is_there(const json_t *tools, const char *name)
{
	for (size_t i = 0; i < json_array_size(tools); i++) {
		const json_t *function = json_object_get(json_array_get(tools, i), "function");
		if (strcmp(json_string_value(json_object_get(function, "name")), name) == 0)
			return true;
	}
	return false;
}

enum svc_code gw_tools_check(struct gw_reading *reading)
{
	struct gw_request *request = reading->request;
	bool must =
		reading->tool_choice == GW_TOOL_REQUIRED || reading->tool_choice == GW_TOOL_NAMED;
	struct span own = gw_json_span(reading->template_text);
	if (request->endpoint != GW_CHAT)
		return SVC_OK;
	request->thinks = reading->template_text ? vocab_thinks_of(own) : reading->limits->thinks;
	if (must && !reading->tools)
		return gw_wrong(reading, "tool_choice",
				"tool_choice asks for a call, but there are no tools");
	if (reading->tool_choice == GW_TOOL_NAMED && !is_there(reading->tools, reading->tool_name))
		return gw_wrong(reading, "tool_choice",
				"tool_choice names a function that is not among the tools");
	if (must && reading->constraint.bound != GW_BOUND_NONE)
		return gw_wrong(
			reading, "tool_choice",
			"tool_choice asks for a call, and %s for an answer: give one of them",
			reading->constraint.param);
	if (reading->tool_choice == GW_TOOL_NONE)
		reading->tools = NULL;
	request->calls = reading->tools != NULL;
	request->tools = reading->template_text ? vocab_tools_of(own) : reading->limits->tools;
	request->tools = vocab_tools_with(request->tools, &reading->limits->call_tokens);
	return SVC_OK;
}

enum svc_code gw_tools_build(struct gw_reading *reading, struct gr_writer *writer, bool content)
{
	const struct gw_tool_use use = {.tools = reading->tools,
					.choice = reading->tool_choice,
					.name = reading->tool_name,
					.single = !reading->parallel_calls,
					.form = reading->request->tools,
					.tokens = reading->limits->call_tokens};
	return gw_tools_put(writer, &use, content, reading->err);
}
