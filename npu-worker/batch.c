#include "npu-worker/batch.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/log.h"
#include "npu-worker/ahead.h"
#include "npu-worker/cache.h"
#include "npu-worker/engine/hooks.h"
#include "npu-worker/pool.h"
#include "npu-worker/schedule.h"
#include "npu-worker/sequence.h"
#include "shm/trace.h"

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
	return !pool_is_wanted(sequence) &&
	       (sequence->n_kv + sequence->n_take == sequence->n_known ||
		sequence_is_scoring(sequence));
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
		if (sequence->n_take == 0) {
			i++;
			continue;
		}
		uint32_t after = sequence->n_kv + sequence->n_take;
		worker->step[n] = (struct engine_seq){
			.tokens = worker->tokens + rows,
			.n_tokens = sequence->n_take,
			.pos = sequence->n_kv,
			.pages = sequence->pages,
			.n_pages = sequence->n_pages,
			.settled = sequence->settled,
			.n_logits = wants_logits(sequence),
			.logits = run_logits(run, sequence->row, after & 1),
			.logits_stride = run->n_vocab,
		};
		if (pool_is_wanted(sequence) &&
		    !pool_begin(worker, sequence, n, &worker->step[n])) {
			fail_sequence(worker, sequence, SVC_CORRUPT,
				      "the request's body is damaged: the sum of its hidden "
				      "states");
			continue;
		}
		rows += sequence->n_take;
		struct sequence other = worker->sequences[n];
		worker->sequences[n] = *sequence;
		*sequence = other;
		n++;
		i++;
	}
	return n;
}

/* With --log-level debug, for who compares two runs bit by bit: the row's XXH3, as the engine's
 * tool prints it. */
static void log_logits(const struct worker *worker, const struct sequence *sequence,
		       const struct engine_seq *step)
{
	const struct shm_run *run = &worker->svc->run;
	if (log_level() < LOG_LEVEL_DEBUG || !step->n_logits)
		return;
	log_line(LOG_LEVEL_DEBUG, atomic_load(&run->slots[sequence->slot].request), SVC_OK,
		 "logits at %u: %016" PRIx64, step->pos + step->n_tokens - 1,
		 (uint64_t)XXH3_64bits(step->logits, run->n_vocab * sizeof *step->logits));
}

static void trace_step(struct worker *worker, const struct sequence *sequence, uint64_t start_ns,
		       uint64_t took_ns)
{
	const struct trace_span span = {
		.start_ns = start_ns,
		.took_ns = took_ns,
		.kind = wants_logits(sequence) ? TRACE_STEP : TRACE_PREFILL,
		.slot = sequence->slot,
		.position = sequence->n_kv + sequence->n_take,
	};
	trace_put_span(&worker->svc->run, &span);
}

static void trace_ahead(struct worker *worker, uint64_t start_ns, uint64_t took_ns)
{
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		const struct ahead *ahead = &worker->aheads[i];
		const struct trace_span span = {start_ns, took_ns, TRACE_STEP, ahead->slot,
						ahead->n_kv + 1};
		trace_put_span(&worker->svc->run, &span);
	}
}

