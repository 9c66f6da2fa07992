/* gateway/api/responses_answer.c: answers in the form of OpenAI's responses: items, which are the
 * text, if there is any, and then the calls. */
#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/dialect.h"
#include "gateway/api/render_parts.h"

static bool has_opening(const struct gw_meta *meta)
{
	(void)meta;
	return true;
}

/* ---- items ---- */

/* Items' ids are of the same request. */
static const char *own_id(const struct gw_render *render)
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

/* said NULL: the item begins, without a part. */
static void message_print(const struct gw_render *render, const char *status,
			  const struct gw_said *said)
{
	buf_print(render->out,
		  "{\"id\":\"msg_%s\",\"type\":\"message\",\"status\":\"%s\","
		  "\"role\":\"assistant\",\"content\":[",
		  own_id(render), status);
	if (said)
		part_print(render->out, gw_said_content(said));
	buf_span(render->out, span_of("]}"));
}

static void call_print(const struct gw_render *render, const char *status,
		       const struct gw_call_piece *call, struct span arguments)
{
	char id[GW_CALL_ID_BYTES];
	gw_call_id_make(render->meta, 0, call->index, id);
	buf_print(render->out,
		  "{\"id\":\"fc_%s_%" PRIu32 "\",\"type\":\"function_call\",\"status\":\"%s\","
		  "\"call_id\":\"call_%s\",\"name\":",
		  own_id(render), call->index, status, id);
	buf_json_string(render->out, span_of(call->name));
	buf_span(render->out, span_of(",\"arguments\":"));
	buf_json_string(render->out, arguments);
	buf_span(render->out, span_of("}"));
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

/* Only the last one can be cut. */
static void items_print(const struct gw_render *render, const struct gw_view *view,
			const struct gw_said *all)
{
	bool text = all->content.len || !gw_speaks(render->meta);
	if (text)
		message_print(render, all->n_pieces ? "completed" : status_of(view), all);
	for (size_t i = 0; i < all->n_pieces; i++) {
		buf_span(render->out, span_of(text || i ? "," : ""));
		call_print(render, i + 1 < all->n_pieces ? "completed" : status_of(view),
			   &all->pieces[i], gw_piece_arguments(all, &all->pieces[i]));
	}
}

/* ---- the response ---- */

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
	buf_print(out, ",\"store\":%s,\"truncation\":\"disabled\"",
		  render->meta->stored ? "true" : "false");
	/* The members of an object with braces around them. */
	struct span own = view->settings;
	if (own.len > 2) {
		buf_span(out, span_of(","));
		buf_span(out, (struct span){own.ptr + 1, own.len - 2});
	}
}

