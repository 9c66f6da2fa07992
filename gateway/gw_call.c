#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "gateway/api/dialect.h"
#include "gateway/api/render_vectors.h"
#include "gateway/gw_call.h"
#include "gateway/gw_slots.h"
#include "gateway/gw_trace.h"
#include "shm/trace.h"

/* Events that are due are written together, about so much at once. */
#define EVENTS_BYTES 16384u

enum svc_code gw_choice_see(struct gateway *gateway, const struct gw_choice *choice,
			    struct gw_seen *ret_seen, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	struct body_seen look = body_peek(run, choice->handle.slot);
	if (!slot_handle_valid(run, choice->handle))
		return svc_fail(err, SVC_STALE, __func__, "the request's slot was given away");
	*ret_seen = (struct gw_seen){
		.body = look.body,
		.ended = look.word.stage == STAGE_RECLAIM || look.word.stage == STAGE_DONE,
		.done = look.word.stage == STAGE_DONE,
	};
	if (!ret_seen->body || ret_seen->body->generation != choice->handle.generation)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	return SVC_OK;
}

static enum svc_code choice_view(struct gateway *gateway, const struct gw_choice *choice,
				 struct gw_view *ret_view, struct svc_err *err)
{
	struct gw_seen seen = {0};
	enum svc_code code = gw_choice_see(gateway, choice, &seen, err);
	if (code == SVC_OK)
		code = gw_view_open(&gateway->svc->run, seen.body, seen.ended, ret_view, err);
	if (code == SVC_OK && seen.ended && ret_view->finish != FINISH_STOP &&
	    ret_view->finish != FINISH_LENGTH && atomic_load(&seen.body->fail_code) == SVC_OK)
		code = slot_is_cancelled(&gateway->svc->run, choice->handle.slot)
			       ? svc_fail(err, SVC_CANCELLED, __func__, "the request was cancelled")
			       : svc_fail(err, SVC_INTERNAL, __func__,
					  "the answer ended without a reason");
	return code;
}

/* ---- a call's beginning and end ---- */

struct gw_call *gw_call_new(struct gateway *gateway, const struct gw_shape *shape, uint32_t n)
{
	struct gw_call *call = calloc(1, sizeof *call + n * sizeof *call->choices);
	if (!call)
		return NULL;
	call->shape = *shape;
	call->shape.meta.model = gateway->model_name;
	call->shape.meta.fingerprint = gateway->fingerprint;
	call->n_choices = n;
	call->arrived_us = svc_now_us();
	return call;
}

static void slot_read(struct gateway *gateway, struct gw_call *call, struct slot_handle handle)
{
	gateway->by_slot[handle.slot] = call;
	gateway->read_here[handle.slot] = handle.generation;
}

/* The answer's id: a function of run and request. */
static void id_make(const struct gateway *gateway, const struct gw_call *call, char id[GW_ID_BYTES])
{
	const struct gw_meta *meta = &call->shape.meta;
	const struct shm_run *run = &gateway->svc->run;
	const char *prefix = gw_dialect_of(meta->form)->id_prefix;
	if (meta->form == GW_FORM_RESPONSES) {
		gw_response_id_print(run, call->account, call->request, id);
		return;
	}
	if (!*prefix)
		prefix = meta->chat ? "chatcmpl-" : "cmpl-";
	snprintf(id, GW_ID_BYTES, "%s%016" PRIx64 "-%" PRIx64, prefix, run->ctl->header.run_id,
		 call->request);
}

void gw_call_enter(struct gateway *gateway, struct gw_call *call, struct gw_http_exchange *exchange)
{
	struct gw_meta *meta = &call->shape.meta;
	id_make(gateway, call, meta->id);
	call->exchange = exchange;
	call->trace = gw_trace_begin(gateway, exchange);
	gw_http_exchange_set_user(exchange, call);
	LIST_INSERT_HEAD(&gateway->calls, call, link);
	gateway->n_calls++;
	for (uint32_t i = 0; i < call->n_choices; i++)
		slot_read(gateway, call, call->choices[i].handle);
}

static void slot_cancel_now(struct gateway *gateway, struct slot_handle handle)
{
	struct slot_state state = slot_load(&gateway->svc->run, handle.slot);
	slot_cancel(&gateway->svc->run, handle);
	svc_hint(gateway->svc, state.owner, handle.slot);
	svc_hint_role(gateway->svc, slot_stage_role(state.stage), handle.slot);
}

