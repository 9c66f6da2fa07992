#include <stdlib.h>

#include "base/log.h"
#include "gateway/api_error.h"
#include "gateway/gw_state.h"

#define ANSWER_BYTES_MAX (512u << 20)

/* What a look at a choice's slot shows. */
struct seen {
	const struct body *body;
	bool ended; /* it has left the sampler for good */
	bool done;
};

static enum svc_code choice_see(struct gateway *gateway, const struct gw_choice *choice,
				struct seen *ret_seen, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	struct slot_state state = slot_load(run, choice->handle.slot);
	if (!slot_handle_valid(run, choice->handle))
		return svc_fail(err, SVC_STALE, __func__, "the request's slot was given away");
	*ret_seen = (struct seen){
		.body = body_get(run, state.body, choice->handle.slot),
		.ended = state.stage == STAGE_RECLAIM || state.stage == STAGE_DONE,
		.done = state.stage == STAGE_DONE,
	};
	if (!ret_seen->body || ret_seen->body->generation != choice->handle.generation)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	return SVC_OK;
}

static enum svc_code choice_view(struct gateway *gateway, const struct gw_choice *choice,
				 struct gw_view *ret_view, struct svc_err *err)
{
	struct seen seen = {0};
	enum svc_code code = choice_see(gateway, choice, &seen, err);
	if (code == SVC_OK)
		code = gw_view_open(&gateway->svc->run, seen.body, seen.ended, ret_view, err);
	if (code == SVC_OK && seen.ended && ret_view->finish != FINISH_STOP &&
	    ret_view->finish != FINISH_LENGTH && atomic_load(&seen.body->fail_code) == SVC_OK)
		code = svc_fail(err, SVC_INTERNAL, __func__, "the answer ended without a reason");
	return code;
}

/* ---- the end of a call ---- */

/* Slots that are done are freed now, the others when they are (gw_slot_look). */
static void slots_leave(struct gateway *gateway, struct gw_call *call)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct slot_handle handle = call->choices[i].handle;
		struct slot_state state = slot_load(&gateway->svc->run, handle.slot);
		gateway->by_slot[handle.slot] = NULL;
		if (state.stage == STAGE_DONE) {
			gw_slot_look(gateway, handle.slot);
		} else {
			slot_cancel(&gateway->svc->run, handle);
			svc_hint(gateway->svc, state.owner, handle.slot);
			svc_hint_role(gateway->svc, slot_stage_role(state.stage), handle.slot);
		}
	}
}

static void call_end(struct gateway *gateway, struct gw_call *call, enum svc_code result)
{
	slots_leave(gateway, call);
	gateway->metrics.results[result]++;
	gw_histogram_add(&gateway->metrics.whole, svc_now_us() - call->arrived_us);
	LIST_REMOVE(call, link);
	gateway->n_calls--;
	free(call);
}

static void event_write(struct gateway *gateway, struct gw_call *call, const char *id,
			const struct buf *json)
{
	struct buf frame = {0};
	gw_event_print(&frame, id, (struct span){json->ptr, json->len});
	gw_http_reply_write(call->exchange, (struct span){frame.ptr, frame.len});
	call->written_us = svc_now_us();
	gateway->metrics.events++;
	buf_free(&frame);
}

void gw_call_fail(struct gateway *gateway, struct gw_call *call, const struct svc_err *err)
{
	log_line(LOG_LEVEL_INFO, call->request, err->code, "request failed: %s", err->msg);
	if (call->streaming) {
		struct buf json = {0};
		struct gw_error error = gw_error_of(err);
		gw_error_print(&json, &error);
		event_write(gateway, call, "", &json);
		buf_free(&json);
		gw_http_reply_end(call->exchange);
	} else {
		gw_reply_error(call->exchange, err);
	}
	call_end(gateway, call, err->code);
}

void gw_call_gone(struct gateway *gateway, struct gw_call *call)
{
	log_line(LOG_LEVEL_DEBUG, call->request, SVC_CANCELLED, "the client went away");
	call_end(gateway, call, SVC_CANCELLED);
}

static void tokens_count(struct gateway *gateway, struct gw_call *call, uint32_t n)
{
	uint64_t now = svc_now_us();
	for (uint32_t i = 0; i < n; i++) {
		if (call->first_us == 0) {
			gw_histogram_add(&gateway->metrics.first_token, now - call->arrived_us);
			call->first_us = now;
		} else {
			gw_histogram_add(&gateway->metrics.between_tokens, now - call->last_us);
		}
		call->last_us = now;
	}
	gateway->metrics.answer_tokens += n;
}

/* ---- an answer in one piece ---- */

static enum svc_code views_open(struct gateway *gateway, struct gw_call *call,
				struct gw_view *views, bool *ret_complete, struct svc_err *err)
{
	*ret_complete = true;
	for (uint32_t i = 0; i < call->n_choices; i++) {
		enum svc_code code = choice_view(gateway, &call->choices[i], &views[i], err);
		if (code != SVC_OK)
			return code;
		*ret_complete &= views[i].finish != FINISH_NONE;
	}
	return SVC_OK;
}

