#include "services/slots.h"

#include "base/log.h"
#include "shm/block.h"
#include "shm/fence.h"
#include "shm/recovery.h"

/* A request may see this many of its owners but one die without progress; the next death is its
 * fault. From the second on it runs alone (npu-worker/schedule.c), so more of them harm nobody,
 * while kills at random, on a slow machine, don't hit the same request that often before it gets
 * on. */
#define DEATHS_LIMIT 5
/* How often a silent owner's limit is doubled at most. */
#define PATIENCE_MAX 3
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

static uint32_t progress_mark(const struct body *body)
{
	return atomic_load(&body->n_kv) + atomic_load(&body->n_tokens) + 1;
}

/* How long this request's owner may be silent. Twice as long for each owner that it lost without
 * getting on: where the machine is slow, nobody takes a request from those who do work on it. */
static uint64_t patience_us(struct svc *svc, uint32_t slot, struct slot_state state)
{
	const struct body *body = body_get(&svc->run, state.body, slot);
	uint32_t lost = 0;
	if (body && atomic_load(&body->death_mark) == progress_mark(body))
		lost = atomic_load(&body->deaths);
	return svc->stall_us << (lost < PATIENCE_MAX ? lost : PATIENCE_MAX);
}

static enum svc_claim judge(struct svc *svc, uint32_t slot, struct slot_state state,
			    enum slot_stage stage)
{
	if (state.stage != stage)
		return CLAIM_NO;
	if (state.owner == 0 || state.owner == svc->run.me)
		return CLAIM_FRESH;
	if (is_orphan(&svc->run, state.owner, slot_stage_role(stage)))
		return CLAIM_ORPHAN;
	/* Nobody waits for a request that isn't admitted yet. */
	if (stage == STAGE_FILL)
		return CLAIM_NO;
	const struct inc_entry *owner = &svc->run.ctl->incs[state.owner];
	uint64_t number = atomic_load(&owner->number);
	uint64_t silence = inc_watch_silence_us(&svc->watch, state.owner, svc_now_us());
	bool fenced = number && atomic_load(&owner->fenced) == number;
	return fenced || silence > patience_us(svc, slot, state) ? CLAIM_FENCED : CLAIM_NO;
}

enum svc_claim svc_slot_look(struct svc *svc, uint32_t slot, enum slot_stage stage)
{
	return judge(svc, slot, slot_load(&svc->run, slot), stage);
}

static bool fence(struct svc *svc, uint32_t slot, struct slot_state seen,
		  struct slot_state *ret_mine)
{
	struct svc_err err;
	enum svc_code code = slot_fence(&svc->run, slot, seen, ret_mine, &err);
	if (code != SVC_OK && code != SVC_STALE)
		log_line(LOG_LEVEL_WARN, 0, code, "slot %u cannot be fenced yet: %s", slot,
			 err.msg);
	return code == SVC_OK;
}

/* Counts a death against the request unless it got anywhere since the one before. true: it was the
 * last one allowed. */
static bool is_poison(struct body *body)
{
	uint32_t mark = progress_mark(body);
	uint32_t deaths =
		atomic_load(&body->death_mark) == mark ? atomic_load(&body->deaths) + 1 : 1;
	/* In this order: a death in between counts too little, never too much. */
	atomic_store(&body->deaths, deaths);
	atomic_store(&body->death_mark, mark);
	atomic_fetch_add(&body->takeovers, 1);
	return deaths >= DEATHS_LIMIT;
}

static bool take(struct svc *svc, uint32_t slot, enum svc_claim claim, struct slot_state seen,
		 struct slot_state *ret_mine)
{
	if (slot_is_held(&svc->run, seen)) {
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
	enum svc_claim claim = judge(svc, slot, seen, stage);
	uint64_t last_beat_us = atomic_load(&svc->run.ctl->incs[seen.owner].beat_us);
	if (claim == CLAIM_NO || !take(svc, slot, claim, seen, ret_mine))
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
		recovery_note(&svc->run, svc_now_us() - last_beat_us);
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
	/* The entry may be another role's by now. */
	if (inc_role(&svc->run, owner) != slot_stage_role(stage) ||
	    (owner != svc->run.me && !inc_is_ready(&svc->run, owner)))
		owner = 0;
	struct slot_state next = {.stage = stage, .owner = owner, .body = mine->body};
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
	if (svc_slot_pass(svc, slot, mine, holds ? STAGE_RECLAIM : STAGE_DONE, owner) != SVC_OK)
		return;
	/* After it: an answer's end counts once the slot has gone on. */
	svc_hint(svc, atomic_load(&svc->run.slots[slot].gateway), slot);
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

void svc_quarantine_sweep(struct svc *svc)
{
	uint32_t changed = block_sweep(&svc->run);
	if (changed)
		log_debug("%u blocks of ended processes are free again", changed);
}
