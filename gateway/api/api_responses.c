#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/dialect.h"

/* ---- requests ---- */

static const struct gw_member members[] = {
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
	{"parallel_tool_calls", NULL, NULL},
	{"prompt_cache_key", NULL, NULL},
	{"safety_identifier", NULL, NULL},
	{"service_tier", NULL, NULL},
	{"stream_options", NULL, NULL},
	{"tool_choice", NULL, NULL},
	{"text", NULL, NULL},
	{"truncation", NULL, NULL},
	{"tools", NULL, "use /v1/chat/completions"},
	{"reasoning", NULL, "this server shows no thoughts apart"},
	{"include", NULL, "use logprobs at /v1/chat/completions"},
	{"top_logprobs", NULL, "use logprobs at /v1/chat/completions"},
	{"background", NULL, "send an Idempotency-Key, and come back for the answer"},
	{"conversation", NULL, "use previous_response_id"},
	{"prompt", NULL, "send input"},
	{"max_tool_calls", NULL, "use /v1/chat/completions"},
};

#define N_MEMBERS (sizeof members / sizeof *members)

static const char *const text_types[] = {"input_text", "output_text", "text", NULL};

static enum svc_code item_read(const json_t *item, size_t index, json_t *messages,
			       struct svc_err *err)
{
	char place[64];
	const char *role = json_string_value(json_object_get(item, "role"));
	const char *type = json_string_value(json_object_get(item, "type"));
	snprintf(place, sizeof place, "input[%zu]", index);
	if (type && strcmp(type, "message") != 0)
		return svc_fail_param(err, SVC_UNSUPPORTED, place,
				      "%s: only items of type message are supported", place);
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
	const json_t *text = json_object_get(body, "text");
	const json_t *format = json_object_get(json_object_get(text, "format"), "type");
	const json_t *choice = json_object_get(body, "tool_choice");
	if (!is_absent_or(json_object_get(body, "truncation"), "disabled"))
		return svc_fail_param(
			err, SVC_UNSUPPORTED, "truncation",
			"truncation must be disabled: a prompt is never cut silently");
	if (!is_absent_or(format, "text"))
		return svc_fail_param(err, SVC_UNSUPPORTED, "text",
				      "text.format.type must be text; /v1/chat/completions has "
				      "response_format");
	if (!is_absent_or(choice, "auto") && !is_absent_or(choice, "none"))
		return svc_fail_param(err, SVC_UNSUPPORTED, "tool_choice",
				      "tool_choice must be auto or none: there are no tools here");
	return SVC_OK;
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
	const struct gw_translation translation = {body, chat, members, N_MEMBERS, strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK)
		code = fixed_check(body, err);
	if (code == SVC_OK)
		code = messages_read(body, before, messages, err);
	return gw_translation_end(&translation, code, messages, ret_chat);
}

/* ---- answers ---- */

static bool has_opening(const struct gw_meta *meta)
{
	(void)meta;
	return true;
}

/* The id of the answer's one item: of the same request. */
static const char *item_id(const struct gw_render *render)
{
	const char *id = strchr(render->meta->id, '_');
	return id ? id + 1 : render->meta->id;
}

static void part_print(struct buf *out, struct span text)
{
	buf_span(out, span_of("{\"type\":\"output_text\",\"text\":"));
	buf_json_string(out, text);
	buf_span(out, span_of(",\"annotations\":[],\"logprobs\":[]}"));
}

static void item_print(const struct gw_render *render, const char *status,
		       const struct gw_view *view)
{
	buf_print(render->out,
		  "{\"id\":\"msg_%s\",\"type\":\"message\",\"status\":\"%s\","
		  "\"role\":\"assistant\",\"content\":[",
		  item_id(render), status);
	if (view)
		part_print(render->out, gw_view_answer(view));
	buf_span(render->out, span_of("]}"));
}

static void settings_print(const struct gw_render *render, const struct gw_view *view)
{
	struct buf *out = render->out;
	buf_span(out, span_of(",\"temperature\":"));
	gw_float_print(out, view->temperature);
	buf_span(out, span_of(",\"top_p\":"));
	gw_float_print(out, view->top_p);
	if (view->max_tokens)
		buf_print(out, ",\"max_output_tokens\":%u", view->max_tokens);
	else
		buf_span(out, span_of(",\"max_output_tokens\":null"));
	buf_span(out, span_of(",\"previous_response_id\":"));
	if (*render->meta->previous)
		buf_print(out, "\"%s\"", render->meta->previous);
	else
		buf_span(out, span_of("null"));
	buf_print(out,
		  ",\"store\":%s,\"instructions\":null,\"metadata\":{},\"tools\":[],"
		  "\"tool_choice\":\"auto\",\"parallel_tool_calls\":false,"
		  "\"text\":{\"format\":{\"type\":\"text\"}},\"truncation\":\"disabled\"",
		  render->meta->stored ? "true" : "false");
}

