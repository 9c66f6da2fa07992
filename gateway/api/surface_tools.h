/* gateway/api/surface_tools.h: tools, calls and their results in the forms of other clients, as a
 * chat's. Internal to api_anthropic.c, api_ollama.c and api_responses.c. */
#pragma once
#include <jansson.h>

#include "base/err.h"

/* {"name", "description", SCHEMA}, and what else means nothing, as the chat's tools. schema: the
 * member's name; type: the only one that "type" may have (absent is fine). Sets chat.tools. */
enum svc_code gw_flat_tools_read(const json_t *tools, const char *schema, const char *type,
				 json_t *chat, struct svc_err *err) SVC_CHECKED;
/* Sets chat.tool_choice to a word, or to the function of that name; NULL: neither. */
enum svc_code gw_choice_set(json_t *chat, const char *word, const json_t *name,
			    struct svc_err *err) SVC_CHECKED;
/* Sets chat.response_format to a schema. */
enum svc_code gw_schema_set(json_t *chat, const json_t *schema, struct svc_err *err) SVC_CHECKED;

/* An id as calls have it here: without the prefix that a dialect puts before it. */
const char *gw_call_id_strip(const char *id);
/* Adds a call to an assistant's message; arguments: an object, or its text; NULL: none. */
enum svc_code gw_call_add(json_t *message, const char *id, const json_t *name,
			  const json_t *arguments, struct svc_err *err) SVC_CHECKED;
/* Appends what a call gave back; takes content, which may be NULL: fails then. */
enum svc_code gw_result_add(json_t *messages, const char *id, json_t *content_take,
			    struct svc_err *err) SVC_CHECKED;
