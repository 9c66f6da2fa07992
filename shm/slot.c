#include "shm/slot.h"

#include "shm/block.h"

#define FIELD(bits) ((1ull << (bits)) - 1)

_Static_assert(SLOT_STAGE_BITS + SLOT_OWNER_BITS + SLOT_HELD_BITS + SLOT_BODY_BITS +
			       SLOT_TURN_BITS ==
		       64,
	       "one word");
_Static_assert(INC_COUNT <= 1u << SLOT_OWNER_BITS, "every entry has a number");

uint64_t slot_pack(struct slot_state state)
{
	uint64_t word = state.turn & FIELD(SLOT_TURN_BITS);
	word = word << SLOT_BODY_BITS | (state.body & FIELD(SLOT_BODY_BITS));
	word = word << SLOT_HELD_BITS | (state.held ? 1 : 0);
	word = word << SLOT_OWNER_BITS | (state.owner & FIELD(SLOT_OWNER_BITS));
	return word << SLOT_STAGE_BITS | ((uint64_t)state.stage & FIELD(SLOT_STAGE_BITS));
}

struct slot_state slot_unpack(uint64_t word)
{
	struct slot_state state;
	uint32_t stage = (uint32_t)(word & FIELD(SLOT_STAGE_BITS));
	/* A damaged word names no stage: nobody acts on it. */
	state.stage = stage < STAGE_COUNT ? (enum slot_stage)stage : STAGE_COUNT;
	word >>= SLOT_STAGE_BITS;
	state.owner = (uint32_t)(word & FIELD(SLOT_OWNER_BITS));
	word >>= SLOT_OWNER_BITS;
	state.held = word & FIELD(SLOT_HELD_BITS);
	word >>= SLOT_HELD_BITS;
	state.body = (uint32_t)(word & FIELD(SLOT_BODY_BITS));
	state.turn = word >> SLOT_BODY_BITS;
	return state;
}

enum shm_role slot_stage_role(enum slot_stage stage)
{
	static const enum shm_role roles[STAGE_COUNT + 1] = {
		[STAGE_FREE] = ROLE_NONE,	   [STAGE_FILL] = ROLE_GATEWAY,
		[STAGE_TOKENIZE] = ROLE_TOKENIZER, [STAGE_COMPUTE] = ROLE_WORKER,
		[STAGE_SAMPLE] = ROLE_SAMPLER,	   [STAGE_RECLAIM] = ROLE_WORKER,
		[STAGE_DONE] = ROLE_GATEWAY,	   [STAGE_COUNT] = ROLE_NONE,
	};
	return roles[stage <= STAGE_COUNT ? stage : STAGE_COUNT];
}

const char *slot_stage_name(enum slot_stage stage)
{
	static const char *const names[STAGE_COUNT + 1] = {
		"free", "fill", "tokenize", "compute", "sample", "reclaim", "done", "damaged"};
	return names[stage <= STAGE_COUNT ? stage : STAGE_COUNT];
}

struct slot_state slot_load(const struct shm_run *run, uint32_t slot)
{
	return slot_unpack(atomic_load_explicit(&run->slots[slot].word, memory_order_acquire));
}

bool slot_is_held(const struct shm_run *run, struct slot_state state)
{
	return state.held && state.owner == run->me;
}

/* to: what *state is afterwards, with the next turn. */
static bool swap(struct shm_run *run, uint32_t slot, struct slot_state *state, struct slot_state to)
{
	uint64_t expected = slot_pack(*state);
	to.turn = state->turn + 1;
	to.held = to.owner != 0 && to.owner == run->me;
	if (!atomic_compare_exchange_strong_explicit(&run->slots[slot].word, &expected,
						     slot_pack(to), memory_order_seq_cst,
						     memory_order_acquire))
		return false;
	*state = to;
	return true;
}

bool slot_begin(struct shm_run *run, uint32_t slot, struct slot_state *ret_mine)
{
	struct slot_state state = slot_load(run, slot);
	if (state.stage != STAGE_FREE ||
	    !swap(run, slot, &state, (struct slot_state){.stage = STAGE_FILL, .owner = run->me}))
		return false;
	*ret_mine = state;
	return true;
}

bool slot_claim(struct shm_run *run, uint32_t slot, enum slot_stage stage,
		struct slot_state *ret_mine)
{
	struct slot_state seen = slot_load(run, slot);
	if (seen.stage != stage || seen.owner != 0)
		return false;
	return slot_take_over(run, slot, seen, seen.body, ret_mine);
}

enum svc_code slot_pass(struct shm_run *run, uint32_t slot, struct slot_state *mine,
			struct slot_state next)
{
	if (swap(run, slot, mine, next))
		return SVC_OK;
	atomic_fetch_add(&run->ctl->counters.fenced_writes, 1);
	return SVC_STALE;
}

bool slot_take_over(struct shm_run *run, uint32_t slot, struct slot_state seen, uint32_t body,
		    struct slot_state *ret_mine)
{
	struct slot_state mine = {.stage = seen.stage, .owner = run->me, .body = body};
	if (!swap(run, slot, &seen, mine))
		return false;
	*ret_mine = seen;
	block_settle(run, body, slot);
	return true;
}

bool slot_handle_valid(const struct shm_run *run, struct slot_handle handle)
{
	return handle.slot < run->n_table &&
	       atomic_load_explicit(&run->slots[handle.slot].generation, memory_order_acquire) ==
		       handle.generation;
}

void slot_cancel(struct shm_run *run, struct slot_handle handle)
{
	if (!slot_handle_valid(run, handle))
		return;
	/* Generations only grow: one that slept since the check must not undo a later cancel. */
	_Atomic uint64_t *cancel = &run->slots[handle.slot].cancel;
	uint64_t seen = atomic_load(cancel);
	while (seen < handle.generation &&
	       !atomic_compare_exchange_weak(cancel, &seen, handle.generation))
		;
}

bool slot_is_cancelled(const struct shm_run *run, uint32_t slot)
{
	const struct slot_line *line = &run->slots[slot];
	return atomic_load_explicit(&line->cancel, memory_order_acquire) ==
	       atomic_load_explicit(&line->generation, memory_order_relaxed);
}
