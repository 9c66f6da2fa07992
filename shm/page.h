/* shm/page.h: who holds KV pages and logits rows. A page's word is {generation, mask of holding
 * npu-workers}; a worker sets its bit before it uses a page, exact counts are private to it. Only
 * npu-workers free pages. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "shm/run.h"

#define PAGE_NONE UINT32_MAX

/* A free page, held by me, searched from *cursor on; PAGE_NONE if there is none. */
uint32_t page_take(struct shm_run *run, uint32_t *cursor);
/* Sets my bit on a page that someone else holds now; false if it was free (its content may be
 * gone). */
bool page_hold(struct shm_run *run, uint32_t page);
void page_drop(struct shm_run *run, uint32_t page);
/* Clears a dead worker's bit everywhere. Only after every slot of it was taken over and its pages
 * are held again. */
void page_drop_all(struct shm_run *run, uint32_t entry);
bool page_is_holder(const struct shm_run *run, uint32_t entry);
bool page_is_mine(const struct shm_run *run, uint32_t page);
uint32_t page_count_free(const struct shm_run *run);
/* Pages with my bit. */
uint32_t page_count_mine(const struct shm_run *run);

/* The logits row of a running sequence: the one it has already, or a free one, or one whose holder
 * is no longer running. PAGE_NONE if all are in use: then the sequence waits. */
uint32_t row_take(struct shm_run *run, uint32_t slot);
void row_drop(struct shm_run *run, uint32_t row, uint32_t slot);
/* Would row_take find one for a slot that has none yet? */
bool row_is_available(const struct shm_run *run);
/* A frozen worker (number: its incarnation) may still write this slot's row: it stays out of use
 * until that worker is gone. */
void row_quarantine(struct shm_run *run, uint32_t slot, uint64_t number);
