/* gateway/api/responses_settings.c: what a response repeats of its request. It stands in the
 * request's body as text, so that any gateway can show it. */
#include <jansson.h>

#include "gateway/api/dialect.h"

#define METADATA_MAX	   16u
#define METADATA_KEY_MAX   64u
#define METADATA_VALUE_MAX 512u

enum svc_code gw_responses_metadata_check(const json_t *body, struct svc_err *err)
{
	json_t *metadata = json_object_get(body, "metadata");
	bool good = !metadata || json_is_null(metadata) ||
		    (json_is_object(metadata) && json_object_size(metadata) <= METADATA_MAX);
	const char *key;
	const json_t *value;
	json_object_foreach(metadata, key, value) good =
		good && json_is_string(value) && strlen(key) <= METADATA_KEY_MAX &&
		json_string_length(value) <= METADATA_VALUE_MAX;
	if (good)
		return SVC_OK;
	return svc_fail_param(err, SVC_INVALID, "metadata",
			      "metadata must be an object of at most %u strings, each of at most "
			      "%u bytes, under names of at most %u",
			      METADATA_MAX, METADATA_VALUE_MAX, METADATA_KEY_MAX);
}

/* The request's member, or what it stands for when it is absent; a new reference. */
static json_t *member_or(const json_t *body, const char *name, json_t *otherwise_take)
{
	json_t *value = json_object_get(body, name);
	if (!value || json_is_null(value))
		return otherwise_take;
	json_decref(otherwise_take);
	return json_incref(value);
}

/* A function as OpenAI shows it: with what was left out. */
static json_t *tool_shown(const json_t *tool)
{
	json_t *shown = json_copy((json_t *)(uintptr_t)tool);
	int failed = 0;
	if (!json_object_get(shown, "type"))
		failed |= json_object_set_new(shown, "type", json_string("function"));
	if (!json_object_get(shown, "parameters"))
		failed |= json_object_set_new(shown, "parameters", json_null());
	/* Arguments are always of the schema. */
	failed |= json_object_set_new(shown, "strict", json_true());
	if (!failed)
		return shown;
	json_decref(shown);
	return NULL;
}

static json_t *tools_shown(const json_t *body)
{
	const json_t *tools = json_object_get(body, "tools");
	json_t *shown = json_array();
	for (size_t i = 0; i < json_array_size(tools); i++) {
		if (json_array_append_new(shown, tool_shown(json_array_get(tools, i))) == 0)
			continue;
		json_decref(shown);
		return NULL;
	}
	return shown;
}

static json_t *text_shown(const json_t *body)
{
	const json_t *text = json_object_get(body, "text");
	return json_pack("{s:o}", "format",
			 member_or(text, "format", json_pack("{s:s}", "type", "text")));
}

char *gw_responses_settings(const json_t *body)
{
	static const char *const repeated[] = {"user", "safety_identifier", "prompt_cache_key"};
	json_t *shown = json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o}", "instructions",
		member_or(body, "instructions", json_null()), "metadata",
		member_or(body, "metadata", json_object()), "tools", tools_shown(body),
		"tool_choice", member_or(body, "tool_choice", json_string("auto")),
		"parallel_tool_calls", member_or(body, "parallel_tool_calls", json_true()), "text",
		text_shown(body));
	int failed = !shown;
	for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
		json_t *value = json_object_get(body, repeated[i]);
		if (json_is_string(value))
			failed |= json_object_set(shown, repeated[i], value);
	}
	char *text = failed ? NULL : json_dumps(shown, JSON_COMPACT);
	json_decref(shown);
	return text;
}
