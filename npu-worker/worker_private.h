/* npu-worker/worker_private.h: what the parts of the worker process share. One thread, one struct
 * worker.
 *
 *   worker.c    life cycle, admission in order of arrival, the step
 *   sequence.c  a slot as the worker sees it: pages, row, adoption from another worker
 *   weights.c   the packed weights' segment: built once, attached to afterwards */
#pragma once
#include "npu-worker/engine/engine.h"
#include "services/slots.h"
#include "shm/page.h"
#include "shm/prefix.h"

#define WORKER_MAX_ROWS 512u

/* A slot that is in STAGE_COMPUTE and mine. Everything that must survive this process is in the
 * body. */
struct sequence {
	uint32_t slot;
	struct slot_state state;
	struct body *body;
	uint64_t ticket;
	uint32_t n_prompt, n_known; /* prompt, prompt + generated */
	uint32_t n_kv;
	uint32_t row; /* logits row */
	uint32_t n_pages;
	uint32_t *pages; /* private copy of the page table, [pages_per_sequence] */
	uint32_t n_take; /* positions of this step */
};

struct worker {
	struct svc *svc;
	struct engine *engine;
	struct segment weights;
	uint32_t pages_per_sequence;
	uint32_t page_cursor;
	struct sequence *sequences; /* [n_slots] running here, in no order */
	uint32_t n_sequences;
	uint32_t *page_tables;	 /* backing of sequence.pages and scratch_pages */
	uint32_t *scratch_pages; /* one page table */
	uint32_t *outstanding;	 /* slots handed to a sampler, [n_slots] */
	uint32_t n_outstanding;
	uint32_t n_waiting; /* unclaimed slots seen at the last sweep */
	uint64_t collected_us;
	/* One step. */
	struct engine_seq *step; /* [n_slots] */
	int32_t *tokens;	 /* [WORKER_MAX_ROWS] */
	uint8_t *may_go;	 /* [n_pages]: mine, and no slot refers to it (pages_collect) */
	bool prefix_cache;
	struct prefix_key prefix_identity;
};

/* ---- weights.c */

/* Attaches to the run's packed weights, or packs them; one builder at a time. */
SVC_CHECKED enum svc_code weights_map(struct svc *svc, uint32_t threads, struct segment *ret_seg,
				      struct svc_err *err);

/* ---- sequence.c */

/* After the slot became mine: takes over pages and row, or starts from nothing where they are lost.
 * false: the slot was passed on (no row, no page, cancelled, damaged). */
bool sequence_open(struct worker *worker, uint32_t slot, struct slot_state mine, struct body *body);
/* Removes it from the table (it was passed on). */
void sequence_close(struct worker *worker, struct sequence *sequence);
/* Pages for positions 0 .. n-1. false: none is free and none could be made free. */
bool sequence_reserve(struct worker *worker, struct sequence *sequence, uint32_t n);
/* Gives pages and row back and waits for another turn; what was computed is computed again. */
void sequence_preempt(struct worker *worker, struct sequence *sequence);
/* STAGE_RECLAIM: gives everything back and passes to DONE. */
void sequence_reclaim(struct worker *worker, uint32_t slot);
/* Makes the pages that were completed since position `from` findable. After the step's commit. */
void sequence_seal(struct worker *worker, struct sequence *sequence, uint32_t from);
/* Drops unsealed pages that carry my bit and that no slot refers to, and rows likewise; fills
 * may_go. */
void pages_collect(struct worker *worker);
/* Free pages, and sealed ones that could be let go. */
uint32_t pages_available(struct worker *worker);
/* Before a dead worker's pages are let go: holds every page that a running slot refers to. */
void pages_adopt_from_dead(struct worker *worker);
