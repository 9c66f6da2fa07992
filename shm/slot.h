/* shm/slot.h: the life of a request's slot. There are no locks: a slot belongs to one incarnation
 * of one role at a time, and every hand-over is one compare-and-swap of its word {stage, owner,
 * held, body, turn}.
 *
 *   FREE ─gateway─> FILL ─> TOKENIZE ─> COMPUTE <─> SAMPLE
 *                     ^          │          │          │ finished, failed or cancelled
 *                     │          │          └──> RECLAIM <┘
 *                     └── DONE <─┴──────────────────┘
 *
 * Any incarnation of the stage's role may claim a slot without an owner (slot_claim), or take one
 * over whose owner is dead (slot_take_over, after inc_is_dead said so). A slot that was passed to
 * an incarnation is offered to it: it takes it over like anyone else, for its entry may have become
 * another's since the offer was decided upon. A process that was declared
 * frozen finds that its word has moved on: slot_pass then answers SVC_STALE and the process must
 * leave. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "shm/layout.h"
#include "shm/run.h"

struct slot_state {
	enum slot_stage stage;
	uint32_t owner; /* incarnation entry; 0: anyone of the stage's role */
	uint32_t body;	/* first block */
	uint64_t turn;
	bool held; /* the owner made this word; else it is an offer */
};

uint64_t slot_pack(struct slot_state state);
struct slot_state slot_unpack(uint64_t word);
/* The role that acts in a stage; ROLE_NONE for FREE. */
enum shm_role slot_stage_role(enum slot_stage stage);
const char *slot_stage_name(enum slot_stage stage);

struct slot_state slot_load(const struct shm_run *run, uint32_t slot);
/* I hold it: nobody takes it over while I live and act. Of an offer to me that isn't true yet. */
bool slot_is_held(const struct shm_run *run, struct slot_state state);

/* {FREE} -> {FILL, me}: a gateway begins a request. false: the slot isn't free any more. */
bool slot_begin(struct shm_run *run, uint32_t slot, struct slot_state *ret_mine);
/* {stage, nobody} -> {stage, me}. true: it is mine and *ret_mine is the word to pass on. */
bool slot_claim(struct shm_run *run, uint32_t slot, enum slot_stage stage,
		struct slot_state *ret_mine);
/* From exactly *mine to another stage, owner and body: held if the owner is me. *mine follows.
 * SVC_STALE if the word has
 * moved on: this incarnation was fenced and owns nothing any more. */
SVC_CHECKED enum svc_code slot_pass(struct shm_run *run, uint32_t slot, struct slot_state *mine,
				    struct slot_state next);
/* body: seen.body, but for a fence. From what was seen (no owner, one known to be dead, or an offer
 * to me) to me, the same stage. From a frozen owner: shm/fence.h. */
bool slot_take_over(struct shm_run *run, uint32_t slot, struct slot_state seen, uint32_t body,
		    struct slot_state *ret_mine);

/* A handle names a request, not a place: stale once the slot has gone on to another request. */
struct slot_handle {
	uint32_t slot;
	uint64_t generation;
};
bool slot_handle_valid(const struct shm_run *run, struct slot_handle handle);
/* Asks for the request's end; whoever owns it acts at its next step. No effect on a stale handle.
 */
void slot_cancel(struct shm_run *run, struct slot_handle handle);
bool slot_is_cancelled(const struct shm_run *run, uint32_t slot);
