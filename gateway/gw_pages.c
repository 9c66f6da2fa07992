#include <inttypes.h>
#include <stdio.h>

#include "gateway/gw_models.h"
#include "gateway/gw_ready.h"
#include "gateway/gw_serve.h"
#include "services/why.h"

void gw_serve_live(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	gw_http_reply(exchange, 200, "application/json", span_of("{\"status\":\"ok\"}"));
}

/* A worker that waits before it tries a failing NPU again is no worker yet. */
static bool npu_is_left_alone(const struct shm_run *run)
{
	for (uint32_t i = 1; i < INC_COUNT; i++)
		if (inc_role(run, i) == ROLE_WORKER && !inc_is_dead(run, i) &&
		    atomic_load(&run->ctl->incs[i].npu_pause_us))
			return true;
	return false;
}

enum { REASON = SVC_WHY_TEXT + 32 };

/* NULL: it is. Else the reason, perhaps in text: the role that is missing, with what its last
 * process said. */
static const char *why_not_ready(const struct gateway *gateway, char text[REASON])
{
	char why[SVC_WHY_TEXT];
	enum shm_role missing = gw_ready_missing(gateway);
	if (gateway->svc->draining)
		return "this gateway is shutting down";
	if (missing == ROLE_WORKER && npu_is_left_alone(&gateway->svc->run))
		return "npu-worker: the NPU failed again and again and is left alone for a while";
	if (missing && svc_why_read(&gateway->svc->run, missing, why)) {
		snprintf(text, REASON, "%s: %s", inc_role_name(missing), why);
		return text;
	}
	if (missing)
		return inc_role_name(missing);
	return gateway->has_vocab ? NULL : "the vocabulary is not published yet";
}

/* Of several models each one's state; ready if all are. */
static void all_ready_reply(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct buf models = {0}, body = {0};
	bool leaving = gateway->svc->draining;
	bool ready = gw_served_states_print(gateway, &models) && !leaving;
	buf_print(&body, "{\"status\":\"%s\",%s", ready ? "ok" : "unavailable",
		  leaving ? "\"missing\":\"this gateway is shutting down\"," : "");
	buf_span(&body, models.failed ? span_of("") : (struct span){models.ptr, models.len});
	buf_append(&body, "}", 1);
	if (!ready)
		gw_http_reply_field(exchange, "Retry-After", "1");
	gw_reply_json(exchange, ready ? 200 : 503, &body);
	buf_free(&models);
	buf_free(&body);
}

void gw_serve_ready(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	const struct gw_model_entry *asked;
	struct buf body = {0};
	/* With ?model=NAME a gateway of that model's run answers for it. */
	if (gateway->models &&
	    !gw_models_asked(gateway, gw_http_exchange_request(exchange), &asked)) {
		all_ready_reply(gateway, exchange);
		return;
	}
	/* Not what the last tick saw: who asks may have just seen a process end. */
	gw_ready_look(gateway);
	char text[REASON];
	const char *reason = why_not_ready(gateway, text);
	if (!reason) {
		gw_serve_live(context, exchange);
		return;
	}
	gw_http_reply_field(exchange, "Retry-After", "1");
	buf_print(&body, "{\"status\":\"unavailable\",\"missing\":");
	buf_json_string(&body, span_of(reason));
	buf_append(&body, "}", 1);
	gw_reply_json(exchange, 503, &body);
	buf_free(&body);
}

static void model_print(const struct gw_served *served, struct buf *out)
{
	const struct shm_run *run = served->run;
	buf_print(out, "{\"id\":");
	buf_json_string(out, span_of(served->name));
	buf_print(out,
		  ",\"object\":\"model\",\"created\":%" PRIu64
		  ",\"owned_by\":\"lockstep\",\"max_model_len\":%u}",
		  run ? run->ctl->config.created_us / 1000000u : 0, run ? run->ctx : 0);
}

void gw_serve_models(void *context, struct gw_http_exchange *exchange)
{
	struct buf body = {0};
	buf_print(&body, "{\"object\":\"list\",\"data\":[");
	for (uint32_t i = 0; i < gw_served_count(context); i++) {
		const struct gw_served served = gw_served_get(context, i);
		buf_append(&body, ",", i ? 1 : 0);
		model_print(&served, &body);
	}
	buf_print(&body, "]}");
	gw_reply_json(exchange, 200, &body);
	buf_free(&body);
}

