/* npu-worker/worker_private.h: what the parts of the worker process share. One thread, one struct
 * worker.
 *
 *   worker.c    life cycle, slots that come and go
 *   schedule.c  who is admitted, how many positions each takes in the next step
 *   batch.c     the step: ids in, logits out, commit, pass on
 *   ahead.c     the next step, while the samplers draw
 *   drafts.c, drafter.c, worth.c  further steps in the same pass (speculation.h)
 *   sequence.c  a slot as the worker sees it: pages, row, adoption from another worker
 *   cache.c     pages that an earlier request left: in memory, on disk
 *   store.c     the pages on disk
 *   npu.c       on an NPU or on the host
 *   weights.c   the packed weights' segment: built once, attached to afterwards */
#pragma once
#include "npu-worker/engine/engine.h"
#include "npu-worker/speculation.h"
#include "npu-worker/store.h"
#include "services/slots.h"
#include "shm/page.h"
#include "shm/prefix.h"

#define WORKER_MAX_ROWS 512u
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
	uint32_t *pages; /* [pages_per_sequence] */
	int32_t guess;	 /* the likeliest token, for position n_kv */
	float hit;	 /* how often the guess was right, of late */
	bool drawn;	 /* seen to be right */
	bool computed;
	enum guess_source source; /* not FROM_LOGITS: it is a draft of the step before */
	int32_t expected;	  /* what the text would have had drafted; -1: nothing */
	uint64_t noted_us;
	enum svc_code status;
};

/* What steps cost here, measured as they run. */
struct pace {
	double decode_us; /* a step that only generates */
	double row_us;	  /* a prompt position in a step of prompts alone */
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
	uint64_t collected_us, deferred_us;
	int64_t rows_alone, rows_busy; /* options */
	struct pace pace;
	bool run_ahead;
	bool drafts_always;   /* also those that don't pay */
	struct ahead *aheads; /* [n_slots] */
	uint32_t n_aheads;
	struct hit *hits;	 /* [n_table] */
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

/* ---- schedule.c */

/* Claims waiting slots in order of arrival while rows and pages last. */
void schedule_admit(struct worker *worker);
/* Sets n_take of every sequence; returns their sum. */
uint32_t schedule_plan(struct worker *worker);
/* Pages for everyone in the plan; who can't have them sits the step out or waits anew. */
void schedule_reserve(struct worker *worker);
/* A step of n_decode generated and n_prompt prompt positions took this long. */
void schedule_learn(struct worker *worker, uint32_t n_decode, uint32_t n_prompt, double us);

/* ---- batch.c */

/* One pass over the planned positions; commits and passes on what is ready to be sampled. `ahead`:
 * the guesses too (ahead.c). */
void batch_run(struct worker *worker, bool ahead);
/* Commits and passes on what was computed before its token was drawn. */
void batch_commit_computed(struct worker *worker);

/* ---- ahead.c */

SVC_CHECKED enum svc_code ahead_open(struct worker *worker, struct svc_err *err);
void ahead_close(struct worker *worker);
/* The sequence is about to be passed to a sampler: reserves a page for the next position and notes
 * the likeliest token. */
void ahead_note(struct worker *worker, struct sequence *sequence);
/* Nothing but generation waits, and the guesses are likely to be right. */
bool ahead_is_worth_it(struct worker *worker);
/* The guesses, with drafts behind them, as sequences of a step, behind those already in it; returns
 * how many. tokens: room for `room` ids, at least as many as there are guesses. */
uint32_t ahead_append(struct worker *worker, struct engine_seq *step, int32_t *tokens,
		      uint32_t room);
/* What is noted of a slot that a sampler has; NULL: nothing. */
struct ahead *ahead_find(struct worker *worker, uint32_t slot);
/* The engine asks between layers (context: the svc): false as soon as a draw differs. */
bool ahead_goes_on(void *context);
/* The step with the guesses is complete; step: as ahead_append filled it. */
void ahead_done(struct worker *worker, const struct engine_seq *step);
/* The sequence came back: was its next position computed already? Sets `computed`. */
void ahead_take(struct worker *worker, struct sequence *sequence);

/* ---- weights.c */

/* Attaches to the run's packed weights, or packs them; one builder at a time. */
SVC_CHECKED enum svc_code weights_map(struct svc *svc, uint32_t threads, bool writable,
				      struct segment *ret_seg, struct svc_err *err);
/* The same for another model of the same vocabulary: SVC_BAD_CONFIG if it has another one. */
SVC_CHECKED enum svc_code weights_map_draft(struct svc *svc, const char *path, uint32_t threads,
					    struct segment *ret_seg, struct svc_err *err);
/* Keeps them from being paged out; SVC_BAD_CONFIG if the limit of locked memory is too low. */
SVC_CHECKED enum svc_code weights_lock(const struct segment *seg, struct svc_err *err);

/* ---- cache.c */

/* By the options; after the engine, whose pages' identity it needs. */
SVC_CHECKED enum svc_code cache_open(struct worker *worker, struct svc_err *err);
void cache_close(struct worker *worker);
/* Starts a sequence behind the pages that an earlier request has computed, in memory or on disk. */
void cache_share(struct worker *worker, struct sequence *sequence);
/* Makes the pages that were completed since position `from` findable. After the step's commit. */
void cache_seal(struct worker *worker, struct sequence *sequence, uint32_t from);
/* At a tick: what only the cache wants doesn't stand in another worker's way. A page is free when
 * its last holder lets go, and one that has nothing to do takes none itself. */
void cache_leave_spare(struct worker *worker);
/* A page for me: a free one, else the sealed one that nobody refers to and that was used longest
 * ago, which goes to disk. PAGE_NONE: all are in use. */
uint32_t cache_take_page(struct worker *worker);
/* Writes a few pages that are only in memory to disk; when nothing runs. false: all are there. */
bool cache_write_some(struct worker *worker);

/* ---- pool.c */

/* The sequence's request is for a vector, not for an answer. */
bool pool_is_wanted(const struct sequence *sequence);
/* Is there what n_kv says is there? Otherwise it has to start over. */
bool pool_can_go_on(struct worker *worker, const struct sequence *sequence);
/* Fills in what the step's sequence number `index` adds to. false: the body is damaged. */
bool pool_begin(struct worker *worker, const struct sequence *sequence, uint32_t index,
		struct engine_seq *step);
/* Stores the sum; before n_kv says so. */
void pool_commit(struct worker *worker, const struct sequence *sequence,
		 const struct engine_seq *step);
/* All positions are computed: writes the vector. */
SVC_CHECKED enum svc_code pool_finish(struct worker *worker, const struct sequence *sequence,
				      struct svc_err *err);

/* ---- npu.c */

/* First of all: SVC_NO_DEVICE if --device demands an NPU and there is none. ret_wanted: the weights
 * are to be mapped so that a device can take them over (drivers pin only writable memory). */
SVC_CHECKED enum svc_code npu_look(const struct svc *svc, bool *ret_wanted, struct svc_err *err);
/* After the engine is open: gives its products to an NPU if --device allows or demands it. */
SVC_CHECKED enum svc_code npu_open(struct worker *worker, struct svc_err *err);
void npu_close(struct worker *worker);

/* ---- sequence.c */

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
