#include "npu-worker/worker.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/log.h"
#include "npu-worker/ahead.h"
#include "npu-worker/batch.h"
#include "npu-worker/cache.h"
#include "npu-worker/kernels/pool.h"
#include "npu-worker/npu.h"
#include "npu-worker/schedule.h"
#include "npu-worker/sequence.h"
#include "npu-worker/weights.h"

/* How long a step waits for slots that a sampler has, before it goes without them: that, or this
 * share of a step, if it is more. */
#define GATHER_US      300u
#define GATHER_SHARE   16u
#define GATHER_MOST_US 50000u /* no beat is given meanwhile */
#define COLLECT_US     1000000u
/* Of compute threads that nobody asked for: memory bandwidth seldom feeds more. */
#define MOST_THREADS 16u

static const struct opt worker_options[] = {
	{"device", OPT_CHOICE, "auto", 0, 0, "auto|host|xrt", "where to compute"},
	{"kernels", OPT_STRING, "", 0, 0, NULL, "folder of NPU kernels (docs/npu.md)"},
	{"xrt-module", OPT_STRING, "", 0, 0, NULL,
	 "path of liblockstep-xrt.so; default: beside the program, then the loader's places"},
	{"device-limit-ms", OPT_INT, "5000", 100, 600000, NULL,
	 "an NPU that takes longer for one dispatch has failed"},
	{"device-pause-ms", OPT_INT, "30000", 0, 600000, NULL,
	 "how long an NPU that failed three times within a minute is left alone"},
	{"threads", OPT_INT, "0", 0, 256, NULL,
	 "compute threads; 0: one per core that it may use, but from four on one less, and at most "
	 "16"},
	{"pin", OPT_BOOL, "false", 0, 0, NULL,
	 "hold each compute thread on a processor of its own, physical cores first"},
	{"isa", OPT_CHOICE, "auto", 0, 0, "auto|scalar|avx2|avx512|amx",
	 "instruction set; all give the same bits"},
	{"lock-memory", OPT_BOOL, "false", 0, 0, NULL,
	 "keep the weights in memory (mlock); needs RLIMIT_MEMLOCK of their size"},
	{"prefix-cache", OPT_BOOL, "true", 0, 0, NULL, "share KV pages of equal beginnings"},
	{"disk-cache", OPT_STRING, "", 0, 0, NULL,
	 "folder for KV pages that fall out of memory; empty: none"},
	{"disk-cache-mb", OPT_INT, "4096", 16, 1 << 24, NULL, "at most this much of it (MiB)"},
	{"run-ahead", OPT_BOOL, "true", 0, 0, NULL,
	 "compute the next step while a sampler draws its token"},
	{"ahead-when", OPT_CHOICE, "pays", 0, 0, "pays|always",
	 "only where that is faster, as tried out in turn; or always"},
	{"guess", OPT_CHOICE, "draw", 0, 0, "draw|likeliest",
	 "where a request samples: for its very draw, made beforehand, or for the likeliest "
	 "token"},
	{"speculate", OPT_INT, "-1", -1, WORKER_MAX_DRAFTS, NULL,
	 "and up to so many tokens behind it, as far as it pays; 0: none, -1: 8, on an NPU none"},
	{"draft-when", OPT_CHOICE, "pays", 0, 0, "pays|always",
	 "as many drafts as pay, by what steps cost here and what was right of late; or all there "
	 "are"},
	{"draft-model", OPT_STRING, "", 0, 0, NULL,
	 "a smaller model's file, of the same vocabulary: it drafts where the text doesn't repeat "
	 "itself"},
	{"draft-layers", OPT_INT, "0", 0, 4096, NULL,
	 "so many of the model's own first layers do that; 0: none"},
	{"prefill-rows", OPT_INT, "256", 1, 512, NULL,
	 "prompt positions of one step when nothing else runs"},
	{"prefill-rows-busy", OPT_INT, "64", 1, 512, NULL,
	 "at most this many while other sequences generate, but for one step in 128"},
	{0},
};

