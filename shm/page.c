#include "shm/page.h"

#include "shm/incarnation.h"
#include "shm/slot.h"

#define MASK_ALL	 ((1ull << PAGE_MASK_BITS) - 1)
#define GENERATION_SHIFT (PAGE_MASK_BITS + PAGE_CHANGE_BITS)
#define CHANGES_ALL	 (((1ull << PAGE_CHANGE_BITS) - 1) << PAGE_MASK_BITS)

_Static_assert(INC_WORKER_END <= PAGE_MASK_BITS, "a bit for every worker");

static uint64_t load(const struct shm_run *run, uint32_t page)
{
	return atomic_load(&run->page_words[page].word);
}

/* Counts the change, so that a word that was read once doesn't come back. */
static bool change(struct shm_run *run, uint32_t page, uint64_t word, uint64_t mask)
{
	uint64_t changes = (word + (1ull << PAGE_MASK_BITS)) & CHANGES_ALL;
	uint64_t next = (word & ~(CHANGES_ALL | MASK_ALL)) | changes | mask;
	return atomic_compare_exchange_strong(&run->page_words[page].word, &word, next);
}

uint64_t page_generation(const struct shm_run *run, uint32_t page)
{
	return load(run, page) >> GENERATION_SHIFT;
}

uint32_t page_take(struct shm_run *run, uint32_t *cursor)
{
	uint64_t bit = 1ull << run->me;
	for (uint32_t i = 0; i < run->n_pages; i++) {
		uint32_t page = (*cursor + i) % run->n_pages;
		uint64_t word = load(run, page);
		if (word & MASK_ALL)
			continue;
		uint64_t next = word + (1ull << GENERATION_SHIFT) + bit;
		if (atomic_compare_exchange_strong(&run->page_words[page].word, &word, next)) {
			*cursor = page + 1;
			return page;
		}
	}
	return PAGE_NONE;
}

bool page_hold(struct shm_run *run, uint32_t page)
{
	uint64_t bit = 1ull << run->me;
	for (;;) {
		uint64_t word = page < run->n_pages ? load(run, page) : 0;
		if (!(word & MASK_ALL))
			return false;
		if (word & bit || change(run, page, word, (word & MASK_ALL) | bit))
			return true;
	}
}

void page_drop(struct shm_run *run, uint32_t page)
{
	uint64_t bit = 1ull << run->me;
	uint64_t word = page < run->n_pages ? load(run, page) : 0;
	while (word & bit && !change(run, page, word, word & MASK_ALL & ~bit))
		word = load(run, page);
}

void page_drop_all(struct shm_run *run, uint32_t entry, uint64_t number)
{
	uint64_t bit = 1ull << entry;
	for (uint32_t page = 0; page < run->n_pages;) {
		uint64_t word = load(run, page);
		/* After the load: while the entry has this number the bit is this incarnation's. */
		if (atomic_load(&run->ctl->incs[entry].number) != number)
			return;
		if (!(word & bit) || change(run, page, word, word & MASK_ALL & ~bit))
			page++;
	}
}

bool page_is_holder(const struct shm_run *run, uint32_t entry)
{
	if (entry >= INC_WORKER_END)
		return false;
	for (uint32_t page = 0; page < run->n_pages; page++)
		if (atomic_load_explicit(&run->page_words[page].word, memory_order_relaxed) &
		    1ull << entry)
			return true;
	return false;
}

bool page_is_mine(const struct shm_run *run, uint32_t page)
{
	return atomic_load_explicit(&run->page_words[page].word, memory_order_relaxed) >> run->me &
	       1;
}

uint32_t page_count_free(const struct shm_run *run)
{
	uint32_t n = 0;
	for (uint32_t page = 0; page < run->n_pages; page++)
		n += (atomic_load_explicit(&run->page_words[page].word, memory_order_relaxed) &
		      MASK_ALL) == 0;
	return n;
}

uint32_t page_count_mine(const struct shm_run *run)
{
	uint32_t n = 0;
	for (uint32_t page = 0; page < run->n_pages; page++)
		n += page_is_mine(run, page);
	return n;
}

_Static_assert(PAGE_HANDLE_INDEX_BITS == 20, "FAR_TOO_MANY of run.c, the limit of n_pages");

uint32_t page_handle(const struct shm_run *run, uint32_t page)
{
	return page | (uint32_t)page_generation(run, page) << PAGE_HANDLE_INDEX_BITS;
}

