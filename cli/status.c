/* lockstep status: what the control segment says, and nothing else: no process has to answer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "services/summary.h"
#include "services/why.h"
#include "shm/incarnation.h"
#include "shm/page.h"
#include "shm/recovery.h"
#include "shm/slot.h"

static const struct opt status_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL, "directory of the run"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "one JSON object instead of a table"},
	{"watch", OPT_BOOL, "false", 0, 0, NULL, "again every second until interrupted"},
	{0},
};

static const struct opt health_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL, "directory of the run"},
	{"instance", OPT_INT, "-1", -1, 4095, NULL, "this instance; -1: any of the role"},
	{"stall-ms", OPT_INT, "1000", 100, 600000, NULL, "no beat for this long is frozen (ms)"},
	{0},
};

static void print_json(const struct shm_run *run, const struct svc_summary *summary)
{
	struct buf out = {0};
	buf_append(&out, "{", 1);
	svc_summary_print(&out, run, summary);
	buf_append(&out, "}\n", 2);
	fwrite(out.ptr, 1, out.len, stdout);
	buf_free(&out);
}

static const char *quantile(const struct shm_run *run, double share, char *text, size_t size)
{
	uint64_t us = recovery_quantile_us(run, share);
	if (us == UINT64_MAX)
		return "over a minute";
	snprintf(text, size, "%g ms", (double)us / 1e3);
	return text;
}

/* Nothing, if nothing has happened. */
static void print_recoveries(const struct shm_run *run)
{
	const struct ctl_counters *counters = &run->ctl->counters;
	uint64_t deaths = atomic_load(&counters->deaths), stalls = atomic_load(&counters->stalls),
		 taken = atomic_load(&counters->takeovers);
	char half[32], most[32];
	if (deaths + stalls + taken == 0)
		return;
	printf("since the start: %" PRIu64 " processes died, %" PRIu64
	       " slots were taken from frozen ones; %" PRIu64 " taken over in all",
	       deaths, stalls, taken);
	if (taken)
		printf(" (half within %s, 99 %% within %s)", quantile(run, 0.5, half, sizeof half),
		       quantile(run, 0.99, most, sizeof most));
	printf("; %" PRIu64 " late writes refused\n", atomic_load(&counters->fenced_writes));
}

static void print_why(const struct shm_run *run)
{
	char text[SVC_WHY_TEXT];
	for (enum shm_role role = ROLE_NONE + 1; role < ROLE_COUNT; role++)
		if (svc_why_read(run, role, text))
			printf("no %s: %s\n", inc_role_name(role), text);
}

static void print_table(const struct shm_run *run, const struct svc_summary *summary)
{
	const struct ctl_config *config = &run->ctl->config;
	printf("%s: %s (%s, ctx %u, %u slots)\n", summary->ready ? "ready" : "not ready",
	       config->model_name, config->family, run->ctx, run->n_slots);
	printf("%-12s %-8s %8s  %-9s %8s %10s\n", "process", "instance", "pid", "state", "restarts",
	       "beat");
	for (uint32_t i = 0; i < summary->n_processes; i++) {
		const struct svc_process *p = &summary->processes[i];
		printf("%-12s %-8u %8d  %-9s %8u %7" PRIu64 " ms\n", inc_role_name(p->role),
		       p->instance, p->pid, p->state, p->restarts, p->beat_age_ms);
	}
	uint32_t running = summary->stages[STAGE_COMPUTE] + summary->stages[STAGE_SAMPLE] +
			   summary->stages[STAGE_RECLAIM] - summary->waiting;
	printf("sequences: %u running, %u waiting, %u in the tokenizer, %u finished and kept; KV "
	       "pages: "
	       "%u of %u free\n",
	       running, summary->waiting, summary->stages[STAGE_TOKENIZE],
	       summary->stages[STAGE_DONE], page_count_free(run), run->n_pages);
	print_why(run);
	print_recoveries(run);
}

/* How it is shown, and whether all that was shown is ready. */
struct showing {
	bool json, ready;
};

static enum svc_code show_run(const char *dir, void *context, struct svc_err *err)
{
	struct showing *showing = context;
	struct svc_summary summary;
	struct shm_run run;
	enum svc_code code = run_attach(dir, dir, ROLE_KEEPER, &run, err);
	if (code != SVC_OK)
		return code;
	svc_summarise(&run, &summary);
	if (showing->json)
		print_json(&run, &summary);
	else
		print_table(&run, &summary);
	showing->ready = showing->ready && summary.ready;
	run_detach(&run);
	return SVC_OK;
}

int cli_status(int argc, char **argv)
{
	const struct opt_source source = {"lockstep status", "what runs", {status_options}, false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct showing showing;
	enum svc_code code;
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	bool watch = opt_bool(options, "watch");
	cli_run_dir(options, dir, sizeof dir);
	do {
		showing = (struct showing){.json = opt_bool(options, "json"), .ready = true};
		if (watch && !showing.json)
			printf("\033[H\033[2J");
		code = cli_each_run(dir, show_run, &showing, &err);
		fflush(stdout);
	} while (code == SVC_OK && watch && sleep(1) == 0);
	opt_free(options);
	if (code != SVC_OK)
		return cli_fail(&err);
	return showing.ready ? 0 : 75;
}

int cli_health(int argc, char **argv)
{
	const struct opt_source source = {"lockstep health ROLE",
					  "0 if an instance is ready and beats",
					  {health_options},
					  true};
	struct opt_set *options = NULL;
	struct shm_run run;
	struct svc_err err = {0};
	struct svc_summary summary;
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	int64_t instance = opt_int(options, "instance");
	cli_run_dir(options, dir, sizeof dir);
	enum shm_role role;
	enum svc_code code = cli_role(options, true, &role, &err);
	opt_free(options);
	if (code == SVC_OK)
		code = run_attach(dir, dir, ROLE_KEEPER, &run, &err);
	if (code != SVC_OK)
		return cli_fail(&err);
	svc_summarise(&run, &summary);
	run_detach(&run);
	for (uint32_t i = 0; i < summary.n_processes; i++) {
		const struct svc_process *p = &summary.processes[i];
		if (p->role == role && (instance < 0 || p->instance == (uint64_t)instance) &&
		    strcmp(p->state, "ready") == 0)
			return 0;
	}
	svc_fail(&err, SVC_NO_WORKER, __func__, "no ready %s", inc_role_name(role));
	return cli_fail(&err);
}
