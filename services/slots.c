#include "services/slots.h"

#include <string.h>

#include "base/log.h"

/* A request may see two of its owners die without progress; the third death is its fault. */
#define DEATHS_LIMIT 3
/* Block tag of a body that a frozen process may still write: high bit, its entry, its slot. */
#define QUARANTINE 0x80000000u

/* The owner is nobody who could ever act: gone, of another role, or dead. */
static bool is_orphan(const struct shm_run *run, uint32_t owner, enum shm_role role)
{
	if (atomic_load(&run->ctl->incs[owner].number) == 0)
		return true;
	enum shm_role found = inc_role(run, owner);
	if (found != ROLE_NONE && found != role)
		return true;
	return inc_is_dead(run, owner);
}

enum svc_claim svc_slot_look(struct svc *svc, uint32_t slot, enum slot_stage stage)
{
	struct slot_state state = slot_load(&svc->run, slot);
	if (state.stage != stage)
		return CLAIM_NO;
	if (state.owner == 0 || state.owner == svc->run.me)
		return CLAIM_FRESH;
	uint64_t silence = inc_watch_silence_us(&svc->watch, state.owner, svc_now_us());
	uint64_t number = atomic_load(&svc->run.ctl->incs[state.owner].number);
	bool fenced = number && atomic_load(&svc->run.ctl->incs[state.owner].fenced) == number;
	if (is_orphan(&svc->run, state.owner, slot_stage_role(stage)))
		return CLAIM_ORPHAN;
	return fenced || silence > svc->stall_us ? CLAIM_FENCED : CLAIM_NO;
}

static void retag(struct shm_run *run, uint32_t first, uint32_t n, uint32_t from, uint32_t to)
{
	for (uint32_t i = first; i < first + n && i < run->n_blocks; i++) {
		uint32_t expected = from;
		atomic_compare_exchange_strong(&run->blocks[i], &expected, to);
	}
}

/* Copies what a frozen owner has committed into new blocks. The counters are read before the data
 * they count. */
static enum svc_code copy_body(struct svc *svc, uint32_t slot, const struct body *old,
			       uint32_t *ret_body, struct svc_err *err)
{
	struct shm_run *run = &svc->run;
	struct body_plan plan;
	uint32_t n_kv = atomic_load(&old->n_kv), n_tokens = atomic_load(&old->n_tokens);
	uint32_t n_scored = atomic_load(&old->n_scored), tokenized = atomic_load(&old->tokenized);
	for (int i = 0; i < REGION_COUNT; i++)
		plan.bytes[i] = old->regions[i].bytes;
	uint32_t n_blocks = body_plan_blocks(&plan);
	if (n_blocks == 0 || n_blocks > old->n_blocks)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	enum svc_code code = body_alloc(run, slot, &plan, ret_body, err);
	if (code != SVC_OK)
		return code;
	struct body *copy = body_get(run, *ret_body, slot);
	size_t bytes = 0;
	const char *from = (const char *)old;
	for (int i = 0; i < REGION_COUNT; i++) {
		const void *region = body_region(run, old, (enum body_region)i, 0, &bytes);
		void *target = body_region(run, copy, (enum body_region)i, 0, NULL);
		if (region && target && bytes <= plan.bytes[i])
			memcpy(target, region, bytes);
	}
	size_t skip = offsetof(struct body, generation);
	memcpy((char *)copy + skip, from + skip, offsetof(struct body, regions) - skip);
	memcpy((char *)copy + offsetof(struct body, params), from + offsetof(struct body, params),
	       sizeof *copy - offsetof(struct body, params));
	/* The frozen owner may have been between its last write and its commit: only what was
	 * counted counts. */
	if (atomic_load(&copy->n_tokens) != n_tokens)
		atomic_store(&copy->finish, FINISH_NONE);
	atomic_store(&copy->n_kv, n_kv);
	atomic_store(&copy->n_tokens, n_tokens);
	atomic_store(&copy->n_scored, n_scored);
	atomic_store(&copy->tokenized, tokenized);
	return SVC_OK;
}

