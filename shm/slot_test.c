#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shm/block.h"
#include "shm/fence.h"
#include "shm/page.h"
#include "shm/testing.h"

/* One run with two instances of each role that matters here. */
static struct shm_run run, gateway, worker, other_worker, sampler, other_sampler;

static int set_up(void **state)
{
	(void)state;
	run = test_run_make();
	gateway = test_join(&run, ROLE_GATEWAY);
	worker = test_join(&run, ROLE_WORKER);
	other_worker = test_join(&run, ROLE_WORKER);
	sampler = test_join(&run, ROLE_SAMPLER);
	other_sampler = test_join(&run, ROLE_SAMPLER);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	struct shm_run *all[] = {&gateway, &worker, &other_worker, &sampler, &other_sampler};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		test_end(all[i]);
	test_run_remove(&run);
	return 0;
}

static struct slot_state claim(struct shm_run *by, enum slot_stage stage)
{
	struct slot_state mine = {0};
	assert_true(slot_claim(by, 0, stage, &mine));
	return mine;
}

static enum svc_code pass(struct shm_run *by, struct slot_state *mine, enum slot_stage stage)
{
	return slot_pass(by, 0, mine, (struct slot_state){.stage = stage, .body = mine->body});
}

static struct slot_state fence(struct shm_run *by, struct slot_state seen)
{
	struct slot_state mine = {0};
	struct svc_err err;
	assert_int_equal(slot_fence(by, 0, seen, &mine, &err), SVC_OK);
	return mine;
}

static struct body *body_of(struct slot_state state)
{
	struct body *body = body_get(&run, state.body, 0);
	assert_non_null(body);
	return body;
}

static void a_word_holds_every_field(void **state)
{
	(void)state;
	const struct slot_state full = {STAGE_DONE, (1u << SLOT_OWNER_BITS) - 1,
					(1u << SLOT_BODY_BITS) - 1, (1ull << SLOT_TURN_BITS) - 1,
					true};
	struct slot_state back = slot_unpack(slot_pack(full));
	assert_int_equal(back.stage, full.stage);
	assert_int_equal(back.owner, full.owner);
	assert_int_equal(back.body, full.body);
	assert_true(back.turn == full.turn);
	assert_true(back.held);
	assert_true(slot_pack((struct slot_state){0}) == 0);
	/* Damage names no stage, so that nobody acts on it. */
	assert_int_equal(slot_unpack(STAGE_COUNT).stage, STAGE_COUNT);
	assert_int_equal(slot_stage_role(STAGE_COUNT), ROLE_NONE);
	assert_string_equal(slot_stage_name(STAGE_COUNT), "damaged");
}

static void only_a_free_slot_is_begun(void **state)
{
	(void)state;
	struct slot_state mine;
	assert_true(slot_begin(&gateway, 0, &mine));
	assert_int_equal(mine.stage, STAGE_FILL);
	assert_int_equal(mine.owner, gateway.me);
	assert_false(slot_begin(&gateway, 0, &mine));
	assert_true(slot_begin(&gateway, 1, &mine));
}

static void a_slot_has_one_owner(void **state)
{
	(void)state;
	struct slot_state mine, theirs;
	test_request(&gateway, 0, STAGE_COMPUTE);
	assert_false(slot_claim(&sampler, 0, STAGE_SAMPLE, &theirs));
	mine = claim(&worker, STAGE_COMPUTE);
	assert_int_equal(mine.owner, worker.me);
	assert_false(slot_claim(&other_worker, 0, STAGE_COMPUTE, &theirs));
	assert_int_equal(pass(&worker, &mine, STAGE_SAMPLE), SVC_OK);
	assert_int_equal(slot_load(&run, 0).owner, 0);
	/* Passed on: a second time it isn't mine any more. */
	mine.stage = STAGE_COMPUTE;
	mine.turn--;
	uint64_t before = atomic_load(&run.ctl->counters.fenced_writes);
	assert_int_equal(pass(&worker, &mine, STAGE_SAMPLE), SVC_STALE);
	assert_int_equal(atomic_load(&run.ctl->counters.fenced_writes), before + 1);
}

/* Somebody saw the offer to a process that had been buried already; a new one came into its entry
 * in between. Only one of the two gets the slot. */
