/* shm/body.h: a request's body: what is needed to carry it on, in blocks of one pool. A body is a
 * header (layout.h) and regions; their sizes are fixed at admission. Who may write it is the
 * business of shm/block.h. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "base/span.h"
#include "shm/layout.h"
#include "shm/run.h"
#include "shm/slot.h"

struct body_plan {
	uint32_t bytes[REGION_COUNT];
};

/* Bytes of one log-probability record with n_top alternatives. */
uint32_t body_logprob_bytes(uint32_t n_top);
/* Bytes of one of REGION_VECTOR's sums, and of the whole region. */
size_t body_sum_bytes(uint32_t n_embd);
size_t body_vector_bytes(uint32_t n_embd);
/* Blocks that plan needs; 0 if over the limit of a body. */
uint32_t body_plan_blocks(const struct body_plan *plan);
/* Whether n bodies of so many blocks fit into the pool when nothing else is in it. */
bool body_fits(const struct shm_run *run, uint32_t blocks, uint64_t n);

/* Takes blocks for `slot` (in STAGE_FILL, mine), clears the header, lays out the regions. SVC_BUSY
 * if the pool has no such run of blocks now, SVC_TOO_LARGE if it never will. Some blocks always
 * stay free for copies of what a frozen process holds. */
SVC_CHECKED enum svc_code body_alloc(struct shm_run *run, uint32_t slot,
				     const struct body_plan *plan, uint32_t *ret_body,
				     struct svc_err *err);
/* A body for `slot` with what is committed in old, another body of it: what lies below the counters
 * and nothing beyond. The counters are read before the data they count. */
SVC_CHECKED enum svc_code body_copy(struct shm_run *run, uint32_t slot, const struct body *old,
				    uint32_t *ret_body, struct svc_err *err);
/* Gives back the slot's blocks. Only by its owner, in STAGE_FILL, when its word has no body. */
void body_free_all(struct shm_run *run, uint32_t slot);
/* Blocks in use, for metrics. */
uint32_t body_count_used(const struct shm_run *run);

/* The body at block `index`, checked; NULL (and nobody crashes) if what is there is not the body of
 * this slot. */
struct body *body_get(const struct shm_run *run, uint32_t index, uint32_t slot);
/* What a look at another's slot shows. */
struct body_seen {
	struct body *body; /* NULL: it has none, or a damaged one */
	struct slot_state word;
	uint64_t run; /* identity of the body's blocks */
};
/* For who doesn't own the slot. What is read there counts if body_stands says so afterwards: the
 * body may move, and its blocks become another request's. */
struct body_seen body_peek(const struct shm_run *run, uint32_t slot);
bool body_stands(const struct shm_run *run, uint32_t slot, const struct body_seen *seen);
/* A region, with its size in bytes; NULL if it lies outside the pool or is shorter than `need`. */
void *body_region(const struct shm_run *run, const struct body *body, enum body_region region,
		  size_t need, size_t *ret_bytes);

/* Writes the failure lines; the first failure wins. The owner then passes the slot towards DONE. */
void body_fail(struct body *body, const struct svc_err *err);
/* Fills *ret_err from the failure lines (a terminated copy); false if there is none. */
bool body_failure(const struct body *body, struct svc_err *ret_err);

/* Prompt and generated ids: how many are committed (at most what REGION_IDS holds). */
uint32_t body_n_ids(const struct shm_run *run, const struct body *body);