/* Takes a slot from an owner that is frozen. It may wake at any moment, so the body it could write
 * is left to it and the slot goes on with a copy; the old blocks come back when its lock is free.
 */
static bool fence(struct svc *svc, uint32_t slot, struct slot_state seen,
		  struct slot_state *ret_mine)
{
	struct shm_run *run = &svc->run;
	struct svc_err err;
	struct body *old = body_get(run, seen.body, slot);
	uint32_t fresh = 0;
	if (!old)
		return slot_take_over(run, slot, seen, seen.body, ret_mine);
	if (copy_body(svc, slot, old, &fresh, &err) != SVC_OK) {
		log_line(LOG_LEVEL_WARN, 0, err.code, "slot %u cannot be fenced yet: %s", slot,
			 err.msg);
		return false;
	}
	uint64_t number = atomic_load(&run->ctl->incs[seen.owner].number);
	uint32_t tag = QUARANTINE | seen.owner << 16 | slot, n_old = old->n_blocks;
	atomic_store(&run->ctl->incs[seen.owner].fenced, number);
	/* Before the swap: a death in between leaves blocks that the quarantine sweep understands.
	 */
	retag(run, seen.body, n_old, slot + 1, tag);
	if (slot_take_over(run, slot, seen, fresh, ret_mine)) {
		atomic_fetch_add(&run->ctl->counters.stalls, 1);
		svc->fenced_number = number;
		return true;
	}
	retag(run, seen.body, n_old, tag, slot + 1);
	struct body *copy = body_get(run, fresh, slot);
	if (copy)
		retag(run, fresh, copy->n_blocks, slot + 1, 0);
	return false;
}

/* Counts a death against the request unless it got anywhere since the one before. true: it was the
 * last one allowed. */
static bool is_poison(struct body *body)
{
	uint32_t mark = atomic_load(&body->n_kv) + atomic_load(&body->n_tokens) + 1;
	uint32_t deaths =
		atomic_load(&body->death_mark) == mark ? atomic_load(&body->deaths) + 1 : 1;
	atomic_store(&body->death_mark, mark);
	atomic_store(&body->deaths, deaths);
	atomic_fetch_add(&body->takeovers, 1);
	return deaths >= DEATHS_LIMIT;
}

static bool take(struct svc *svc, uint32_t slot, enum svc_claim claim, struct slot_state seen,
		 struct slot_state *ret_mine)
{
	if (seen.owner == svc->run.me) {
		*ret_mine = seen;
		return true;
	}
	if (claim == CLAIM_FENCED)
		return fence(svc, slot, seen, ret_mine);
	return slot_take_over(&svc->run, slot, seen, seen.body, ret_mine);
}

enum svc_claim svc_slot_own(struct svc *svc, uint32_t slot, enum slot_stage stage,
			    struct slot_state *ret_mine, struct body **ret_body)
{
	struct slot_state seen = slot_load(&svc->run, slot);
	enum svc_claim claim = svc_slot_look(svc, slot, stage);
	if (claim == CLAIM_NO || seen.stage != stage || !take(svc, slot, claim, seen, ret_mine))
		return CLAIM_NO;
	struct svc_err err;
	struct body *body = body_get(&svc->run, ret_mine->body, slot);
	if (!body) {
		log_error(SVC_CORRUPT, "slot %u: its body is damaged; the request is dropped",
			  slot);
		if (svc_slot_pass(svc, slot, ret_mine, STAGE_DONE, 0) != SVC_OK)
			return CLAIM_NO;
		return CLAIM_NO;
	}
	if (claim == CLAIM_ORPHAN || claim == CLAIM_FENCED) {
		atomic_fetch_add(&svc->run.ctl->counters.takeovers, 1);
		log_info("slot %u: taken over in stage %s from a %s process", slot,
			 slot_stage_name(stage), claim == CLAIM_ORPHAN ? "dead" : "frozen");
		if (stage != STAGE_RECLAIM && is_poison(body)) {
			svc_fail(&err, SVC_WORKER_CRASHED, __func__,
				 "%u processes in a row died while they worked on this request",
				 DEATHS_LIMIT);
			svc_slot_fail(svc, slot, ret_mine, body, &err);
			return CLAIM_NO;
		}
	}
	*ret_body = body;
	return claim;
}

