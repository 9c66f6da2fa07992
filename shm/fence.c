#include "shm/fence.h"

#include "shm/block.h"
#include "shm/body.h"

/* A frozen npu-worker may be in the middle of a step: it keeps its logits row and the KV pages from
 * the first position that it could be writing. The others are full and stay; what is computed again
 * has the same bytes. */
static void leave_step(struct body *copy)
{
	uint32_t known = atomic_load(&copy->n_prompt) + atomic_load(&copy->n_tokens);
	uint32_t n_kv = atomic_load(&copy->n_kv), n_pages = atomic_load(&copy->n_pages);
	if (n_kv >= known)
		n_kv = known ? known - 1 : 0;
	uint32_t full = n_kv / PAGE_POSITIONS;
	atomic_store(&copy->n_kv, full * PAGE_POSITIONS);
	atomic_store(&copy->n_pages, n_pages < full ? n_pages : full);
	atomic_store(&copy->row, 0);
}

enum svc_code slot_fence(struct shm_run *run, uint32_t slot, struct slot_state seen,
			 struct slot_state *ret_mine, struct svc_err *err)
{
	struct inc_entry *owner = &run->ctl->incs[seen.owner];
	uint64_t number = atomic_load(&owner->number);
	struct body *old = body_get(run, seen.body, slot);
	/* A damaged body can't be copied: the slot goes on without one and fails. */
	uint32_t fresh = 0;
	if (old) {
		enum svc_code code = body_copy(run, slot, old, &fresh, err);
		if (code != SVC_OK)
			return code;
		if (seen.stage == STAGE_COMPUTE)
			leave_step(body_get(run, fresh, slot));
	}
	/* Left to its owner before the swap: should this process end in between, the word still
	 * refers to the run, and whoever takes the slot over settles it again. */
	if (!block_leave(run, slot, seen, number) ||
	    !slot_take_over(run, slot, seen, fresh, ret_mine)) {
		if (fresh)
			block_give_back(run, fresh, slot);
		return svc_fail(err, SVC_STALE, __func__, "slot %u has moved on", slot);
	}
	/* A held word was `seen` until now, so the entry was still its owner's. An offer's entry
	 * may be another's: its number is another, too, and this mark says nothing to it. */
	atomic_store(&owner->fenced, number);
	atomic_fetch_add(&run->ctl->counters.stalls, 1);
	return SVC_OK;
}
