/* npu-worker/worker_private.h: what the parts of the worker process share. One thread, one struct
 * worker.
 *
 *   worker.c    life cycle, slots that come and go
 *   schedule.c  who is admitted, how many positions each takes in the next step
 *   pace.c      how many of a prompt's share a step
 *   batch.c     the step: ids in, logits out, commit, pass on
 *   ahead.c     the next step, while the samplers draw
 *   guess.c     for which token
 *   trial.c     and whether that pays here
 *   drafts.c, drafter.c, worth.c  further steps in the same pass (speculation.h)
 *   sequence.c  a slot as the worker sees it: pages, row, adoption from another worker
 *   cache.c     pages that an earlier request left: in memory, on disk
 *   store.c     the pages on disk
 *   npu.c       on an NPU or on the host
 *   weights.c   the packed weights' segment: built once, attached to afterwards */
#pragma once
#include "npu-worker/engine/engine.h"
#include "npu-worker/pace.h"
#include "npu-worker/speculation.h"
#include "npu-worker/store.h"
#include "npu-worker/trial.h"
#include "services/slots.h"
#include "shm/page.h"
#include "shm/prefix.h"

#define WORKER_MAX_ROWS 512u
#define TRIALS		8u
#define WEIGHTS_OFFSET	4096u /* of the region in its segment; keeps it page aligned */

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
	bool settled;	 /* its pages are as my engine left them (engine_seq) */
	/* Its next position was computed before its token was drawn (ahead.c), with this result. */
	bool computed;
	enum svc_code status;
};

/* A sequence that a sampler has, as the step behind it needs it: what stood in the body when it was
 * passed on. */
struct ahead {
	uint32_t slot;
	uint64_t generation;
	uint32_t n_kv, row, n_pages;
	uint32_t *pages;   /* [pages_per_sequence] */
	int32_t guess;	   /* for position n_kv */
	int32_t likeliest; /* of the logits before it, whatever the guess is */
	bool is_draw;	   /* the guess is a draw made beforehand (guess.c) */
	bool is_greedy;	   /* so is its request */
	bool begun;	   /* a step with the guess was */
	float hit;	   /* how often the guess was right, of late */
	bool drawn;	   /* seen to be right */
	bool computed;
	enum guess_source source; /* not FROM_LOGITS: it is a draft of the step before */
	int32_t expected;	  /* what the text would have had drafted; -1: nothing */
	uint64_t noted_us;
	enum svc_code status;
};

struct worker {
	struct svc *svc;
	struct engine *engine;
	struct segment weights;
	struct segment activations; /* that an NPU reads and writes */
	struct products *products;  /* NULL: computing on the host */
	uint32_t pages_per_sequence;
	uint32_t page_cursor;
	struct sequence *sequences; /* [n_slots] running here, in no order */
	uint32_t n_sequences;
	uint32_t *page_tables;	 /* backing of sequence.pages and scratch_pages */
	uint32_t *scratch_pages; /* one page table */
	uint32_t *outstanding;	 /* slots handed to a sampler, [n_slots] */
	uint32_t n_outstanding;
	uint32_t n_waiting; /* unclaimed slots seen at the last sweep */
	uint32_t speculate; /* drafts of a step, at most; 0: none */
	uint32_t n_chains;
	uint64_t collected_us, deferred_us, npu_checked_us;
	uint32_t rows_alone, rows_busy; /* options */
	struct pace pace;
	bool run_ahead;
	bool ahead_always; /* also where it doesn't pay */
	struct trial trials[TRIALS];
	struct trial *trial;   /* of the sequences that run now; NULL: none yet */
	bool drafts_always;    /* also those that don't pay */
	bool draws_beforehand; /* --guess draw */
	struct ahead *aheads;  /* [n_slots] */
	uint32_t n_aheads;
	struct hit *hits;	 /* [n_table] */
	struct draw_work *draw;	 /* of guess.c */
	uint32_t *ahead_pages;	 /* backing of ahead.pages */
	struct chain *chains;	 /* [n_chains] */
	float *draft_logits;	 /* backing of chain.logits */
	int32_t *draft_ids;	 /* [ctx + 1] scratch */
	struct drafter *drafter; /* NULL: no model drafts */
	struct worth_cost cost;	 /* of steps that only generate */
	double turn_us;		 /* a sampler's turn, when nothing is computed meanwhile */
	/* One step. */
	struct engine_seq *step; /* [n_slots] */
	int32_t *tokens;	 /* [WORKER_MAX_ROWS] */
	double *pooled;		 /* [n_slots + 1][n_embd]: sums of the step, one for scratch */
	uint8_t *may_go;	 /* [n_pages]: mine, and no slot refers to it (pages_collect) */
	bool prefix_cache;
	struct store *store;   /* NULL: nothing is kept on disk */
	uint64_t *stored;      /* [n_pages] generation that is on disk */
	uint32_t store_cursor; /* next page to look at when there is time */
	struct prefix_key prefix_identity;
};
