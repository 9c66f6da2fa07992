#include "services/summary.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "services/why.h"
#include "shm/incarnation.h"
#include "shm/page.h"
#include "shm/slot.h"

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

static uint64_t gauge_of(const struct inc_entry *inc, enum inc_gauge gauge)
{
	return atomic_load_explicit(&inc->gauge[gauge], memory_order_relaxed);
}

static uint64_t work_of(const struct inc_entry *inc, enum shm_role role)
{
	switch (role) {
	case ROLE_GATEWAY:
		return gauge_of(inc, GAUGE_REQUESTS);
	case ROLE_TOKENIZER:
		return gauge_of(inc, GAUGE_TOKENIZED);
	case ROLE_WORKER:
		return gauge_of(inc, GAUGE_PREFILL_TOKENS) + gauge_of(inc, GAUGE_DECODE_TOKENS);
	case ROLE_SAMPLER:
		return gauge_of(inc, GAUGE_SAMPLED);
	case ROLE_NONE:
	case ROLE_KEEPER:
	case ROLE_COUNT:
		break;
	}
	return 0;
}

static void add_process(const struct shm_run *run, uint32_t entry, struct svc_summary *summary)
{
	const struct inc_entry *inc = &run->ctl->incs[entry];
	struct svc_process *process = &summary->processes[summary->n_processes];
	uint64_t number = atomic_load(&inc->number), beat_us = atomic_load(&inc->beat_us);
	uint64_t now = now_us();
	if (number == 0)
		return;
	process->entry = entry;
	process->number = number;
	process->role = inc_role(run, entry);
	process->instance = inc->instance;
	process->handed = atomic_load_explicit(&inc->handed, memory_order_relaxed);
	process->work = work_of(inc, process->role);
	process->pid = inc->pid;
	process->beat_age_ms = beat_us && now > beat_us ? (now - beat_us) / 1000 : 0;
	process->state = state_of(run, entry, process->beat_age_ms);
	uint32_t counted = inc->instance < CTL_INSTANCES ? inc->instance : CTL_INSTANCES - 1;
	uint32_t starts = atomic_load(&run->ctl->counters.starts[process->role][counted]);
	process->restarts = starts ? starts - 1 : 0;
	summary->n_processes++;
}

static void sort_processes(struct svc_summary *summary)
{
	static const int order[ROLE_COUNT] = {9, 1, 2, 3, 4, 5};
	for (uint32_t i = 1; i < summary->n_processes; i++)
		for (uint32_t k = i; k > 0; k--) {
			struct svc_process *a = &summary->processes[k - 1],
					   *b = &summary->processes[k];
			int left = order[a->role] * 4096 + (int)a->instance;
			int right = order[b->role] * 4096 + (int)b->instance;
			if (left <= right)
				break;
			struct svc_process swap = *a;
			*a = *b;
			*b = swap;
		}
}

void svc_summarise(const struct shm_run *run, struct svc_summary *ret)
{
	bool ready[ROLE_COUNT] = {false};
	*ret = (struct svc_summary){0};
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

static void why_print(struct buf *out, const struct shm_run *run)
{
	char text[SVC_WHY_TEXT];
	const char *before = "";
	buf_print(out, "\"why\":{");
	for (enum shm_role role = ROLE_NONE + 1; role < ROLE_COUNT; role++) {
		if (!svc_why_read(run, role, text))
			continue;
		buf_print(out, "%s\"%s\":", before, inc_role_name(role));
		buf_json_string(out, span_of(text));
		before = ",";
	}
	buf_append(out, "}", 1);
}

void svc_summary_print(struct buf *out, const struct shm_run *run,
		       const struct svc_summary *summary)
{
	const struct ctl_counters *counters = &run->ctl->counters;
	buf_print(out, "\"ready\":%s,\"epoch\":%" PRIu64 ",\"model\":",
		  summary->ready ? "true" : "false", atomic_load(&counters->epoch));
	buf_json_string(out, span_of(run->ctl->config.model_name));
	buf_print(out, ",\"fingerprint\":");
	buf_json_string(out, span_of(run->ctl->config.fingerprint));
	buf_append(out, ",", 1);
	why_print(out, run);
	buf_print(out, ",\"processes\":[");
	for (uint32_t i = 0; i < summary->n_processes; i++) {
		const struct svc_process *p = &summary->processes[i];
		buf_print(out,
			  "%s{\"role\":\"%s\",\"instance\":%u,\"pid\":%d,\"state\":\"%s\","
			  "\"epoch\":%" PRIu64 ",\"restarts\":%u,\"beat_age_ms\":%" PRIu64
			  ",\"handed\":%" PRIu64 ",\"work\":%" PRIu64 "}",
			  i ? "," : "", inc_role_name(p->role), p->instance, p->pid, p->state,
			  p->number, p->restarts, p->beat_age_ms, p->handed, p->work);
	}
	buf_print(out, "],\"slots\":{\"total\":%u,\"limit\":%u,\"waiting\":%u", run->n_table,
		  run->n_slots, summary->waiting);
	for (int stage = STAGE_FREE; stage < STAGE_COUNT; stage++)
		buf_print(out, ",\"%s\":%u", slot_stage_name((enum slot_stage)stage),
			  summary->stages[stage]);
	buf_print(out, "},\"pages\":{\"total\":%u,\"free\":%u}", run->n_pages,
		  page_count_free(run));
	buf_print(out,
		  ",\"counters\":{\"deaths\":%" PRIu64 ",\"stalls\":%" PRIu64
		  ",\"takeovers\":%" PRIu64 ",\"fenced_writes\":%" PRIu64
		  ",\"recovery_sum_ms\":%.1f}",
		  atomic_load(&counters->deaths), atomic_load(&counters->stalls),
		  atomic_load(&counters->takeovers), atomic_load(&counters->fenced_writes),
		  (double)atomic_load(&counters->recovery_us) / 1e3);
}