static void commit(struct worker *worker, uint32_t index, const struct engine_seq *step)
{
	struct svc *svc = worker->svc;
	struct sequence *sequence = &worker->sequences[index];
	struct body *body = sequence->body;
	struct inc_entry *inc = &svc->run.ctl->incs[svc->run.me];
	bool sample = wants_logits(sequence), decoded = sequence_is_decode(sequence);
	if (step->status == SVC_NUMERIC) {
		fail_sequence(worker, sequence, SVC_NUMERIC,
			      "the model gave NaN or infinite values for this request");
		return;
	}
	if (step->status != SVC_OK) {
		fail_sequence(worker, sequence, SVC_INTERNAL,
			      "the engine refused this request's step");
		return;
	}
	log_logits(worker, sequence, step);
	atomic_fetch_add_explicit(&inc->gauge[decoded ? GAUGE_DECODE_TOKENS : GAUGE_PREFILL_TOKENS],
				  sequence->n_take, memory_order_relaxed);
	if (pool_is_wanted(sequence))
		pool_commit(worker, sequence, step);
	sequence->n_kv += sequence->n_take;
	sequence->settled = true;
	uint64_t now = svc_now_us();
	if (sample && atomic_load(&body->first_us) == 0)
		atomic_store(&body->first_us, now);
	atomic_store(&body->last_us, now);
	atomic_store_explicit(&body->n_kv, sequence->n_kv, memory_order_release);
	cache_seal(worker, sequence, sequence->n_kv - sequence->n_take);
	fault_point("worker.commit");
	if (pool_is_wanted(sequence) && sequence->n_kv == sequence->n_known)
		sequence_end_pooled(worker, sequence);
	if (!sample)
		return;
	ahead_note(worker, sequence);
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

void batch_commit_computed(struct worker *worker)
{
	const struct shm_run *run = &worker->svc->run;
	for (uint32_t i = worker->n_sequences; i-- > 0 && !worker->svc->leaving;) {
		struct sequence *sequence = &worker->sequences[i];
		if (!sequence->computed)
			continue;
		uint32_t after = sequence->n_kv + 1;
		const struct engine_seq step = {.pos = sequence->n_kv,
						.n_tokens = 1,
						.n_logits = 1,
						.logits = run_logits(run, sequence->row, after & 1),
						.status = sequence->status};
		sequence->computed = false;
		sequence->n_take = 1;
		atomic_fetch_add_explicit(
			&worker->svc->run.ctl->incs[worker->svc->run.me].gauge[GAUGE_AHEAD_TOKENS],
			1, memory_order_relaxed);
		commit(worker, i, &step);
	}
}

/* What a step tells the scheduler, the metrics and who traces. */
static void account(struct worker *worker, uint32_t n, uint32_t n_ahead, uint64_t start_us,
		    uint64_t start_ns)
{
	struct inc_entry *inc = &worker->svc->run.ctl->incs[worker->svc->run.me];
	uint64_t took_us = svc_now_us() - start_us;
	uint32_t n_decode = n_ahead, n_prompt = 0, rows = 0;
	for (uint32_t i = 0; i < n + n_ahead; i++)
		rows += worker->step[i].n_tokens;
	for (uint32_t i = 0; i < n; i++)
		*(sequence_is_decode(&worker->sequences[i]) ? &n_decode : &n_prompt) +=
			worker->sequences[i].n_take;
	/* With drafts it teaches what a row more costs, not what a step of decoding does. */
	if (n_prompt == 0)
		worth_learn(&worker->cost, rows, (double)took_us);
	if (rows == n_decode + n_prompt)
		pace_learn(&worker->pace, n_decode, n_prompt, (double)took_us);
	pace_step_over(&worker->pace, n_decode + worker->n_outstanding > 0);
	atomic_fetch_add_explicit(&inc->busy_us, took_us, memory_order_relaxed);
	atomic_store_explicit(&inc->gauge[GAUGE_RUNNING],
			      worker->n_sequences + worker->n_outstanding, memory_order_relaxed);
	atomic_fetch_add_explicit(&inc->gauge[GAUGE_STEPS], 1, memory_order_relaxed);
	ahead_learn(worker, rows == n_decode);
	for (uint32_t i = 0; start_ns && i < n; i++)
		trace_step(worker, &worker->sequences[i], start_ns, took_us * 1000);
	if (start_ns && n_ahead)
		trace_ahead(worker, start_ns, took_us * 1000);
}

void batch_run(struct worker *worker, bool ahead)
{
	struct svc *svc = worker->svc;
	struct svc_err err;
	const struct engine_hooks hooks = {
		.context = svc, .beat = on_beat, .goes_on = ahead ? ahead_goes_on : NULL};
	uint32_t n = build_step(worker), n_ahead = 0;
	if (ahead) {
		drafter_run(worker);
		n_ahead = ahead_append(worker, worker->step + n, worker->tokens + n,
				       WORKER_MAX_ROWS - n);
	}
	if (n + n_ahead == 0)
		return;
	uint64_t start_us = svc_now_us(), start_ns = trace_begin(&svc->run);
	struct engine_batch batch = {.seqs = worker->step, .n_seqs = n + n_ahead, .hooks = &hooks};
	enum svc_code code = engine_step(worker->engine, &batch, &err);
	fault_point("worker.step");
	if (svc->leaving || code == SVC_CANCELLED)
		return;
	if (code != SVC_OK) {
		log_err(&err);
		svc_leave(svc, SVC_INTERNAL);
		return;
	}
	account(worker, n, n_ahead, start_us, start_ns);
	if (ahead)
		ahead_done(worker, worker->step + n);
	/* Back to front: a sequence that is passed on leaves the table. */
	for (uint32_t i = n; i-- > 0 && !svc->leaving;)
		commit(worker, i, &worker->step[i]);
}