static void tokens_note(struct gateway *gateway, struct gw_call *call, const struct gw_view *views)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct gw_choice *choice = &call->choices[i];
		tokens_count(gateway, call, views[i].n_tokens - choice->n_tokens);
		choice->n_tokens = views[i].n_tokens;
	}
}

static void answer_look(struct gateway *gateway, struct gw_call *call)
{
	struct gw_view views[GW_CHOICES_MAX] = {0};
	struct buf out = {.limit = ANSWER_BYTES_MAX};
	const struct gw_render render = {&out, &call->meta, &gateway->vocab};
	struct svc_err err;
	bool complete = false;
	if (views_open(gateway, call, views, &complete, &err) != SVC_OK) {
		gw_call_fail(gateway, call, &err);
		return;
	}
	tokens_note(gateway, call, views);
	if (!complete)
		return;
	gw_render_answer(&render, views, call->n_choices);
	for (uint32_t i = 0; i < call->n_choices; i += call->meta.n)
		gateway->metrics.prompt_tokens += views[i].n_prompt;
	gw_reply_json(call->exchange, 200, &out);
	buf_free(&out);
	call_end(gateway, call, SVC_OK);
}

/* ---- a stream ---- */

static void id_print(const struct gateway *gateway, const struct gw_call *call,
		     char out[GW_EVENT_ID_BYTES])
{
	const struct ctl *ctl = gateway->svc->run.ctl;
	struct gw_event_id id = {
		.run = ctl->header.run_id, .request = call->request, .n = call->n_choices};
	for (uint32_t i = 0; i < call->n_choices; i++)
		id.at[i] = call->choices[i].sent;
	gw_event_id_print(ctl->config.secret, 0, &id, out);
}

/* Renders the choice's next event if there is one. */
static bool next_event(struct gateway *gateway, struct gw_call *call, uint32_t index,
		       const struct gw_view *view, struct buf *out)
{
	struct gw_choice *choice = &call->choices[index];
	const struct gw_render render = {out, &call->meta, &gateway->vocab};
	uint32_t opening = gw_render_has_opening(&call->meta);
	bool scored = !call->meta.echo || !call->meta.logprobs ||
		      view->n_scored == view->n_prompt || view->n_tokens > 0 ||
		      view->finish != FINISH_NONE;
	if (opening && choice->sent == 0) {
		if (!view->tokenized || !scored)
			return false;
		gw_render_opening(&render, index, view);
	} else if (choice->sent < opening + view->n_tokens) {
		uint32_t k = choice->sent - opening;
		bool wide = call->meta.logprobs && !call->meta.chat;
		if (wide && k == 0)
			choice->width = gw_render_prompt_width(&render, view);
		gw_render_token(&render, index, view, k, choice->width);
		choice->width += wide ? gw_render_width(&render, view, k) : 0;
		tokens_count(gateway, call, 1);
	} else if (view->finish != FINISH_NONE) {
		gw_render_finish(&render, index, view->finish);
		choice->ended = true;
		choice->n_prompt = view->n_prompt;
		choice->n_tokens = view->n_tokens;
	} else {
		return false;
	}
	choice->sent++;
	return true;
}

static void stream_end(struct gateway *gateway, struct gw_call *call)
{
	struct buf json = {0};
	struct gw_usage usage = {0};
	const struct gw_render render = {&json, &call->meta, &gateway->vocab};
	for (uint32_t i = 0; i < call->n_choices; i++) {
		usage.n_prompt += i % call->meta.n ? 0 : call->choices[i].n_prompt;
		usage.n_answer += call->choices[i].n_tokens;
	}
	gateway->metrics.prompt_tokens += usage.n_prompt;
	if (call->meta.include_usage) {
		gw_render_usage(&render, &usage);
		event_write(gateway, call, "", &json);
	}
	gw_http_reply_write(call->exchange, span_of("data: [DONE]\n\n"));
	gw_http_reply_end(call->exchange);
	buf_free(&json);
	call_end(gateway, call, SVC_OK);
}

static void stream_begin(struct gw_call *call)
{
	gw_http_reply_field(call->exchange, "Cache-Control", "no-cache");
	gw_http_reply_field(call->exchange, "X-Accel-Buffering", "no");
	gw_http_reply_start(call->exchange, 200, "text/event-stream; charset=utf-8");
	call->streaming = true;
	call->written_us = svc_now_us();
}

/* One event of each choice in turn. Returns whether there was any; *err says if something is wrong.
 */
