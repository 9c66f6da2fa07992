/* shm/property/stage.h: what the roles of slot_property_test share: the reference model, the
 * actors, and what may happen to one between any two of its steps. */
#pragma once
#include <inttypes.h>
#include <sched.h>
#include <setjmp.h>
#include <string.h>
#include <time.h>

#include "shm/block.h"
#include "shm/fence.h"
#include "shm/page.h"
#include "shm/testing.h"

#define MAX_PROMPT   120u
#define MAX_TOKENS   40u
#define MAX_REQUESTS 4000u
#define ACTORS	     8u

/* Around reads of what may be another's by now: what was read counts only if the slot's word still
 * stands afterwards, so these races are none. */
#if defined(__SANITIZE_THREAD__)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define PEEK_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define PEEK_END()   AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define PEEK_BEGIN() ((void)0)
#define PEEK_END()   ((void)0)
#endif

_Noreturn void violate(const char *what);
static inline void check(bool holds, const char *what)
{
	if (!holds)
		violate(what);
}

uint64_t mix(uint64_t z);

/* ---- the reference model: a request and its answer are functions of a seed */

struct request {
	uint64_t seed;
	uint32_t n_prompt, n_tokens;
	int32_t ids[MAX_PROMPT + MAX_TOKENS];
	_Atomic uint32_t admitted, cancelled, done;
};

uint64_t kv_of(int32_t id, uint32_t position);
/* logits: the sum of kv_of over all positions. */
int32_t token_of(uint64_t logits);
void make_request(struct request *request, uint64_t seed);

/* ---- the stage */

extern struct shm_run run;
extern struct request requests[MAX_REQUESTS];
extern uint32_t n_requests;
extern _Atomic uint32_t next_request, fences, wrong_fences, deaths, wakings;
extern _Atomic bool chaos, over;

/* Who writes there now; an index of an actor + 1. */
extern _Atomic uint32_t block_writer[TEST_BLOCKS], page_writer[TEST_PAGES], row_writer[64];

enum verdict { AWAKE, FROZEN, WAKE, DIE };

struct actor {
	enum shm_role role;
	uint32_t index;
	uint64_t random;
	struct shm_run run;
	uint32_t cursor;
	_Atomic uint32_t verdict; /* enum verdict */
	_Atomic uint64_t number;
	_Atomic uint32_t *marks[4];
	unsigned n_marks;
	jmp_buf end;
	struct slot_handle old; /* of the request it admitted before */
	uint64_t old_number;
};

extern struct actor actors[ACTORS];

uint64_t draw(struct actor *actor, uint64_t below);
void nap(long us);

/* Marks what this actor writes now; violated if another one does. The last mark, or all of them,
 * end. */
void enter(struct actor *actor, _Atomic uint32_t *mark, const char *what);
void leave(struct actor *actor);
void leave_all(struct actor *actor);

/* As a kill: nothing is undone, the lock becomes free. Doesn't return. */
_Noreturn void die(struct actor *actor);
/* Between any two steps that others can see: goes on, dies, or sleeps and then does one of these.
 */
void point(struct actor *actor);

bool is_orphan(const struct actor *actor, uint32_t owner);
/* As services/slots.c does it: unclaimed, handed over, from the dead, from the frozen. */
bool own(struct actor *actor, uint32_t slot, enum slot_stage stage, struct slot_state *mine);
/* Dies if it was fenced. */
void pass(struct actor *actor, uint32_t slot, struct slot_state *mine, struct slot_state next);
struct request *request_of(const struct body *body);
struct body *open_body(struct actor *actor, uint32_t slot, struct slot_state mine);
void still_there(struct actor *actor, uint32_t slot, struct slot_state mine);
bool end_cancelled(struct actor *actor, uint32_t slot, struct slot_state *mine, struct body *body);

/* worker.c: one look of an npu-worker at a slot. */
void work(struct actor *actor, uint32_t slot);
