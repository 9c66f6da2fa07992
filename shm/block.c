#include "shm/block.h"

#include "shm/incarnation.h"

enum kind { KIND_FREE, KIND_SLOT, KIND_PRIVATE, KIND_LEFT };

struct tag {
	enum kind kind;
	uint32_t slot, first;
	uint32_t stamp;	 /* low bits of the slot's turn when the run was taken or left */
	uint32_t number; /* low bits of the incarnation's; 0 for KIND_SLOT */
};

#define FIELD(bits) ((1ull << (bits)) - 1)

_Static_assert(BLOCK_SLOT_BITS + BLOCK_KIND_BITS + SLOT_BODY_BITS + BLOCK_STAMP_BITS +
			       BLOCK_NUMBER_BITS ==
		       64,
	       "one word");

static uint64_t pack(struct tag tag)
{
	uint64_t word = tag.number & FIELD(BLOCK_NUMBER_BITS);
	word = word << BLOCK_STAMP_BITS | (tag.stamp & FIELD(BLOCK_STAMP_BITS));
	word = word << SLOT_BODY_BITS | (tag.first & FIELD(SLOT_BODY_BITS));
	word = word << BLOCK_KIND_BITS | (uint64_t)tag.kind;
	return word << BLOCK_SLOT_BITS | (tag.slot & FIELD(BLOCK_SLOT_BITS));
}

static struct tag unpack(uint64_t word)
{
	struct tag tag;
	tag.slot = (uint32_t)(word & FIELD(BLOCK_SLOT_BITS));
	word >>= BLOCK_SLOT_BITS;
	tag.kind = (enum kind)(word & FIELD(BLOCK_KIND_BITS));
	word >>= BLOCK_KIND_BITS;
	tag.first = (uint32_t)(word & FIELD(SLOT_BODY_BITS));
	word >>= SLOT_BODY_BITS;
	tag.stamp = (uint32_t)(word & FIELD(BLOCK_STAMP_BITS));
	tag.number = (uint32_t)(word >> BLOCK_STAMP_BITS);
	return tag;
}

static uint32_t cut_number(uint64_t number)
{
	return (uint32_t)(number & FIELD(BLOCK_NUMBER_BITS));
}

static bool is_my(const struct shm_run *run, struct tag tag, enum kind kind)
{
	return tag.kind == kind && tag.number == cut_number(run->number);
}

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
	struct tag mine = {.kind = KIND_PRIVATE,
			   .slot = slot,
			   .stamp = (uint32_t)(slot_load(run, slot).turn & FIELD(BLOCK_STAMP_BITS)),
			   .number = cut_number(run->number)};
	for (uint32_t first = 1; first + n <= run->n_blocks;) {
		mine.first = first;
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
	for (uint32_t i = first; i && i < run->n_blocks; i++) {
		uint64_t word = load(run, i);
		if (!is_of_run(word, first, slot) || !is_my(run, unpack(word), KIND_PRIVATE))
			return;
		change(run, i, word, 0);
	}
}

void block_settle(struct shm_run *run, uint32_t first, uint32_t slot)
{
	for (uint32_t i = first; i && i < run->n_blocks; i++) {
		uint64_t word = load(run, i);
		struct tag tag = unpack(word);
		/* LEFT to me: I am the frozen one, have slept until here and own nothing any more.
		 */
		if (!is_of_run(word, first, slot) || is_my(run, tag, KIND_LEFT))
			return;
		tag.kind = KIND_SLOT;
		tag.number = 0;
		if (word != pack(tag))
			change(run, i, word, pack(tag));
	}
}

bool block_leave(struct shm_run *run, uint32_t slot, struct slot_state seen, uint64_t number)
{
	uint64_t left = pack((struct tag){.kind = KIND_LEFT,
					  .slot = slot,
					  .first = seen.body,
					  .stamp = (uint32_t)(seen.turn & FIELD(BLOCK_STAMP_BITS)),
					  .number = cut_number(number)});
	for (uint32_t i = seen.body; i && i < run->n_blocks;) {
		uint64_t word = load(run, i);
		/* After the load: what is freed below belonged to the slot as it was seen. */
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
		bool free = tag.kind == KIND_SLOT || is_my(run, tag, KIND_PRIVATE);
		if (tag.slot == slot && free)
			change(run, i, word, 0);
	}
}

/* Proof that no incarnation of this number can write any more. */
static bool has_ended(const struct shm_run *run, uint32_t number)
{
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		if (cut_number(atomic_load(&run->ctl->incs[entry].number)) == number)
			return inc_is_dead(run, entry);
	return true;
}

uint32_t block_sweep(struct shm_run *run)
{
	uint32_t freed = 0, known = 0;
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
		/* What is in a word is settled by the slot's next owner. */
		if (state.stage == STAGE_FREE || state.body != tag.first)
			freed += change(run, i, word, 0);
	}
	return freed;
}

uint32_t block_run_length(const struct shm_run *run, uint32_t first, uint32_t slot)
{
	uint32_t n = 0;
	if (first >= run->n_blocks)
		return 0;
	while (first && first + n < run->n_blocks && is_of_run(load(run, first + n), first, slot))
		n++;
	return n;
}

uint64_t block_identity(const struct shm_run *run, uint32_t first)
{
	if (first >= run->n_blocks)
		return 0;
	struct tag tag = unpack(load(run, first));
	if (tag.kind == KIND_FREE)
		return 0;
	/* Settling changes neither content nor place. */
	tag.kind = KIND_SLOT;
	tag.number = 0;
	return pack(tag);
}

uint32_t block_count_free(const struct shm_run *run)
{
	uint32_t n = 0;
	for (uint32_t i = 1; i < run->n_blocks; i++)
		n += atomic_load_explicit(&run->blocks[i].word, memory_order_relaxed) == 0;
	return n;
}