static bool stream_round(struct gateway *gateway, struct gw_call *call, bool *ret_blocked,
			 struct svc_err *err)
{
	bool any = false;
	for (uint32_t i = 0; i < call->n_choices; i++) {
		char id[GW_EVENT_ID_BYTES];
		struct gw_view view = {0};
		struct buf json = {0};
		if (call->choices[i].ended)
			continue;
		if (choice_view(gateway, &call->choices[i], &view, err) != SVC_OK)
			return false;
		if (!gw_http_reply_has_room(call->exchange)) {
			*ret_blocked = true;
			return any;
		}
		if (next_event(gateway, call, i, &view, &json)) {
			id_print(gateway, call, id);
			event_write(gateway, call, id, &json);
			any = true;
		}
		buf_free(&json);
	}
	return any;
}

static bool all_tokenized(struct gateway *gateway, struct gw_call *call, struct svc_err *err)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct seen seen = {0};
		if (choice_see(gateway, &call->choices[i], &seen, err) != SVC_OK ||
		    atomic_load(&seen.body->tokenized) != 1)
			return false;
	}
	return true;
}

static bool all_ended(const struct gw_call *call)
{
	for (uint32_t i = 0; i < call->n_choices; i++)
		if (!call->choices[i].ended)
			return false;
	return true;
}

static void stream_look(struct gateway *gateway, struct gw_call *call)
{
	struct svc_err err = {0};
	bool blocked = false;
	/* The head waits until every prompt is known to fit: an error after it could not have a
	 * status of its own. */
	if (!call->streaming && all_tokenized(gateway, call, &err))
		stream_begin(call);
	if (!call->streaming && err.code == SVC_OK)
		return;
	while (err.code == SVC_OK && stream_round(gateway, call, &blocked, &err) && !blocked)
		;
	if (err.code != SVC_OK)
		gw_call_fail(gateway, call, &err);
	else if (all_ended(call))
		stream_end(gateway, call);
}

void gw_call_keep_alive(struct gateway *gateway, struct gw_call *call)
{
	if (!call->streaming || svc_now_us() - call->written_us < gateway->keep_alive_us ||
	    !gw_http_reply_has_room(call->exchange))
		return;
	gw_http_reply_write(call->exchange, span_of(": waiting\n\n"));
	call->written_us = svc_now_us();
	gateway->metrics.keep_alives++;
}

/* ---- answers of the tokenizer ---- */

static void ids_append(struct buf *out, const int32_t *ids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		buf_print(out, "%s%d", i ? "," : "", ids[i]);
}

static enum svc_code text_answer(struct gateway *gateway, const struct gw_call *call,
				 const struct body *body, struct buf *out, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	uint32_t n = call->endpoint == GW_TOKENIZE ? atomic_load(&body->n_prompt)
						   : atomic_load(&body->n_out);
	enum body_region region = call->endpoint == GW_TOKENIZE ? REGION_IDS : REGION_OUT;
	const void *bytes =
		body_region(run, body, region, region == REGION_IDS ? 4ull * n : n, NULL);
	if (!bytes)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	if (call->endpoint == GW_TOKENIZE) {
		buf_print(out, "{\"count\":%u,\"max_model_len\":%u,\"tokens\":[", n, run->ctx);
		ids_append(out, bytes, n);
		buf_print(out, "]}");
	} else {
		buf_print(out, "{\"prompt\":");
		buf_json_string(out, (struct span){bytes, n});
		buf_print(out, "}");
	}
	return SVC_OK;
}

static void text_look(struct gateway *gateway, struct gw_call *call)
{
	struct seen seen = {0};
	struct svc_err err;
	struct buf out = {.limit = ANSWER_BYTES_MAX};
	enum svc_code code = choice_see(gateway, &call->choices[0], &seen, &err);
	if (code == SVC_OK && !seen.done)
		return;
	if (code == SVC_OK)
		code = text_answer(gateway, call, seen.body, &out, &err);
	if (code == SVC_OK) {
		gw_reply_json(call->exchange, 200, &out);
		call_end(gateway, call, SVC_OK);
	} else {
		gw_call_fail(gateway, call, &err);
	}
	buf_free(&out);
}

/* ---- */

/* What a process said of a choice before it ended it. Tokens that were committed before are given
 * first. */
static bool failed(struct gateway *gateway, struct gw_call *call, struct svc_err *ret_err)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct seen seen = {0};
		if (choice_see(gateway, &call->choices[i], &seen, ret_err) != SVC_OK ||
		    body_failure(seen.body, ret_err))
			return true;
	}
	return false;
}

void gw_call_look(struct gateway *gateway, struct gw_call *call)
{
	struct svc_err err = {0}, ignored = {0};
	bool blocked = false;
	if (failed(gateway, call, &err)) {
		while (call->streaming && stream_round(gateway, call, &blocked, &ignored) &&
		       !blocked)
			;
		gw_call_fail(gateway, call, &err);
	} else if (!(call->endpoint & (GW_CHAT | GW_COMPLETIONS))) {
		text_look(gateway, call);
	} else if (call->stream) {
		stream_look(gateway, call);
	} else {
		answer_look(gateway, call);
	}
}