/* Another gateway, or another connection, may have gone on with it: then it isn't ours to end. */
static bool is_ours(const struct gateway *gateway, struct slot_handle handle)
{
	return slot_handle_valid(&gateway->svc->run, handle) && !gateway->by_slot[handle.slot] &&
	       gw_slot_is_mine(gateway, handle.slot);
}

/* Slots that are done are freed now, the others when they are (gw_slot_look). */
static void slots_leave(struct gateway *gateway, struct gw_call *call, bool cancel)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct slot_handle handle = call->choices[i].handle;
		if (gateway->by_slot[handle.slot] != call)
			continue;
		gateway->by_slot[handle.slot] = NULL;
		if (cancel && is_ours(gateway, handle))
			slot_cancel_now(gateway, handle);
		gw_slot_look(gateway, handle.slot);
	}
}

void gw_call_end(struct gateway *gateway, struct gw_call *call, enum svc_code result, bool cancel)
{
	gw_trace_end(gateway, call, result);
	slots_leave(gateway, call, cancel);
	gateway->metrics.results[result]++;
	gw_histogram_add(&gateway->metrics.whole, svc_now_us() - call->arrived_us);
	LIST_REMOVE(call, link);
	gateway->n_calls--;
	free(call);
}

/* ---- clients that may come back ---- */

static void call_detach(struct gateway *gateway, const struct gw_call *call)
{
	struct gw_detached *detached =
		calloc(1, sizeof *detached + call->n_choices * sizeof *detached->handles);
	if (!detached)
		return; /* it runs to its end then */
	detached->until_us = svc_now_us() + gateway->detach_us;
	detached->n = call->n_choices;
	for (uint32_t i = 0; i < call->n_choices; i++)
		detached->handles[i] = call->choices[i].handle;
	LIST_INSERT_HEAD(&gateway->detached, detached, link);
}

static void detached_end(struct gw_detached *detached)
{
	LIST_REMOVE(detached, link);
	free(detached);
}

void gw_detached_forget(struct gateway *gateway)
{
	struct gw_detached *next, *detached = LIST_FIRST(&gateway->detached);
	for (; detached; detached = next) {
		next = LIST_NEXT(detached, link);
		detached_end(detached);
	}
}

void gw_detached_look(struct gateway *gateway)
{
	const struct shm_run *run = &gateway->svc->run;
	struct gw_detached *next, *detached = LIST_FIRST(&gateway->detached);
	for (; detached; detached = next) {
		next = LIST_NEXT(detached, link);
		if (svc_now_us() < detached->until_us)
			continue;
		for (uint32_t i = 0; i < detached->n; i++) {
			struct slot_handle handle = detached->handles[i];
			/* An answer that is complete is kept as long as any. */
			if (is_ours(gateway, handle) &&
			    slot_load(run, handle.slot).stage != STAGE_DONE)
				slot_cancel_now(gateway, handle);
		}
		detached_end(detached);
	}
}

/* A form may have nothing to say about a token: then there is nothing to write. */
static void events_write(struct gw_call *call, struct buf *events)
{
	if (events->len == 0)
		return;
	gw_http_reply_write(call->exchange, (struct span){events->ptr, events->len});
	call->written_us = svc_now_us();
	events->len = 0;
}

static const struct gw_dialect *dialect_of(const struct gw_call *call)
{
	return gw_dialect_of(call->shape.meta.form);
}

struct gw_render gw_call_render(const struct gateway *gateway, const struct gw_call *call,
				const char *id, struct buf *out)
{
	return (struct gw_render){out, &call->shape.meta, &gateway->vocab,
				  id,  call->arrived_us,  NULL};
}

void gw_call_fail(struct gateway *gateway, struct gw_call *call, const struct svc_err *err)
{
	log_line(LOG_LEVEL_INFO, call->request, err->code, "request failed: %s", err->msg);
	if (call->streaming) {
		struct buf frame = {0};
		dialect_of(call)->error(&frame, err);
		gateway->metrics.events++;
		events_write(call, &frame);
		buf_free(&frame);
		gw_http_reply_end(call->exchange);
	} else {
		gw_reply_error(call->exchange, err);
	}
	gw_call_end(gateway, call, err->code, true);
}

