/* lockstep status: what the control segment says, and nothing else: no process has to answer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "shm/incarnation.h"
#include "shm/page.h"
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

struct process {
	uint32_t entry, instance;
	enum shm_role role;
	const char *state;
	uint64_t number, beat_age_ms;
	uint32_t restarts;
	int32_t pid;
};

struct summary {
	struct process processes[INC_COUNT];
	uint32_t n_processes;
	uint32_t stages[STAGE_COUNT + 1], waiting;
	bool ready;
};

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static const char *state_of(const struct shm_run *run, uint32_t entry, uint64_t age_ms)
{
	uint64_t number = atomic_load(&run->ctl->incs[entry].number);
	if (inc_is_dead(run, entry))
		return "dead";
	if (atomic_load(&run->ctl->incs[entry].fenced) == number)
		return "fenced";
	if (age_ms > run->ctl->config.stall_ms)
		return "stalled";
	switch (inc_state_of(run, entry)) {
	case INC_STARTING:
		return "starting";
	case INC_READY:
		return "ready";
	case INC_DRAINING:
		return "draining";
	}
	return "starting";
}

static void add_process(const struct shm_run *run, uint32_t entry, struct summary *summary)
{
	const struct inc_entry *inc = &run->ctl->incs[entry];
	struct process *process = &summary->processes[summary->n_processes];
	uint64_t number = atomic_load(&inc->number), beat_us = atomic_load(&inc->beat_us);
	uint64_t now = now_us();
	if (number == 0)
		return;
	process->entry = entry;
	process->number = number;
	process->role = inc_role(run, entry);
	process->instance = inc->instance;
	process->pid = inc->pid;
	process->beat_age_ms = beat_us && now > beat_us ? (now - beat_us) / 1000 : 0;
	process->state = state_of(run, entry, process->beat_age_ms);
	uint32_t counted = inc->instance < CTL_INSTANCES ? inc->instance : CTL_INSTANCES - 1;
	uint32_t starts = atomic_load(&run->ctl->counters.starts[process->role][counted]);
	process->restarts = starts ? starts - 1 : 0;
	summary->n_processes++;
}

static void sort_processes(struct summary *summary)
{
	static const int order[ROLE_COUNT] = {9, 1, 2, 3, 4, 5};
	for (uint32_t i = 1; i < summary->n_processes; i++)
		for (uint32_t k = i; k > 0; k--) {
			struct process *a = &summary->processes[k - 1], *b = &summary->processes[k];
			int left = order[a->role] * 4096 + (int)a->instance;
			int right = order[b->role] * 4096 + (int)b->instance;
			if (left <= right)
				break;
			struct process swap = *a;
			*a = *b;
			*b = swap;
		}
}

static void summarise(const struct shm_run *run, struct summary *ret)
{
	bool ready[ROLE_COUNT] = {false};
	*ret = (struct summary){0};
	for (uint32_t i = 1; i < INC_COUNT; i++)
		add_process(run, i, ret);
	sort_processes(ret);
	for (uint32_t i = 0; i < ret->n_processes; i++)
		ready[ret->processes[i].role] |= strcmp(ret->processes[i].state, "ready") == 0;
	ret->ready = ready[ROLE_GATEWAY] && ready[ROLE_TOKENIZER] && ready[ROLE_WORKER] &&
		     ready[ROLE_SAMPLER];
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		struct slot_state state = slot_load(run, slot);
		ret->stages[state.stage]++;
		ret->waiting += state.stage == STAGE_COMPUTE && state.owner == 0;
	}
}

static void print_json(const struct shm_run *run, const struct summary *summary)
{
	const struct ctl_counters *counters = &run->ctl->counters;
	struct buf out = {0};
	buf_print(&out, "{\"ready\":%s,\"epoch\":%" PRIu64 ",\"model\":",
		  summary->ready ? "true" : "false", atomic_load(&counters->epoch));
	buf_json_string(&out, span_of(run->ctl->config.model_name));
	buf_print(&out, ",\"fingerprint\":");
	buf_json_string(&out, span_of(run->ctl->config.fingerprint));
	buf_print(&out, ",\"processes\":[");
	for (uint32_t i = 0; i < summary->n_processes; i++) {
		const struct process *p = &summary->processes[i];
		buf_print(&out,
			  "%s{\"role\":\"%s\",\"instance\":%u,\"pid\":%d,\"state\":\"%s\","
			  "\"epoch\":%" PRIu64 ",\"restarts\":%u,\"beat_age_ms\":%" PRIu64 "}",
			  i ? "," : "", inc_role_name(p->role), p->instance, p->pid, p->state,
			  p->number, p->restarts, p->beat_age_ms);
	}
	buf_print(&out, "],\"slots\":{\"total\":%u,\"limit\":%u,\"waiting\":%u", run->n_table,
		  run->n_slots, summary->waiting);
	for (int stage = STAGE_FREE; stage < STAGE_COUNT; stage++)
		buf_print(&out, ",\"%s\":%u", slot_stage_name((enum slot_stage)stage),
			  summary->stages[stage]);
	buf_print(&out, "},\"pages\":{\"total\":%u,\"free\":%u}", run->n_pages,
		  page_count_free(run));
	buf_print(&out,
		  ",\"counters\":{\"deaths\":%" PRIu64 ",\"stalls\":%" PRIu64
		  ",\"takeovers\":%" PRIu64 ",\"fenced_writes\":%" PRIu64 "}}\n",
		  atomic_load(&counters->deaths), atomic_load(&counters->stalls),
		  atomic_load(&counters->takeovers), atomic_load(&counters->fenced_writes));
	fwrite(out.ptr, 1, out.len, stdout);
	buf_free(&out);
}

static void print_table(const struct shm_run *run, const struct summary *summary)
{
	const struct ctl_config *config = &run->ctl->config;
	printf("%s: %s (%s, ctx %u, %u slots)\n", summary->ready ? "ready" : "not ready",
	       config->model_name, config->family, run->ctx, run->n_slots);
	printf("%-12s %-8s %8s  %-9s %8s %10s\n", "process", "instance", "pid", "state", "restarts",
	       "beat");
	for (uint32_t i = 0; i < summary->n_processes; i++) {
		const struct process *p = &summary->processes[i];
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
}

int cli_status(int argc, char **argv)
{
	const struct opt_source source = {"lockstep status", "what runs", {status_options}, false};
	struct opt_set *options = NULL;
	struct shm_run run;
	struct svc_err err = {0};
	struct summary summary;
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	cli_run_dir(options, dir, sizeof dir);
	enum svc_code code = run_attach(dir, dir, ROLE_KEEPER, &run, &err);
	if (code != SVC_OK) {
		if (code == SVC_NOT_FOUND)
			svc_fail(&err, SVC_NO_WORKER, __func__,
				 "nothing runs in %s (deploy/up starts it)", dir);
		opt_free(options);
		return cli_fail(&err);
	}
	do {
		summarise(&run, &summary);
		if (opt_bool(options, "watch") && !opt_bool(options, "json"))
			printf("\033[H\033[2J");
		if (opt_bool(options, "json"))
			print_json(&run, &summary);
		else
			print_table(&run, &summary);
		fflush(stdout);
	} while (opt_bool(options, "watch") && sleep(1) == 0);
	run_detach(&run);
	opt_free(options);
	return summary.ready ? 0 : 75;
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
	struct summary summary;
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	const char *name = opt_positional(options, 0);
	enum shm_role role = name ? inc_role_parse(name) : ROLE_NONE;
	int64_t instance = opt_int(options, "instance");
	cli_run_dir(options, dir, sizeof dir);
	opt_free(options);
	if (role == ROLE_NONE) {
		svc_fail(&err, SVC_USAGE, __func__,
			 "which role? gateway, tokenizer, npu-worker, sampler or keeper");
		return cli_fail(&err);
	}
	if (run_attach(dir, dir, ROLE_KEEPER, &run, &err) != SVC_OK)
		return cli_fail(&err);
	summarise(&run, &summary);
	run_detach(&run);
	for (uint32_t i = 0; i < summary.n_processes; i++) {
		const struct process *p = &summary.processes[i];
		if (p->role == role && (instance < 0 || p->instance == (uint64_t)instance) &&
		    strcmp(p->state, "ready") == 0)
			return 0;
	}
	svc_fail(&err, SVC_NO_WORKER, __func__, "no ready %s", inc_role_name(role));
	return cli_fail(&err);
}
