/* gateway/gw_trace.c: what a request's time went to: a span for the request, and for each choice
 * one for the queue, one for the prompt, one for the answer. The worker's times stand in the
 * request's body, so they are true whoever worked on it. */
#include "gateway/gw_trace.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "gateway/gw_call.h"

enum svc_code gw_trace_open(struct gateway *gateway, struct svc_err *err)
{
	const char *url = opt_string(gateway->svc->options, "otlp-endpoint");
	const struct shm_run *run = &gateway->svc->run;
	char instance[64];
	if (!*url)
		return SVC_OK;
	snprintf(instance, sizeof instance, "%llx/gateway-%u",
		 (unsigned long long)run->ctl->header.run_id, run->ctl->incs[run->me].instance);
	return gw_otlp_open(gateway->svc->base, url, instance, &gateway->otlp, err);
}

/* Identifiers only have to differ; without random ones there is no trace. */
static bool id_make(unsigned char *id, size_t n)
{
	return getrandom(id, n, GRND_NONBLOCK) == (ssize_t)n;
}

struct gw_trace gw_trace_begin(const struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct gw_trace trace = {.kept = false};
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	if (!gateway->otlp)
		return trace;
	trace.has_parent =
		gw_traceparent_read(gw_http_field_find(request, "traceparent"), &trace.context);
	trace.kept = trace.has_parent ? trace.context.sampled
				      : id_make(trace.context.trace, sizeof trace.context.trace);
	trace.kept = trace.kept && id_make(trace.span, sizeof trace.span);
	trace.route = gw_route_path(&gateway->router, request);
	return trace;
}

/* Clocks that are set while it runs move spans, not their lengths. */
static uint64_t realtime_of(uint64_t monotonic_us)
{
	struct timespec real;
	clock_gettime(CLOCK_REALTIME, &real);
	uint64_t now_us = (uint64_t)real.tv_sec * 1000000u + (uint64_t)real.tv_nsec / 1000u;
	return now_us - (svc_now_us() - monotonic_us);
}

static void number_add(struct gw_span *span, const char *key, int64_t number)
{
	span->attributes[span->n_attributes++] = (struct gw_attribute){key, NULL, number};
}

static void text_add(struct gw_span *span, const char *key, const char *text)
{
	span->attributes[span->n_attributes++] = (struct gw_attribute){key, text, 0};
}

static struct gw_span request_span(const struct gw_trace *trace, uint64_t arrived_us,
				   enum svc_code result, int status)
{
	struct gw_span span = {.has_parent = trace->has_parent,
			       .is_server = true,
			       .name = trace->route,
			       .start_us = realtime_of(arrived_us),
			       .end_us = realtime_of(svc_now_us())};
	memcpy(span.trace, trace->context.trace, sizeof span.trace);
	memcpy(span.parent, trace->context.parent, sizeof span.parent);
	memcpy(span.id, trace->span, sizeof span.id);
	text_add(&span, "http.route", trace->route);
	number_add(&span, "http.response.status_code", status);
	if (result != SVC_OK) {
		span.error = svc_code_info(result)->name;
		text_add(&span, "error.type", span.error);
	}
	return span;
}

static const char *operation_of(const struct gw_call *call)
{
	switch (call->shape.endpoint) {
	case GW_CHAT:
		return "chat";
	case GW_COMPLETIONS:
		return "text_completion";
	case GW_EMBEDDINGS:
		return "embeddings";
	case GW_TOKENIZE:
	case GW_DETOKENIZE:
	case GW_TEMPLATE:
		break;
	}
	return NULL;
}

/* What a choice's body says of its way. */
struct way {
	uint64_t began_us, first_us, last_us; /* 0: it didn't get there */
	uint32_t n_prompt, n_cached, n_tokens, takeovers;
};

static struct way way_of(struct gateway *gateway, const struct gw_choice *choice)
{
	struct gw_seen seen = {0};
	struct svc_err ignored;
	if (gw_choice_see(gateway, choice, &seen, &ignored) != SVC_OK)
		return (struct way){0};
	const struct body *body = seen.body;
	uint32_t n_prompt = atomic_load(&body->n_prompt), n_cached = atomic_load(&body->n_cached);
	return (struct way){.began_us = atomic_load(&body->began_us),
			    .first_us = atomic_load(&body->first_us),
			    .last_us = atomic_load(&body->last_us),
			    .n_prompt = n_prompt,
			    .n_cached = n_cached < n_prompt ? n_cached : n_prompt,
			    .n_tokens = atomic_load(&body->n_tokens),
			    .takeovers = atomic_load(&body->takeovers)};
}

