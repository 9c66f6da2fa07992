#include "shm/page.h"

#include "shm/incarnation.h"
#include "shm/slot.h"

#define MASK_ALL ((1ull << PAGE_MASK_BITS) - 1)

_Static_assert(INC_WORKER_END <= PAGE_MASK_BITS, "a bit for every worker");

uint32_t page_take(struct shm_run *run, uint32_t *cursor)
{
	uint64_t bit = 1ull << run->me;
	for (uint32_t i = 0; i < run->n_pages; i++) {
		uint32_t page = (*cursor + i) % run->n_pages;
		uint64_t word = atomic_load(&run->page_words[page].word);
		if (word & MASK_ALL)
			continue;
		uint64_t next = ((word >> PAGE_MASK_BITS) + 1) << PAGE_MASK_BITS | bit;
		if (atomic_compare_exchange_strong(&run->page_words[page].word, &word, next)) {
			*cursor = page + 1;
			return page;
		}
	}
	return PAGE_NONE;
}

bool page_hold(struct shm_run *run, uint32_t page)
{
	if (page >= run->n_pages)
		return false;
	uint64_t word = atomic_load(&run->page_words[page].word);
	while (word & MASK_ALL)
		if (atomic_compare_exchange_weak(&run->page_words[page].word, &word,
						 word | 1ull << run->me))
			return true;
	return false;
}

void page_drop(struct shm_run *run, uint32_t page)
{
	if (page < run->n_pages)
		atomic_fetch_and(&run->page_words[page].word, ~(1ull << run->me));
}

void page_drop_all(struct shm_run *run, uint32_t entry)
{
	for (uint32_t page = 0; page < run->n_pages; page++)
		atomic_fetch_and(&run->page_words[page].word, ~(1ull << entry));
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

static uint64_t row_word_of(const struct shm_run *run, uint32_t slot)
{
	uint64_t generation = atomic_load(&run->slots[slot].generation);
	return generation << 16 | (slot + 1);
}

/* In the slot's place: the row belongs to a frozen incarnation, whose number follows. */
#define ROW_QUARANTINE 0xffffu

static bool is_alive(const struct shm_run *run, uint64_t number)
{
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++)
		if (atomic_load(&run->ctl->incs[entry].number) == number)
			return !inc_is_dead(run, entry);
	return false;
}

/* A row is in use while its holder's slot still carries the request that took it and can still be
 * computed. */
static bool row_in_use(const struct shm_run *run, uint64_t word)
{
	uint32_t slot = (uint32_t)(word & 0xffff) - 1;
	if ((word & 0xffff) == ROW_QUARANTINE)
		return is_alive(run, word >> 16);
	if (word == 0 || slot >= run->n_table || row_word_of(run, slot) != word)
		return false;
	enum slot_stage stage = slot_load(run, slot).stage;
	return stage == STAGE_COMPUTE || stage == STAGE_SAMPLE || stage == STAGE_RECLAIM;
}

uint32_t row_take(struct shm_run *run, uint32_t slot)
{
	uint64_t mine = row_word_of(run, slot);
	for (uint32_t row = 0; row < run->n_slots; row++)
		if (atomic_load(&run->row_words[row].word) == mine)
			return row;
	for (uint32_t row = 0; row < run->n_slots; row++) {
		uint64_t word = atomic_load(&run->row_words[row].word);
		if (!row_in_use(run, word) &&
		    atomic_compare_exchange_strong(&run->row_words[row].word, &word, mine))
			return row;
	}
	return PAGE_NONE;
}

bool row_is_available(const struct shm_run *run)
{
	for (uint32_t row = 0; row < run->n_slots; row++)
		if (!row_in_use(run, atomic_load(&run->row_words[row].word)))
			return true;
	return false;
}

void row_quarantine(struct shm_run *run, uint32_t slot, uint64_t number)
{
	uint64_t mine = row_word_of(run, slot);
	for (uint32_t row = 0; row < run->n_slots; row++) {
		uint64_t word = mine;
		atomic_compare_exchange_strong(&run->row_words[row].word, &word,
					       number << 16 | ROW_QUARANTINE);
	}
}

void row_drop(struct shm_run *run, uint32_t row, uint32_t slot)
{
	if (row >= run->n_slots)
		return;
	uint64_t mine = row_word_of(run, slot);
	atomic_compare_exchange_strong(&run->row_words[row].word, &mine, 0);
}
