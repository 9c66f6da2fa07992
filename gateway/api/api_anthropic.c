#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/api_error.h"
#include "gateway/api/dialect.h"

/* ---- requests ---- */

static const struct gw_member members[] = {
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
	{"tools", NULL, "use /v1/chat/completions"},
	{"tool_choice", NULL, "use /v1/chat/completions"},
	{"mcp_servers", NULL, "this server calls nobody"},
	{"container", NULL, "this server runs no code"},
};

#define N_MEMBERS (sizeof members / sizeof *members)

static const char *const text_types[] = {"text", NULL};

static enum svc_code message_read(const json_t *message, size_t index, json_t *messages,
				  struct svc_err *err)
{
	char place[64];
	const char *role = json_string_value(json_object_get(message, "role"));
	snprintf(place, sizeof place, "messages[%zu]", index);
	if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
		return svc_fail_param(err, SVC_INVALID, place,
				      "%s.role must be user or assistant; instructions go into "
				      "system",
				      place);
	return gw_message_add(
		messages, role,
		gw_content_read(json_object_get(message, "content"), text_types, place, err), err);
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

enum svc_code gw_anthropic_read(const json_t *body, bool strict, json_t **ret_chat,
				struct svc_err *err)
{
	json_t *chat = json_object(), *messages = json_array();
	const struct gw_translation translation = {body, chat, members, N_MEMBERS, strict, err};
	enum svc_code code = gw_members_copy(&translation);
	if (code == SVC_OK && !json_is_integer(json_object_get(body, "max_tokens")))
		code = svc_fail_param(err, SVC_INVALID, "max_tokens",
				      "max_tokens must be an integer");
	if (code == SVC_OK)
		code = thinking_check(body, err);
	if (code == SVC_OK)
		code = messages_read(body, messages, err);
	return gw_translation_end(&translation, code, messages, ret_chat);
}

/* ---- answers ---- */

static bool has_opening(const struct gw_meta *meta)
{
	(void)meta;
	return true;
}

static void event_begin(const struct gw_render *render, const char *name)
{
	if (*render->id)
		buf_print(render->out, "id: %s\n", render->id);
	buf_print(render->out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void event_end(const struct gw_render *render)
{
	buf_span(render->out, span_of("}\n\n"));
}

static void stop_print(struct buf *out, const struct gw_view *view)
{
	static const char *const reasons[] = {"\"end_turn\"", "\"max_tokens\"",
					      "\"stop_sequence\""};
	int reason = view->finish == FINISH_LENGTH ? 1 : view->stop.ptr ? 2 : 0;
	buf_print(out, "\"stop_reason\":%s,\"stop_sequence\":", reasons[reason]);
	if (view->stop.ptr)
		buf_json_string(out, view->stop);
	else
		buf_span(out, span_of("null"));
}

/* The message without its content's end: up to and including the bracket that opens it. */
static void message_begin(const struct gw_render *render)
{
	buf_print(render->out,
		  "\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":",
		  render->meta->id);
	buf_json_string(render->out, span_of(render->meta->model));
	buf_span(render->out, span_of(",\"content\":["));
}

static void opening(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	event_begin(render, "message_start");
	buf_span(render->out, span_of(",\"message\":{"));
	message_begin(render);
	buf_print(render->out,
		  "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%u,"
		  "\"output_tokens\":0}}",
		  view->n_prompt);
	event_end(render);
	event_begin(render, "content_block_start");
	buf_span(render->out,
		 span_of(",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}"));
	event_end(render);
}

static void token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		  uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	struct span text = gw_view_text(view, k);
	if (text.len == 0)
		return;
	event_begin(render, "content_block_delta");
	buf_span(render->out, span_of(",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"));
	buf_json_string(render->out, text);
	buf_span(render->out, span_of("}"));
	event_end(render);
}

static void finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	event_begin(render, "content_block_stop");
	buf_span(render->out, span_of(",\"index\":0"));
	event_end(render);
	event_begin(render, "message_delta");
	buf_span(render->out, span_of(",\"delta\":{"));
	stop_print(render->out, view);
	buf_print(render->out, "},\"usage\":{\"output_tokens\":%u}", view->n_tokens);
	event_end(render);
}

static void end(const struct gw_render *render, const struct gw_usage *usage)
{
	(void)usage;
	event_begin(render, "message_stop");
	event_end(render);
}

static void answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	buf_span(render->out, span_of("{"));
	message_begin(render);
	buf_span(render->out, span_of("{\"type\":\"text\",\"text\":"));
	buf_json_string(render->out, gw_view_answer(&views[0]));
	buf_span(render->out, span_of("}],"));
	stop_print(render->out, &views[0]);
	buf_print(render->out,
		  ",\"usage\":{\"input_tokens\":%u,\"output_tokens\":%u,"
		  "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0}}",
		  views[0].n_prompt, views[0].n_tokens);
}

static const char *error_type(int status)
{
	static const struct {
		int status;
		const char *type;
	} types[] = {
		{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
		{413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
		{504, "timeout_error"},
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].status == status)
			return types[i].type;
	return status < 500 ? "invalid_request_error" : "api_error";
}

void gw_error_print_anthropic(struct buf *out, const struct svc_err *err)
{
	buf_print(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
		  error_type(gw_error_status(err)));
	buf_json_string(out, span_of(err->msg));
	buf_span(out, span_of("}}"));
}

static void error(struct buf *out, const struct svc_err *err)
{
	buf_span(out, span_of("event: error\ndata: "));
	gw_error_print_anthropic(out, err);
	buf_span(out, span_of("\n\n"));
}

const struct gw_dialect gw_dialect_anthropic = {
	.id_prefix = "msg_",
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