enum svc_code svc_slot_pass(struct svc *svc, uint32_t slot, struct slot_state *mine,
			    enum slot_stage stage, uint32_t owner)
{
	if (owner != svc->run.me && !inc_is_ready(&svc->run, owner))
		owner = 0;
	struct slot_state next = {stage, owner, mine->body, 0};
	if (slot_pass(&svc->run, slot, mine, next) != SVC_OK) {
		log_warn("slot %u: passed on by another: this process was frozen and has been "
			 "replaced",
			 slot);
		svc_leave(svc, SVC_STALE);
		return SVC_STALE;
	}
	atomic_fetch_add_explicit(&svc->run.ctl->incs[svc->run.me].handed, 1, memory_order_relaxed);
	if (owner)
		svc_hint(svc, owner, slot);
	else if (slot_stage_role(stage) == ROLE_GATEWAY)
		svc_hint(svc, atomic_load(&svc->run.slots[slot].gateway), slot);
	else
		svc_hint_role(svc, slot_stage_role(stage), slot);
	return SVC_OK;
}

void svc_slot_end(struct svc *svc, uint32_t slot, struct slot_state *mine, struct body *body)
{
	bool holds = atomic_load(&body->n_pages) || atomic_load(&body->row);
	uint32_t owner = holds ? atomic_load(&body->worker) : 0;
	svc_hint(svc, atomic_load(&svc->run.slots[slot].gateway), slot);
	if (svc_slot_pass(svc, slot, mine, holds ? STAGE_RECLAIM : STAGE_DONE, owner) != SVC_OK)
		return;
}

void svc_slot_fail(struct svc *svc, uint32_t slot, struct slot_state *mine, struct body *body,
		   const struct svc_err *err)
{
	body_fail(body, err);
	log_line(err->code == SVC_CANCELLED ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
		 atomic_load(&svc->run.slots[slot].request), err->code, "request ended: %s",
		 err->msg);
	svc_slot_end(svc, slot, mine, body);
}

/* A quarantined block that some slot's current body covers is not garbage: its fencer died before
 * the swap. */
static bool in_live_body(const struct shm_run *run, uint32_t slot, uint32_t block)
{
	if (slot >= run->n_table)
		return false;
	struct slot_state state = slot_load(run, slot);
	const struct body *body =
		state.stage == STAGE_FREE ? NULL : body_get(run, state.body, slot);
	return body && block >= state.body && block - state.body < body->n_blocks;
}

void svc_quarantine_sweep(struct svc *svc)
{
	struct shm_run *run = &svc->run;
	for (uint32_t i = 0; i < run->n_blocks; i++) {
		uint32_t tag = atomic_load_explicit(&run->blocks[i], memory_order_relaxed);
		if (!(tag & QUARANTINE))
			continue;
		uint32_t entry = (tag >> 16) & 0x7fff;
		bool gone = entry >= INC_COUNT || atomic_load(&run->ctl->incs[entry].number) == 0 ||
			    atomic_load(&run->ctl->incs[entry].fenced) !=
				    atomic_load(&run->ctl->incs[entry].number) ||
			    inc_is_dead(run, entry);
		if (gone)
			atomic_compare_exchange_strong(
				&run->blocks[i], &tag,
				in_live_body(run, tag & 0xffff, i) ? (tag & 0xffff) + 1 : 0);
	}
}
