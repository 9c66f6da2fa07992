#include "npu-worker/worker.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "npu-worker/worker_private.h"
#include "services/fault.h"

/* How long a step waits for slots that a sampler has, before it goes without them. */
#define GATHER_US  300u
#define COLLECT_US 1000000u
/* A request that saw this many owners die without progress runs alone. */
#define DEATHS_ALONE 2u

static const struct opt worker_options[] = {
	{"device", OPT_CHOICE, "auto", 0, 0, "auto|host|xrt", "where to compute"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "compute threads; 0: one per core, at most 16"},
	{"isa", OPT_CHOICE, "auto", 0, 0, "auto|scalar|avx2|avx512|amx",
	 "instruction set; all give the same bits"},
	{"prefix-cache", OPT_BOOL, "true", 0, 0, NULL, "share KV pages of equal beginnings"},
	{"prefill-rows", OPT_INT, "256", 1, 512, NULL,
	 "prompt positions of one step when nothing else runs"},
	{"prefill-rows-busy", OPT_INT, "32", 1, 512, NULL,
	 "the same while other sequences generate"},
	{0},
};

static struct sequence *find(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_sequences; i++)
		if (worker->sequences[i].slot == slot)
			return &worker->sequences[i];
	return NULL;
}

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
	if (state.stage != STAGE_COMPUTE || find(worker, slot))
		return;
	if (state.owner == 0) {
		worker->n_waiting++;
		return;
	}
	enum svc_claim claim = svc_slot_look(svc, slot, STAGE_COMPUTE);
	if (claim == CLAIM_NO || (claim != CLAIM_FRESH && worker->n_sequences == svc->run.n_slots))
		return;
	forget_outstanding(worker, slot);
	claim = svc_slot_own(svc, slot, STAGE_COMPUTE, &mine, &body);
	if (claim != CLAIM_NO)
		sequence_open(worker, slot, mine, body);
}

/* The unclaimed slot that came first; n_table if there is none. */
static uint32_t first_waiting(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	uint32_t best = run->n_table;
	uint64_t best_ticket = UINT64_MAX;
	worker->n_waiting = 0;
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		struct slot_state state = slot_load(run, slot);
		if (state.stage != STAGE_COMPUTE || state.owner != 0)
			continue;
		worker->n_waiting++;
		uint64_t ticket = atomic_load(&run->slots[slot].ticket);
		if (ticket < best_ticket) {
			best_ticket = ticket;
			best = slot;
		}
	}
	return best;
}

/* Pages that a waiting sequence needs to get going, one more for growth. */
static uint32_t pages_wanted(struct worker *worker, uint32_t slot)
{
	struct shm_run *run = &worker->svc->run;
	const struct body *body = body_get(run, slot_load(run, slot).body, slot);
	uint32_t known = body ? body_n_ids(run, body) : 0;
	uint32_t held = body ? atomic_load(&body->n_pages) : 0;
	uint32_t need = known / PAGE_POSITIONS + 1;
	return need > held ? need - held : 0;
}