/* The response as it stands: in progress (all NULL), it shows neither items nor usage. */
static void response_print(const struct gw_render *render, const struct gw_view *view,
			   const struct gw_said *all)
{
	const struct gw_meta *meta = render->meta;
	struct buf *out = render->out;
	buf_print(out,
		  "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64
		  ",\"status\":\"%s\",\"error\":null,\"incomplete_details\":%s,\"model\":",
		  meta->id, meta->created_s, all ? status_of(view) : "in_progress",
		  all && view->finish == FINISH_LENGTH ? "{\"reason\":\"max_output_tokens\"}"
						       : "null");
	buf_json_string(out, span_of(meta->model));
	buf_span(out, span_of(",\"output\":["));
	if (all)
		items_print(render, view, all);
	buf_span(out, span_of("]"));
	settings_print(render, view);
	if (all)
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

/* ---- events ---- */

/* Numbers are a function of the place in the answer, so that a stream that is gone on with counts
 * on: the opening's begin at 0, token k's at first + k * each, with room for all that a token can
 * say. */
struct writer {
	const struct gw_render *render;
	uint32_t number;
};

static struct writer writer_at(const struct gw_render *render, uint32_t k)
{
	bool speaks = gw_speaks(render->meta);
	return (struct writer){render, speaks ? 2 + 64 * k : 4 + k};
}

static void event_begin(struct writer *writer, const char *name)
{
	struct buf *out = writer->render->out;
	if (*writer->render->id)
		buf_print(out, "id: %s\n", writer->render->id);
	buf_print(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%" PRIu32, name, name,
		  writer->number++);
}

static void event_end(struct writer *writer)
{
	buf_span(writer->render->out, span_of("}\n\n"));
}

static void response_event(struct writer *writer, const char *name, const struct gw_view *view,
			   const struct gw_said *all)
{
	event_begin(writer, name);
	buf_span(writer->render->out, span_of(",\"response\":"));
	response_print(writer->render, view, all);
	event_end(writer);
}

static void text_place_print(const struct gw_render *render)
{
	buf_print(render->out, ",\"item_id\":\"msg_%s\",\"output_index\":0,\"content_index\":0",
		  own_id(render));
}

static void part_event(struct writer *writer, const char *name, struct span text)
{
	event_begin(writer, name);
	text_place_print(writer->render);
	buf_span(writer->render->out, span_of(",\"part\":"));
	part_print(writer->render->out, text);
	event_end(writer);
}

static void message_event(struct writer *writer, const char *name, const char *status,
			  const struct gw_said *said)
{
	event_begin(writer, name);
	buf_span(writer->render->out, span_of(",\"output_index\":0,\"item\":"));
	message_print(writer->render, status, said);
	event_end(writer);
}

static void message_open(struct writer *writer)
{
	message_event(writer, "response.output_item.added", "in_progress", NULL);
	part_event(writer, "response.content_part.added", span_of(""));
}

/* member: delta or text. */
static void text_event(struct writer *writer, const char *name, const char *member,
		       struct span text)
{
	event_begin(writer, name);
	text_place_print(writer->render);
	buf_print(writer->render->out, ",\"logprobs\":[],\"%s\":", member);
	buf_json_string(writer->render->out, text);
	event_end(writer);
}

/* member: delta or arguments. */
static void arguments_event(struct writer *writer, const char *name, const char *member,
			    uint32_t item, const struct gw_call_piece *call, struct span text)
{
	struct buf *out = writer->render->out;
	event_begin(writer, name);
	buf_print(out, ",\"item_id\":\"fc_%s_%" PRIu32 "\",\"output_index\":%" PRIu32 ",",
		  own_id(writer->render), call->index, item);
	buf_print(out, "\"%s\":", member);
	buf_json_string(out, text);
	event_end(writer);
}

static void call_event(struct writer *writer, const char *name, const char *status, uint32_t item,
		       const struct gw_call_piece *call, struct span arguments)
{
	event_begin(writer, name);
	buf_print(writer->render->out, ",\"output_index\":%" PRIu32 ",\"item\":", item);
	call_print(writer->render, status, call, arguments);
	event_end(writer);
}

/* Item number `item` of what was said so far is complete. text: the first one is the text. */
static void item_close(struct writer *writer, const struct gw_said *all, bool text, uint32_t item,
		       const char *status)
{
	if (text && item == 0) {
		text_event(writer, "response.output_text.done", "text", gw_said_content(all));
		part_event(writer, "response.content_part.done", gw_said_content(all));
		message_event(writer, "response.output_item.done", status, all);
	} else if (item - text < all->n_pieces) {
		const struct gw_call_piece *call = &all->pieces[item - text];
		struct span arguments = gw_piece_arguments(all, call);
		arguments_event(writer, "response.function_call_arguments.done", "arguments", item,
				call, arguments);
		call_event(writer, "response.output_item.done", status, item, call, arguments);
	}
}

/* n: tokens with the one that says it. */
static void saying_print(struct writer *writer, const struct gw_view *view, uint32_t n,
			 const struct gw_saying *saying)
{
	const struct gw_said *said = &saying->said;
	bool text = saying->after.said;
	if (said->content.len && !saying->before.said)
		message_open(writer);
	if (said->content.len)
		text_event(writer, "response.output_text.delta", "delta", gw_said_content(said));
	for (size_t i = 0; i < said->n_pieces; i++) {
		const struct gw_call_piece *piece = &said->pieces[i];
		uint32_t item = piece->index + text;
		struct gw_saying before;
		if (piece->begins && item > 0) {
			gw_say_first(writer->render, view, n, &before);
			item_close(writer, &before.said, text, item - 1, "completed");
			gw_saying_free(writer->render, &before);
		}
		if (piece->begins)
			call_event(writer, "response.output_item.added", "in_progress", item, piece,
				   span_of(""));
		if (piece->len)
			arguments_event(writer, "response.function_call_arguments.delta", "delta",
					item, piece, gw_piece_arguments(said, piece));
	}
}

static void opening(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	struct writer writer = {render, 0};
	response_event(&writer, "response.created", view, NULL);
	response_event(&writer, "response.in_progress", view, NULL);
	if (!gw_speaks(render->meta))
		message_open(&writer);
}

static void token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		  uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	struct writer writer = writer_at(render, k);
	struct gw_saying saying;
	if (!gw_speaks(render->meta)) {
		text_event(&writer, "response.output_text.delta", "delta", gw_view_text(view, k));
		return;
	}
	gw_say_token(render, view, k, &saying);
	saying_print(&writer, view, k + 1, &saying);
	gw_saying_free(render, &saying);
}

static void finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	struct writer writer = writer_at(render, view->n_tokens);
	struct gw_saying saying, all;
	bool text = true;
	if (gw_speaks(render->meta)) {
		gw_say_end(render, view, &saying);
		saying_print(&writer, view, view->n_tokens, &saying);
		text = saying.after.said;
		gw_saying_free(render, &saying);
	}
	gw_say_all(render, view, &all);
	uint32_t n_items = (uint32_t)all.said.n_pieces + text;
	if (n_items)
		item_close(&writer, &all.said, text, n_items - 1, status_of(view));
	response_event(&writer,
		       view->finish == FINISH_LENGTH ? "response.incomplete" : "response.completed",
		       view, &all.said);
	gw_saying_free(render, &all);
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
	struct gw_saying all;
	gw_say_all(render, &views[0], &all);
	response_print(render, &views[0], &all.said);
	gw_saying_free(render, &all);
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
	.members = gw_responses_members,
	.n_members = GW_RESPONSES_MEMBERS,
	.answer = answer,
};
