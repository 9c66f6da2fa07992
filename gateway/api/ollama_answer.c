/* gateway/api/ollama_answer.c: answers in Ollama's form: one JSON object a line. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "gateway/api/api_error.h"
#include "gateway/api/dialect.h"
#include "gateway/api/render_parts.h"

static bool has_opening(const struct gw_meta *meta)
{
	(void)meta;
	return false;
}

/* Up to the text: {"model":…,"created_at":…,"message":{"role":"assistant","content": */
static void line_begin(const struct gw_render *render, bool chat)
{
	struct tm tm = {0};
	char created[40] = "";
	time_t seconds = (time_t)render->meta->created_s;
	if (gmtime_r(&seconds, &tm))
		snprintf(created, sizeof created, "%04d-%02d-%02dT%02d:%02d:%02dZ",
			 1900 + tm.tm_year, 1 + tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min,
			 tm.tm_sec);
	buf_span(render->out, span_of("{\"model\":"));
	buf_json_string(render->out, span_of(render->meta->model));
	buf_print(render->out, ",\"created_at\":\"%s\",%s", created,
		  chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"response\":");
}

static void text_print(const struct gw_render *render, bool chat, struct span text)
{
	line_begin(render, chat);
	buf_json_string(render->out, text);
	buf_span(render->out, span_of(chat ? "}" : ""));
}

/* A call whose arguments num_predict has cut is no JSON, and left out. */
static void calls_print(const struct gw_render *render, const struct gw_said *said)
{
	struct buf *out = render->out;
	bool any = false;
	for (size_t i = 0; i < said->n_pieces; i++) {
		struct span arguments = gw_piece_arguments(said, &said->pieces[i]);
		if (!gw_is_json(arguments))
			continue;
		buf_print(out, any ? ",{\"function\":{\"name\":"
				   : ",\"tool_calls\":[{\"function\":{\"name\":");
		buf_json_string(out, span_of(said->pieces[i].name));
		buf_span(out, span_of(",\"arguments\":"));
		buf_span(out, arguments);
		buf_span(out, span_of("}}"));
		any = true;
	}
	buf_span(out, span_of(any ? "]" : ""));
}

/* A message with what was said; calls: NULL, or what has them. */
static void message_print(const struct gw_render *render, const struct gw_said *said,
			  const struct gw_said *calls)
{
	line_begin(render, true);
	buf_json_string(render->out, gw_said_content(said));
	if (said->reasoning.len) {
		buf_span(render->out, span_of(",\"thinking\":"));
		buf_json_string(render->out,
				(struct span){said->reasoning.ptr, said->reasoning.len});
	}
	if (calls)
		calls_print(render, calls);
	buf_span(render->out, span_of("}"));
}

/* Durations in nanoseconds, as far as this gateway has seen them. */
static void done_print(const struct gw_render *render, const struct gw_view *view)
{
	uint64_t begin = render->arrived_us, first = view->first_us, last = view->last_us;
	uint64_t prompt_us = begin && first > begin ? first - begin : 0;
	uint64_t eval_us = last > first ? last - first : 0;
	buf_print(render->out,
		  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
		  ",\"load_duration\":0,\"prompt_eval_count\":%u,\"prompt_eval_duration\":%" PRIu64
		  ",\"eval_count\":%u,\"eval_duration\":%" PRIu64 "}",
		  view->finish == FINISH_LENGTH ? "length" : "stop", 1000 * (prompt_us + eval_us),
		  view->n_prompt, 1000 * prompt_us, view->n_tokens, 1000 * eval_us);
}

static void token_print(const struct gw_render *render, bool chat, const struct gw_view *view,
			uint32_t k)
{
	struct span text = gw_view_text(view, k);
	if (text.len == 0)
		return;
	text_print(render, chat, text);
	buf_span(render->out, span_of(",\"done\":false}\n"));
}

static void chat_token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		       uint32_t k, size_t width)
{
	struct gw_saying saying;
	(void)choice;
	(void)width;
	if (!gw_speaks(render->meta)) {
		token_print(render, true, view, k);
		return;
	}
	gw_say_token(render, view, k, &saying);
	if (saying.said.content.len || saying.said.reasoning.len) {
		message_print(render, &saying.said, NULL);
		buf_span(render->out, span_of(",\"done\":false}\n"));
	}
	gw_saying_free(render, &saying);
}

static void generate_token(const struct gw_render *render, uint32_t choice,
			   const struct gw_view *view, uint32_t k, size_t width)
{
	(void)choice;
	(void)width;
	token_print(render, false, view, k);
}

/* What was held back, and the calls: each is one object, so all of them come at the end. */
static void rest_print(const struct gw_render *render, const struct gw_view *view)
{
	struct gw_saying last, all;
	gw_say_end(render, view, &last);
	gw_say_all(render, view, &all);
	if (last.said.content.len || last.said.reasoning.len || all.said.n_pieces) {
		message_print(render, &last.said, &all.said);
		buf_span(render->out, span_of(",\"done\":false}\n"));
	}
	gw_saying_free(render, &last);
	gw_saying_free(render, &all);
}

static void chat_finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	(void)choice;
	if (gw_speaks(render->meta))
		rest_print(render, view);
	text_print(render, true, span_of(""));
	done_print(render, view);
	buf_span(render->out, span_of("\n"));
}

static void generate_finish(const struct gw_render *render, uint32_t choice,
			    const struct gw_view *view)
{
	(void)choice;
	text_print(render, false, span_of(""));
	done_print(render, view);
	buf_span(render->out, span_of("\n"));
}

static void end(const struct gw_render *render, const struct gw_usage *usage)
{
	(void)render;
	(void)usage;
}

static void chat_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	struct gw_saying saying;
	gw_say_all(render, &views[0], &saying);
	message_print(render, &saying.said, &saying.said);
	done_print(render, &views[0]);
	gw_saying_free(render, &saying);
}

static void generate_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n)
{
	(void)n;
	text_print(render, false, gw_view_answer(&views[0]));
	done_print(render, &views[0]);
}

void gw_error_print_ollama(struct buf *out, const struct svc_err *err)
{
	buf_span(out, span_of("{\"error\":"));
	buf_json_string(out, span_of(err->msg));
	buf_span(out, span_of("}"));
}

static void error(struct buf *out, const struct svc_err *err)
{
	gw_error_print_ollama(out, err);
	buf_span(out, span_of("\n"));
}

const struct gw_dialect gw_dialect_ollama_chat = {
	.id_prefix = "",
	.stream_type = "application/x-ndjson",
	.waiting = "",
	.has_opening = has_opening,
	.opening = NULL,
	.token = chat_token,
	.finish = chat_finish,
	.end = end,
	.error = error,
	.members = gw_ollama_options,
	.n_members = GW_OLLAMA_OPTIONS,
	.answer = chat_answer,
};

const struct gw_dialect gw_dialect_ollama_generate = {
	.id_prefix = "",
	.stream_type = "application/x-ndjson",
	.waiting = "",
	.has_opening = has_opening,
	.opening = NULL,
	.token = generate_token,
	.finish = generate_finish,
	.end = end,
	.error = error,
	.members = gw_ollama_options,
	.n_members = GW_OLLAMA_OPTIONS,
	.answer = generate_answer,
};
