/* shm/run.h: one run of the pipeline: the directory, its segments, and this process's place among
 * its incarnations. The keeper creates a run or attaches to what is there; everyone else attaches
 * and maps only what its role needs:
 *
 *   role        control  bodies  pages  logits  vocabulary
 *   gateway     rw       rw      -      -       r
 *   tokenizer   rw       rw      -      -       builds it
 *   npu-worker  rw       rw      rw     rw      -
 *   sampler     rw       rw      -      r       r
 *   keeper      rw       -       -      -       -            */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "shm/layout.h"
#include "shm/segment.h"

struct shm_run {
	char dir[256];	    /* control, bodies, vocab, inc/, bus/ */
	char bulk_dir[256]; /* pages, logits, weights-*: not mounted by the gateway */
	struct segment control, bodies, pages, logits, vocab;
	struct ctl *ctl;
	struct slot_line *slots;
	struct block_word *blocks;
	struct page_word *page_words;
	struct row_word *row_words;
	struct page_seal *page_seals;
	struct trace_ring *trace_rings;
	struct bell_line *bells; /* [INC_COUNT][bell_lines] */
	/* Private copies of what was checked at attach: a peer may overwrite the segment's. */
	uint32_t n_slots, n_table, n_blocks, n_pages, n_vocab, n_embd, ctx;
	uint32_t bell_lines;
	uint32_t n_rows; /* logits rows: one per running sequence, as many for what is frozen */
	uint32_t me;	 /* entry of this incarnation; 0: not registered */
	int lock_fd;
	uint64_t page_bytes;
	uint64_t number; /* of this incarnation */
};

/* Sizes of a new run. */
struct run_plan {
	uint32_t n_slots, queue, kept; /* n_table = their sum */
	uint32_t n_blocks, n_pages, ctx, n_vocab, n_embd;
	uint64_t page_bytes;
	uint32_t stall_ms;
	uint64_t model_hash[2], family_hash;
	const char *family, *model_name, *model_path, *fingerprint;
};

/* Creates dir (0700), dir/inc, dir/bus, bulk_dir and all segments; the control segment gets its
 * name last, so whoever can attach finds everything. *ret_created is false if a valid run was there
 * already: it is then attached to. SVC_CONFLICT if the run there is for another model, context,
 * slots or family: both values are named. */
SVC_CHECKED enum svc_code run_create(const char *dir, const char *bulk_dir,
				     const struct run_plan *plan, struct shm_run *ret_run,
				     bool *ret_created, struct svc_err *err);
/* SVC_NOT_FOUND if there is no run yet. The vocabulary is mapped later, by run_map_vocab. */
SVC_CHECKED enum svc_code run_attach(const char *dir, const char *bulk_dir, enum shm_role role,
				     struct shm_run *ret_run, struct svc_err *err);
SVC_CHECKED enum svc_code run_map_vocab(struct shm_run *run, struct svc_err *err);
void run_detach(struct shm_run *run);

/* Row `which` (0 or 1) of a running sequence: float[n_vocab]; NULL if row is out of range or logits
 * aren't mapped. */
float *run_logits(const struct shm_run *run, uint32_t row, uint32_t which);
/* KV page `index`: page_bytes bytes, or NULL. */
void *run_page(const struct shm_run *run, uint32_t index);
