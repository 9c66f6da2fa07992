#include "shm/property/stage.h"

void violate(const char *what)
{
	fprintf(stderr, "violated: %s\n", what);
	abort();
}

uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint64_t kv_of(int32_t id, uint32_t position)
{
	return mix((uint64_t)(uint32_t)id << 32 | position);
}

int32_t token_of(uint64_t logits)
{
	return (int32_t)(mix(logits) & 0xffff);
}

void make_request(struct request *request, uint64_t seed)
{
	uint64_t sum = 0;
	memset(request, 0, sizeof *request);
	request->seed = seed;
	request->n_prompt = 1 + (uint32_t)(mix(seed) % MAX_PROMPT);
	request->n_tokens = 1 + (uint32_t)(mix(seed + 1) % MAX_TOKENS);
	for (uint32_t i = 0; i < request->n_prompt + request->n_tokens; i++) {
		request->ids[i] = i < request->n_prompt ? (int32_t)(mix(seed + 2 + i) & 0xffff)
							: token_of(sum);
		sum += kv_of(request->ids[i], i);
	}
}

struct shm_run run;
struct request requests[MAX_REQUESTS];
uint32_t n_requests;
_Atomic uint32_t next_request, fences, wrong_fences, deaths, wakings;
_Atomic bool chaos, over;

/* Who writes there now; an index of an actor + 1. */
_Atomic uint32_t block_writer[TEST_BLOCKS], page_writer[TEST_PAGES], row_writer[64];

struct actor actors[ACTORS];

uint64_t draw(struct actor *actor, uint64_t below)
{
	actor->random = mix(actor->random);
	return actor->random % below;
}

void nap(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

void enter(struct actor *actor, _Atomic uint32_t *mark, const char *what)
{
	uint32_t nobody = 0;
	check(atomic_compare_exchange_strong(mark, &nobody, actor->index + 1), what);
	actor->marks[actor->n_marks++] = mark;
}

void leave(struct actor *actor)
{
	atomic_store(actor->marks[--actor->n_marks], 0);
}

void leave_all(struct actor *actor)
{
	while (actor->n_marks)
		leave(actor);
}

/* As a kill: nothing is undone, the lock becomes free. */
void die(struct actor *actor)
{
	leave_all(actor);
	atomic_fetch_add(&deaths, 1);
	atomic_fetch_add(&actor->run.ctl->incs[actor->run.me].beat, 1);
	test_end(&actor->run);
	longjmp(actor->end, 1);
}

/* Between any two steps that others can see. */
void point(struct actor *actor)
{
	uint64_t fate = draw(actor, 1000);
	if (fate >= 900)
		sched_yield();
	if (!atomic_load(&chaos) || fate >= 8)
		return;
	if (fate < 4)
		die(actor);
	atomic_store(&actor->verdict, FROZEN);
	while (atomic_load(&actor->verdict) == FROZEN && !atomic_load(&over))
		nap(100);
	bool killed = atomic_load(&actor->verdict) == DIE;
	atomic_store(&actor->verdict, AWAKE);
	if (killed)
		die(actor);
	atomic_fetch_add(&wakings, 1);
}

bool is_orphan(const struct actor *actor, uint32_t owner)
{
	const struct shm_run *mine = &actor->run;
	enum shm_role role = inc_role(mine, owner);
	return atomic_load(&mine->ctl->incs[owner].number) == 0 ||
	       (role != ROLE_NONE && role != actor->role) || inc_is_dead(mine, owner);
}

static bool looks_frozen(struct actor *actor, uint32_t owner)
{
	uint64_t number = atomic_load(&run.ctl->incs[owner].number);
	for (uint32_t i = 0; i < ACTORS; i++)
		if (atomic_load(&actors[i].number) == number &&
		    atomic_load(&actors[i].verdict) == FROZEN)
			return true;
	if (!atomic_load(&chaos) || draw(actor, 300) != 0)
		return false;
	atomic_fetch_add(&wrong_fences, 1);
	return true;
}

/* As services/slots.c does it. */
bool own(struct actor *actor, uint32_t slot, enum slot_stage stage, struct slot_state *mine)
{
	struct slot_state seen = slot_load(&actor->run, slot);
	struct svc_err err;
	if (seen.stage != stage)
		return false;
	*mine = seen;
	if (slot_is_held(&actor->run, seen))
		return true;
	if (seen.owner == 0 || seen.owner == actor->run.me || is_orphan(actor, seen.owner)) {
		/* What was passed to a process that was buried already: another may come into its
		 * entry. */
		if (seen.owner && atomic_load(&run.ctl->incs[seen.owner].number) == 0)
			nap(3000);
		point(actor);
		return slot_take_over(&actor->run, slot, seen, seen.body, mine);
	}
	if (stage == STAGE_FILL || !looks_frozen(actor, seen.owner))
		return false;
	point(actor);
	PEEK_BEGIN();
	enum svc_code code = slot_fence(&actor->run, slot, seen, mine, &err);
	PEEK_END();
	if (code != SVC_OK)
		return false;
	atomic_fetch_add(&fences, 1);
	return true;
}

void pass(struct actor *actor, uint32_t slot, struct slot_state *mine, struct slot_state next)
{
	point(actor);
	if (next.owner && (inc_role(&run, next.owner) != slot_stage_role(next.stage) ||
			   !inc_is_ready(&run, next.owner)))
		next.owner = 0;
	leave_all(actor);
	/* Time for the next owner to die and be buried. */
	if (next.owner && draw(actor, 50) == 0)
		nap(3000);
	point(actor);
	/* Fenced: exit status 75. */
	if (slot_pass(&actor->run, slot, mine, next) != SVC_OK)
		die(actor);
}

struct request *request_of(const struct body *body)
{
	check(body->params.seed < n_requests, "a body holds its request");
	return &requests[body->params.seed];
}

/* Alive, even if fenced: my body is nobody else's to fill or to free. */
struct body *open_body(struct actor *actor, uint32_t slot, struct slot_state mine)
{
	struct body *body = body_get(&actor->run, mine.body, slot);
	check(body != NULL, "an owned slot has a body");
	check(body->generation != 0, "a body is filled");
	enter(actor, &block_writer[mine.body], "two write one body");
	return body;
}

void still_there(struct actor *actor, uint32_t slot, struct slot_state mine)
{
	check(block_run_length(&actor->run, mine.body, slot), "a body was freed under its writer");
}

bool end_cancelled(struct actor *actor, uint32_t slot, struct slot_state *mine, struct body *body)
{
	if (!slot_is_cancelled(&actor->run, slot))
		return false;
	check(atomic_load(&request_of(body)->cancelled), "a cancel reached another request");
	body_fail(body, &(struct svc_err){.code = SVC_CANCELLED});
	bool holds = atomic_load(&body->n_pages) || atomic_load(&body->row);
	struct slot_state next = {.stage = holds ? STAGE_RECLAIM : STAGE_DONE,
				  .owner = holds ? atomic_load(&body->worker) : 0,
				  .body = mine->body};
	pass(actor, slot, mine, next);
	return true;
}
