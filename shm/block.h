/* shm/block.h: who may write a block of the bodies' pool. A block's word names the slot it is for,
 * the first block of its run, and one of three kinds:
 *
 *   PRIVATE  the named incarnation fills it; the slot's word doesn't refer to it yet (or does, from
 *            a moment ago)
 *   SLOT     whoever owns the slot may write it
 *   LEFT     the named incarnation owned the slot when it froze: it may wake and write, so nobody
 *            else may, and it becomes free only when that process has ended
 *
 * Every change is one compare-and-swap from exactly the word that was read. Numbers are never used
 * twice, so a process that slept between reading and swapping changes nothing that isn't its own.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "shm/run.h"
#include "shm/slot.h"

/* A run of n blocks, PRIVATE to this incarnation. 0: there is none now. */
uint32_t block_take(struct shm_run *run, uint32_t n, uint32_t slot);
/* Undoes block_take, as far as the blocks are still this incarnation's. */
void block_give_back(struct shm_run *run, uint32_t first, uint32_t slot);
/* By the slot's owner, after the swap that made it owner: the run that the slot's word refers to
 * becomes the SLOT's. Does nothing to what another has left to this incarnation. */
void block_settle(struct shm_run *run, uint32_t first, uint32_t slot);
/* Before the slot's word is turned away from the run in `seen`: that is LEFT to incarnation
 * `number`. false: the word isn't `seen` any more. */
bool block_leave(struct shm_run *run, uint32_t slot, struct slot_state seen, uint64_t number);
/* Frees what is the slot's and what this incarnation had PRIVATE for it. Only by its owner, in
 * STAGE_FILL, when its word refers to no run. */
void block_free(struct shm_run *run, uint32_t slot);
/* Frees what ended processes had PRIVATE or what was LEFT to them, unless a slot's word refers to
 * it. By anyone, at any time. Returns how many blocks it freed. */
uint32_t block_sweep(struct shm_run *run);

/* Blocks of the run that begins with `first`, if it is one for this slot; else 0. */
uint32_t block_run_length(const struct shm_run *run, uint32_t first, uint32_t slot);
/* Of the run that block `first` is in: another one after it was freed, taken or left. */
uint64_t block_identity(const struct shm_run *run, uint32_t first);
uint32_t block_count_free(const struct shm_run *run);