bool page_adopt(struct shm_run *run, uint32_t handle)
{
	uint32_t page = page_of_handle(handle);
	if (page >= run->n_pages)
		return false;
	bool was_mine = page_is_mine(run, page);
	if (!page_hold(run, page))
		return false;
	/* Held: its generation stands still now. */
	if (page_handle(run, page) == handle)
		return true;
	if (!was_mine)
		page_drop(run, page);
	return false;
}

/* ---- rows */

struct holder {
	uint32_t slot; /* UINT32_MAX: free */
	uint32_t number;
};

static struct holder holder_of(uint64_t word)
{
	return (struct holder){(uint32_t)(word & 0xffff) - 1, (uint32_t)(word >> 32)};
}

static bool give_row(struct shm_run *run, uint32_t row, uint64_t word, struct holder to)
{
	uint64_t changes = (word + 0x10000) & 0xffff0000;
	uint64_t next = (uint64_t)to.number << 32 | changes | ((to.slot + 1) & 0xffff);
	return atomic_compare_exchange_strong(&run->row_words[row].word, &word, next);
}

static bool has_ended(const struct shm_run *run, uint32_t number)
{
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++)
		if ((uint32_t)atomic_load(&run->ctl->incs[entry].number) == number)
			return inc_is_dead(run, entry);
	return true;
}

static struct slot_state state_of(const struct shm_run *run, uint32_t slot)
{
	static const struct slot_state none = {.stage = STAGE_FREE};
	return slot < run->n_table ? slot_load(run, slot) : none;
}

static bool is_mine(const struct shm_run *run, struct holder holder)
{
	return holder.slot != UINT32_MAX && holder.number == (uint32_t)run->number;
}

/* While its npu-worker can write it; after that while a sampler reads it for another sequence than
 * `slot`. In no other stage: who computes the sequence next writes its logits anew, and one that
 * only waits must not keep a row from those who wait before it. */
static bool row_in_use(const struct shm_run *run, struct holder holder, uint32_t slot)
{
	if (holder.slot == UINT32_MAX || (holder.slot == slot && is_mine(run, holder)))
		return false;
	/* The death is looked at first: who dies after passing the slot to a sampler must not seem
	 * to have died before. Afterwards only who takes the row, with another word, can pass it.
	 */
	return !has_ended(run, holder.number) ||
	       (holder.slot != slot && state_of(run, holder.slot).stage == STAGE_SAMPLE);
}

uint32_t row_take(struct shm_run *run, uint32_t slot, struct slot_state mine, uint32_t keep)
{
	const struct holder me = {slot, (uint32_t)run->number};
	uint64_t word = keep < run->n_rows ? atomic_load(&run->row_words[keep].word) : 0;
	/* After the load: it is no later owner's. */
	if (atomic_load(&run->slots[slot].word) != slot_pack(mine))
		return PAGE_NONE;
	if (holder_of(word).slot == slot && give_row(run, keep, word, me))
		return keep;
	for (uint32_t row = 0; row < run->n_rows; row++) {
		word = atomic_load(&run->row_words[row].word);
		if (!row_in_use(run, holder_of(word), slot) && give_row(run, row, word, me))
			return row;
	}
	return PAGE_NONE;
}

bool row_is_available(const struct shm_run *run)
{
	for (uint32_t row = 0; row < run->n_rows; row++)
		if (!row_in_use(run, holder_of(atomic_load(&run->row_words[row].word)), UINT32_MAX))
			return true;
	return false;
}

void row_drop(struct shm_run *run, uint32_t row, uint32_t slot)
{
	uint64_t word = row < run->n_rows ? atomic_load(&run->row_words[row].word) : 0;
	if (holder_of(word).slot == slot && is_mine(run, holder_of(word)))
		give_row(run, row, word, (struct holder){UINT32_MAX, 0});
}

void row_collect(struct shm_run *run)
{
	for (uint32_t row = 0; row < run->n_rows; row++) {
		struct holder holder = holder_of(atomic_load(&run->row_words[row].word));
		struct slot_state state = state_of(run, holder.slot);
		bool with_me =
			slot_stage_role(state.stage) == ROLE_WORKER && state.owner == run->me;
		if (is_mine(run, holder) && state.stage != STAGE_SAMPLE && !with_me)
			row_drop(run, row, holder.slot);
	}
}