/* A part of a choice's way. What began before the call came, or didn't begin, is none of its own:
 * it has gone on with another's request. */
static void part_add(struct gateway *gateway, const struct gw_call *call, uint32_t choice,
		     const struct gw_span *part)
{
	struct gw_span span = *part;
	if (part->start_us < call->arrived_us || part->end_us < part->start_us)
		return;
	memcpy(span.trace, call->trace.context.trace, sizeof span.trace);
	memcpy(span.parent, call->trace.span, sizeof span.parent);
	span.has_parent = true;
	span.start_us = realtime_of(part->start_us);
	span.end_us = realtime_of(part->end_us);
	number_add(&span, "lockstep.choice", choice);
	if (id_make(span.id, sizeof span.id))
		gw_otlp_add(gateway->otlp, &span);
}

static void parts_add(struct gateway *gateway, const struct gw_call *call, uint32_t choice,
		      const struct way *way)
{
	struct gw_span queue = {
		.name = "queue", .start_us = call->arrived_us, .end_us = way->began_us};
	struct gw_span prefill = {
		.name = "prefill", .start_us = way->began_us, .end_us = way->first_us};
	struct gw_span decode = {
		.name = "decode", .start_us = way->first_us, .end_us = way->last_us};
	number_add(&prefill, "gen_ai.usage.input_tokens", way->n_prompt);
	number_add(&prefill, "lockstep.cached_tokens", way->n_cached);
	number_add(&decode, "gen_ai.usage.output_tokens", way->n_tokens);
	number_add(&decode, "lockstep.takeovers", way->takeovers);
	part_add(gateway, call, choice, &queue);
	part_add(gateway, call, choice, &prefill);
	part_add(gateway, call, choice, &decode);
}

static void way_count(struct gw_metrics *metrics, const struct gw_call *call, const struct way *way)
{
	if (way->began_us < call->arrived_us || way->began_us == 0)
		return;
	gw_histogram_add(&metrics->queue, way->began_us - call->arrived_us);
	if (way->first_us < way->began_us)
		return;
	gw_histogram_add(&metrics->prefill, way->first_us - way->began_us);
	if (way->last_us >= way->first_us)
		gw_histogram_add(&metrics->decode, way->last_us - way->first_us);
}

void gw_trace_end(struct gateway *gateway, const struct gw_call *call, enum svc_code result)
{
	const struct gw_shape *shape = &call->shape;
	uint64_t n_prompt = 0, n_tokens = 0;
	uint32_t takeovers = 0;
	for (uint32_t i = 0; i < call->n_choices; i++) {
		struct way way = way_of(gateway, &call->choices[i]);
		way_count(&gateway->metrics, call, &way);
		/* Of each prompt once, and not again for who has come back. */
		if (i % shape->meta.n == 0 && way.began_us >= call->arrived_us)
			gateway->metrics.cached_tokens += way.n_cached;
		n_prompt += i % shape->meta.n ? 0 : way.n_prompt;
		n_tokens += way.n_tokens;
		takeovers += way.takeovers;
		if (gateway->otlp && call->trace.kept)
			parts_add(gateway, call, i, &way);
	}
	if (!gateway->otlp || !call->trace.kept)
		return;
	int status = result == SVC_CANCELLED		   ? 499
		     : result == SVC_OK || call->streaming ? 200
							   : svc_code_info(result)->http_status;
	struct gw_span span = request_span(&call->trace, call->arrived_us, result, status);
	const char *operation = operation_of(call);
	if (operation)
		text_add(&span, "gen_ai.operation.name", operation);
	text_add(&span, "gen_ai.response.model", gateway->model_name);
	text_add(&span, "gen_ai.response.id", shape->meta.id);
	number_add(&span, "gen_ai.usage.input_tokens", (int64_t)n_prompt);
	number_add(&span, "gen_ai.usage.output_tokens", (int64_t)n_tokens);
	number_add(&span, "lockstep.takeovers", takeovers);
	number_add(&span, "lockstep.request", (int64_t)call->request);
	gw_otlp_add(gateway->otlp, &span);
}

void gw_trace_refused(struct gateway *gateway, struct gw_http_exchange *exchange,
		      enum svc_code result)
{
	struct gw_trace trace = gw_trace_begin(gateway, exchange);
	if (!trace.kept)
		return;
	struct gw_span span =
		request_span(&trace, svc_now_us(), result, svc_code_info(result)->http_status);
	gw_otlp_add(gateway->otlp, &span);
}
