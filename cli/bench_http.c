/* Through the whole pipeline: every stream is a thread with a connection of its own. Prompts are
 * token ids, so that their length is exact. */
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/client.h"

struct stream {
	const struct bench_plan *plan;
	uint32_t seed;
	double start_s, first_s, last_s;
	uint64_t events;
	double *gaps_ms;
	size_t n_gaps, room;
	enum svc_code code;
	struct svc_err err;
	pthread_t thread;
};

static bool on_event(void *context, const json_t *event)
{
	struct stream *stream = context;
	if (json_object_get(event, "error")) {
		stream->code = svc_fail(&stream->err, SVC_INTERNAL, __func__,
					"the stream ended with an error");
		return false;
	}
	if (json_array_size(json_object_get(event, "choices")) == 0)
		return true;
	double now = bench_now();
	if (stream->events++ == 0)
		stream->first_s = now;
	else if (stream->n_gaps < stream->room)
		stream->gaps_ms[stream->n_gaps++] = (now - stream->last_s) * 1e3;
	stream->last_s = now;
	return true;
}

static char *make_body(const struct stream *stream)
{
	const struct bench_plan *plan = stream->plan;
	json_t *ids = json_array();
	uint32_t seed = stream->seed;
	for (uint32_t i = 0; i < plan->prompt_tokens; i++) {
		seed = seed * 1664525u + 1013904223u;
		json_array_append_new(ids, json_integer(1000 + (seed >> 8) % 20000));
	}
	json_t *body = json_pack("{s:o,s:i,s:f,s:b,s:b,s:i}", "prompt", ids, "max_tokens",
				 (int)plan->tokens, "temperature", plan->temperature, "stream", 1,
				 "ignore_eos", 1, "seed", 1);
	if (!plan->speculate) /* an extension: nothing is said where all servers agree */
		json_object_set_new(body, "speculate", json_false());
	char *text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text;
}

static void *run_stream(void *arg)
{
	struct stream *stream = arg;
	char *body = make_body(stream);
	struct client_call call = {
		.url = stream->plan->url,
		.path = "/v1/completions",
		.api_key = stream->plan->api_key,
		.body = body,
		.on_event = on_event,
		.context = stream,
	};
	stream->start_s = bench_now();
	enum svc_code code = client_call(&call, &stream->err);
	if (stream->code == SVC_OK)
		stream->code = code;
	buf_free(&call.answer);
	free(body);
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return left < right ? -1 : left > right;
}

static double percentile(double *values, size_t n, double p)
{
	size_t rank = n ? (size_t)(p * (double)(n - 1) + 0.5) : 0;
	return n ? values[rank] : 0;
}

static enum svc_code summarise(struct stream *streams, const struct bench_plan *plan,
			       struct bench_result *ret, struct svc_err *err)
{
	double first = 1e300, last = 0, start = 1e300;
	double *ttft = calloc(plan->streams, sizeof *ttft),
	       *gaps = calloc(plan->streams * plan->tokens, sizeof *gaps);
	size_t n_gaps = 0;
	enum svc_code code = SVC_OK;
	if (!ttft || !gaps) {
		free(ttft);
		free(gaps);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	}
	*ret = (struct bench_result){.prompt_tokens =
					     (uint64_t)plan->prompt_tokens * plan->streams};
	for (uint32_t i = 0; i < plan->streams && code == SVC_OK; i++) {
		struct stream *s = &streams[i];
		if (s->code != SVC_OK) {
			*err = s->err;
			code = s->code;
			break;
		}
		ttft[i] = s->first_s - s->start_s;
		first = s->first_s < first ? s->first_s : first;
		start = s->start_s < start ? s->start_s : start;
		last = s->last_s > last ? s->last_s : last;
		ret->tokens += plan->tokens - 1;
		memcpy(gaps + n_gaps, s->gaps_ms, s->n_gaps * sizeof *gaps);
		n_gaps += s->n_gaps;
	}
	if (code == SVC_OK) {
		qsort(ttft, plan->streams, sizeof *ttft, ascending);
		qsort(gaps, n_gaps, sizeof *gaps, ascending);
		ret->prompt_s = ttft[plan->streams / 2];
		ret->decode_s = last - first;
		ret->total_s = last - start;
		ret->gap_p50_ms = percentile(gaps, n_gaps, 0.5);
		ret->gap_p99_ms = percentile(gaps, n_gaps, 0.99);
	}
	free(ttft);
	free(gaps);
	return code;
}

static enum svc_code run_once(const struct bench_plan *plan, uint32_t seed,
			      struct bench_result *ret, struct svc_err *err)
{
	struct stream *streams = calloc(plan->streams, sizeof *streams);
	double *gaps = calloc((size_t)plan->streams * plan->tokens, sizeof *gaps);
	uint32_t started = 0;
	enum svc_code code = SVC_OK;
	if (!streams || !gaps) {
		free(streams);
		free(gaps);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	}
	for (; code == SVC_OK && started < plan->streams; started++) {
		struct stream *stream = &streams[started];
		/* Every stream of every run has a prompt of its own: nothing comes from a cache. */
		*stream = (struct stream){.plan = plan,
					  .seed = seed + started * 977u,
					  .gaps_ms = gaps + (size_t)started * plan->tokens,
					  .room = plan->tokens};
		if (pthread_create(&stream->thread, NULL, run_stream, stream) != 0) {
			code = svc_fail(err, SVC_NO_MEMORY, __func__, "cannot start %u threads",
					plan->streams);
			break;
		}
	}
	for (uint32_t i = 0; i < started; i++)
		pthread_join(streams[i].thread, NULL);
	if (code == SVC_OK)
		code = summarise(streams, plan, ret, err);
	free(streams);
	free(gaps);
	return code;
}

enum svc_code bench_http(const struct bench_plan *plan, struct bench_result *ret_results,
			 struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	uint32_t seed = (uint32_t)(bench_now() * 1e6);
	for (uint32_t i = 0; code == SVC_OK && i <= plan->runs; i++)
		code = run_once(plan, seed + i * 7919u, &ret_results[i ? i - 1 : 0], err);
	return code;
}