static void forget_outstanding(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_outstanding; i++)
		if (worker->outstanding[i] == slot)
			worker->outstanding[i--] = worker->outstanding[--worker->n_outstanding];
}

static void look(struct svc *svc, uint32_t slot)
{
	struct worker *worker = svc->role_state;
	struct slot_state state = slot_load(&svc->run, slot), mine;
	struct body *body;
	if (state.stage == STAGE_RECLAIM) {
		forget_outstanding(worker, slot);
		if (svc_slot_look(svc, slot, STAGE_RECLAIM) != CLAIM_NO)
			sequence_reclaim(worker, slot);
		return;
	}
	if (state.stage != STAGE_COMPUTE || sequence_find(worker, slot))
		return;
	if (state.owner == 0) {
		worker->n_waiting++;
		return;
	}
	enum svc_claim claim = svc_slot_look(svc, slot, STAGE_COMPUTE);
	/* What is with a sampler comes back to its place. A new worker may get what its predecessor
	 * handed out: that waits for a sweep. */
	uint32_t taken = worker->n_sequences + (claim == CLAIM_FRESH ? 0 : worker->n_outstanding);
	if (claim == CLAIM_NO || taken >= svc->run.n_slots)
		return;
	forget_outstanding(worker, slot);
	claim = svc_slot_own(svc, slot, STAGE_COMPUTE, &mine, &body);
	if (claim != CLAIM_NO)
		sequence_open(worker, slot, mine, body);
}

/* Slots that came back from the samplers, or went elsewhere. */
static void gather(struct worker *worker)
{
	struct svc *svc = worker->svc;
	for (uint32_t i = 0; i < worker->n_outstanding;) {
		uint32_t slot = worker->outstanding[i], before = worker->n_outstanding;
		struct slot_state state = slot_load(&svc->run, slot);
		if (state.stage == STAGE_SAMPLE) {
			i++;
			continue;
		}
		if (slot_stage_role(state.stage) == ROLE_WORKER)
			look(svc, slot);
		if (worker->n_outstanding == before)
			forget_outstanding(worker, slot);
	}
}

static void end_cancelled(struct worker *worker)
{
	struct svc_err err;
	for (uint32_t i = worker->n_sequences; i-- > 0;) {
		struct sequence *sequence = &worker->sequences[i];
		if (!slot_is_cancelled(&worker->svc->run, sequence->slot))
			continue;
		svc_fail(&err, SVC_CANCELLED, __func__, "the client went away");
		svc_slot_fail(worker->svc, sequence->slot, &sequence->state, sequence->body, &err);
		sequence_close(worker, sequence);
	}
}

/* What came back and was computed already goes to the samplers again, at once. */
static void gather_computed(struct worker *worker)
{
	uint32_t before = worker->n_outstanding;
	gather(worker);
	batch_commit_computed(worker);
	if (before)
		svc_hint_flush(worker->svc);
}

static uint64_t gather_us(const struct worker *worker)
{
	uint64_t share = (uint64_t)worker->pace.decode_us / GATHER_SHARE;
	return share < GATHER_US ? GATHER_US : share < GATHER_MOST_US ? share : GATHER_MOST_US;
}

/* Gathers, and steps if there is anything to do. */
static bool work(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	uint64_t start = svc_now_us();
	gather_computed(worker);
	if (worker->n_waiting) {
		schedule_await_burst(worker);
		schedule_admit(worker);
	}
	bool ahead = ahead_is_worth_it(worker);
	/* A full batch reads the weights once for all: give the sampler a moment. */
	while (!ahead && worker->n_outstanding && !svc->leaving &&
	       svc_now_us() - start < gather_us(worker)) {
		sched_yield();
		gather_computed(worker);
		ahead = ahead_is_worth_it(worker);
	}
	end_cancelled(worker);
	if (worker->n_sequences + worker->n_outstanding == 0)
		ahead_rest(worker);
	if ((worker->n_sequences == 0 && !ahead) || svc->leaving)
		return false;
	if (schedule_plan(worker) == 0 && !ahead)
		return false;
	schedule_reserve(worker);
	if (svc->leaving)
		return false;
	uint32_t before = worker->n_sequences;
	batch_run(worker, ahead);
	/* No page for anyone: don't spin, wait for a tick. */
	return ahead || worker->n_sequences < before || worker->n_outstanding ||
	       schedule_plan(worker) > 0;
}

