/* services/summary.h: what the control segment says of the whole run: the processes and their
 * state, the slots by stage. No process has to answer for it. */
#pragma once
#include "base/buf.h"
#include "shm/run.h"

struct svc_process {
	uint32_t entry, instance;
	enum shm_role role;
	const char *state; /* "ready", "starting", "draining", "dead", "fenced" or "stalled" */
	uint64_t number, beat_age_ms;
	uint64_t handed; /* slots passed on */
	uint64_t work;	 /* npu-worker: positions computed; sampler: turns; tokenizer: prompts;
			  * gateway: requests */
	uint32_t restarts;
	int32_t pid; /* for people */
};

struct svc_summary {
	struct svc_process processes[INC_COUNT];
	uint32_t n_processes;
	uint32_t stages[STAGE_COUNT + 1]; /* slots in each */
	uint32_t waiting;		  /* of COMPUTE, claimed by nobody */
	bool ready;			  /* every role but the keeper has a ready process */
};

/* Processes come in the order of a token's way: gateway, tokenizer, npu-worker, sampler, keeper. */
void svc_summarise(const struct shm_run *run, struct svc_summary *ret);
/* Appends the members of a JSON object, without its braces: ready, epoch, model, fingerprint,
 * why (of a role that is missing, what its last process said: services/why.h), processes, slots,
 * pages, counters. */
void svc_summary_print(struct buf *out, const struct shm_run *run,
		       const struct svc_summary *summary);