static const char *status_of(const struct gw_view *view)
{
	switch (view->finish) {
	case FINISH_NONE:
		return "in_progress";
	case FINISH_LENGTH:
		return "incomplete";
	case FINISH_STOP:
	case FINISH_CANCELLED:
	case FINISH_ERROR:
		break;
	}
	return "completed";
}

/* The response as it stands: in progress, it shows neither text nor usage. */
static void response_print(const struct gw_render *render, const struct gw_view *view, bool done)
{
	const struct gw_meta *meta = render->meta;
	struct buf *out = render->out;
	const char *status = done ? status_of(view) : "in_progress";
	buf_print(out,
		  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
		  ",\"status\":\"%s\",\"error\":null,\"incomplete_details\":%s,\"model\":",
		  meta->id, meta->created_s, status,
		  done && view->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}"
							: "null");
	buf_json_string(out, span_of(meta->model));
	buf_span(out, span_of(",\"output\":["));
	if (done)
		item_print(render, status, view);
	buf_span(out, span_of("]"));
	settings_print(render, view);
	if (done)
		buf_print(out,
			  ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":"
			  "{\"cached_tokens\":%u},\"output_tokens\":%u,"
			  "\"output_tokens_details\":{\"reasoning_tokens\":0},"
			  "\"total_tokens\":%u}}",
			  view->n_prompt, view->n_cached, view->n_tokens,
			  view->n_prompt + view->n_tokens);
	else
		buf_span(out, span_of(",\"usage\":null}"));
}

/* number: a function of the place in the answer, so that a stream that is gone on with counts on.
 * The four events of the opening are 0 to 3; token k is 4 + k. */
static void event_begin(const struct gw_render *render, const char *name, uint32_t number)
{
	if (*render->id)
		buf_print(render->out, "id: %s\n", render->id);
	buf_print(render->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", name,
		  name, number);
}

static void place_print(const struct gw_render *render)
{
	buf_print(render->out, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0",
		  item_id(render));
}

static void event_end(const struct gw_render *render)
{
	buf_span(render->out, span_of("}\n\n"));
}

static void response_event(const struct gw_render *render, const char *name, uint32_t number,
			   const struct gw_view *view, bool done)
{
	event_begin(render, name, number);
	buf_span(render->out, span_of(",\"response\":"));
	response_print(render, view, done);
	event_end(render);
}

static void item_event(const struct gw_render *render, const char *name, uint32_t number,
		       const struct gw_view *view)
{
	event_begin(render, name, number);
	buf_span(render->out, span_of(",\"output_index\":0,\"item\":"));
	item_print(render, view ? status_of(view) : "in_progress", view);
	event_end(render);
}

static void part_event(const struct gw_render *render, const char *name, uint32_t number,
		       struct span text)
{
	event_begin(render, name, number);
	place_print(render);
	buf_span(render->out, span_of(",\"part\":"));
	part_print(render->out, text);
	event_end(render);
}

static void opening(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	response_event(render, "response.created", 0, view, false);
	response_event(render, "response.in_progress", 1, view, false);
	item_event(render, "response.output_item.added", 2, NULL);
	part_event(render, "response.content_part.added", 3, span_of(""));
}

static void token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		  uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	event_begin(render, "response.output_text.delta", 4 + k);
	place_print(render);
	buf_span(render->out, span_of(",\"logprobs\":[],\"delta\":"));
	buf_json_string(render->out, gw_view_text(view, k));
	event_end(render);
}

static void finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	const struct span text = gw_view_answer(view);
	const uint32_t number = 4 + view->n_tokens;
	event_begin(render, "response.output_text.done", number);
	place_print(render);
	buf_span(render->out, span_of(",\"logprobs\":[],\"text\":"));
	buf_json_string(render->out, text);
	event_end(render);
	part_event(render, "response.content_part.done", number + 1, text);
	item_event(render, "response.output_item.done", number + 2, view);
	response_event(render,
		       view->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed",
		       number + 3, view, true);
}

static void end(const struct gw_render *render, const struct gw_usage *usage)
{
	(void)render;
	(void)usage;
}

static void error(struct buf *out, const struct svc_err *err)
{
	buf_print(out,
		  "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"%s\","
		  "\"param\":null,\"message\":",
		  svc_code_info(err->code)->name);
	buf_json_string(out, span_of(err->msg));
	buf_span(out, span_of("}\n\n"));
}

static void answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	response_print(render, &views[0], true);
}

const struct gw_dialect gw_dialect_responses = {
	.id_prefix = "resp_",
	.stream_type = "text/event-stream; charset=utf-8",
	.waiting = ": waiting\n",
	.has_opening = has_opening,
	.opening = opening,
	.token = token,
	.finish = finish,
	.end = end,
	.error = error,
	.members = members,
	.n_members = N_MEMBERS,
	.answer = answer,
};