static void tick(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	atomic_store_explicit(&inc->gauge[GAUGE_RUNNING],
			      worker->n_sequences + worker->n_outstanding, memory_order_relaxed);
	atomic_store_explicit(&inc->gauge[GAUGE_WAITING], worker->n_waiting, memory_order_relaxed);
	npu_check(worker);
	end_cancelled(worker);
	pages_adopt_from_dead(worker);
	if (svc_now_us() - worker->collected_us > COLLECT_US)
		pages_collect(worker);
	cache_leave_spare(worker);
	if (worker->n_sequences + worker->n_outstanding == 0)
		cache_write_some(worker);
}

/* Hands what is here on to another instance; the only one finishes what runs. */
static bool drain(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	if (inc_find(&svc->run, ROLE_WORKER, svc->run.me) == 0)
		return worker->n_sequences + worker->n_outstanding == 0;
	while (worker->n_sequences && !svc->leaving) {
		struct sequence *sequence = &worker->sequences[worker->n_sequences - 1];
		if (svc_slot_pass(svc, sequence->slot, &sequence->state, STAGE_COMPUTE, 0) !=
		    SVC_OK)
			return false;
		sequence_close(worker, sequence);
	}
	gather(worker);
	return worker->n_sequences + worker->n_outstanding == 0;
}

/* One core's time is for the other processes. Of two or three cores that is too much: there a
 * thread that has to wait for its core misses the round, and the others do its work (pool.c). */
static uint32_t choose_threads(const struct svc *svc)
{
	int64_t asked = opt_int(svc->options, "threads");
	uint32_t cores = cores_usable();
	if (asked > 0)
		return (uint32_t)asked;
	cores -= cores >= 4;
	return cores < MOST_THREADS ? cores : MOST_THREADS;
}

/* ret_cores: [threads]. Workers of one run take different processors while there are enough. */
static enum svc_code choose_cores(const struct svc *svc, uint32_t threads, uint32_t *ret_cores,
				  struct svc_err *err)
{
	uint32_t cores[CPU_SETSIZE], n = cores_list(CPU_SETSIZE, cores);
	if (n < threads)
		return svc_fail_param(err, SVC_BAD_CONFIG, "pin",
				      "--pin: %u threads, but this process may run on %u "
				      "processors; lower --threads or leave --pin out",
				      threads, n);
	uint32_t share = (svc->run.me - INC_WORKER_FIRST) % (n / threads);
	memcpy(ret_cores, cores + share * threads, threads * sizeof *cores);
	return SVC_OK;
}

