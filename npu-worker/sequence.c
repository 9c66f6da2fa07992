#include "npu-worker/sequence.h"

#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "npu-worker/ahead.h"
#include "npu-worker/cache.h"
#include "npu-worker/pool.h"

/* The pages that so many positions take. */
static uint32_t pages_of(uint32_t n_positions)
{
	return (n_positions + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

static bool is_running(enum slot_stage stage)
{
	return stage == STAGE_COMPUTE || stage == STAGE_SAMPLE || stage == STAGE_RECLAIM;
}

/* The page table of a body: handles, copied and checked. */
static uint32_t copy_handles(const struct worker *worker, const struct body *body,
			     uint32_t *handles)
{
	const struct shm_run *run = &worker->svc->run;
	size_t bytes = 0;
	const uint32_t *table = body_region(run, body, REGION_PAGES, 0, &bytes);
	uint32_t n = atomic_load_explicit(&body->n_pages, memory_order_acquire);
	if (!table || n > worker->pages_per_sequence || n > bytes / sizeof *table)
		return 0;
	memcpy(handles, table, n * sizeof *handles);
	for (uint32_t i = 0; i < n; i++)
		if (page_of_handle(handles[i]) >= run->n_pages)
			return 0;
	return n;
}

void sequence_store_pages(struct worker *worker, struct sequence *sequence)
{
	uint32_t *table = body_region(&worker->svc->run, sequence->body, REGION_PAGES,
				      sequence->n_pages * sizeof *sequence->pages, NULL);
	/* The region was checked when the sequence was opened and its size is fixed at admission.
	 */
	if (!table)
		return;
	for (uint32_t i = 0; i < sequence->n_pages; i++)
		table[i] = page_handle(&worker->svc->run, sequence->pages[i]);
	atomic_store_explicit(&sequence->body->n_pages, sequence->n_pages, memory_order_release);
}

/* A sealed page may be another sequence's too and is worth keeping: pages_collect decides. */
static void release(struct worker *worker, uint32_t page)
{
	if (!prefix_is_sealed(&worker->svc->run, page))
		page_drop(&worker->svc->run, page);
}

static void drop_pages_from(struct worker *worker, struct sequence *sequence, uint32_t first)
{
	atomic_store_explicit(&sequence->body->n_pages, first, memory_order_release);
	for (uint32_t i = first; i < sequence->n_pages; i++)
		release(worker, sequence->pages[i]);
	sequence->n_pages = first;
}

/* Nothing computed is left: from position 0 again, to the same bytes. */
static void start_over(struct worker *worker, struct sequence *sequence)
{
	atomic_store(&sequence->body->n_kv, 0);
	sequence->n_kv = 0;
	drop_pages_from(worker, sequence, 0);
}

/* Turns the handles of the body's table into pages that I hold: whoever computed them may be dead
 * or frozen by now. */
static void adopt_pages(struct worker *worker, struct sequence *sequence)
{
	for (uint32_t i = 0; i < sequence->n_pages; i++) {
		uint32_t handle = sequence->pages[i];
		sequence->pages[i] = page_of_handle(handle);
		if (page_adopt(&worker->svc->run, handle))
			continue;
		sequence->n_pages = i;
		start_over(worker, sequence);
		return;
	}
}

static bool load(struct worker *worker, struct sequence *sequence)
{
	struct shm_run *run = &worker->svc->run;
	struct body *body = sequence->body;
	size_t bytes = 0;
	if (atomic_load(&body->began_us) == 0)
		atomic_store(&body->began_us, svc_now_us());
	sequence->n_prompt = atomic_load(&body->n_prompt);
	sequence->n_known = body_n_ids(run, body);
	sequence->n_kv = atomic_load_explicit(&body->n_kv, memory_order_acquire);
	sequence->n_pages = copy_handles(worker, body, sequence->pages);
	sequence->ticket = atomic_load(&run->slots[sequence->slot].ticket);
	if (!body_region(run, body, REGION_PAGES, 0, &bytes) ||
	    bytes / 4 < worker->pages_per_sequence)
		return false;
	if (sequence->n_known == 0 || sequence->n_prompt > sequence->n_known ||
	    sequence->n_known > run->ctx || sequence->n_kv > sequence->n_known)
		return false;
	adopt_pages(worker, sequence);
	if (sequence->n_pages * PAGE_POSITIONS < sequence->n_kv)
		start_over(worker, sequence);
	/* Reserved by one who died before the step was done: nothing is in them. */
	drop_pages_from(worker, sequence, pages_of(sequence->n_kv));
	if (pool_is_wanted(sequence)) {
		if (!pool_can_go_on(worker, sequence))
			start_over(worker, sequence);
		return true;
	}
	/* All positions are there, but not the word that the logits are: compute the last one
	 * again. */
	if (sequence->n_kv == sequence->n_known)
		sequence->n_kv--;
	return true;
}

/* The place in the table, with its page table memory. */
static struct sequence *next_entry(struct worker *worker)
{
	struct sequence *sequence = &worker->sequences[worker->n_sequences];
	uint32_t *pages = sequence->pages;
	*sequence = (struct sequence){.pages = pages};
	return sequence;
}

/* Another npu-worker that lives, perhaps frozen, may be running ahead of what is committed: its row
 * and the page of the next position stay with it. What is computed again has the same bits. */
static void leave_what_is_written(struct worker *worker, struct sequence *sequence)
{
	struct body *body = sequence->body;
	uint32_t before = atomic_load(&body->worker);
	if (!atomic_load(&body->ahead) || before == worker->svc->run.me || before >= INC_COUNT ||
	    inc_is_dead(&worker->svc->run, before))
		return;
	uint32_t full = sequence->n_kv / PAGE_POSITIONS;
	atomic_store(&body->row, 0);
	sequence->n_kv = full * PAGE_POSITIONS;
	atomic_store(&body->n_kv, sequence->n_kv);
	if (sequence->n_pages > full)
		drop_pages_from(worker, sequence, full);
}

bool sequence_open(struct worker *worker, uint32_t slot, struct slot_state mine, struct body *body)
{
	struct svc *svc = worker->svc;
	struct svc_err err;
	if (slot_is_cancelled(&svc->run, slot)) {
		svc_fail(&err, SVC_CANCELLED, __func__, "the client went away");
		svc_slot_fail(svc, slot, &mine, body, &err);
		return false;
	}
	struct sequence *sequence = next_entry(worker);
	sequence->slot = slot;
	sequence->state = mine;
	sequence->body = body;
	if (!load(worker, sequence)) {
		svc_fail(&err, SVC_CORRUPT, __func__,
			 "the request's body is damaged: %u prompt ids, %u known, %u positions "
			 "computed, %u pages",
			 sequence->n_prompt, sequence->n_known, sequence->n_kv, sequence->n_pages);
		svc_slot_fail(svc, slot, &sequence->state, body, &err);
		return false;
	}
	leave_what_is_written(worker, sequence);
	sequence->settled = sequence->n_kv && atomic_load(&body->worker) == svc->run.me;
	atomic_store(&body->worker, svc->run.me);
	sequence->row = row_take(&svc->run, slot, sequence->state, atomic_load(&body->row) - 1);
	if (sequence->row == PAGE_NONE) {
		/* No place now: it waits without pages, so that it holds nothing that a running one
		 * needs. */
		start_over(worker, sequence);
		if (svc_slot_pass(svc, slot, &sequence->state, STAGE_COMPUTE, 0) != SVC_OK)
			return false;
		return false;
	}
	atomic_store(&body->row, sequence->row + 1);
	worker->n_sequences++;
	if (pool_is_wanted(sequence) && sequence->n_kv == sequence->n_known) {
		sequence_end_pooled(worker, sequence);
		return true;
	}
	ahead_take(worker, sequence);
	if (sequence->n_kv == 0)
		cache_share(worker, sequence);
	return true;
}

void sequence_end_pooled(struct worker *worker, struct sequence *sequence)
{
	struct svc_err err;
	if (pool_finish(worker, sequence, &err) == SVC_OK)
		svc_slot_end(worker->svc, sequence->slot, &sequence->state, sequence->body);
	else
		svc_slot_fail(worker->svc, sequence->slot, &sequence->state, sequence->body, &err);
	sequence_close(worker, sequence);
}

struct sequence *sequence_find(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_sequences; i++)
		if (worker->sequences[i].slot == slot)
			return &worker->sequences[i];
	return NULL;
}

bool sequence_is_scoring(const struct sequence *sequence)
{
	return (sequence->body->params.flags & BODY_PROMPT_LOGPROBS) != 0 &&
	       sequence->n_kv < sequence->n_prompt;
}

bool sequence_is_decode(const struct sequence *sequence)
{
	return !pool_is_wanted(sequence) &&
	       (sequence->n_known - sequence->n_kv == 1 || sequence_is_scoring(sequence));
}

void sequence_close(struct worker *worker, struct sequence *sequence)
{
	/* Swapped, not overwritten: every entry keeps a page table's memory. */
	struct sequence *last = &worker->sequences[--worker->n_sequences], closed = *sequence;
	*sequence = *last;
	*last = closed;
}

bool sequence_reserve(struct worker *worker, struct sequence *sequence, uint32_t n)
{
	uint32_t need = pages_of(n);
	if (need > worker->pages_per_sequence)
		return false;
	while (sequence->n_pages < need) {
		uint32_t page = cache_take_page(worker);
		if (page == PAGE_NONE)
			return false;
		sequence->pages[sequence->n_pages++] = page;
		sequence_store_pages(worker, sequence);
	}
	return true;
}

void sequence_preempt(struct worker *worker, struct sequence *sequence)
{
	struct shm_run *run = &worker->svc->run;
	log_debug("slot %u gives its KV pages back and waits", sequence->slot);
	start_over(worker, sequence);
	atomic_store(&sequence->body->row, 0);
	row_drop(run, sequence->row, sequence->slot);
	if (svc_slot_pass(worker->svc, sequence->slot, &sequence->state, STAGE_COMPUTE, 0) ==
	    SVC_OK)
		sequence_close(worker, sequence);
}

void sequence_reclaim(struct worker *worker, uint32_t slot)
{
	struct svc *svc = worker->svc;
	struct slot_state mine;
	struct body *body;
	enum svc_claim claim = svc_slot_own(svc, slot, STAGE_RECLAIM, &mine, &body);
	if (claim == CLAIM_NO)
		return;
	fault_point("worker.reclaim");
	/* Pages of another worker carry its bit, not mine: its own collection, or whoever buries
	 * it, lets them go. */
	uint32_t *handles = worker->scratch_pages;
	uint32_t n = copy_handles(worker, body, handles), row = atomic_load(&body->row);
	atomic_store(&body->n_pages, 0);
	atomic_store(&body->row, 0);
	for (uint32_t i = 0; i < n; i++)
		if (page_handle(&svc->run, page_of_handle(handles[i])) == handles[i])
			release(worker, page_of_handle(handles[i]));
	row_drop(&svc->run, row - 1, slot);
	if (svc_slot_pass(svc, slot, &mine, STAGE_DONE, 0) != SVC_OK)
		return;
}

/* The handles in a running slot's body, whoever owns it. They count if it was the slot's body all
 * the while that they were read. */
static uint32_t peek_handles(const struct worker *worker, uint32_t slot, uint32_t *handles)
{
	const struct shm_run *run = &worker->svc->run;
	struct slot_state state;
	uint32_t n;
	do {
		state = slot_load(run, slot);
		const struct body *body =
			is_running(state.stage) ? body_get(run, state.body, slot) : NULL;
		n = body ? copy_handles(worker, body, handles) : 0;
	} while (slot_load(run, slot).turn != state.turn);
	return n;
}

static void mark_referenced(struct worker *worker, void (*mark)(struct worker *, uint32_t handle))
{
	uint32_t *handles = worker->scratch_pages;
	for (uint32_t slot = 0; slot < worker->svc->run.n_table; slot++) {
		uint32_t n = peek_handles(worker, slot, handles);
		for (uint32_t i = 0; i < n; i++)
			mark(worker, handles[i]);
	}
}

static void mark_one(struct worker *worker, uint32_t handle)
{
	worker->may_go[page_of_handle(handle)] = 0;
}

static void hold_one(struct worker *worker, uint32_t handle)
{
	/* false: it is free, its content gone; who adopts the sequence finds that out and starts
	 * over. */
	if (!page_adopt(&worker->svc->run, handle))
		log_debug("page %u is free already", page_of_handle(handle));
}

void pages_collect(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	for (uint32_t page = 0; page < run->n_pages; page++)
		worker->may_go[page] = page_is_mine(run, page);
	mark_referenced(worker, mark_one);
	for (uint32_t page = 0; page < run->n_pages; page++)
		if (worker->may_go[page] && !prefix_is_sealed(run, page)) {
			page_drop(run, page);
			worker->may_go[page] = 0;
		}
	row_collect(run);
	worker->collected_us = svc_now_us();
}

uint32_t pages_available(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	uint32_t n = page_count_free(run);
	pages_collect(worker);
	for (uint32_t page = 0; page < run->n_pages; page++)
		n += worker->may_go[page];
	return n;
}

/* A dead worker's slots must have been taken over before: then every page that matters is in a
 * running slot's table. */
void pages_adopt_from_dead(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++) {
		if (entry == run->me || !page_is_holder(run, entry))
			continue;
		uint64_t number = atomic_load(&run->ctl->incs[entry].number);
		bool gone = inc_is_dead(run, entry);
		for (uint32_t slot = 0; gone && slot < run->n_table; slot++) {
			struct slot_state state = slot_load(run, slot);
			gone = !(is_running(state.stage) && state.owner == entry);
		}
		if (!gone)
			continue;
		mark_referenced(worker, hold_one);
		for (uint32_t page = 0; page < run->n_pages; page++)
			if (prefix_is_sealed(run, page))
				hold_one(worker, page_handle(run, page));
		page_drop_all(run, entry, number);
		log_info("KV pages of a dead worker (entry %u) are held by this one now", entry);
	}
}
