/* cli/bench.h: what both forms of `lockstep bench` measure and print. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct bench_plan {
	const char *model; /* in-process: GGUF file */
	const char *family, *isa;
	const char *grammar; /* in-process: what is measured are its masks; empty: none */
	const char *url, *api_key;
	uint32_t threads;
	uint32_t streams, prompt_tokens, tokens, runs;
	double temperature;
	bool speculate;
};

/* One run. Times in seconds. */
struct bench_result {
	double prompt_s; /* in-process: all prompts; HTTP: median time to the first token */
	double decode_s; /* from the first token to the last, over all streams */
	double total_s;
	uint64_t prompt_tokens,
		tokens; /* all streams together; tokens without each stream's first */
	double gap_p50_ms, gap_p99_ms; /* HTTP: between tokens of a stream */
	/* In-process: weights that one token reads, and how fast all threads together read as many
	 * bytes and do nothing with them. */
	uint64_t token_bytes, steps;
	double read_per_s;
};

SVC_CHECKED enum svc_code bench_engine(const struct bench_plan *plan,
				       struct bench_result *ret_results, struct svc_err *err);
/* Measures the masks of plan->grammar and prints them. */
SVC_CHECKED enum svc_code bench_masks(const struct bench_plan *plan, struct svc_err *err);
SVC_CHECKED enum svc_code bench_http(const struct bench_plan *plan,
				     struct bench_result *ret_results, struct svc_err *err);
/* Bytes of packed matrices that a step reads, whatever its batch. */
struct plan;
uint64_t bench_token_bytes(const struct plan *plan);
/* Best of several passes over [base, base + bytes), 64-byte aligned; bytes per second. */
SVC_CHECKED enum svc_code bench_read_rate(const void *base, size_t bytes, uint32_t threads,
					  double *ret_rate, struct svc_err *err);
/* CLOCK_MONOTONIC, seconds. */
double bench_now(void);