void gw_call_gone(struct gateway *gateway, struct gw_call *call)
{
	log_line(LOG_LEVEL_DEBUG, call->request, SVC_CANCELLED, "the client went away");
	/* When this process leaves, its clients can go on with their streams at another. */
	bool returns = call->keyed || (gateway->svc->leaving && call->shape.stream);
	if (returns)
		call_detach(gateway, call);
	gw_call_end(gateway, call, SVC_CANCELLED, !returns);
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
	struct buf out = {.limit = GW_ANSWER_BYTES_MAX};
	const struct gw_render render = gw_call_render(gateway, call, "", &out);
	struct svc_err err;
	bool complete = false;
	if (views_open(gateway, call, views, &complete, &err) != SVC_OK) {
		gw_call_fail(gateway, call, &err);
		return;
	}
	tokens_note(gateway, call, views);
	if (!complete)
		return;
	dialect_of(call)->answer(&render, views, call->n_choices);
	for (uint32_t i = 0; i < call->n_choices; i += call->shape.meta.n)
		gateway->metrics.prompt_tokens += views[i].n_prompt;
	gw_reply_json(call->exchange, 200, &out);
	buf_free(&out);
	gw_call_end(gateway, call, SVC_OK, false);
}

/* ---- a stream ---- */

/* Of the choice's next event: the place that the client has reached with it. */
static void id_print(const struct gateway *gateway, const struct gw_call *call, uint32_t choice,
		     char out[GW_EVENT_ID_BYTES])
{
	const struct ctl *ctl = gateway->svc->run.ctl;
	struct gw_event_id id = {.run = ctl->header.run_id,
				 .request = call->request,
				 .created_s = (uint64_t)call->shape.meta.created_s,
				 .n = call->n_choices};
	for (uint32_t i = 0; i < call->n_choices; i++)
		id.at[i] = call->choices[i].sent + (i == choice);
	gw_event_id_print(ctl->config.secret, call->account, &id, out);
}

/* Code points before token k: a function of the tokens, also for a stream that is taken up in the
 * middle. */
static size_t width_before(const struct gw_render *render, struct gw_choice *choice,
			   const struct gw_view *view, uint32_t k)
{
	if (!render->meta->logprobs || render->meta->chat)
		return 0;
	if (choice->n_wide == 0)
		choice->width = gw_render_prompt_width(render, view);
	while (choice->n_wide < k)
		choice->width += gw_render_width(render, view, choice->n_wide++);
	return choice->width;
}

/* Is everything there that the event before the first token shows? */
static bool opening_is_known(const struct gw_call *call, const struct gw_view *view)
{
	bool scores = call->shape.meta.echo && call->shape.meta.logprobs;
	return view->tokenized && (!scores || view->n_scored == view->n_prompt ||
				   view->n_tokens > 0 || view->finish != FINISH_NONE);
}

/* Renders the choice's next event if there is one. */
static bool next_event(struct gateway *gateway, struct gw_call *call, uint32_t index,
		       const struct gw_view *view, struct buf *out)
{
	struct gw_choice *choice = &call->choices[index];
	char id[GW_EVENT_ID_BYTES];
	const struct gw_dialect *dialect = dialect_of(call);
	struct gw_render render = gw_call_render(gateway, call, id, out);
	render.spoken = &choice->spoken;
	uint32_t opening = dialect->has_opening(&call->shape.meta);
	bool due = choice->sent < opening
			   ? opening_is_known(call, view)
			   : choice->sent < opening + view->n_tokens || view->finish != FINISH_NONE;
	if (!due)
		return false;
	id_print(gateway, call, index, id);
	if (choice->sent < opening) {
		dialect->opening(&render, index, view);
	} else if (choice->sent < opening + view->n_tokens) {
		uint32_t k = choice->sent - opening;
		dialect->token(&render, index, view, k, width_before(&render, choice, view, k));
		tokens_count(gateway, call, 1);
	} else {
		choice->ended = true;
		choice->n_prompt = view->n_prompt;
		choice->n_cached = view->n_cached;
		choice->n_tokens = view->n_tokens;
		/* The client may have seen this event before it came back. */
		if (choice->sent > opening + view->n_tokens)
			return false;
		dialect->finish(&render, index, view);
	}
	choice->sent++;
	return true;
}

