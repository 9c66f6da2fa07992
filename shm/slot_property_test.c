/* Threads act as the incarnations of all roles over one real run: they serve requests, die at any
 * point between two stores, freeze there and wake again, are fenced while they are frozen and
 * sometimes by mistake. Whatever happens, the answers are those of a plain reference model, nobody
 * writes what is another's, every admitted request ends, and in the end everything is free.
 *
 * LOCKSTEP_SEED repeats a run (as far as the scheduler plays along), LOCKSTEP_LONG makes it longer.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shm/property/stage.h"

#define PATIENCE_S 120

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
	pass(actor, slot, &mine, (struct slot_state){.stage = STAGE_COMPUTE, .body = mine.body});
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
	     (struct slot_state){.stage = ended ? STAGE_RECLAIM : STAGE_COMPUTE,
				 .owner = atomic_load(&body->worker),
				 .body = mine.body});
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
		pass(actor, slot, &mine, (struct slot_state){.stage = STAGE_FREE});
		return;
	}
	struct body *body = body_get(&actor->run, index, slot);
	check(body != NULL, "what was allocated is there");
	enter(actor, &block_writer[index], "two write one body");
	body->generation = generation;
	body->params.seed = number;
	point(actor);
	check(block_run_length(&actor->run, index, slot), "a body was freed under its filler");
	pass(actor, slot, &mine, (struct slot_state){.stage = STAGE_TOKENIZE, .body = index});
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
		pass(actor, slot, &mine,
		     (struct slot_state){.stage = STAGE_FILL, .owner = actor->run.me});
	point(actor);
	body_free_all(&actor->run, slot);
	pass(actor, slot, &mine, (struct slot_state){.stage = STAGE_FREE});
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
