#include "shm/block.h"

#include "shm/incarnation.h"

enum kind { KIND_FREE, KIND_SLOT, KIND_PRIVATE, KIND_LEFT };

struct tag {
	uint32_t slot;
	enum kind kind;
	uint32_t first;
	uint32_t number; /* low half of the incarnation's; 0 for KIND_SLOT */
};

static uint64_t pack(struct tag tag)
{
	return (uint64_t)tag.number << 32 | (uint64_t)(tag.first & 0x3fff) << 18 |
	       (uint64_t)tag.kind << 16 | (tag.slot & 0xffff);
}

static struct tag unpack(uint64_t word)
{
	return (struct tag){
		.slot = (uint32_t)(word & 0xffff),
		.kind = (enum kind)(word >> 16 & 3),
		.first = (uint32_t)(word >> 18 & 0x3fff),
		.number = (uint32_t)(word >> 32),
	};
}

_Static_assert(SLOT_BODY_BITS == 14, "a run's first block has the bits that a slot's body has");

static uint64_t load(const struct shm_run *run, uint32_t index)
{
	return atomic_load(&run->blocks[index].word);
}

static bool change(struct shm_run *run, uint32_t index, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(&run->blocks[index].word, &from, to);
}

static bool is_of_run(uint64_t word, uint32_t first, uint32_t slot)
{
	struct tag tag = unpack(word);
	return tag.kind != KIND_FREE && tag.slot == slot && tag.first == first;
}

/* Takes first .. first+n-1; how many it got before one was in use. */
static uint32_t take_from(struct shm_run *run, uint32_t first, uint32_t n, uint64_t mine)
{
	uint32_t got = 0;
	while (got < n && change(run, first + got, 0, mine))
		got++;
	return got;
}

uint32_t block_take(struct shm_run *run, uint32_t n, uint32_t slot)
{
	for (uint32_t first = 1; first + n <= run->n_blocks;) {
		struct tag mine = {slot, KIND_PRIVATE, first, (uint32_t)run->number};
		uint32_t got = take_from(run, first, n, pack(mine));
		if (got == n)
			return first;
		for (uint32_t i = 0; i < got; i++)
			change(run, first + i, pack(mine), 0);
		first += got + 1;
	}
	return 0;
}

void block_give_back(struct shm_run *run, uint32_t first, uint32_t slot)
{
	uint64_t mine = pack((struct tag){slot, KIND_PRIVATE, first, (uint32_t)run->number});
	for (uint32_t i = first; i < run->n_blocks && change(run, i, mine, 0); i++)
		;
}

void block_settle(struct shm_run *run, uint32_t first, uint32_t slot)
{
	if (first == 0)
		return;
	uint64_t settled = pack((struct tag){slot, KIND_SLOT, first, 0});
	for (uint32_t i = first; i < run->n_blocks; i++) {
		uint64_t word = load(run, i);
		if (!is_of_run(word, first, slot))
			return;
		/* LEFT to me: I am the frozen one, have slept until here and own nothing any more.
		 */
		struct tag tag = unpack(word);
		if (tag.kind == KIND_LEFT && tag.number == (uint32_t)run->number)
			return;
		if (word != settled)
			change(run, i, word, settled);
	}
}

bool block_leave(struct shm_run *run, uint32_t slot, struct slot_state seen, uint64_t number)
{
	uint64_t left = pack((struct tag){slot, KIND_LEFT, seen.body, (uint32_t)number});
	for (uint32_t i = seen.body; i && i < run->n_blocks;) {
		uint64_t word = load(run, i);
		/* After the load: what is changed below belonged to the slot as it was seen. */
		if (slot_load(run, slot).turn != seen.turn)
			return false;
		if (!is_of_run(word, seen.body, slot))
			break;
		if (word == left || change(run, i, word, left))
			i++;
	}
	return true;
}

void block_free(struct shm_run *run, uint32_t slot)
{
	for (uint32_t i = 1; i < run->n_blocks; i++) {
		uint64_t word = load(run, i);
		struct tag tag = unpack(word);
		bool mine = tag.kind == KIND_PRIVATE && tag.number == (uint32_t)run->number;
		if (tag.slot == slot && (tag.kind == KIND_SLOT || mine))
			change(run, i, word, 0);
	}
}

/* Proof that no incarnation of this number can write any more. */
static bool has_ended(const struct shm_run *run, uint32_t number)
{
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		if ((uint32_t)atomic_load(&run->ctl->incs[entry].number) == number)
			return inc_is_dead(run, entry);
	return true;
}

uint32_t block_sweep(struct shm_run *run)
{
	uint32_t changed = 0, known = 0;
	bool ended = false;
	for (uint32_t i = 1; i < run->n_blocks; i++) {
		uint64_t word = load(run, i);
		struct tag tag = unpack(word);
		if ((tag.kind != KIND_PRIVATE && tag.kind != KIND_LEFT) || tag.slot >= run->n_table)
			continue;
		if (tag.number != known) {
			known = tag.number;
			ended = has_ended(run, known);
		}
		if (!ended)
			continue;
		struct slot_state state = slot_load(run, tag.slot);
		/* A gateway's run isn't in the slot's word yet, but will be. */
		if (state.stage == STAGE_FILL)
			continue;
		struct tag settled = {tag.slot, KIND_SLOT, tag.first, 0};
		bool current = state.stage != STAGE_FREE && state.body == tag.first;
		changed += change(run, i, word, current ? pack(settled) : 0);
	}
	return changed;
}

bool block_is_of(const struct shm_run *run, uint32_t index, uint32_t slot)
{
	return index < run->n_blocks && is_of_run(load(run, index), index, slot);
}

uint32_t block_count_free(const struct shm_run *run)
{
	uint32_t n = 0;
	for (uint32_t i = 1; i < run->n_blocks; i++)
		n += atomic_load_explicit(&run->blocks[i].word, memory_order_relaxed) == 0;
	return n;
}