static void stream_end(struct gateway *gateway, struct gw_call *call)
{
	struct buf frames = {0};
	struct gw_usage usage = {0};
	const struct gw_render render = gw_call_render(gateway, call, "", &frames);
	for (uint32_t i = 0; i < call->n_choices; i++) {
		usage.n_prompt += i % call->shape.meta.n ? 0 : call->choices[i].n_prompt;
		usage.n_cached += i % call->shape.meta.n ? 0 : call->choices[i].n_cached;
		usage.n_answer += call->choices[i].n_tokens;
	}
	gateway->metrics.prompt_tokens += usage.n_prompt;
	dialect_of(call)->end(&render, &usage);
	gateway->metrics.events += frames.len > 0;
	events_write(call, &frames);
	gw_http_reply_end(call->exchange);
	buf_free(&frames);
	gw_call_end(gateway, call, SVC_OK, false);
}

static void stream_begin(struct gw_call *call)
{
	gw_http_reply_field(call->exchange, "Cache-Control", "no-cache");
	gw_http_reply_field(call->exchange, "X-Accel-Buffering", "no");
	gw_http_reply_start(call->exchange, 200, dialect_of(call)->stream_type);
	call->streaming = true;
	call->written_us = svc_now_us();
}

/* One event of each choice in turn, appended to events. Returns whether there was any; *err says if
 * something is wrong. */
static bool stream_round(struct gateway *gateway, struct gw_call *call, struct buf *events,
			 bool *ret_blocked, struct svc_err *err)
{
	bool any = false;
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct gw_view view = {0};
		if (call->choices[i].ended)
			continue;
		if (choice_view(gateway, &call->choices[i], &view, err) != SVC_OK)
			return false;
		if (!gw_http_reply_has_room(call->exchange)) {
			*ret_blocked = true;
			return any;
		}
		uint64_t start_ns = trace_begin(&gateway->svc->run);
		size_t before = events->len;
		if (next_event(gateway, call, i, &view, events)) {
			gateway->metrics.events += events->len > before;
			/* Of the token that this event showed, opening and finish aside. */
			trace_put(&gateway->svc->run, TRACE_SEND, call->choices[i].handle.slot,
				  view.n_prompt + call->choices[i].sent - 1 -
					  dialect_of(call)->has_opening(&call->shape.meta),
				  start_ns);
			any = true;
		}
	}
	return any;
}

/* Every event that is due and that the client has room for. */
static void stream_write(struct gateway *gateway, struct gw_call *call, struct svc_err *err)
{
	struct buf events = {0};
	bool blocked = false;
	while (!blocked && !events.failed && err->code == SVC_OK &&
	       stream_round(gateway, call, &events, &blocked, err))
		if (events.len >= EVENTS_BYTES && !events.failed)
			events_write(call, &events);
	/* Half an event is worse than none. */
	if (!events.failed)
		events_write(call, &events);
	else if (err->code == SVC_OK)
		(void)svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	buf_free(&events);
}

static bool all_tokenized(struct gateway *gateway, struct gw_call *call, struct svc_err *err)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct gw_seen seen = {0};
		if (gw_choice_see(gateway, &call->choices[i], &seen, err) != SVC_OK ||
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
	/* The head waits until every prompt is known to fit: an error after it could not have a
	 * status of its own. */
	if (!call->streaming && all_tokenized(gateway, call, &err))
		stream_begin(call);
	if (!call->streaming && err.code == SVC_OK)
		return;
	stream_write(gateway, call, &err);
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
	/* Without an empty line: OpenAI's client makes an event of one that follows a comment. */
	gw_http_reply_write(call->exchange, span_of(dialect_of(call)->waiting));
	call->written_us = svc_now_us();
	gateway->metrics.keep_alives++;
}

/* ---- */

/* What a process said of a choice before it ended it. Tokens that were committed before are given
 * first. */
static bool failed(struct gateway *gateway, struct gw_call *call, struct svc_err *ret_err)
{
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct gw_seen seen = {0};
		if (gw_choice_see(gateway, &call->choices[i], &seen, ret_err) != SVC_OK ||
		    body_failure(seen.body, ret_err))
			return true;
	}
	return false;
}

void gw_call_look(struct gateway *gateway, struct gw_call *call)
{
	struct svc_err err = {0}, ignored = {0};
	if (failed(gateway, call, &err)) {
		if (call->streaming)
			stream_write(gateway, call, &ignored);
		gw_call_fail(gateway, call, &err);
	} else if (call->shape.endpoint == GW_EMBEDDINGS) {
		gw_vectors_look(gateway, call);
	} else if (!(call->shape.endpoint & (GW_CHAT | GW_COMPLETIONS))) {
		gw_text_look(gateway, call);
	} else if (call->shape.stream) {
		stream_look(gateway, call);
	} else {
		answer_look(gateway, call);
	}
}