static void an_offer_is_taken_once(void **state)
{
	(void)state;
	struct slot_state theirs, ours, mine;
	test_request(&gateway, 0, STAGE_SAMPLE);
	mine = claim(&sampler, STAGE_SAMPLE);
	struct slot_state offer = {.stage = STAGE_COMPUTE, .owner = worker.me, .body = mine.body};
	assert_true(slot_is_held(&sampler, mine));
	assert_int_equal(slot_pass(&sampler, 0, &mine, offer), SVC_OK);
	struct slot_state seen = slot_load(&run, 0);
	assert_int_equal(seen.owner, worker.me);
	assert_false(slot_is_held(&worker, seen));
	assert_true(slot_take_over(&worker, 0, seen, seen.body, &ours));
	assert_true(slot_is_held(&worker, ours));
	assert_true(slot_is_held(&worker, slot_load(&run, 0)));
	assert_false(slot_is_held(&other_worker, ours));
	assert_false(slot_take_over(&other_worker, 0, seen, seen.body, &theirs));
	assert_int_equal(pass(&worker, &ours, STAGE_RECLAIM), SVC_OK);
	assert_false(slot_load(&run, 0).held);
}

/* The same stage, owner and body again is another word. */
static void a_turn_never_comes_back(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_COMPUTE);
	struct slot_state first = claim(&worker, STAGE_COMPUTE), again = first;
	assert_int_equal(slot_pass(&worker, 0, &again,
				   (struct slot_state){.stage = STAGE_COMPUTE, .body = first.body}),
			 SVC_OK);
	again = claim(&worker, STAGE_COMPUTE);
	assert_int_equal(again.body, first.body);
	assert_true(again.turn > first.turn);
	assert_int_equal(pass(&worker, &first, STAGE_SAMPLE), SVC_STALE);
	assert_int_equal(pass(&worker, &again, STAGE_SAMPLE), SVC_OK);
}

static void a_cancel_reaches_its_own_request_only(void **state)
{
	(void)state;
	struct body *body = test_request(&gateway, 0, STAGE_COMPUTE);
	struct slot_handle handle = {0, body->generation};
	assert_false(slot_is_cancelled(&run, 0));
	assert_true(slot_handle_valid(&run, handle));
	slot_cancel(&gateway, (struct slot_handle){0, handle.generation - 1});
	slot_cancel(&gateway, (struct slot_handle){0, handle.generation + 1});
	assert_int_equal(atomic_load(&run.slots[0].cancel), 0);
	slot_cancel(&gateway, (struct slot_handle){TEST_TABLE, handle.generation});
	assert_false(slot_is_cancelled(&run, 0));
	slot_cancel(&gateway, handle);
	assert_true(slot_is_cancelled(&run, 0));
	atomic_store(&run.slots[0].generation, handle.generation + 1);
	assert_false(slot_handle_valid(&run, handle));
	assert_false(slot_is_cancelled(&run, 0));
	/* One that slept since its check doesn't undo the next request's cancel. */
	slot_cancel(&gateway, (struct slot_handle){0, handle.generation + 1});
	atomic_store(&run.slots[0].generation, handle.generation);
	slot_cancel(&gateway, handle);
	atomic_store(&run.slots[0].generation, handle.generation + 1);
	assert_true(slot_is_cancelled(&run, 0));
}

static void a_fenced_slot_goes_on_with_what_was_committed(void **state)
{
	(void)state;
	struct body *old = test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state frozen = claim(&sampler, STAGE_SAMPLE);
	int32_t *ids = body_region(&run, old, REGION_IDS, 40, NULL);
	uint32_t *ends = body_region(&run, old, REGION_ENDS, 40, NULL);
	char *out = body_region(&run, old, REGION_OUT, 40, NULL);
	for (int i = 0; i < 10; i++)
		ids[i] = 100 + i, ends[i] = (uint32_t)i + 1, out[i] = (char)('a' + i);
	old->params.seed = 99;
	atomic_store(&old->n_prompt, 3);
	atomic_store(&old->n_tokens, 4);
	atomic_store(&old->n_kv, 7);
	atomic_store(&old->row, 2);
	struct slot_state mine = fence(&other_sampler, frozen);
	struct body *copy = body_of(mine);
	assert_ptr_not_equal(copy, old);
	assert_int_equal(mine.owner, other_sampler.me);
	assert_int_equal(copy->params.seed, 99);
	assert_int_equal(copy->generation, old->generation);
	assert_int_equal(atomic_load(&copy->n_tokens), 4);
	assert_int_equal(atomic_load(&copy->n_kv), 7);
	assert_int_equal(atomic_load(&copy->row), 2);
	const int32_t *copied = body_region(&run, copy, REGION_IDS, 40, NULL);
	assert_memory_equal(copied, ids, 7 * sizeof *ids);
	assert_int_not_equal(copied[7], ids[7]);
	assert_memory_equal(body_region(&run, copy, REGION_ENDS, 16, NULL), ends, 16);
	assert_memory_equal(body_region(&run, copy, REGION_OUT, 4, NULL), out, 4);
	assert_int_equal(((char *)body_region(&run, copy, REGION_OUT, 5, NULL))[4], 0);
}

