#include "gateway/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "shm/recovery.h"

/* Upper bounds in microseconds, with the text that Prometheus sees: no number is formatted twice in
 * two ways. */
static const struct {
	uint64_t us;
	const char *seconds;
} bounds[] = {
	{1000, "0.001"},    {2500, "0.0025"},	  {5000, "0.005"},  {10000, "0.01"},
	{25000, "0.025"},   {50000, "0.05"},	  {100000, "0.1"},  {250000, "0.25"},
	{500000, "0.5"},    {1000000, "1"},	  {2500000, "2.5"}, {5000000, "5"},
	{10000000, "10"},   {25000000, "25"},	  {50000000, "50"}, {100000000, "100"},
	{250000000, "250"}, {1000000000, "1000"},
};

#define N_BOUNDS (sizeof bounds / sizeof *bounds)
_Static_assert(N_BOUNDS <= GW_BUCKETS_MAX, "room for every bucket");

void gw_histogram_add(struct gw_histogram *histogram, uint64_t us)
{
	size_t i = 0;
	while (i < N_BOUNDS && us > bounds[i].us)
		i++;
	histogram->counts[i]++;
	histogram->sum += (double)us / 1e6;
}

void gw_metric_print(struct buf *out, enum gw_metric_type type, const char *name, const char *help)
{
	buf_print(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		  type == GW_COUNTER ? "counter" : "gauge");
}

void gw_value_print(struct buf *out, const char *name, const char *labels, uint64_t value)
{
	if (*labels)
		buf_print(out, "%s{%s} %" PRIu64 "\n", name, labels, value);
	else
		buf_print(out, "%s %" PRIu64 "\n", name, value);
}

void gw_histogram_print(struct buf *out, const char *name, const char *help,
			const struct gw_histogram *histogram)
{
	uint64_t total = 0;
	buf_print(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
	for (size_t i = 0; i <= N_BOUNDS; i++) {
		total += histogram->counts[i];
		buf_print(out, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", name,
			  i < N_BOUNDS ? bounds[i].seconds : "+Inf", total);
	}
	buf_print(out, "%s_sum %.6f\n%s_count %" PRIu64 "\n", name, histogram->sum, name, total);
}

void gw_recovery_print(struct buf *out, const struct ctl_counters *counters)
{
	static const char name[] = "lockstep_recovery_seconds";
	static const uint64_t bounds_us[] = RECOVERY_BOUNDS_US;
	uint64_t total = 0;
	buf_print(out,
		  "# HELP %s From a dead or frozen process's last beat to the take-over of its "
		  "slot.\n# TYPE %s histogram\n",
		  name, name);
	for (size_t i = 0; i < RECOVERY_BUCKETS; i++) {
		total += atomic_load_explicit(&counters->recoveries[i], memory_order_relaxed);
		if (i + 1 < RECOVERY_BUCKETS)
			buf_print(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
				  (double)bounds_us[i] / 1e6, total);
	}
	buf_print(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n",
		  name, total, name,
		  (double)atomic_load_explicit(&counters->recovery_us, memory_order_relaxed) / 1e6,
		  name, total);
}

static void counter_print(struct buf *out, const char *name, const char *help, uint64_t value)
{
	gw_metric_print(out, GW_COUNTER, name, help);
	gw_value_print(out, name, "", value);
}

void gw_metrics_print(struct buf *out, const struct gw_metrics *metrics)
{
	static const char *const endpoints[] = {"chat_completions", "completions",    "tokenize",
						"detokenize",	    "apply_template", "embeddings"};
	char label[64];
	gw_metric_print(out, GW_COUNTER, "lockstep_requests_total", "Requests read, by endpoint.");
	for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
		snprintf(label, sizeof label, "endpoint=\"%s\"", endpoints[i]);
		gw_value_print(out, "lockstep_requests_total", label, metrics->requests[i]);
	}
	gw_metric_print(out, GW_COUNTER, "lockstep_results_total", "Requests ended, by result.");
	for (int i = 0; i < SVC_CODE_COUNT; i++) {
		if (i != SVC_OK && metrics->results[i] == 0)
			continue;
		snprintf(label, sizeof label, "code=\"%s\"", svc_code_info((enum svc_code)i)->name);
		gw_value_print(out, "lockstep_results_total", label, metrics->results[i]);
	}
	counter_print(out, "lockstep_prompt_tokens_total", "Prompt tokens of answered requests.",
		      metrics->prompt_tokens);
	counter_print(out, "lockstep_cached_tokens_total",
		      "Prompt tokens found in the prefix cache.", metrics->cached_tokens);
	counter_print(out, "lockstep_generated_tokens_total", "Tokens given to clients.",
		      metrics->answer_tokens);
	counter_print(out, "lockstep_sse_events_total", "Server-sent events written.",
		      metrics->events);
	counter_print(out, "lockstep_sse_keep_alives_total", "Comment lines written while waiting.",
		      metrics->keep_alives);
	counter_print(out, "lockstep_resumed_total", "Requests gone on with by a returning client.",
		      metrics->resumed);
	gw_histogram_print(out, "lockstep_time_to_first_token_seconds",
			   "From the request's arrival to its first token.", &metrics->first_token);
	gw_histogram_print(out, "lockstep_time_between_tokens_seconds",
			   "Between two tokens of a request.", &metrics->between_tokens);
	gw_histogram_print(out, "lockstep_request_seconds",
			   "From the request's arrival to its end.", &metrics->whole);
	gw_histogram_print(out, "lockstep_queue_seconds",
			   "From the request's arrival to a worker's first look at it.",
			   &metrics->queue);
	gw_histogram_print(out, "lockstep_prefill_seconds",
			   "From a worker's first look to the first logits.", &metrics->prefill);
	gw_histogram_print(out, "lockstep_decode_seconds", "From the first logits to the last.",
			   &metrics->decode);
}
