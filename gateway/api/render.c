#include "gateway/api/render.h"

#include <inttypes.h>

#include "gateway/api/render_parts.h"

/* ---- texts and widths ---- */

struct span gw_position_text(const struct gw_render *render, const struct gw_view *view,
			     uint32_t position)
{
	int32_t id = view->ids[position];
	struct span piece = vocab_token(render->vocab, id);
	if (!render->meta->keep_special && (vocab_token_flags(render->vocab, id) & VOCAB_CONTROL))
		return (struct span){"", 0};
	return piece;
}

size_t gw_position_width(const struct gw_render *render, const struct gw_view *view,
			 uint32_t position)
{
	struct span piece = gw_position_text(render, view, position);
	size_t width = 0;
	for (size_t i = 0; i < piece.len; i++)
		width += ((unsigned char)piece.ptr[i] & 0xC0) != 0x80;
	return width;
}

size_t gw_render_width(const struct gw_render *render, const struct gw_view *view, uint32_t k)
{
	return gw_position_width(render, view, view->n_prompt + k);
}

size_t gw_render_prompt_width(const struct gw_render *render, const struct gw_view *view)
{
	size_t width = 0;
	for (uint32_t p = 0; render->meta->echo && p < view->n_prompt; p++)
		width += gw_position_width(render, view, p);
	return width;
}

/* The prompt as it was given; made from its tokens if it was given as ids. */
static void prompt_text_append(const struct gw_render *render, const struct gw_view *view,
			       struct buf *text)
{
	if (view->prompt_text.ptr) {
		buf_span(text, view->prompt_text);
		return;
	}
	bool strip = render->vocab->strip == VOCAB_STRIP_FIRST;
	for (uint32_t p = 0; p < view->n_prompt; p++) {
		struct span piece = gw_position_text(render, view, p);
		if (strip && piece.len && piece.ptr[0] == ' ')
			piece = (struct span){piece.ptr + 1, piece.len - 1};
		strip = strip && piece.len == 0;
		buf_span(text, piece);
	}
}

/* ---- pieces of JSON ---- */

static void ids_print(struct buf *out, const int32_t *ids, uint32_t n)
{
	buf_print(out, "[");
	for (uint32_t i = 0; i < n; i++)
		buf_print(out, "%s%" PRId32, i ? "," : "", ids[i]);
	buf_print(out, "]");
}

/* called: the answer calls tools. */
static const char *finish_name(enum body_finish finish, bool called)
{
	switch (finish) {
	case FINISH_STOP:
		return called ? "\"tool_calls\"" : "\"stop\"";
	case FINISH_LENGTH:
		return "\"length\"";
	case FINISH_NONE:
	case FINISH_CANCELLED:
	case FINISH_ERROR:
		break;
	}
	return "null";
}

/* Up to and including the bracket that opens the choices. */
static void head_print(const struct gw_render *render, const char *object)
{
	const struct gw_meta *meta = render->meta;
	buf_print(render->out,
		  "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", meta->id,
		  object, meta->created_s);
	buf_json_string(render->out, span_of(meta->model));
	buf_print(render->out, ",\"system_fingerprint\":");
	buf_json_string(render->out, span_of(meta->fingerprint));
	buf_print(render->out, ",\"choices\":[");
}

static void chunk_begin(const struct gw_render *render, uint32_t choice)
{
	head_print(render, render->meta->chat ? "chat.completion.chunk" : "text_completion");
	buf_print(render->out, "{\"index\":%" PRIu32 ",", choice);
}

static void choice_end(const struct gw_render *render, enum body_finish finish, bool called)
{
	buf_print(render->out, ",\"finish_reason\":%s}", finish_name(finish, called));
}

static void chunk_end(const struct gw_render *render, enum body_finish finish, bool called)
{
	choice_end(render, finish, called);
	buf_print(render->out, "]%s", render->meta->include_usage ? ",\"usage\":null" : "");
}

/* ---- events ---- */

bool gw_render_has_opening(const struct gw_meta *meta)
{
	return meta->chat || meta->echo;
}

static void opening_chat(const struct gw_render *render, uint32_t choice,
			 const struct gw_view *view)
{
	chunk_begin(render, choice);
	buf_print(render->out,
		  "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null");
	chunk_end(render, FINISH_NONE, false);
	if (render->meta->token_ids) {
		buf_print(render->out, ",\"prompt_token_ids\":");
		ids_print(render->out, view->ids, view->n_prompt);
	}
	buf_print(render->out, "}");
}

static void prompt_ids_member(const struct gw_render *render, const struct gw_view *view)
{
	if (!render->meta->token_ids)
		return;
	buf_print(render->out, ",\"prompt_token_ids\":");
	ids_print(render->out, view->ids, view->n_prompt);
}

static void opening_echo(const struct gw_render *render, uint32_t choice,
			 const struct gw_view *view)
{
	struct buf text = {0};
	prompt_text_append(render, view, &text);
	chunk_begin(render, choice);
	buf_print(render->out, "\"text\":");
	buf_json_string(render->out, (struct span){text.ptr, text.len});
	buf_print(render->out, ",\"logprobs\":");
	if (render->meta->logprobs)
		gw_completion_logprobs(render, view, 0, view->n_prompt, 0);
	else
		buf_print(render->out, "null");
	prompt_ids_member(render, view);
	chunk_end(render, FINISH_NONE, false);
	buf_print(render->out, "}");
	render->out->failed |= text.failed;
	buf_free(&text);
}

void gw_render_opening(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	if (render->meta->chat)
		opening_chat(render, choice, view);
	else
		opening_echo(render, choice, view);
}

