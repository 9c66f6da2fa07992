/* gateway/api/anthropic_answer.c: answers in the form of Anthropic's messages. */
#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/api_error.h"
#include "gateway/api/dialect.h"
#include "gateway/api/render_parts.h"

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

static void stop_print(struct buf *out, const struct gw_view *view, bool called)
{
	static const char *const reasons[] = {"\"end_turn\"", "\"max_tokens\"", "\"stop_sequence\"",
					      "\"tool_use\""};
	int reason = view->finish == FINISH_LENGTH ? 1 : view->stop.ptr ? 2 : called ? 3 : 0;
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

/* ---- blocks: the text, if there is any, then the calls ---- */

static void block_begin(const struct gw_render *render, uint32_t index,
			const struct gw_call_piece *call)
{
	char id[GW_CALL_ID_BYTES];
	event_begin(render, "content_block_start");
	buf_print(render->out, ",\"index\":%" PRIu32 ",\"content_block\":", index);
	if (call) {
		gw_call_id_make(render->meta, 0, call->index, id);
		buf_print(render->out, "{\"type\":\"tool_use\",\"id\":\"toolu_%s\",\"name\":", id);
		buf_json_string(render->out, span_of(call->name));
		buf_span(render->out, span_of(",\"input\":{}}"));
	} else {
		buf_span(render->out, span_of("{\"type\":\"text\",\"text\":\"\"}"));
	}
	event_end(render);
}

static void block_delta(const struct gw_render *render, uint32_t index, bool call, struct span text)
{
	event_begin(render, "content_block_delta");
	buf_print(render->out, ",\"index\":%" PRIu32 ",\"delta\":{\"type\":%s:", index,
		  call ? "\"input_json_delta\",\"partial_json\"" : "\"text_delta\",\"text\"");
	buf_json_string(render->out, text);
	buf_span(render->out, span_of("}"));
	event_end(render);
}

static void block_stop(const struct gw_render *render, uint32_t index)
{
	event_begin(render, "content_block_stop");
	buf_print(render->out, ",\"index\":%" PRIu32, index);
	event_end(render);
}

/* What a token says. */
static void saying_print(const struct gw_render *render, const struct gw_saying *saying)
{
	const struct gw_said *said = &saying->said;
	if (said->content.len) {
		if (!saying->before.said)
			block_begin(render, 0, NULL);
		block_delta(render, 0, false, gw_said_content(said));
	}
	for (size_t i = 0; i < said->n_pieces; i++) {
		const struct gw_call_piece *piece = &said->pieces[i];
		uint32_t index = piece->index + saying->after.said;
		if (piece->begins && index > 0)
			block_stop(render, index - 1);
		if (piece->begins)
			block_begin(render, index, piece);
		if (piece->len)
			block_delta(render, index, true, gw_piece_arguments(said, piece));
	}
}

/* ---- events ---- */

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
	if (!gw_speaks(render->meta))
		block_begin(render, 0, NULL);
}

static void token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		  uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	struct gw_saying saying;
	struct span text = gw_view_text(view, k);
	if (gw_speaks(render->meta)) {
		gw_say_token(render, view, k, &saying);
		saying_print(render, &saying);
		gw_saying_free(render, &saying);
	} else if (text.len) {
		block_delta(render, 0, false, text);
	}
}

static void finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	struct gw_saying saying = {.after.said = true};
	if (gw_speaks(render->meta)) {
		gw_say_end(render, view, &saying);
		saying_print(render, &saying);
	}
	uint32_t n_blocks = saying.after.n_calls + saying.after.said;
	if (n_blocks)
		block_stop(render, n_blocks - 1);
	event_begin(render, "message_delta");
	buf_span(render->out, span_of(",\"delta\":{"));
	stop_print(render->out, view, saying.after.n_calls > 0);
	buf_print(render->out, "},\"usage\":{\"output_tokens\":%u}", view->n_tokens);
	event_end(render);
	gw_saying_free(render, &saying);
}

static void end(const struct gw_render *render, const struct gw_usage *usage)
{
	(void)usage;
	event_begin(render, "message_stop");
	event_end(render);
}

/* A call whose arguments max_tokens has cut is no JSON, and left out. */
static void call_print(const struct gw_render *render, const struct gw_said *said,
		       const struct gw_call_piece *call, bool first)
{
	char id[GW_CALL_ID_BYTES];
	struct span arguments = gw_piece_arguments(said, call);
	if (!gw_is_json(arguments))
		return;
	gw_call_id_make(render->meta, 0, call->index, id);
	buf_print(render->out,
		  "%s{\"type\":\"tool_use\",\"id\":\"toolu_%s\",\"name\":", first ? "" : ",", id);
	buf_json_string(render->out, span_of(call->name));
	buf_span(render->out, span_of(",\"input\":"));
	buf_span(render->out, arguments);
	buf_span(render->out, span_of("}"));
}

static void answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	struct gw_saying saying;
	gw_say_all(render, &views[0], &saying);
	const struct gw_said *said = &saying.said;
	bool text = said->content.len || !gw_speaks(render->meta);
	buf_span(render->out, span_of("{"));
	message_begin(render);
	if (text) {
		buf_span(render->out, span_of("{\"type\":\"text\",\"text\":"));
		buf_json_string(render->out, gw_said_content(said));
		buf_span(render->out, span_of("}"));
	}
	for (size_t i = 0; i < said->n_pieces; i++)
		call_print(render, said, &said->pieces[i], i == 0 && !text);
	buf_span(render->out, span_of("],"));
	stop_print(render->out, &views[0], said->n_pieces > 0);
	buf_print(render->out,
		  ",\"usage\":{\"input_tokens\":%u,\"output_tokens\":%u,"
		  "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0}}",
		  views[0].n_prompt, views[0].n_tokens);
	gw_saying_free(render, &saying);
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
	.members = gw_anthropic_members,
	.n_members = GW_ANTHROPIC_MEMBERS,
	.answer = answer,
};
