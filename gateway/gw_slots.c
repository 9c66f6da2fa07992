#include "base/log.h"
#include "gateway/gw_state.h"
#include "shm/incarnation.h"

bool gw_slot_free(struct gateway *gateway, uint32_t slot, struct slot_state *mine)
{
	struct shm_run *run = &gateway->svc->run;
	/* Nothing refers to the blocks any more: the word has no body. */
	body_free_all(run, slot);
	if (slot_pass(run, slot, mine, (struct slot_state){STAGE_FREE, 0, 0, 0}) == SVC_OK)
		return true;
	svc_leave(gateway->svc, SVC_STALE);
	return false;
}

/* Takes the slot as it was seen and empties it, by way of FILL without a body: if this process dies
 * in between, the next gateway finds a slot in FILL and frees the blocks that name it. */
static void slot_drop(struct gateway *gateway, uint32_t slot, struct slot_state seen)
{
	struct shm_run *run = &gateway->svc->run;
	struct slot_state mine;
	if (!slot_take_over(run, slot, seen, seen.body, &mine))
		return;
	if (mine.stage != STAGE_FILL || mine.body != 0) {
		struct slot_state emptied = {STAGE_FILL, run->me, 0, 0};
		if (slot_pass(run, slot, &mine, emptied) != SVC_OK) {
			svc_leave(gateway->svc, SVC_STALE);
			return;
		}
	}
	gw_slot_free(gateway, slot, &mine);
}

/* Is there nobody who could still want what this gateway's slots hold? An empty entry: it was
 * buried. */
static bool gateway_is_gone(const struct shm_run *run, uint32_t entry)
{
	if (entry == 0 || entry >= INC_COUNT)
		return true;
	return atomic_load(&run->ctl->incs[entry].number) == 0 ||
	       inc_role(run, entry) != ROLE_GATEWAY || inc_is_dead(run, entry);
}

void gw_slot_look(struct gateway *gateway, uint32_t slot)
{
	const struct shm_run *run = &gateway->svc->run;
	struct slot_state seen = slot_load(run, slot);
	uint32_t reader = atomic_load(&run->slots[slot].gateway);
	if (seen.stage == STAGE_FILL) {
		/* Our own are never left in FILL by a callback. */
		if (seen.owner != run->me && gateway_is_gone(run, seen.owner))
			slot_drop(gateway, slot, seen);
	} else if (seen.stage == STAGE_DONE) {
		if (reader == run->me ? !gateway->by_slot[slot] : gateway_is_gone(run, reader))
			slot_drop(gateway, slot, seen);
	}
}

uint32_t gw_slots_busy(const struct gateway *gateway)
{
	const struct shm_run *run = &gateway->svc->run;
	uint32_t busy = 0;
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		enum slot_stage stage = slot_load(run, slot).stage;
		busy += stage != STAGE_FREE && stage != STAGE_DONE;
	}
	return busy;
}