static void admit(struct worker *worker)
{
	struct svc *svc = worker->svc;
	struct slot_state mine;
	struct body *body;
	while (worker->n_waiting && !svc->draining && !svc->leaving) {
		bool room = worker->n_sequences + worker->n_outstanding < svc->run.n_slots;
		uint32_t slot = first_waiting(worker);
		if (slot == svc->run.n_table)
			return;
		bool cancelled = slot_is_cancelled(&svc->run, slot);
		bool fits = room && row_is_available(&svc->run);
		if (fits && page_count_free(&svc->run) < pages_wanted(worker, slot))
			fits = pages_available(worker) >= pages_wanted(worker, slot);
		/* In order of arrival: nobody overtakes the first one, even if it would fit. */
		if (!fits && !cancelled)
			return;
		enum svc_claim claim = svc_slot_own(svc, slot, STAGE_COMPUTE, &mine, &body);
		if (claim != CLAIM_NO && !sequence_open(worker, slot, mine, body) && !cancelled)
			return;
	}
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

static bool is_scoring(const struct sequence *sequence)
{
	return (sequence->body->params.flags & BODY_PROMPT_LOGPROBS) != 0 &&
	       sequence->n_kv < sequence->n_prompt;
}

static bool is_decode(const struct sequence *sequence)
{
	return sequence->n_known - sequence->n_kv == 1 || is_scoring(sequence);
}

static struct sequence *youngest(struct worker *worker)
{
	struct sequence *found = NULL;
	for (uint32_t i = 0; i < worker->n_sequences; i++)
		if (!found || worker->sequences[i].ticket > found->ticket)
			found = &worker->sequences[i];
	return found;
}

/* Pages for the next n positions. When none are left, the youngest sequence here waits; that may be
 * this one. */
static bool make_room(struct worker *worker, uint32_t slot, uint32_t n)
{
	for (;;) {
		struct sequence *sequence = find(worker, slot);
		if (!sequence)
			return false;
		if (sequence_reserve(worker, sequence, sequence->n_kv + n))
			return true;
		struct sequence *victim = youngest(worker);
		/* Alone and still no page: others (another worker, a frozen one) hold them all.
		 * Wait for a tick. */
		if (worker->n_sequences == 1)
			return false;
		sequence_preempt(worker, victim);
		if (worker->svc->leaving)
			return false;
	}
}

static int by_ticket(const void *a, const void *b)
{
	const struct sequence *left = a, *right = b;
	return left->ticket < right->ticket ? -1 : left->ticket > right->ticket;
}

/* Sets n_take of every sequence: all decodes, then prompts in order of arrival while rows last. */
static uint32_t plan_step(struct worker *worker)
{
	uint32_t n_decode = 0, budget, total = 0;
	const struct sequence *alone = NULL;
	qsort(worker->sequences, worker->n_sequences, sizeof *worker->sequences, by_ticket);
	for (uint32_t i = 0; i < worker->n_sequences; i++) {
		struct sequence *sequence = &worker->sequences[i];
		sequence->n_take = is_decode(sequence) ? 1 : 0;
		n_decode += sequence->n_take;
		if (atomic_load(&sequence->body->deaths) >= DEATHS_ALONE && !alone)
			alone = sequence;
	}
	budget = (uint32_t)opt_int(worker->svc->options, n_decode + worker->n_outstanding
								 ? "prefill-rows-busy"
								 : "prefill-rows");
	if (budget > WORKER_MAX_ROWS - n_decode)
		budget = WORKER_MAX_ROWS - n_decode;
	for (uint32_t i = 0; i < worker->n_sequences; i++) {
		struct sequence *sequence = &worker->sequences[i];
		uint32_t left = sequence->n_known - sequence->n_kv;
		if (sequence->n_take == 0) {
			sequence->n_take = left < budget ? left : budget;
			budget -= sequence->n_take;
		}
		if (alone && sequence != alone)
			sequence->n_take = 0;
		total += sequence->n_take;
	}
	return total;
}

/* Pages for everyone in the plan; who can't have them sits this step out. Preempting moves entries:
 * go by slot. */
static void reserve_step(struct worker *worker)
{
	uint32_t slots[256], n = 0;
	for (uint32_t i = 0; i < worker->n_sequences && n < 256; i++)
		if (worker->sequences[i].n_take)
			slots[n++] = worker->sequences[i].slot;
	for (uint32_t i = 0; i < n; i++) {
		struct sequence *sequence = find(worker, slots[i]);
		if (sequence && !make_room(worker, slots[i], sequence->n_take)) {
			sequence = find(worker, slots[i]);
			if (sequence)
				sequence->n_take = 0;
		}
	}
}

/* Copies the ids that go into this step; false if the body holds ids that aren't tokens. */
static bool copy_tokens(struct worker *worker, struct sequence *sequence, int32_t *tokens)
{
	const struct shm_run *run = &worker->svc->run;
	const int32_t *ids = body_region(run, sequence->body, REGION_IDS,
					 sequence->n_known * sizeof(int32_t), NULL);
	if (!ids)
		return false;
	memcpy(tokens, ids + sequence->n_kv, sequence->n_take * sizeof *tokens);
	for (uint32_t i = 0; i < sequence->n_take; i++)
		if (tokens[i] < 0 || (uint32_t)tokens[i] >= run->n_vocab)
			return false;
	return true;
}

static bool wants_logits(const struct sequence *sequence)
{
	return sequence->n_kv + sequence->n_take == sequence->n_known || is_scoring(sequence);
}

static void fail_sequence(struct worker *worker, struct sequence *sequence, enum svc_code code,
			  const char *why)
{
	struct svc_err err;
	svc_fail(&err, code, __func__, "%s", why);
	svc_slot_fail(worker->svc, sequence->slot, &sequence->state, sequence->body, &err);
	sequence_close(worker, sequence);
}

/* Fills worker->step for sequences 0 .. n-1 of the table that take part; they are moved to the
 * front. */
static uint32_t build_step(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	uint32_t n = 0, rows = 0;
	for (uint32_t i = 0; i < worker->n_sequences;) {
		struct sequence *sequence = &worker->sequences[i];
		if (sequence->n_take && !copy_tokens(worker, sequence, worker->tokens + rows)) {
			fail_sequence(worker, sequence, SVC_CORRUPT,
				      "the request's body holds ids that are no tokens");
			continue;
		}
		i++;
		if (sequence->n_take == 0)
			continue;
		uint32_t after = sequence->n_kv + sequence->n_take;
		worker->step[n] = (struct engine_seq){
			.tokens = worker->tokens + rows,
			.n_tokens = sequence->n_take,
			.pos = sequence->n_kv,
			.pages = sequence->pages,
			.n_pages = sequence->n_pages,
			.n_logits = wants_logits(sequence),
			.logits = run_logits(run, sequence->row, after & 1),
			.logits_stride = run->n_vocab,
		};
		rows += sequence->n_take;
		struct sequence other = worker->sequences[n];
		worker->sequences[n] = *sequence;
		*sequence = other;
		n++;
	}
	return n;
}

static void commit(struct worker *worker, uint32_t index)
{
	struct svc *svc = worker->svc;
	struct sequence *sequence = &worker->sequences[index];
	struct body *body = sequence->body;
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	bool sample = wants_logits(sequence), decoded = is_decode(sequence);
	if (worker->step[index].status == SVC_NUMERIC) {
		fail_sequence(worker, sequence, SVC_NUMERIC,
			      "the model gave NaN or infinite values for this request");
		return;
	}
	if (worker->step[index].status != SVC_OK) {
		fail_sequence(worker, sequence, SVC_INTERNAL,
			      "the engine refused this request's step");
		return;
	}
	atomic_fetch_add_explicit(&inc->gauge[decoded ? GAUGE_DECODE_TOKENS : GAUGE_PREFILL_TOKENS],
				  sequence->n_take, memory_order_relaxed);
	sequence->n_kv += sequence->n_take;
	uint64_t now = svc_now_us();
	if (sample && atomic_load(&body->first_us) == 0)
		atomic_store(&body->first_us, now);
	atomic_store(&body->last_us, now);
	atomic_store_explicit(&body->n_kv, sequence->n_kv, memory_order_release);
	sequence_seal(worker, sequence, sequence->n_kv - sequence->n_take);
	fault_point("worker.commit");
	if (!sample)
		return;
	if (svc_slot_pass(svc, sequence->slot, &sequence->state, STAGE_SAMPLE,
			  atomic_load(&body->sampler)) != SVC_OK)
		return;
	worker->outstanding[worker->n_outstanding++] = sequence->slot;
	sequence_close(worker, sequence);
}

static void on_beat(void *context)
{
	svc_beat(context);
}

static void run_step(struct worker *worker)
{
	struct svc *svc = worker->svc;
	struct svc_err err;
	const struct engine_hooks hooks = {.context = svc, .beat = on_beat};
	uint32_t n = build_step(worker);
	if (n == 0)
		return;
	uint64_t start = svc_now_us();
	struct engine_batch batch = {worker->step, n, &hooks};
	enum svc_code code = engine_step(worker->engine, &batch, &err);
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	atomic_fetch_add_explicit(&inc->busy_us, svc_now_us() - start, memory_order_relaxed);
	atomic_fetch_add_explicit(&inc->gauge[GAUGE_STEPS], 1, memory_order_relaxed);
	fault_point("worker.step");
	if (svc->leaving)
		return;
	if (code != SVC_OK) {
		log_err(&err);
		svc_leave(svc, SVC_INTERNAL);
		return;
	}
	/* Back to front: a sequence that is passed on leaves the table. */
	for (uint32_t i = n; i-- > 0 && !svc->leaving;)
		commit(worker, i);
}

static bool work(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	uint64_t start = svc_now_us();
	gather(worker);
	if (worker->n_waiting)
		admit(worker);
	/* A full batch reads the weights once for all: give the sampler a moment. */
	while (worker->n_outstanding && svc_now_us() - start < GATHER_US) {
		__builtin_ia32_pause();
		gather(worker);
	}
	end_cancelled(worker);
	if (worker->n_sequences == 0 || svc->leaving)
		return false;
	if (plan_step(worker) == 0)
		return false;
	reserve_step(worker);
	if (svc->leaving)
		return false;
	uint32_t before = worker->n_sequences;
	run_step(worker);
	/* No page for anyone: don't spin, wait for a tick. */
	return worker->n_sequences < before || worker->n_outstanding || plan_step(worker) > 0;
}

static void tick(struct svc *svc)
{
	struct worker *worker = svc->role_state;
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	atomic_store_explicit(&inc->gauge[GAUGE_RUNNING],
			      worker->n_sequences + worker->n_outstanding, memory_order_relaxed);
	atomic_store_explicit(&inc->gauge[GAUGE_WAITING], worker->n_waiting, memory_order_relaxed);
	end_cancelled(worker);
	pages_adopt_from_dead(worker);
	if (svc_now_us() - worker->collected_us > COLLECT_US)
		pages_collect(worker);
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

static uint32_t choose_threads(const struct svc *svc)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int64_t asked = opt_int(svc->options, "threads");
	if (asked > 0)
		return (uint32_t)asked;
	return cores < 1 ? 1 : cores > 16 ? 16 : (uint32_t)cores;
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
	if (!worker->sequences || !worker->page_tables || !worker->outstanding || !worker->step ||
	    !worker->tokens || !worker->may_go)
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
	struct engine_options options = {
		.region = (const char *)worker->weights.base + 4096,
		.region_bytes = worker->weights.bytes - 4096,
		.isa = opt_string(svc->options, "isa"),
		.threads = threads,
		.max_rows = WORKER_MAX_ROWS,
		.max_seqs = svc->run.n_slots,
	};
	enum svc_code code = engine_family_parse(config->family, &options.family, err);
	if (code == SVC_OK)
		code = engine_open(&options, &worker->engine, err);
	if (code != SVC_OK)
		return code;
	const struct engine_info *info = engine_info(worker->engine);
	if (info->page_bytes > svc->run.page_bytes || info->config.n_vocab != svc->run.n_vocab)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the engine's KV pages have %zu bytes and %u logits, the run was "
				"made for %zu and %u",
				info->page_bytes, info->config.n_vocab, (size_t)svc->run.page_bytes,
				svc->run.n_vocab);
	worker->prefix_cache = opt_bool(svc->options, "prefix-cache");
	worker->prefix_identity =
		prefix_start((const uint64_t[2]){info->identity.low, info->identity.high});
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
	if (strcmp(opt_string(svc->options, "device"), "xrt") == 0)
		return svc_fail_param(
			err, SVC_NO_DEVICE, "device",
			"--device xrt: this build has no XRT module; use --device host or auto");
	uint32_t threads = choose_threads(svc);
	enum svc_code code = allocate(worker, err);
	if (code == SVC_OK)
		code = weights_map(svc, threads, &worker->weights, err);
	if (code == SVC_OK)
		code = open_engine(worker, threads, err);
	return code;
}

static void stop(struct svc *svc)
{
	struct worker *worker = svc->role_state;
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