static void delta_put(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		      uint32_t k)
{
	buf_print(render->out, "\"delta\":{");
	if (gw_speaks(render->meta)) {
		struct gw_saying saying;
		gw_say_token(render, view, k, &saying);
		gw_said_print(render, choice, &saying.said);
		gw_saying_free(render, &saying);
	} else {
		buf_print(render->out, "\"content\":");
		buf_json_string(render->out, gw_view_text(view, k));
	}
	buf_print(render->out, "}");
}

void gw_render_token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		     uint32_t k, size_t width)
{
	const struct gw_meta *meta = render->meta;
	chunk_begin(render, choice);
	if (meta->chat) {
		delta_put(render, choice, view, k);
	} else {
		buf_print(render->out, "\"text\":");
		buf_json_string(render->out, gw_view_text(view, k));
	}
	buf_print(render->out, ",\"logprobs\":");
	if (!meta->logprobs)
		buf_print(render->out, "null");
	else if (meta->chat)
		gw_chat_logprobs(render, view, k, k + 1);
	else
		gw_completion_logprobs(render, view, view->n_prompt + k, view->n_prompt + k + 1,
				       width);
	if (meta->token_ids) {
		buf_print(render->out, ",\"token_ids\":");
		ids_print(render->out, view->ids + view->n_prompt + k, 1);
	}
	if (k == 0 && !gw_render_has_opening(meta))
		prompt_ids_member(render, view);
	chunk_end(render, FINISH_NONE, false);
	buf_print(render->out, "}");
}

void gw_render_finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	bool called = false;
	chunk_begin(render, choice);
	if (!render->meta->chat) {
		buf_print(render->out, "\"text\":\"\"");
	} else if (gw_speaks(render->meta)) {
		/* What was held back to the end. */
		struct gw_saying saying;
		gw_say_end(render, view, &saying);
		called = saying.after.n_calls > 0;
		buf_print(render->out, "\"delta\":{");
		if (saying.said.content.len || saying.said.reasoning.len)
			gw_said_print(render, choice, &saying.said);
		buf_print(render->out, "}");
		gw_saying_free(render, &saying);
	} else {
		buf_print(render->out, "\"delta\":{}");
	}
	buf_print(render->out, ",\"logprobs\":null");
	chunk_end(render, view->finish, called);
	buf_print(render->out, "}");
}

static void usage_print(struct buf *out, const struct gw_usage *usage)
{
	buf_print(out,
		  "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
		  ",\"total_tokens\":%" PRIu64
		  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}",
		  usage->n_prompt, usage->n_answer, usage->n_prompt + usage->n_answer,
		  usage->n_cached);
}

void gw_render_usage(const struct gw_render *render, const struct gw_usage *usage)
{
	head_print(render, render->meta->chat ? "chat.completion.chunk" : "text_completion");
	buf_print(render->out, "],");
	usage_print(render->out, usage);
	buf_print(render->out, "}");
}

/* ---- the whole answer ---- */

/* Returns whether it calls tools. */
static bool choice_chat(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	bool called = false;
	buf_print(render->out, "\"message\":{\"role\":\"assistant\",");
	if (gw_speaks(render->meta)) {
		called = gw_message_print(render, choice, view);
	} else {
		buf_print(render->out, "\"content\":");
		buf_json_string(render->out, gw_view_answer(view));
	}
	buf_print(render->out, ",\"refusal\":null},\"logprobs\":");
	if (render->meta->logprobs)
		gw_chat_logprobs(render, view, 0, view->n_tokens);
	else
		buf_print(render->out, "null");
	return called;
}

static void choice_completion(const struct gw_render *render, const struct gw_view *view)
{
	const struct gw_meta *meta = render->meta;
	struct buf text = {0};
	if (meta->echo)
		prompt_text_append(render, view, &text);
	buf_span(&text, gw_view_answer(view));
	buf_print(render->out, "\"text\":");
	buf_json_string(render->out, (struct span){text.ptr, text.len});
	render->out->failed |= text.failed;
	buf_free(&text);
	buf_print(render->out, ",\"logprobs\":");
	if (meta->logprobs)
		gw_completion_logprobs(render, view, meta->echo ? 0 : view->n_prompt,
				       view->n_prompt + view->n_tokens, 0);
	else
		buf_print(render->out, "null");
	prompt_ids_member(render, view);
}

void gw_render_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	const struct gw_meta *meta = render->meta;
	struct gw_usage usage = {0};
	head_print(render, meta->chat ? "chat.completion" : "text_completion");
	for (uint32_t i = 0; i < n; i++) {
		buf_print(render->out, "%s{\"index\":%" PRIu32 ",", i ? "," : "", i);
		bool called = false;
		if (meta->chat)
			called = choice_chat(render, i, &views[i]);
		else
			choice_completion(render, &views[i]);
		if (meta->token_ids) {
			buf_print(render->out, ",\"token_ids\":");
			ids_print(render->out, views[i].ids + views[i].n_prompt, views[i].n_tokens);
		}
		choice_end(render, views[i].finish, called);
		usage.n_prompt += i % meta->n ? 0 : views[i].n_prompt;
		usage.n_cached += i % meta->n ? 0 : views[i].n_cached;
		usage.n_answer += views[i].n_tokens;
	}
	buf_print(render->out, "],");
	usage_print(render->out, &usage);
	if (meta->chat && n)
		prompt_ids_member(render, &views[0]);
	buf_print(render->out, "}");
}

void gw_event_print(struct buf *out, const char *id, struct span json)
{
	if (*id)
		buf_print(out, "id: %s\n", id);
	buf_append(out, "data: ", 6);
	buf_span(out, json);
	buf_append(out, "\n\n", 2);
}