/* It wakes: its swap fails, and it is told so at its next beat. */
static void a_woken_owner_has_nothing_any_more(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state frozen = claim(&sampler, STAGE_SAMPLE);
	assert_true(inc_beat(&sampler));
	struct slot_state mine = fence(&other_sampler, frozen);
	assert_int_equal(pass(&sampler, &frozen, STAGE_COMPUTE), SVC_STALE);
	assert_false(inc_beat(&sampler));
	assert_false(inc_is_ready(&run, sampler.me));
	assert_true(inc_beat(&other_sampler));
	assert_int_equal(pass(&other_sampler, &mine, STAGE_COMPUTE), SVC_OK);
}

/* What the woken one may still write stays its own until it has ended, whatever becomes of the
 * request. */
static void a_frozen_owners_body_is_left_to_it(void **state)
{
	(void)state;
	struct body *old = test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state frozen = claim(&sampler, STAGE_SAMPLE);
	struct slot_state mine = fence(&other_sampler, frozen);
	uint32_t taken = body_count_used(&run);
	assert_int_equal(pass(&other_sampler, &mine, STAGE_DONE), SVC_OK);
	mine = claim(&gateway, STAGE_DONE);
	assert_int_equal(slot_pass(&gateway, 0, &mine,
				   (struct slot_state){.stage = STAGE_FILL, .owner = gateway.me}),
			 SVC_OK);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), taken - 1);
	assert_int_equal(block_sweep(&gateway), 0);
	assert_int_equal(pass(&gateway, &mine, STAGE_FREE), SVC_OK);
	assert_ptr_equal(body_get(&run, frozen.body, 0), old);
	test_end(&sampler);
	assert_int_equal(block_sweep(&gateway), 1);
	assert_int_equal(body_count_used(&run), 0);
	assert_null(body_get(&run, frozen.body, 0));
}

/* It was late, not frozen: it has passed on before the fence, which then changes nothing. */
static void a_fence_that_comes_too_late_is_undone(void **state)
{
	(void)state;
	struct svc_err err;
	struct slot_state mine;
	test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state seen = claim(&sampler, STAGE_SAMPLE), late = seen;
	uint32_t taken = body_count_used(&run);
	assert_int_equal(pass(&sampler, &late, STAGE_COMPUTE), SVC_OK);
	assert_int_equal(slot_fence(&other_sampler, 0, seen, &mine, &err), SVC_STALE);
	assert_int_equal(body_count_used(&run), taken);
	assert_true(inc_beat(&sampler));
	assert_true(inc_is_ready(&run, sampler.me));
	struct slot_state done = claim(&worker, STAGE_COMPUTE);
	assert_int_equal(pass(&worker, &done, STAGE_DONE), SVC_OK);
	done = claim(&gateway, STAGE_DONE);
	assert_int_equal(slot_pass(&gateway, 0, &done,
				   (struct slot_state){.stage = STAGE_FILL, .owner = gateway.me}),
			 SVC_OK);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), 0);
}

/* The fencer dies between leaving the blocks and swapping the word, then the frozen one: what was
 * left to it is the request's body still, and who takes the slot over settles it. */
static void a_fence_that_ends_halfway_is_undone_by_the_heir(void **state)
{
	(void)state;
	struct svc_err err;
	struct body *old = test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state seen = claim(&sampler, STAGE_SAMPLE), mine;
	uint32_t fresh, taken = body_count_used(&run);
	assert_int_equal(body_copy(&other_sampler, 0, old, &fresh, &err), SVC_OK);
	assert_true(block_leave(&other_sampler, 0, seen, sampler.number));
	test_end(&other_sampler);
	assert_int_equal(block_sweep(&gateway), 1);
	assert_int_equal(body_count_used(&run), taken);
	test_end(&sampler);
	assert_int_equal(block_sweep(&gateway), 0);
	struct shm_run heir = test_join(&run, ROLE_SAMPLER);
	assert_true(slot_take_over(&heir, 0, seen, seen.body, &mine));
	assert_ptr_equal(body_of(mine), old);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), 0);
	test_end(&heir);
}

