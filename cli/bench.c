/* lockstep bench: tokens per second of the engine alone (--in-process) or through a running server.
 */
#include "cli/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cores.h"
#include "cli/cli.h"

static const struct opt bench_options[] = {
	{"in-process", OPT_BOOL, "false", 0, 0, NULL,
	 "the engine alone, without processes and HTTP"},
	{"model", OPT_STRING, "", 0, 0, NULL, "in-process: GGUF file"},
	{"family", OPT_STRING, "a16-v1", 0, 0, NULL, "in-process: arithmetic family"},
	{"isa", OPT_STRING, "auto", 0, 0, NULL, "in-process: instruction set"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "in-process: compute threads; 0: one per core"},
	{"grammar", OPT_STRING, "", 0, 0, NULL,
	 "in-process: what token masks cost: json, a schema (FILE.json) or a GBNF file; --runs "
	 "answers of one stream"},
	{"url", OPT_STRING, "", 0, 0, NULL, "HTTP: address; default http://127.0.0.1:PORT"},
	{"port", OPT_INT, "8080", 1, 65535, NULL, "HTTP: port on this machine"},
	{"api-key", OPT_STRING, "", 0, 0, NULL, "HTTP: bearer token"},
	{"streams", OPT_INT, "1", 1, 256, NULL, "sequences at once"},
	{"prompt-tokens", OPT_INT, "128", 1, 1000000, NULL, "length of each prompt"},
	{"tokens", OPT_INT, "128", 2, 1000000, NULL, "tokens of each answer"},
	{"runs", OPT_INT, "3", 1, 100, NULL, "repetitions; the median counts"},
	{"temperature", OPT_REAL, "0", 0, 100, NULL, "HTTP: 0 is greedy"},
	{"speculate", OPT_BOOL, "true", 0, 0, NULL, "HTTP: drafts, where the server makes any"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "every run as one JSON object"},
	{0},
};

double bench_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return left < right ? -1 : left > right;
}

enum column {
	PROMPT_RATE,
	DECODE_RATE,
	TOTAL_RATE,
	FIRST_MS,
	GAP_P50,
	GAP_P99,
	READ_SHARE,
	COLUMN_COUNT
};

static double column_of(const struct bench_result *r, enum column column)
{
	switch (column) {
	case PROMPT_RATE:
		return r->prompt_s > 0 ? (double)r->prompt_tokens / r->prompt_s : 0;
	case DECODE_RATE:
		return r->decode_s > 0 ? (double)r->tokens / r->decode_s : 0;
	case TOTAL_RATE:
		return r->total_s > 0 ? (double)r->tokens / r->total_s : 0;
	case FIRST_MS:
		return r->prompt_s * 1e3;
	case GAP_P50:
		return r->gap_p50_ms;
	case GAP_P99:
		return r->gap_p99_ms;
	case READ_SHARE:
		return r->decode_s > 0 && r->read_per_s > 0
			       ? 100 * (double)(r->token_bytes * r->steps) /
					 (r->decode_s * r->read_per_s)
			       : 0;
	case COLUMN_COUNT:
		break;
	}
	return 0;
}

static void print_row(const char *name, const struct bench_result *results, uint32_t n,
		      enum column column)
{
	double values[100];
	for (uint32_t i = 0; i < n; i++)
		values[i] = column_of(&results[i], column);
	qsort(values, n, sizeof *values, ascending);
	printf("%-34s %10.1f   (%.1f to %.1f)\n", name, values[n / 2], values[0], values[n - 1]);
}

static void print_results(const struct bench_plan *plan, const struct bench_result *results,
			  bool in_process)
{
	printf("%u stream%s, prompts of %u tokens, answers of %u, %u runs: median (least to "
	       "most)\n",
	       plan->streams, plan->streams == 1 ? "" : "s", plan->prompt_tokens, plan->tokens,
	       plan->runs);
	if (in_process)
		print_row("prompt tokens per second", results, plan->runs, PROMPT_RATE);
	else
		print_row("time to the first token (ms)", results, plan->runs, FIRST_MS);
	print_row("generated tokens per second", results, plan->runs, DECODE_RATE);
	if (in_process) {
		print_row("of the memory's speed (%)", results, plan->runs, READ_SHARE);
		return;
	}
	print_row("the same, prompts included", results, plan->runs, TOTAL_RATE);
	print_row("between tokens, median (ms)", results, plan->runs, GAP_P50);
	print_row("between tokens, p99 (ms)", results, plan->runs, GAP_P99);
}

