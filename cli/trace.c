/* lockstep trace: asks every process for its spans of work for a while, and shows where the time
 * of a token went. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/trace_hops.h"
#include "shm/incarnation.h"

#define POLL_US	  5000u
#define MAX_SPANS (1u << 22)

static const struct opt trace_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL, "directory of the run"},
	{"seconds", OPT_REAL, "2", 0.1, 600, NULL, "for how long"},
	{"output", OPT_STRING, "", 0, 0, NULL,
	 "a file of all spans, as Chrome's tracing and Perfetto read it"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "one JSON object instead of a table"},
	{0},
};

struct recording {
	struct traced *spans;
	size_t n, room;
	uint64_t lost;
	uint64_t cursors[INC_COUNT];
	struct {
		enum shm_role role;
		uint32_t instance;
	} who[INC_COUNT]; /* as they were when their spans were read */
};

static bool make_room(struct recording *recording, size_t more)
{
	if (recording->n + more <= recording->room)
		return true;
	size_t room = recording->room ? recording->room * 2 : 1u << 14;
	if (room > MAX_SPANS)
		return false;
	struct traced *spans = realloc(recording->spans, room * sizeof *spans);
	if (!spans)
		return false;
	recording->spans = spans;
	recording->room = room;
	return true;
}

/* false: no memory for more. */
static bool collect(const struct shm_run *run, struct recording *recording)
{
	struct trace_span found[TRACE_RING_RECORDS];
	for (uint32_t entry = 1; entry < INC_COUNT; entry++) {
		uint32_t n = trace_read(run, entry, &recording->cursors[entry], found,
					TRACE_RING_RECORDS, &recording->lost);
		if (n == 0)
			continue;
		if (!make_room(recording, n))
			return false;
		recording->who[entry].role = inc_role(run, entry);
		recording->who[entry].instance = run->ctl->incs[entry].instance;
		for (uint32_t i = 0; i < n; i++)
			recording->spans[recording->n++] = (struct traced){found[i], entry};
	}
	return true;
}

/* The pipeline stops by itself when the time is over: an interrupted trace leaves nothing on. */
static enum svc_code record(struct shm_run *run, double seconds, struct recording *ret,
			    struct svc_err *err)
{
	uint64_t until = trace_now_ns() + (uint64_t)(seconds * 1e9);
	bool fine = true;
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		ret->cursors[entry] = trace_end_of(run, entry);
	trace_ask(run, until);
	while (fine && trace_now_ns() < until) {
		usleep(POLL_US);
		fine = collect(run, ret);
	}
	trace_ask(run, 0);
	fine = fine && collect(run, ret);
	if (fine)
		return SVC_OK;
	return svc_fail(err, SVC_NO_MEMORY, __func__,
			"more than %zu spans; trace for less than %.1f seconds", ret->n, seconds);
}

static void print_table(const struct recording *recording, const struct hop_times *hops)
{
	double token = hop_percentile(&hops[HOP_TOKEN], 0.5);
	printf("%-16s %8s %12s %12s %12s %10s\n", "", "tokens", "median us", "p90 us", "p99 us",
	       "of a token");
	for (int hop = 0; hop < HOP_COUNT; hop++) {
		double median = hop_percentile(&hops[hop], 0.5);
		printf("%-16s %8zu %12.1f %12.1f %12.1f %9.1f%%\n", hop_name((enum hop)hop),
		       hops[hop].n, median, hop_percentile(&hops[hop], 0.9),
		       hop_percentile(&hops[hop], 0.99), token > 0 ? 100 * median / token : 0);
	}
	printf("%zu spans, %" PRIu64 " lost\n", recording->n, recording->lost);
}

static void print_json(const struct recording *recording, const struct hop_times *hops)
{
	printf("{\"spans\":%zu,\"lost\":%" PRIu64 ",\"hops\":[", recording->n, recording->lost);
	for (int hop = 0; hop < HOP_COUNT; hop++)
		printf("%s{\"name\":\"%s\",\"tokens\":%zu,\"median_us\":%.3f,\"p90_us\":%.3f,"
		       "\"p99_us\":%.3f}",
		       hop ? "," : "", hop_name((enum hop)hop), hops[hop].n,
		       hop_percentile(&hops[hop], 0.5), hop_percentile(&hops[hop], 0.9),
		       hop_percentile(&hops[hop], 0.99));
	printf("]}\n");
}

/* A process for each incarnation; within it a line for each slot, as their spans may overlap. */
static enum svc_code write_timeline(const struct recording *recording, const char *path,
				    struct svc_err *err)
{
	static const char *const names[TRACE_KIND_COUNT] = {"?",    "tokenize", "prefill",
							    "step", "draw",	"send"};
	FILE *file = fopen(path, "w");
	if (!file)
		return svc_fail_errno(err, __func__, "cannot write %s", path);
	fprintf(file, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
	for (size_t i = 0; i < recording->n; i++) {
		const struct traced *at = &recording->spans[i];
		fprintf(file,
			"%s{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,"
			"\"dur\":%.3f,\"args\":{\"position\":%u}}",
			i ? ",\n" : "\n", names[at->span.kind], at->entry, at->span.slot,
			(double)at->span.start_ns / 1e3, (double)at->span.took_ns / 1e3,
			at->span.position);
	}
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		if (recording->who[entry].role != ROLE_NONE)
			fprintf(file,
				"%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{"
				"\"name\":\"%s-%u\"}}",
				recording->n ? ",\n" : "\n", entry,
				inc_role_name(recording->who[entry].role),
				recording->who[entry].instance);
	fprintf(file, "\n]}\n");
	bool failed = ferror(file) != 0;
	if (fclose(file) != 0 || failed)
		return svc_fail_errno(err, __func__, "cannot write %s", path);
	return SVC_OK;
}

static enum svc_code trace(struct shm_run *run, const struct opt_set *options, struct svc_err *err)
{
	struct recording recording = {0};
	struct hop_times hops[HOP_COUNT] = {0};
	double seconds = opt_real(options, "seconds");
	const char *path = opt_string(options, "output");
	enum svc_code code = record(run, seconds, &recording, err);
	if (code == SVC_OK && !hops_find(recording.spans, recording.n, hops))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %zu spans",
				recording.n);
	if (code == SVC_OK && *path)
		code = write_timeline(&recording, path, err);
	if (code == SVC_OK && opt_bool(options, "json"))
		print_json(&recording, hops);
	else if (code == SVC_OK)
		print_table(&recording, hops);
	hops_free(hops);
	free(recording.spans);
	return code;
}

int cli_trace(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep trace", "where a token's time goes", {trace_options}, false};
	struct opt_set *options = NULL;
	struct shm_run run;
	struct svc_err err = {0};
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	cli_run_dir(options, dir, sizeof dir);
	enum svc_code code = run_attach(dir, dir, ROLE_KEEPER, &run, &err);
	if (code == SVC_NOT_FOUND)
		code = svc_fail(&err, SVC_NO_WORKER, __func__,
				"nothing runs in %s (deploy/up starts it)", dir);
	if (code == SVC_OK) {
		code = trace(&run, options, &err);
		run_detach(&run);
	}
	opt_free(options);
	return code == SVC_OK ? 0 : cli_fail(&err);
}