static enum svc_code allocate(struct worker *worker, struct svc_err *err)
{
	const struct shm_run *run = &worker->svc->run;
	/* One spare: a slot is opened before it is known to stay. */
	uint32_t n = run->n_slots + 1;
	worker->pages_per_sequence = (run->ctx + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
	worker->sequences = calloc(n, sizeof *worker->sequences);
	worker->page_tables =
		calloc(((size_t)n + 1) * worker->pages_per_sequence, sizeof *worker->page_tables);
	worker->outstanding = calloc(run->n_table, sizeof *worker->outstanding);
	worker->step = calloc(n, sizeof *worker->step);
	worker->tokens = calloc(WORKER_MAX_ROWS, sizeof *worker->tokens);
	worker->may_go = calloc(run->n_pages, 1);
	worker->pooled = calloc((size_t)n * run->n_embd, sizeof *worker->pooled);
	if (!worker->sequences || !worker->page_tables || !worker->outstanding || !worker->step ||
	    !worker->tokens || !worker->may_go || !worker->pooled)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		worker->sequences[i].pages =
			worker->page_tables + (size_t)i * worker->pages_per_sequence;
	worker->scratch_pages = worker->page_tables + (size_t)n * worker->pages_per_sequence;
	return SVC_OK;
}

static enum svc_code open_engine(struct worker *worker, uint32_t threads, struct svc_err *err)
{
	struct svc *svc = worker->svc;
	const struct ctl_config *config = &svc->run.ctl->config;
	uint32_t cores[POOL_MAX_THREADS];
	bool pin = opt_bool(svc->options, "pin");
	struct engine_options options = {
		.region = (const char *)worker->weights.base + WEIGHTS_OFFSET,
		.region_bytes = worker->weights.bytes - WEIGHTS_OFFSET,
		.isa = opt_string(svc->options, "isa"),
		.threads = threads,
		.cores = pin ? cores : NULL,
		.max_rows = WORKER_MAX_ROWS,
		.max_seqs = svc->run.n_slots,
	};
	enum svc_code code = engine_family_parse(config->family, &options.family, err);
	if (code == SVC_OK && pin)
		code = choose_cores(svc, threads, cores, err);
	if (code == SVC_OK)
		code = engine_open(&options, &worker->engine, err);
	if (code != SVC_OK)
		return code;
	const struct engine_info *info = engine_info(worker->engine);
	if (info->page_bytes > svc->run.page_bytes || info->config.n_vocab != svc->run.n_vocab ||
	    info->config.n_embd != svc->run.n_embd)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the engine has KV pages of %zu bytes, %u logits and hidden states "
				"of %u; the run was made for %zu, %u and %u",
				info->page_bytes, info->config.n_vocab, info->config.n_embd,
				(size_t)svc->run.page_bytes, svc->run.n_vocab, svc->run.n_embd);
	worker->rows_alone = (uint32_t)opt_int(svc->options, "prefill-rows");
	worker->rows_busy = (uint32_t)opt_int(svc->options, "prefill-rows-busy");
	worker->run_ahead = opt_bool(svc->options, "run-ahead");
	log_info("engine: %s, %s, %u threads", config->family, info->isa, info->threads);
	return engine_set_pages(worker->engine, run_page(&svc->run, 0), svc->run.page_bytes,
				svc->run.n_pages, err);
}

static enum svc_code start(struct svc *svc, struct svc_err *err)
{
	struct worker *worker = calloc(1, sizeof *worker);
	if (!worker)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->role_state = worker;
	worker->svc = svc;
	uint32_t threads = choose_threads(svc);
	bool wants_npu = false;
	enum svc_code code = npu_look(svc, &wants_npu, err);
	if (code == SVC_OK)
		code = allocate(worker, err);
	if (code == SVC_OK)
		code = weights_map(svc, threads, wants_npu, &worker->weights, err);
	if (code == SVC_OK && opt_bool(svc->options, "lock-memory"))
		code = weights_lock(&worker->weights, err);
	if (code == SVC_OK)
		code = open_engine(worker, threads, err);
	/* After the engine, who says best what an instruction set lacks here. */
	if (code == SVC_OK)
		code = ahead_open(worker, err);
	if (code == SVC_OK)
		code = npu_open(worker, err);
	if (code == SVC_OK)
		code = drafts_open(worker, threads, err);
	if (code == SVC_OK)
		code = cache_open(worker, err);
	return code;
}

static void stop(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	while (svc->leave_code == SVC_OK && cache_write_some(worker) && svc_beat(svc))
		;
	cache_close(worker);
	npu_close(worker);
	drafts_close(worker);
	engine_close(worker->engine);
	seg_unmap(&worker->weights);
	/* What is left holds pages until another worker adopts them. */
	if (svc->leave_code == SVC_OK && worker->n_sequences == 0)
		pages_collect(worker);
	free(worker->sequences);
	free(worker->page_tables);
	free(worker->outstanding);
	free(worker->step);
	free(worker->tokens);
	free(worker->may_go);
	free(worker->pooled);
	ahead_close(worker);
	free(worker);
	svc->role_state = NULL;
}

const struct svc_spec worker_spec = {
	.role = ROLE_WORKER,
	.summary = "owns the device or the host engine: KV pages, batches, logits",
	.options = worker_options,
	.start = start,
	.look = look,
	.tick = tick,
	.work = work,
	.drain = drain,
	.stop = stop,
};