/* The listed model of that name; without --models-file, this run's by its name or an alias. */
static bool served_find(struct gateway *gateway, struct span name, struct gw_served *ret_served)
{
	for (uint32_t i = 0; i < gw_served_count(gateway); i++) {
		*ret_served = gw_served_get(gateway, i);
		if (span_is(name, ret_served->name))
			return true;
	}
	return !gateway->models && gw_model_is(&gateway->limits, name);
}

void gw_serve_model(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	const size_t prefix = sizeof "/v1/models/" - 1;
	struct span path = gw_http_exchange_request(exchange)->path;
	struct gw_served served = {.name = ""};
	struct svc_err err;
	if (!served_find(gateway, (struct span){path.ptr + prefix, path.len - prefix}, &served)) {
		(void)gw_model_unknown(&gateway->limits, "model", &err);
		gw_reply_error(exchange, &err);
		return;
	}
	struct buf body = {0};
	model_print(&served, &body);
	gw_reply_json(exchange, 200, &body);
	buf_free(&body);
}

/* ---- /metrics ---- */

static void slots_print(const struct gateway *gateway, struct buf *out)
{
	const struct shm_run *run = &gateway->svc->run;
	uint32_t n[STAGE_COUNT + 1] = {0};
	char label[64];
	for (uint32_t slot = 0; slot < run->n_table; slot++)
		n[slot_load(run, slot).stage]++;
	gw_metric_print(out, GW_GAUGE, "lockstep_slots", "Slots of the request table by stage.");
	for (unsigned stage = 0; stage <= STAGE_COUNT; stage++) {
		snprintf(label, sizeof label, "stage=\"%s\"",
			 slot_stage_name((enum slot_stage)stage));
		gw_value_print(out, "lockstep_slots", label, n[stage]);
	}
	gw_metric_print(out, GW_GAUGE, "lockstep_body_blocks_used",
			"64 KiB blocks of request bodies in use.");
	gw_value_print(out, "lockstep_body_blocks_used", "", body_count_used(run));
}

/* One figure of every process. */
struct figure {
	enum inc_gauge gauge;
	enum shm_role role;
	enum gw_metric_type type;
	const char *name, *help;
};

static const struct figure figures[] = {
	{GAUGE_RUNNING, ROLE_WORKER, GW_GAUGE, "lockstep_worker_running",
	 "Sequences that a worker computes."},
	{GAUGE_WAITING, ROLE_WORKER, GW_GAUGE, "lockstep_worker_waiting",
	 "Sequences that a worker saw waiting."},
	{GAUGE_PREFILL_TOKENS, ROLE_WORKER, GW_COUNTER, "lockstep_prefill_tokens_total",
	 "Prompt positions computed."},
	{GAUGE_DECODE_TOKENS, ROLE_WORKER, GW_COUNTER, "lockstep_decode_tokens_total",
	 "Generated positions computed."},
	{GAUGE_AHEAD_TOKENS, ROLE_WORKER, GW_COUNTER, "lockstep_ahead_tokens_total",
	 "Generated positions that were computed before their token was drawn."},
	{GAUGE_DRAFTED, ROLE_WORKER, GW_COUNTER, "lockstep_drafted_tokens_total",
	 "Drafts that were computed."},
	{GAUGE_ACCEPTED, ROLE_WORKER, GW_COUNTER, "lockstep_accepted_tokens_total",
	 "Drafts that were then drawn."},
	{GAUGE_MISGUESSED, ROLE_WORKER, GW_COUNTER, "lockstep_misguessed_tokens_total",
	 "Steps begun ahead of the draw for another token than was drawn."},
	{GAUGE_STEPS, ROLE_WORKER, GW_COUNTER, "lockstep_worker_steps_total",
	 "Passes over the weights."},
	{GAUGE_SAMPLED, ROLE_SAMPLER, GW_COUNTER, "lockstep_sampler_turns_total",
	 "Turns of a sampler."},
	{GAUGE_TOKENIZED, ROLE_TOKENIZER, GW_COUNTER, "lockstep_tokenizer_prompts_total",
	 "Prompts tokenized."},
	{GAUGE_REQUESTS, ROLE_GATEWAY, GW_COUNTER, "lockstep_admitted_total",
	 "Requests that a gateway admitted."},
};

static void figure_print(const struct gateway *gateway, const struct figure *figure,
			 struct buf *out)
{
	const struct shm_run *run = &gateway->svc->run;
	char label[64];
	gw_metric_print(out, figure->type, figure->name, figure->help);
	for (uint32_t entry = 1; entry < INC_COUNT; entry++) {
		const struct inc_entry *inc = &run->ctl->incs[entry];
		if (inc_role(run, entry) != figure->role)
			continue;
		snprintf(label, sizeof label, "instance=\"%u\",epoch=\"%" PRIu64 "\"",
			 inc->instance, atomic_load(&inc->number));
		gw_value_print(
			out, figure->name, label,
			atomic_load_explicit(&inc->gauge[figure->gauge], memory_order_relaxed));
	}
}

