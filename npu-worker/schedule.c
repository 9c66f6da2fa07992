#include "npu-worker/schedule.h"

#include <sched.h>
#include <stdlib.h>

#include "npu-worker/sequence.h"

/* A request that saw this many owners die without progress runs alone. */
#define DEATHS_ALONE 2u
/* How long a waiting slot is left to a worker that has less to do. */
#define DEFER_US 40000u

/* An idle worker begins when no other request was on its way for BURST_QUIET_US, or after
 * BURST_US: prompts that come together are computed together, and their streams then run in step.
 */
#define BURST_QUIET_US 300u
#define BURST_US       5000u

static bool is_one_on_its_way(const struct shm_run *run)
{
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		struct slot_state state = slot_load(run, slot);
		if (state.stage == STAGE_FILL || state.stage == STAGE_TOKENIZE)
			return true;
	}
	return false;
}

void schedule_await_burst(struct worker *worker)
{
	if (worker->n_sequences + worker->n_outstanding || worker->svc->draining)
		return;
	uint64_t start = svc_now_us(), now = start, seen = start;
	while (now - seen < BURST_QUIET_US && now - start < BURST_US) {
		sched_yield();
		now = svc_now_us();
		if (is_one_on_its_way(&worker->svc->run))
			seen = now;
	}
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

/* A ready worker has fewer sequences than this one: the next request is for it, unless it doesn't
 * come. */
static bool is_idler_about(struct worker *worker)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t mine = worker->n_sequences + worker->n_outstanding;
	uint64_t now = svc_now_us();
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++) {
		if (entry == run->me || !inc_is_ready(run, entry) ||
		    atomic_load(&run->ctl->incs[entry].gauge[GAUGE_RUNNING]) >= mine)
			continue;
		if (worker->deferred_us == 0)
			worker->deferred_us = now;
		return now - worker->deferred_us < DEFER_US;
	}
	worker->deferred_us = 0;
	return false;
}

void schedule_admit(struct worker *worker)
{
	struct svc *svc = worker->svc;
	struct slot_state mine;
	struct body *body;
	while (worker->n_waiting && !svc->draining && !svc->leaving) {
		if (is_idler_about(worker))
			return;
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
		struct sequence *sequence = sequence_find(worker, slot);
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
uint32_t schedule_plan(struct worker *worker)
{
	uint32_t n_decode = 0, total = 0;
	struct pace_question question = {.most_alone = worker->rows_alone,
					 .most_busy = worker->rows_busy};
	const struct sequence *alone = NULL;
	qsort(worker->sequences, worker->n_sequences, sizeof *worker->sequences, by_ticket);
	for (uint32_t i = 0; i < worker->n_sequences; i++) {
		struct sequence *sequence = &worker->sequences[i];
		sequence->n_take = sequence_is_decode(sequence) ? 1 : 0;
		n_decode += sequence->n_take;
		if (sequence->n_take == 0)
			question.waiting += sequence->n_known - sequence->n_kv;
		if (atomic_load(&sequence->body->deaths) >= DEATHS_ALONE && !alone)
			alone = sequence;
	}
	question.busy = n_decode + worker->n_outstanding > 0;
	uint32_t budget = pace_rows(&worker->pace, &question);
	if (budget > WORKER_MAX_ROWS - n_decode)
		budget = WORKER_MAX_ROWS - n_decode;
	for (uint32_t i = 0; i < worker->n_sequences; i++) {
		struct sequence *sequence = &worker->sequences[i];
		uint32_t left = sequence->n_known - sequence->n_kv;
		/* Takes nothing from the budget either, or the one could be left with none. */
		if (alone && sequence != alone) {
			sequence->n_take = 0;
			continue;
		}
		if (sequence->n_take == 0) {
			sequence->n_take = left < budget ? left : budget;
			budget -= sequence->n_take;
		}
		total += sequence->n_take;
	}
	return total;
}

/* Pages for everyone in the plan; who can't have them sits this step out. Preempting moves entries:
 * go by slot. */
void schedule_reserve(struct worker *worker)
{
	uint32_t slots[256], n = 0;
	for (uint32_t i = 0; i < worker->n_sequences && n < 256; i++)
		if (worker->sequences[i].n_take)
			slots[n++] = worker->sequences[i].slot;
	for (uint32_t i = 0; i < n; i++) {
		struct sequence *sequence = sequence_find(worker, slots[i]);
		if (sequence && !make_room(worker, slots[i], sequence->n_take)) {
			sequence = sequence_find(worker, slots[i]);
			if (sequence)
				sequence->n_take = 0;
		}
	}
}
