/* shm/page.h: who holds KV pages and logits rows. A page's word is {generation, mask of holding
 * npu-workers}; a worker sets its bit before it uses a page, exact counts are private to it. Only
 * npu-workers free pages. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "shm/run.h"
#include "shm/slot.h"

#define PAGE_NONE UINT32_MAX

/* A free page, held by me, searched from *cursor on; PAGE_NONE if there is none. */
uint32_t page_take(struct shm_run *run, uint32_t *cursor);
/* Sets my bit on a page that someone holds now, whatever it contains; false if it was free. */
bool page_hold(struct shm_run *run, uint32_t page);
void page_drop(struct shm_run *run, uint32_t page);
/* Clears the bit of a dead incarnation everywhere: only after every slot of it was taken over and
 * its pages are held again. Does nothing to a successor in its entry. */
void page_drop_all(struct shm_run *run, uint32_t entry, uint64_t number);
bool page_is_holder(const struct shm_run *run, uint32_t entry);
bool page_is_mine(const struct shm_run *run, uint32_t page);
uint32_t page_count_free(const struct shm_run *run);
/* Pages with my bit. */
uint32_t page_count_mine(const struct shm_run *run);

/* It grows when a free page is taken: another one means other content. */
uint64_t page_generation(const struct shm_run *run, uint32_t page);
/* A page as a body's table names it: its index and the low bits of its generation, so that a table
 * that was read too late doesn't get another sequence's page. For a page that I hold. */
#define PAGE_HANDLE_INDEX_BITS 20u
uint32_t page_handle(const struct shm_run *run, uint32_t page);
static inline uint32_t page_of_handle(uint32_t handle)
{
	return handle & ((1u << PAGE_HANDLE_INDEX_BITS) - 1);
}
/* Sets my bit on the page that the handle names; false if it was freed since. */
bool page_adopt(struct shm_run *run, uint32_t handle);

/* The logits row of a running sequence, whose slot became mine with the word `mine`. keep: the row
 * that its body names, or PAGE_NONE; another one is taken if it can't be kept. PAGE_NONE if all are
 * in use, or the slot isn't mine any more: then the sequence is passed on to wait. A row is in use
 * while the npu-worker that took it lives and hasn't dropped it, and after its death while the
 * sequence is with a sampler. */
uint32_t row_take(struct shm_run *run, uint32_t slot, struct slot_state mine, uint32_t keep);
/* Gives back a row that I took; anyone else's is left alone. */
void row_drop(struct shm_run *run, uint32_t row, uint32_t slot);
/* Would row_take find one for a slot that has none yet? */
bool row_is_available(const struct shm_run *run);
/* Drops my rows of sequences that ended or went on elsewhere. When no step is running. */
void row_collect(struct shm_run *run);