static void run_print(const struct gateway *gateway, struct buf *out)
{
	struct ctl_counters *counters = &gateway->svc->run.ctl->counters;
	char text[REASON];
	const struct {
		const char *name, *help;
		uint64_t value;
	} values[] = {
		{"lockstep_deaths_total", "Processes found dead.", atomic_load(&counters->deaths)},
		{"lockstep_stalls_total", "Slots taken from frozen processes.",
		 atomic_load(&counters->stalls)},
		{"lockstep_takeovers_total", "Slots taken over from dead or frozen processes.",
		 atomic_load(&counters->takeovers)},
		{"lockstep_fenced_writes_total", "Swaps that came too late and changed nothing.",
		 atomic_load(&counters->fenced_writes)},
	};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		gw_metric_print(out, GW_COUNTER, values[i].name, values[i].help);
		gw_value_print(out, values[i].name, "", values[i].value);
	}
	gw_recovery_print(out, counters);
	gw_metric_print(out, GW_GAUGE, "lockstep_ready", "1 if every role has a ready instance.");
	gw_value_print(out, "lockstep_ready", "", why_not_ready(gateway, text) ? 0 : 1);
}

static void http_print(const struct gateway *gateway, struct buf *out)
{
	struct gw_http_counts counts = gw_http_server_counts(gateway->server);
	const struct {
		enum gw_metric_type type;
		const char *name, *help;
		uint64_t value;
	} values[] = {
		{GW_GAUGE, "lockstep_http_connections", "Open connections.", counts.connections},
		{GW_GAUGE, "lockstep_http_requests_running", "Requests without a complete answer.",
		 counts.exchanges},
		{GW_GAUGE, "lockstep_http_body_bytes", "Bytes of request bodies held.",
		 counts.bodies_bytes},
		{GW_COUNTER, "lockstep_http_accepted_total", "Connections accepted.",
		 counts.accepted},
		{GW_COUNTER, "lockstep_http_refused_total", "Connections over a limit.",
		 counts.refused},
		{GW_COUNTER, "lockstep_http_requests_total", "Requests read.", counts.requests},
		{GW_COUNTER, "lockstep_http_faults_total", "Malformed requests.", counts.faults},
		{GW_COUNTER, "lockstep_http_dropped_slow_total",
		 "Connections dropped because the client did not read.", counts.dropped_slow},
	};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		gw_metric_print(out, values[i].type, values[i].name, values[i].help);
		gw_value_print(out, values[i].name, "", values[i].value);
	}
}

static void handed_print(const struct gw_models *models, struct buf *out)
{
	gw_metric_print(out, GW_COUNTER, "lockstep_handed_over_total",
			"Requests handed to a gateway of another model.");
	gw_value_print(out, "lockstep_handed_over_total", "", models->handed);
	gw_metric_print(out, GW_COUNTER, "lockstep_taken_in_total",
			"Requests that another model's gateway handed here.");
	gw_value_print(out, "lockstep_taken_in_total", "", models->taken);
}

static void spans_print(const struct gateway *gateway, struct buf *out)
{
	const struct gw_otlp_counts counts = gw_otlp_counts(gateway->otlp);
	gw_metric_print(out, GW_COUNTER, "lockstep_otlp_spans_total",
			"Spans for the trace collector (--otlp-endpoint).");
	gw_value_print(out, "lockstep_otlp_spans_total", "result=\"sent\"", counts.sent);
	gw_value_print(out, "lockstep_otlp_spans_total", "result=\"dropped\"", counts.dropped);
	gw_metric_print(out, GW_COUNTER, "lockstep_otlp_failures_total",
			"Messages that the trace collector didn't take.");
	gw_value_print(out, "lockstep_otlp_failures_total", "", counts.failures);
}

void gw_serve_metrics(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	struct buf page = {0};
	run_print(gateway, &page);
	slots_print(gateway, &page);
	for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
		figure_print(gateway, &figures[i], &page);
	gw_metrics_print(&page, &gateway->metrics);
	spans_print(gateway, &page);
	http_print(gateway, &page);
	if (gateway->models)
		handed_print(gateway->models, &page);
	gw_http_reply(exchange, page.failed ? 503 : 200, "text/plain; version=0.0.4; charset=utf-8",
		      (struct span){page.ptr, page.len});
	buf_free(&page);
}
