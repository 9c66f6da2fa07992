#include "gateway/gw_slots.h"

#include <time.h>

#include "shm/incarnation.h"

bool gw_slot_free(struct gateway *gateway, uint32_t slot, struct slot_state *mine)
{
	struct shm_run *run = &gateway->svc->run;
	/* Nothing refers to the blocks any more: the word has no body. */
	body_free_all(run, slot);
	atomic_store(&run->slots[slot].account, 0);
	if (slot_pass(run, slot, mine, (struct slot_state){.stage = STAGE_FREE}) == SVC_OK)
		return true;
	svc_leave(gateway->svc, SVC_STALE);
	return false;
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

/* Takes the slot as it was seen and empties it, by way of FILL without a body: if this process dies
 * in between, the next gateway finds a slot in FILL and frees the blocks that name it. */
static void slot_drop(struct gateway *gateway, uint32_t slot, struct slot_state seen)
{
	struct shm_run *run = &gateway->svc->run;
	struct slot_state mine;
	/* Another gateway may be about it. */
	if (seen.owner && !gateway_is_gone(run, seen.owner))
		return;
	if (!slot_take_over(run, slot, seen, seen.body, &mine))
		return;
	if (mine.stage != STAGE_FILL || mine.body != 0) {
		struct slot_state emptied = {.stage = STAGE_FILL, .owner = run->me};
		if (slot_pass(run, slot, &mine, emptied) != SVC_OK) {
			svc_leave(gateway->svc, SVC_STALE);
			return;
		}
	}
	gw_slot_free(gateway, slot, &mine);
}

#define LONG_AGO_US 1u /* for ended_us: longer ago than any --keep-s */

static uint64_t real_now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static bool is_stream(const struct shm_run *run, uint32_t slot, struct slot_state seen)
{
	const struct body *body = body_get(run, seen.body, slot);
	struct gw_shape shape;
	struct svc_err err;
	struct span text = {NULL, 0};
	if (body && body->kind == BODY_GENERATE)
		text.ptr = body_region(run, body, REGION_META, 0, &text.len);
	return text.ptr && gw_shape_read(text, &shape, &err) == SVC_OK && shape.stream;
}

/* Somebody may come back for the answer: who has its key, or saw its first events from a gateway
 * that died. */
static bool is_kept(struct gateway *gateway, uint32_t slot, struct slot_state seen, bool orphan)
{
	const struct shm_run *run = &gateway->svc->run;
	struct slot_line *line = &run->slots[slot];
	uint64_t now = real_now_us(), ended = atomic_load(&line->ended_us);
	if (slot_is_cancelled(run, slot))
		return false;
	if (!atomic_load(&line->key_hash) && !(orphan && is_stream(run, slot, seen)))
		return false;
	/* A clock that was set back doesn't keep an answer for ever: it counts anew. */
	if (ended == 0 || ended > now)
		atomic_store(&line->ended_us, now);
	return ended == 0 || now - ended <= gateway->keep_us;
}

bool gw_slot_is_mine(const struct gateway *gateway, uint32_t slot)
{
	const struct slot_line *line = &gateway->svc->run.slots[slot];
	return atomic_load(&line->gateway) == gateway->svc->run.me &&
	       atomic_load(&line->generation) == gateway->read_here[slot];
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
	} else if (seen.stage == STAGE_DONE && !gateway->by_slot[slot]) {
		bool mine = gw_slot_is_mine(gateway, slot);
		bool orphan = !mine && (reader == run->me || gateway_is_gone(run, reader));
		if ((mine || orphan) && !is_kept(gateway, slot, seen, orphan))
			slot_drop(gateway, slot, seen);
	}
}

void gw_slots_told(struct gateway *gateway)
{
	const struct shm_run *run = &gateway->svc->run;
	for (uint32_t slot = 0; slot < run->n_table; slot++)
		if (gw_slot_is_mine(gateway, slot) && !atomic_load(&run->slots[slot].key_hash))
			atomic_store(&run->slots[slot].ended_us, LONG_AGO_US);
}

bool gw_slot_evict(struct gateway *gateway)
{
	const struct shm_run *run = &gateway->svc->run;
	uint64_t oldest = UINT64_MAX;
	uint32_t victim = 0;
	struct slot_state word = {.stage = STAGE_FREE};
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		struct slot_state seen = slot_load(run, slot);
		uint64_t ended = atomic_load(&run->slots[slot].ended_us);
		if (seen.stage != STAGE_DONE || gateway->by_slot[slot] || !ended || ended >= oldest)
			continue;
		oldest = ended;
		victim = slot;
		word = seen;
	}
	if (oldest != UINT64_MAX)
		slot_drop(gateway, victim, word);
	return oldest != UINT64_MAX;
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