static void two_fences_have_one_winner(void **state)
{
	(void)state;
	struct svc_err err;
	struct slot_state mine, theirs;
	struct shm_run third = test_join(&run, ROLE_SAMPLER);
	test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state seen = claim(&sampler, STAGE_SAMPLE);
	uint32_t taken = body_count_used(&run);
	mine = fence(&other_sampler, seen);
	assert_int_equal(slot_fence(&third, 0, seen, &theirs, &err), SVC_STALE);
	assert_int_equal(body_count_used(&run), taken + 1);
	assert_int_equal(pass(&other_sampler, &mine, STAGE_COMPUTE), SVC_OK);
	/* The frozen one's blocks are still its own. */
	assert_int_equal(block_sweep(&third), 0);
	test_end(&third);
}

/* A fenced npu-worker keeps its row and the pages from its step on: the copy says so itself, since
 * the fencer may die before it could do anything about it. */
static void a_frozen_workers_step_is_left_to_it(void **state)
{
	(void)state;
	const struct {
		uint32_t known, n_kv, kept;
	} cases[] = {{130, 100, 1}, {130, 128, 2}, {128, 128, 1},
		     {130, 0, 0},   {65, 65, 1},   {64, 64, 0}};
	for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct body *old = test_request(&gateway, i, STAGE_COMPUTE);
		struct slot_state frozen, mine;
		struct svc_err err;
		assert_true(slot_claim(&worker, i, STAGE_COMPUTE, &frozen));
		atomic_store(&old->n_prompt, cases[i].known);
		atomic_store(&old->n_kv, cases[i].n_kv);
		atomic_store(&old->n_pages, 3);
		atomic_store(&old->row, 1);
		assert_int_equal(slot_fence(&other_worker, i, frozen, &mine, &err), SVC_OK);
		struct body *copy = body_get(&run, mine.body, i);
		assert_int_equal(atomic_load(&copy->n_pages), cases[i].kept);
		assert_int_equal(atomic_load(&copy->n_kv), cases[i].kept * PAGE_POSITIONS);
		assert_int_equal(atomic_load(&copy->row), 0);
		assert_int_equal(atomic_load(&old->n_kv), cases[i].n_kv);
	}
}

/* The second owner froze before it could settle what the first had left. */
static void frozen_one_after_the_other(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state first = claim(&sampler, STAGE_SAMPLE);
	struct slot_state second = fence(&other_sampler, first);
	struct shm_run third = test_join(&run, ROLE_SAMPLER);
	struct slot_state mine = fence(&third, second);
	/* The second wakes and settles what it took for its own. */
	block_settle(&other_sampler, second.body, 0);
	assert_int_equal(pass(&third, &mine, STAGE_DONE), SVC_OK);
	mine = claim(&gateway, STAGE_DONE);
	assert_int_equal(slot_pass(&gateway, 0, &mine,
				   (struct slot_state){.stage = STAGE_FILL, .owner = gateway.me}),
			 SVC_OK);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), 2);
	test_end(&other_sampler);
	assert_int_equal(block_sweep(&gateway), 1);
	test_end(&sampler);
	assert_int_equal(block_sweep(&gateway), 1);
	test_end(&third);
}

static void a_damaged_body_is_left_behind(void **state)
{
	(void)state;
	struct body *old = test_request(&gateway, 0, STAGE_SAMPLE);
	struct slot_state frozen = claim(&sampler, STAGE_SAMPLE);
	old->magic = 0;
	struct slot_state mine = fence(&other_sampler, frozen);
	assert_int_equal(mine.body, 0);
	assert_null(body_get(&run, mine.body, 0));
	assert_int_equal(body_count_used(&run), 1);
	test_end(&sampler);
	assert_int_equal(block_sweep(&gateway), 1);
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_word_holds_every_field),
		IN_RUN(only_a_free_slot_is_begun),
		IN_RUN(a_slot_has_one_owner),
		IN_RUN(an_offer_is_taken_once),
		IN_RUN(a_turn_never_comes_back),
		IN_RUN(a_cancel_reaches_its_own_request_only),
		IN_RUN(a_fenced_slot_goes_on_with_what_was_committed),
		IN_RUN(a_woken_owner_has_nothing_any_more),
		IN_RUN(a_frozen_owners_body_is_left_to_it),
		IN_RUN(a_fence_that_comes_too_late_is_undone),
		IN_RUN(a_fence_that_ends_halfway_is_undone_by_the_heir),
		IN_RUN(two_fences_have_one_winner),
		IN_RUN(a_frozen_workers_step_is_left_to_it),
		IN_RUN(frozen_one_after_the_other),
		IN_RUN(a_damaged_body_is_left_behind),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
