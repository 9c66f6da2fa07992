/* Threads act as the incarnations of all roles over one real run: they serve requests, die at any
 * point between two stores, freeze there and wake again, are fenced while they are frozen and
 * sometimes by mistake. Whatever happens, the answers are those of a plain reference model, nobody
 * writes what is another's, every admitted request ends, and in the end everything is free.
 *
 * LOCKSTEP_SEED repeats a run (as far as the scheduler plays along), LOCKSTEP_LONG makes it longer.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "shm/block.h"
#include "shm/fence.h"
#include "shm/page.h"
#include "shm/testing.h"

#define MAX_PROMPT   120u
#define MAX_TOKENS   40u
#define MAX_REQUESTS 4000u
#define PATIENCE_S   120
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

static void check(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "violated: %s\n", what);
	abort();
}

static uint64_t mix(uint64_t z)
{
	z += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* ---- the reference model: a request and its answer are functions of a seed */

struct request {
	uint64_t seed;
	uint32_t n_prompt, n_tokens;
	int32_t ids[MAX_PROMPT + MAX_TOKENS];
	_Atomic uint32_t admitted, cancelled, done;
};

static uint64_t kv_of(int32_t id, uint32_t position)
{
	return mix((uint64_t)(uint32_t)id << 32 | position);
}

static int32_t token_of(uint64_t logits)
{
	return (int32_t)(mix(logits) & 0xffff);
}

static void make_request(struct request *request, uint64_t seed)
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

/* ---- the stage */

static struct shm_run run;
static struct request requests[MAX_REQUESTS];
static uint32_t n_requests;
static _Atomic uint32_t next_request, fences, wrong_fences, deaths, wakings;
static _Atomic bool chaos, over;

/* Who writes there now; an index of an actor + 1. */
static _Atomic uint32_t block_writer[TEST_BLOCKS], page_writer[TEST_PAGES], row_writer[64];

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

static struct actor actors[ACTORS];

static uint64_t draw(struct actor *actor, uint64_t below)
{
	actor->random = mix(actor->random);
	return actor->random % below;
}