static void print_json(const struct bench_plan *plan, const struct bench_result *r)
{
	printf("{\"streams\":%u,\"prompt_tokens\":%" PRIu64 ",\"tokens\":%" PRIu64
	       ",\"prompt_s\":%.6f,\"decode_s\":%.6f,"
	       "\"total_s\":%.6f,\"prompt_per_s\":%.2f,\"decode_per_s\":%.2f,\"gap_p50_ms\":%.3f,"
	       "\"gap_p99_ms\":%.3f,\"token_bytes\":%" PRIu64
	       ",\"read_per_s\":%.0f,\"read_share\":%.3f}\n",
	       plan->streams, r->prompt_tokens, r->tokens, r->prompt_s, r->decode_s, r->total_s,
	       column_of(r, PROMPT_RATE), column_of(r, DECODE_RATE), r->gap_p50_ms, r->gap_p99_ms,
	       r->token_bytes, r->read_per_s, column_of(r, READ_SHARE) / 100);
}

static void read_plan(const struct opt_set *options, char *url, size_t url_size,
		      struct bench_plan *ret)
{
	int64_t threads = opt_int(options, "threads");
	const char *given = opt_string(options, "url");
	if (*given)
		snprintf(url, url_size, "%s", given);
	else
		snprintf(url, url_size, "http://127.0.0.1:%" PRId64, opt_int(options, "port"));
	*ret = (struct bench_plan){
		.model = opt_string(options, "model"),
		.family = opt_string(options, "family"),
		.isa = opt_string(options, "isa"),
		.grammar = opt_string(options, "grammar"),
		.url = url,
		.api_key = opt_string(options, "api-key"),
		.threads = threads ? (uint32_t)threads : cores_usable(),
		.streams = (uint32_t)opt_int(options, "streams"),
		.prompt_tokens = (uint32_t)opt_int(options, "prompt-tokens"),
		.tokens = (uint32_t)opt_int(options, "tokens"),
		.runs = (uint32_t)opt_int(options, "runs"),
		.temperature = opt_real(options, "temperature"),
		.speculate = opt_bool(options, "speculate"),
	};
}

static enum svc_code masks_measure(struct bench_plan *plan, bool in_process, struct svc_err *err)
{
	if (!in_process || !*plan->model)
		return svc_fail_param(err, SVC_USAGE, "grammar",
				      "--grammar needs --in-process and --model FILE");
	plan->streams = 1;
	return bench_masks(plan, err);
}

int cli_bench(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep bench", "measures tokens per second", {bench_options}, false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct bench_plan plan;
	char url[300];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	read_plan(options, url, sizeof url, &plan);
	bool in_process = opt_bool(options, "in-process"), json = opt_bool(options, "json");
	if (*plan.grammar) {
		enum svc_code masked = masks_measure(&plan, in_process, &err);
		opt_free(options);
		return masked == SVC_OK ? 0 : cli_fail(&err);
	}
	struct bench_result *results = calloc(plan.runs, sizeof *results);
	enum svc_code code;
	if (!results)
		code = svc_fail(&err, SVC_NO_MEMORY, __func__, "out of memory");
	else if (in_process && !*plan.model)
		code = svc_fail_param(&err, SVC_USAGE, "model", "--in-process needs --model FILE");
	else
		code = in_process ? bench_engine(&plan, results, &err)
				  : bench_http(&plan, results, &err);
	for (uint32_t i = 0; results && code == SVC_OK && json && i < plan.runs; i++)
		print_json(&plan, &results[i]);
	if (code == SVC_OK && !json)
		print_results(&plan, results, in_process);
	free(results);
	opt_free(options);
	return code == SVC_OK ? 0 : cli_fail(&err);
}
