/* npu-worker/sequence.h: a slot as the worker sees it: pages, row, adoption from another worker. */
#pragma once
#include "npu-worker/worker_private.h"

/* After the slot became mine: takes over pages and row, or starts from nothing where they are lost.
 * false: the slot was passed on (no row, no page, cancelled, damaged). */
bool sequence_open(struct worker *worker, uint32_t slot, struct slot_state mine, struct body *body);
/* NULL: not here. */
struct sequence *sequence_find(struct worker *worker, uint32_t slot);
/* Its prompt's log-probabilities are being recorded, position by position. */
bool sequence_is_scoring(const struct sequence *sequence);
/* A text's vector is complete (pool.c): passes the slot on. */
void sequence_end_pooled(struct worker *worker, struct sequence *sequence);
/* It takes one position and then wants a sampler. */
bool sequence_is_decode(const struct sequence *sequence);
/* Removes it from the table (it was passed on). */
void sequence_close(struct worker *worker, struct sequence *sequence);
/* Pages for positions 0 .. n-1. false: none is free and none could be made free. */
bool sequence_reserve(struct worker *worker, struct sequence *sequence, uint32_t n);
/* Gives pages and row back and waits for another turn; what was computed is computed again. */
void sequence_preempt(struct worker *worker, struct sequence *sequence);
/* STAGE_RECLAIM: gives everything back and passes to DONE. */
void sequence_reclaim(struct worker *worker, uint32_t slot);
/* The page table, into the body. */
void sequence_store_pages(struct worker *worker, struct sequence *sequence);
/* Drops unsealed pages that carry my bit and that no slot refers to, and rows likewise; fills
 * may_go. */
void pages_collect(struct worker *worker);
/* Free pages, and sealed ones that could be let go. */
uint32_t pages_available(struct worker *worker);
/* Before a dead worker's pages are let go: holds every page that a running slot refers to. */
void pages_adopt_from_dead(struct worker *worker);