static void nap(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void enter(struct actor *actor, _Atomic uint32_t *mark, const char *what)
{
	uint32_t nobody = 0;
	check(atomic_compare_exchange_strong(mark, &nobody, actor->index + 1), what);
	actor->marks[actor->n_marks++] = mark;
}

static void leave_all(struct actor *actor)
{
	while (actor->n_marks)
		atomic_store(actor->marks[--actor->n_marks], 0);
}

/* As a kill: nothing is undone, the lock becomes free. */
static void die(struct actor *actor)
{
	leave_all(actor);
	atomic_fetch_add(&deaths, 1);
	atomic_fetch_add(&actor->run.ctl->incs[actor->run.me].beat, 1);
	test_end(&actor->run);
	longjmp(actor->end, 1);
}

/* Between any two steps that others can see. */
static void point(struct actor *actor)
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

static bool is_orphan(const struct actor *actor, uint32_t owner)
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
static bool own(struct actor *actor, uint32_t slot, enum slot_stage stage, struct slot_state *mine)
{
	struct slot_state seen = slot_load(&actor->run, slot);
	struct svc_err err;
	if (seen.stage != stage)
		return false;
	*mine = seen;
	if (seen.owner == actor->run.me)
		return true;
	if (seen.owner == 0 || is_orphan(actor, seen.owner)) {
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

static void pass(struct actor *actor, uint32_t slot, struct slot_state *mine,
		 struct slot_state next)
{
	point(actor);
	if (next.owner && (inc_role(&run, next.owner) != slot_stage_role(next.stage) ||
			   !inc_is_ready(&run, next.owner)))
		next.owner = 0;
	leave_all(actor);
	/* Fenced: exit status 75. */
	if (slot_pass(&actor->run, slot, mine, next) != SVC_OK)
		die(actor);
}

static struct request *request_of(const struct body *body)
{
	check(body->params.seed < n_requests, "a body holds its request");
	return &requests[body->params.seed];
}

/* Alive, even if fenced: my body is nobody else's to fill or to free. */
static struct body *open_body(struct actor *actor, uint32_t slot, struct slot_state mine)
{
	struct body *body = body_get(&actor->run, mine.body, slot);
	check(body != NULL, "an owned slot has a body");
	check(body->generation != 0, "a body is filled");
	enter(actor, &block_writer[mine.body], "two write one body");
	return body;
}

static void still_there(struct actor *actor, uint32_t slot, struct slot_state mine)
{
	check(block_run_length(&actor->run, mine.body, slot), "a body was freed under its writer");
}

static bool end_cancelled(struct actor *actor, uint32_t slot, struct slot_state *mine,
			  struct body *body)
{
	if (!slot_is_cancelled(&actor->run, slot))
		return false;
	check(atomic_load(&request_of(body)->cancelled), "a cancel reached another request");
	body_fail(body, &(struct svc_err){.code = SVC_CANCELLED});
	bool holds = atomic_load(&body->n_pages) || atomic_load(&body->row);
	struct slot_state next = {holds ? STAGE_RECLAIM : STAGE_DONE,
				  holds ? atomic_load(&body->worker) : 0, mine->body, 0};
	pass(actor, slot, mine, next);
	return true;
}

/* ---- tokenizer */

static void tokenize(struct actor *actor, uint32_t slot)
{
	struct slot_state mine;
	if (!own(actor, slot, STAGE_TOKENIZE, &mine))
		return;
	struct body *body = open_body(actor, slot, mine);
	const struct request *request = request_of(body);
	int32_t *ids = body_region(&actor->run, body, REGION_IDS, 4 * request->n_prompt, NULL);
	for (uint32_t i = 0; i < request->n_prompt; i++) {
		if (i % 16 == 0)
			point(actor);
		ids[i] = request->ids[i];
	}
	atomic_store(&body->n_prompt, request->n_prompt);
	point(actor);
	atomic_store(&body->tokenized, 1);
	still_there(actor, slot, mine);
	pass(actor, slot, &mine, (struct slot_state){STAGE_COMPUTE, 0, mine.body, 0});
}

/* ---- npu-worker: pages[i][j] is the KV of position 64 i + j, a row the sum of all */

struct sequence {
	uint32_t slot, n_kv, n_pages, row;
	struct slot_state mine;
	struct body *body;
	uint32_t pages[TEST_CTX / PAGE_POSITIONS];
};

static uint32_t *table_of(const struct actor *actor, struct body *body)
{
	return body_region(&actor->run, body, REGION_PAGES, 4 * TEST_CTX / PAGE_POSITIONS, NULL);
}

static void drop_pages(struct actor *actor, struct sequence *sequence)
{
	atomic_store(&sequence->body->n_kv, 0);
	point(actor);
	atomic_store(&sequence->body->n_pages, 0);
	point(actor);
	while (sequence->n_pages)
		page_drop(&actor->run, sequence->pages[--sequence->n_pages]);
	sequence->n_kv = 0;
}

static void adopt_pages(struct actor *actor, struct sequence *sequence)
{
	const uint32_t *table = table_of(actor, sequence->body);
	uint32_t listed = atomic_load(&sequence->body->n_pages);
	sequence->n_kv = atomic_load(&sequence->body->n_kv);
	for (uint32_t i = 0; i < listed; i++) {
		point(actor);
		if (!page_adopt(&actor->run, table[i]))
			break;
		sequence->pages[sequence->n_pages++] = page_of_handle(table[i]);
	}
	if (sequence->n_pages < listed || sequence->n_pages * PAGE_POSITIONS < sequence->n_kv)
		drop_pages(actor, sequence);
}

static uint32_t peek_handles(uint32_t slot, uint32_t *handles)
{
	for (;;) {
		struct slot_state state = slot_load(&run, slot);
		uint32_t n = 0;
		if (slot_stage_role(state.stage) == ROLE_WORKER || state.stage == STAGE_SAMPLE) {
			const char *at = (const char *)run.bodies.base + SHM_LINE +
					 (size_t)state.body * BODY_BLOCK_BYTES;
			const struct body *body = (const struct body *)at;
			PEEK_BEGIN();
			n = atomic_load(&body->n_pages);
			uint32_t offset = body->regions[REGION_PAGES].offset;
			for (uint32_t i = 0; i < n && i < TEST_CTX / PAGE_POSITIONS; i++)
				handles[i] =
					*(const uint32_t *)(at + offset % BODY_BLOCK_BYTES + 4 * i);
			PEEK_END();
		}
		if (slot_load(&run, slot).turn == state.turn)
			return n < TEST_CTX / PAGE_POSITIONS ? n : TEST_CTX / PAGE_POSITIONS;
	}
}

static void collect_pages(struct actor *actor)
{
	bool keep[TEST_PAGES] = {false};
	uint32_t handles[TEST_CTX / PAGE_POSITIONS];
	for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
		for (uint32_t n = peek_handles(slot, handles); n > 0; n--)
			keep[page_of_handle(handles[n - 1]) % TEST_PAGES] = true;
	for (uint32_t page = 0; page < TEST_PAGES; page++)
		if (!keep[page])
			page_drop(&actor->run, page);
	row_collect(&actor->run);
}

static void adopt_from_dead(struct actor *actor)
{
	uint32_t handles[TEST_CTX / PAGE_POSITIONS];
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++) {
		uint64_t number = atomic_load(&run.ctl->incs[entry].number);
		bool gone = entry != actor->run.me && page_is_holder(&actor->run, entry) &&
			    inc_is_dead(&actor->run, entry);
		for (uint32_t slot = 0; gone && slot < TEST_TABLE; slot++) {
			struct slot_state state = slot_load(&actor->run, slot);
			gone = slot_stage_role(state.stage) != ROLE_WORKER || state.owner != entry;
		}
		if (!gone)
			continue;
		for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
			for (uint32_t n = peek_handles(slot, handles); n > 0; n--)
				page_adopt(&actor->run, handles[n - 1]);
		point(actor);
		page_drop_all(&actor->run, entry, number);
	}
}

static bool reserve(struct actor *actor, struct sequence *sequence, uint32_t positions)
{
	uint32_t *table = table_of(actor, sequence->body);
	while (sequence->n_pages * PAGE_POSITIONS < positions) {
		uint32_t page = page_take(&actor->run, &actor->cursor);
		if (page == PAGE_NONE)
			return false;
		table[sequence->n_pages] = page_handle(&actor->run, page);
		sequence->pages[sequence->n_pages++] = page;
		point(actor);
		atomic_store(&sequence->body->n_pages, sequence->n_pages);
	}
	return true;
}

static uint64_t *kv_at(struct actor *actor, const struct sequence *sequence, uint32_t position)
{
	uint64_t *page = run_page(&actor->run, sequence->pages[position / PAGE_POSITIONS]);
	return page + position % PAGE_POSITIONS;
}

static void write_step(struct actor *actor, struct sequence *sequence, uint32_t until)
{
	const int32_t *ids = body_region(&actor->run, sequence->body, REGION_IDS, 4 * until, NULL);
	for (uint32_t i = sequence->n_kv; i < until; i++) {
		uint32_t page = sequence->pages[i / PAGE_POSITIONS];
		enter(actor, &page_writer[page], "two write one KV page");
		*kv_at(actor, sequence, i) = kv_of(ids[i], i);
		if (i % 8 == 0)
			point(actor);
		check(page_is_mine(&actor->run, page), "a page was freed under its writer");
		atomic_store(actor->marks[--actor->n_marks], 0);
	}
	uint64_t sum = 0;
	for (uint32_t i = 0; i < until; i++)
		sum += *kv_at(actor, sequence, i);
	float *row = run_logits(&actor->run, sequence->row, until & 1);
	enter(actor, &row_writer[sequence->row], "two write one row");
	point(actor);
	memcpy(row, &sum, sizeof sum);
	atomic_store(actor->marks[--actor->n_marks], 0);
}

static void wait_again(struct actor *actor, struct sequence *sequence)
{
	drop_pages(actor, sequence);
	atomic_store(&sequence->body->row, 0);
	if (sequence->row != PAGE_NONE)
		row_drop(&actor->run, sequence->row, sequence->slot);
	pass(actor, sequence->slot, &sequence->mine,
	     (struct slot_state){STAGE_COMPUTE, 0, sequence->mine.body, 0});
}

static void compute(struct actor *actor, uint32_t slot)
{
	struct sequence sequence = {.slot = slot};
	if (!own(actor, slot, STAGE_COMPUTE, &sequence.mine))
		return;
	struct body *body = sequence.body = open_body(actor, slot, sequence.mine);
	if (end_cancelled(actor, slot, &sequence.mine, body))
		return;
	uint32_t known = body_n_ids(&actor->run, body);
	adopt_pages(actor, &sequence);
	atomic_store(&body->worker, actor->run.me);
	if (sequence.n_kv == known)
		sequence.n_kv--;
	point(actor);
	sequence.row = row_take(&actor->run, slot, sequence.mine, atomic_load(&body->row) - 1);
	if (sequence.row == PAGE_NONE) {
		wait_again(actor, &sequence);
		return;
	}
	atomic_store(&body->row, sequence.row + 1);
	while (sequence.n_kv < known) {
		uint32_t until = sequence.n_kv + 1 + (uint32_t)draw(actor, 50);
		until = until < known ? until : known;
		if (!reserve(actor, &sequence, until)) {
			collect_pages(actor);
			wait_again(actor, &sequence);
			return;
		}
		write_step(actor, &sequence, until);
		still_there(actor, slot, sequence.mine);
		sequence.n_kv = until;
		atomic_store(&body->n_kv, until);
		if (!inc_beat(&actor->run))
			die(actor);
		point(actor);
	}
	pass(actor, slot, &sequence.mine,
	     (struct slot_state){STAGE_SAMPLE, atomic_load(&body->sampler), sequence.mine.body, 0});
}

static void reclaim(struct actor *actor, uint32_t slot)
{
	struct slot_state mine;
	if (!own(actor, slot, STAGE_RECLAIM, &mine))
		return;
	struct body *body = open_body(actor, slot, mine);
	uint32_t n = atomic_load(&body->n_pages), row = atomic_load(&body->row);
	const uint32_t *table = table_of(actor, body);
	atomic_store(&body->n_pages, 0);
	point(actor);
	for (uint32_t i = 0; i < n; i++)
		if (page_handle(&actor->run, page_of_handle(table[i])) == table[i])
			page_drop(&actor->run, page_of_handle(table[i]));
	row_drop(&actor->run, row - 1, slot);
	pass(actor, slot, &mine, (struct slot_state){STAGE_DONE, 0, mine.body, 0});
}

static void work(struct actor *actor, uint32_t slot)
{
	reclaim(actor, slot);
	compute(actor, slot);
	if (slot == 0) {
		adopt_from_dead(actor);
		if (draw(actor, 8) == 0)
			collect_pages(actor);
	}
}

/* ---- sampler */

static void sample(struct actor *actor, uint32_t slot)
{
	struct slot_state mine;
	if (!own(actor, slot, STAGE_SAMPLE, &mine))
		return;
	struct body *body = open_body(actor, slot, mine);
	atomic_store(&body->sampler, actor->run.me);
	if (end_cancelled(actor, slot, &mine, body))
		return;
	const struct request *request = request_of(body);
	uint32_t made = atomic_load(&body->n_tokens), known = body_n_ids(&actor->run, body);
	uint32_t n_kv = atomic_load(&body->n_kv);
	check(n_kv == known || n_kv + 1 == known, "a sampler gets complete logits");
	if (n_kv == known) {
		uint64_t logits;
		const float *row = run_logits(&actor->run, atomic_load(&body->row) - 1, n_kv & 1);
		check(row != NULL, "a sequence in SAMPLE has a row");
		/* If this sampler was fenced the row may be another's, and its token is nobody's.
		 */
		PEEK_BEGIN();
		memcpy(&logits, row, sizeof logits);
		PEEK_END();
		int32_t *ids = body_region(&actor->run, body, REGION_IDS, 4 * (known + 1), NULL);
		uint32_t *ends = body_region(&actor->run, body, REGION_ENDS, 4 * (made + 1), NULL);
		char *out = body_region(&actor->run, body, REGION_OUT, made + 1, NULL);
		ids[known] = token_of(logits);
		point(actor);
		out[made] = (char)ids[known];
		ends[made] = made + 1;
		atomic_store(&body->finish,
			     made + 1 == request->n_tokens ? FINISH_STOP : FINISH_NONE);
		point(actor);
		atomic_store_explicit(&body->n_tokens, ++made, memory_order_release);
	}
	still_there(actor, slot, mine);
	point(actor);
	bool ended = atomic_load(&body->finish) != FINISH_NONE;
	check(!ended || made == request->n_tokens, "an answer ends at its end");
	pass(actor, slot, &mine,
	     (struct slot_state){ended ? STAGE_RECLAIM : STAGE_COMPUTE, atomic_load(&body->worker),
				 mine.body, 0});
}

/* ---- gateway */

static void admit(struct actor *actor)
{
	struct slot_state mine;
	struct svc_err err;
	uint32_t slot = (uint32_t)draw(actor, TEST_TABLE), index = 0;
	if (atomic_load(&next_request) >= n_requests || !slot_begin(&actor->run, slot, &mine))
		return;
	uint64_t number = atomic_fetch_add(&next_request, 1);
	struct slot_line *line = &actor->run.slots[slot];
	struct body_plan plan = test_body_plan(MAX_TOKENS + (uint32_t)draw(actor, 150000));
	bool fits = number < n_requests;
	point(actor);
	uint64_t generation = atomic_fetch_add(&run.ctl->counters.next_generation, 1);
	atomic_store(&line->gateway, actor->run.me);
	atomic_store(&line->generation, generation);
	fits = fits && body_alloc(&actor->run, slot, &plan, &index, &err) == SVC_OK;
	point(actor);
	if (!fits) {
		body_free_all(&actor->run, slot);
		pass(actor, slot, &mine, (struct slot_state){STAGE_FREE, 0, 0, 0});
		return;
	}
	struct body *body = body_get(&actor->run, index, slot);
	check(body != NULL, "what was allocated is there");
	enter(actor, &block_writer[index], "two write one body");
	body->generation = generation;
	body->params.seed = number;
	point(actor);
	check(block_run_length(&actor->run, index, slot), "a body was freed under its filler");
	pass(actor, slot, &mine, (struct slot_state){STAGE_TOKENIZE, 0, index, 0});
	atomic_store(&requests[number].admitted, 1);
	struct slot_handle handle = {slot, generation};
	point(actor);
	if (draw(actor, 6) == 0) {
		atomic_store(&requests[number].cancelled, 1);
		slot_cancel(&actor->run, handle);
	}
	/* The cancel of a request that has ended hits nobody. */
	if (actor->old.generation && atomic_load(&requests[actor->old_number].done))
		slot_cancel(&actor->run, actor->old);
	actor->old = handle;
	actor->old_number = number;
}

/* What is committed at any time is the reference's. */
static void look(struct actor *actor, uint32_t slot)
{
	struct slot_state state = slot_load(&actor->run, slot);
	if (state.stage < STAGE_TOKENIZE || state.stage >= STAGE_COUNT)
		return;
	const char *at =
		(const char *)run.bodies.base + SHM_LINE + (size_t)state.body * BODY_BLOCK_BYTES;
	const struct body *body = (const struct body *)at;
	int32_t ids[MAX_TOKENS];
	PEEK_BEGIN();
	uint32_t n = atomic_load(&body->n_tokens), n_prompt = atomic_load(&body->n_prompt);
	uint64_t number = body->params.seed;
	const int32_t *from =
		(const int32_t *)(at + body->regions[REGION_IDS].offset % BODY_BLOCK_BYTES);
	for (uint32_t i = 0; i < n && i < MAX_TOKENS; i++)
		ids[i] = from[(n_prompt + i) % TEST_CTX];
	PEEK_END();
	if (slot_load(&actor->run, slot).body != state.body ||
	    slot_load(&actor->run, slot).stage == STAGE_FREE || number >= n_requests)
		return;
	if (slot_load(&actor->run, slot).turn != state.turn)
		return;
	check(n <= requests[number].n_tokens, "no more tokens than asked for");
	for (uint32_t i = 0; i < n; i++)
		check(ids[i] == requests[number].ids[requests[number].n_prompt + i],
		      "a committed token is the reference's");
}

static void finish(struct actor *actor, uint32_t slot, struct slot_state mine)
{
	struct body *body = open_body(actor, slot, mine);
	struct request *request = request_of(body);
	uint32_t n = atomic_load(&body->n_tokens), total = request->n_prompt + n;
	check(atomic_fetch_add(&request->done, 1) == 0, "a request ends once");
	struct svc_err err;
	bool cancelled = body_failure(body, &err);
	check(!cancelled || err.code == SVC_CANCELLED, "nothing else can fail");
	check(cancelled || n == request->n_tokens, "an answer is complete");
	if (!atomic_load(&body->tokenized))
		total = 0;
	const int32_t *ids = body_region(&actor->run, body, REGION_IDS, 4 * total, NULL);
	check(ids && memcmp(ids, request->ids, 4 * total) == 0, "an answer is the reference's");
	leave_all(actor);
}

static void release(struct actor *actor, uint32_t slot, struct slot_state seen)
{
	struct slot_state mine;
	if (!slot_take_over(&actor->run, slot, seen, seen.body, &mine))
		return;
	/* Owned in DONE by one that died: that one has looked at the answer. */
	if (seen.stage == STAGE_DONE && seen.owner == 0)
		finish(actor, slot, mine);
	point(actor);
	if (mine.stage != STAGE_FILL || mine.body != 0)
		pass(actor, slot, &mine, (struct slot_state){STAGE_FILL, actor->run.me, 0, 0});
	point(actor);
	body_free_all(&actor->run, slot);
	pass(actor, slot, &mine, (struct slot_state){STAGE_FREE, 0, 0, 0});
}

static void serve(struct actor *actor, uint32_t slot)
{
	if (slot == 0) {
		admit(actor);
		block_sweep(&actor->run);
	}
	look(actor, slot);
	struct slot_state seen = slot_load(&actor->run, slot);
	bool unowned = seen.owner == 0 ? seen.stage == STAGE_DONE : is_orphan(actor, seen.owner);
	if (unowned && (seen.stage == STAGE_DONE || seen.stage == STAGE_FILL))
		release(actor, slot, seen);
}

/* ---- the play */

static void *act(void *arg)
{
	static void (*const turn[ROLE_COUNT])(struct actor *, uint32_t) = {
		[ROLE_GATEWAY] = serve,
		[ROLE_TOKENIZER] = tokenize,
		[ROLE_WORKER] = work,
		[ROLE_SAMPLER] = sample,
	};
	struct actor *actor = arg;
	while (!atomic_load(&over)) {
		actor->run = test_join(&run, actor->role);
		atomic_store(&actor->number, actor->run.number);
		if (setjmp(actor->end))
			continue;
		while (!atomic_load(&over)) {
			for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
				turn[actor->role](actor, slot);
			if (!inc_beat(&actor->run))
				die(actor);
			sched_yield();
		}
		test_end(&actor->run);
	}
	return NULL;
}

static bool all_is_over(void)
{
	if (atomic_load(&next_request) < n_requests)
		return false;
	for (uint32_t slot = 0; slot < TEST_TABLE; slot++)
		if (slot_load(&run, slot).stage != STAGE_FREE)
			return false;
	return true;
}

/* The keeper and the operator: buries, wakes and kills what is frozen. */
static bool direct(uint64_t seed)
{
	uint64_t random = seed;
	for (int ms = 0; !all_is_over(); ms++) {
		if (ms > PATIENCE_S * 1000)
			return false;
		for (uint32_t entry = 1; entry < INC_COUNT; entry++)
			inc_bury(&run, entry);
		for (uint32_t i = 0; i < ACTORS; i++) {
			random = mix(random);
			if (atomic_load(&actors[i].verdict) == FROZEN && random % 4 == 0)
				atomic_store(&actors[i].verdict, random / 4 % 3 ? WAKE : DIE);
		}
		/* The last ones end in peace. */
		if (atomic_load(&next_request) >= n_requests)
			atomic_store(&chaos, false);
		nap(1000);
	}
	return true;
}

static void the_answers_are_the_references(void **state)
{
	(void)state;
	static const enum shm_role roles[ACTORS] = {ROLE_GATEWAY,   ROLE_GATEWAY, ROLE_TOKENIZER,
						    ROLE_TOKENIZER, ROLE_WORKER,  ROLE_WORKER,
						    ROLE_SAMPLER,   ROLE_SAMPLER};
	const char *given = getenv("LOCKSTEP_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
	pthread_t threads[ACTORS];
	printf("seed %" PRIu64 "\n", seed);
	run = test_run_make();
	n_requests = getenv("LOCKSTEP_LONG") ? MAX_REQUESTS : 800;
	for (uint32_t i = 0; i < n_requests; i++)
		make_request(&requests[i], mix(seed + i));
	atomic_store(&chaos, true);
	for (uint32_t i = 0; i < ACTORS; i++) {
		actors[i].role = roles[i];
		actors[i].index = i;
		actors[i].random = mix(seed ^ (i + 1));
		assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
	}
	bool ended = direct(seed);
	atomic_store(&over, true);
	for (uint32_t i = 0; i < ACTORS; i++)
		pthread_join(threads[i], NULL);
	printf("%u deaths, %u wakings, %u fences (%u by mistake tried)\n", deaths, wakings, fences,
	       wrong_fences);
	for (uint32_t slot = 0; !ended && slot < TEST_TABLE; slot++)
		printf("slot %u: %s, owner %u\n", slot,
		       slot_stage_name(slot_load(&run, slot).stage), slot_load(&run, slot).owner);
	assert_true(ended);
	for (uint32_t i = 0; i < n_requests; i++)
		assert_int_equal(requests[i].done, requests[i].admitted | requests[i].done);
	/* Everyone has ended: what they held comes back. */
	block_sweep(&run);
	assert_int_equal(body_count_used(&run), 0);
	for (uint32_t row = 0; row < run.n_rows; row++)
		assert_true(row_is_available(&run));
	for (uint32_t entry = INC_WORKER_FIRST; entry < INC_WORKER_END; entry++)
		page_drop_all(&run, entry, atomic_load(&run.ctl->incs[entry].number));
	assert_int_equal(page_count_free(&run), TEST_PAGES);
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		inc_bury(&run, entry);
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		assert_int_equal(atomic_load(&run.ctl->incs[entry].number), 0);
	test_run_remove(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_answers_are_the_references),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
