#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "shm/block.h"
#include "shm/testing.h"

static struct shm_run run, gateway, other;

static int set_up(void **state)
{
	(void)state;
	run = test_run_make();
	gateway = test_join(&run, ROLE_GATEWAY);
	other = test_join(&run, ROLE_GATEWAY);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	test_end(&gateway);
	test_end(&other);
	test_run_remove(&run);
	return 0;
}

static struct slot_state begin(struct shm_run *by, uint32_t slot)
{
	struct slot_state mine = {0};
	assert_true(slot_begin(by, slot, &mine));
	return mine;
}

static uint32_t alloc(struct shm_run *by, uint32_t slot, const struct body_plan *plan)
{
	struct svc_err err;
	uint32_t index = 0;
	assert_int_equal(body_alloc(by, slot, plan, &index, &err), SVC_OK);
	return index;
}

static void regions_lie_apart_and_inside(void **state)
{
	(void)state;
	struct body_plan plan;
	for (int i = 0; i < REGION_COUNT; i++)
		plan.bytes[i] = 1000u * (uint32_t)i + 1;
	begin(&gateway, 0);
	struct body *body = body_get(&run, alloc(&gateway, 0, &plan), 0);
	const char *end = (const char *)(body + 1);
	assert_non_null(body);
	for (int i = 0; i < REGION_COUNT; i++) {
		size_t bytes = 0;
		char *at = body_region(&run, body, (enum body_region)i, plan.bytes[i], &bytes);
		assert_non_null(at);
		assert_int_equal(bytes, plan.bytes[i]);
		assert_int_equal((uintptr_t)at % SHM_LINE, 0);
		assert_true(at >= end);
		end = at + bytes;
		assert_null(body_region(&run, body, (enum body_region)i, plan.bytes[i] + 1, NULL));
	}
	assert_true(end <= (const char *)body + body->n_blocks * (size_t)BODY_BLOCK_BYTES);
}

/* The header lies in shared memory: whatever it says, nothing outside the pool is reached. */
static void a_damaged_header_reaches_nothing(void **state)
{
	(void)state;
	const struct body_extent bad[] = {{0, 64},	    {sizeof(struct body) + 4, 64},
					  {0xffffffc0, 64}, {sizeof(struct body), 0xffffffff},
					  {64u << 20, 64},  {sizeof(struct body), 63}};
	struct body_plan plan = test_body_plan(100);
	begin(&gateway, 0);
	uint32_t index = alloc(&gateway, 0, &plan);
	struct body *body = body_get(&run, index, 0);
	assert_non_null(body_region(&run, body, REGION_OUT, 64, NULL));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		body->regions[REGION_OUT] = bad[i];
		assert_null(body_region(&run, body, REGION_OUT, 64, NULL));
	}
	/* Inside the pool, but another request's block. */
	body->regions[REGION_OUT] = (struct body_extent){BODY_BLOCK_BYTES, 64};
	assert_null(body_region(&run, body, REGION_OUT, 64, NULL));
	body->n_blocks = 2;
	assert_null(body_get(&run, index, 0));
	body->n_blocks = 1;
	assert_non_null(body_get(&run, index, 0));
	assert_null(body_get(&run, index, 1));
	assert_null(body_get(&run, 0, 0));
	assert_null(body_get(&run, TEST_BLOCKS, 0));
	assert_null(body_get(&run, UINT32_MAX, 0));
	body->slot = 1;
	assert_null(body_get(&run, index, 0));
	assert_null(body_get(&run, index, 1));
}

/* Two bodies never share a block, and nobody gets block 0. */
static void blocks_have_one_body(void **state)
{
	(void)state;
	uint8_t taken[TEST_BLOCKS] = {1};
	struct body_plan plan = test_body_plan(3 * BODY_BLOCK_BYTES);
	uint32_t n = body_plan_blocks(&plan);
	assert_int_equal(n, 4);
	for (uint32_t slot = 0; slot < 8; slot++) {
		begin(&gateway, slot);
		uint32_t index = alloc(&gateway, slot, &plan);
		for (uint32_t i = index; i < index + n; i++)
			assert_int_equal(taken[i]++, 0);
	}
	assert_int_equal(body_count_used(&run), 8 * n);
	body_free_all(&gateway, 3);
	assert_int_equal(body_count_used(&run), 7 * n);
	assert_null(body_get(&run, 1 + 3 * n, 3));
	/* A hole that is too small is passed over. */
	begin(&gateway, 8);
	plan.bytes[REGION_OUT] += BODY_BLOCK_BYTES;
	assert_int_equal(alloc(&gateway, 8, &plan), 1 + 8 * n);
	/* ... and stays free. */
	assert_int_equal(body_count_used(&run), 7 * n + n + 1);
}

/* A request leaves room for copies; a copy may take it. */
static void a_full_pool_still_has_room_for_a_fence(void **state)
{
	(void)state;
	struct svc_err err;
	struct body_plan plan = test_body_plan(BODY_BLOCK_BYTES);
	uint32_t n = body_plan_blocks(&plan), slot = 0, first = 0, index;
	enum svc_code code = SVC_OK;
	while (code == SVC_OK && slot < TEST_TABLE) {
		begin(&gateway, slot);
		code = body_alloc(&gateway, slot, &plan, &index, &err);
		if (code == SVC_OK && slot == 0)
			first = index;
		slot++;
		/* Small ones would need more slots than there are. */
		plan.bytes[REGION_OUT] = 5 * BODY_BLOCK_BYTES;
	}
	assert_int_equal(code, SVC_BUSY);
	assert_non_null(strstr(err.msg, "retry"));
	assert_int_equal(body_copy(&other, 0, body_get(&run, first, 0), &index, &err), SVC_OK);
	assert_int_equal(body_get(&run, index, 0)->n_blocks, n);
}

static void what_never_fits_is_refused_for_good(void **state)
{
	(void)state;
	struct svc_err err;
	uint32_t index;
	struct body_plan plan = test_body_plan(TEST_BLOCKS * BODY_BLOCK_BYTES);
	begin(&gateway, 0);
	assert_int_equal(body_alloc(&gateway, 0, &plan, &index, &err), SVC_TOO_LARGE);
	assert_non_null(strstr(err.msg, "--body-pool-mb"));
	plan.bytes[REGION_OUT] = UINT32_MAX;
	assert_int_equal(body_plan_blocks(&plan), 0);
	assert_int_equal(body_alloc(&gateway, 0, &plan, &index, &err), SVC_TOO_LARGE);
	assert_int_equal(body_count_used(&run), 0);
}

/* A gateway ended while it filled. */
static void a_dead_gateways_blocks_come_back(void **state)
{
	(void)state;
	struct body_plan plan = test_body_plan(BODY_BLOCK_BYTES);
	struct slot_state seen = begin(&gateway, 0), mine;
	alloc(&gateway, 0, &plan);
	assert_int_equal(block_sweep(&other), 0);
	test_end(&gateway);
	assert_true(slot_take_over(&other, 0, seen, seen.body, &mine));
	body_free_all(&other, 0);
	assert_int_equal(body_count_used(&run), 2);
	assert_int_equal(block_sweep(&other), 2);
	assert_int_equal(body_count_used(&run), 0);
}

/* It passed the request on and ended: the blocks are the request's. */
static void a_passed_body_outlives_its_gateway(void **state)
{
	(void)state;
	struct body *body = test_request(&gateway, 0, STAGE_TOKENIZE);
	struct slot_state seen = slot_load(&run, 0);
	test_end(&gateway);
	assert_int_equal(block_sweep(&other), 0);
	assert_ptr_equal(body_get(&run, seen.body, 0), body);
}

static void nobody_frees_what_another_fills(void **state)
{
	(void)state;
	struct body_plan plan = test_body_plan(100);
	begin(&gateway, 0);
	uint32_t index = alloc(&gateway, 0, &plan);
	body_free_all(&other, 0);
	block_give_back(&other, index, 0);
	assert_int_equal(body_count_used(&run), 1);
	block_give_back(&gateway, index, 0);
	assert_int_equal(body_count_used(&run), 0);
}

static void blocks_are_left_only_while_the_word_stands(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_TOKENIZE);
	struct slot_state seen = slot_load(&run, 0), mine;
	assert_true(slot_claim(&other, 0, STAGE_TOKENIZE, &mine));
	assert_false(block_leave(&gateway, 0, seen, other.number));
	assert_true(block_leave(&gateway, 0, mine, other.number));
	/* The frozen one wakes and would make them its own again. */
	block_settle(&other, mine.body, 0);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), 1);
	/* Whoever owns the slot later may. */
	block_settle(&gateway, mine.body, 0);
	body_free_all(&gateway, 0);
	assert_int_equal(body_count_used(&run), 0);
}

/* A reader that doesn't own the slot finds out that what it looked at is another's by now. */
static void a_look_tells_whether_it_still_holds(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body = test_request(&gateway, 0, STAGE_DONE);
	struct body_seen seen = body_peek(&run, 0);
	assert_ptr_equal(seen.body, body);
	assert_int_equal(seen.word.stage, STAGE_DONE);
	assert_true(body_stands(&run, 0, &seen));
	assert_true(slot_claim(&gateway, 0, STAGE_DONE, &mine));
	assert_true(body_stands(&run, 0, &seen));
	struct slot_state next = {.stage = STAGE_FILL, .owner = gateway.me};
	assert_int_equal(slot_pass(&gateway, 0, &mine, next), SVC_OK);
	assert_false(body_stands(&run, 0, &seen));
	assert_null(body_peek(&run, 0).body);
	body_free_all(&gateway, 0);
	next.stage = STAGE_FREE;
	assert_int_equal(slot_pass(&gateway, 0, &mine, next), SVC_OK);
	/* The same blocks for the same slot are another body. */
	assert_ptr_equal(test_request(&gateway, 0, STAGE_DONE), body);
	assert_false(body_stands(&run, 0, &seen));
	seen = body_peek(&run, 0);
	assert_true(body_stands(&run, 0, &seen));
	assert_null(body_peek(&run, 1).body);
}

static void a_copy_has_what_is_counted(void **state)
{
	(void)state;
	struct svc_err err;
	struct body_plan plan = test_body_plan(200);
	uint32_t index;
	begin(&gateway, 0);
	struct body *old = body_get(&run, alloc(&gateway, 0, &plan), 0);
	float *records = body_region(&run, old, REGION_LOGPROBS, 80, NULL);
	for (int i = 0; i < 20; i++)
		records[i] = (float)i + 1;
	memcpy(body_region(&run, old, REGION_TEXT, 100, NULL), "the prompt", 11);
	old->params.flags = BODY_LOGPROBS | BODY_PROMPT_LOGPROBS;
	atomic_store(&old->n_prompt, 6);
	atomic_store(&old->n_scored, 4);
	atomic_store(&old->deaths, 2);
	atomic_store(&old->death_mark, 7);
	body_fail(old, &(struct svc_err){.code = SVC_NUMERIC, .msg = "not a number"});
	assert_int_equal(body_copy(&other, 0, old, &index, &err), SVC_OK);
	const struct body *copy = body_get(&run, index, 0);
	assert_string_equal(body_region(&run, copy, REGION_TEXT, 100, NULL), "the prompt");
	const float *copied = body_region(&run, copy, REGION_LOGPROBS, 80, NULL);
	assert_memory_equal(copied, records, 4 * 8);
	assert_true(copied[8] == 0);
	assert_int_equal(atomic_load(&copy->deaths), 2);
	assert_int_equal(atomic_load(&copy->death_mark), 7);
	struct svc_err failure;
	assert_true(body_failure(copy, &failure));
	assert_int_equal(failure.code, SVC_NUMERIC);
	/* Generated tokens come after all of the prompt's. */
	atomic_store(&old->n_scored, 6);
	atomic_store(&old->n_tokens, 1);
	assert_int_equal(body_copy(&other, 0, old, &index, &err), SVC_OK);
	copied = body_region(&run, body_get(&run, index, 0), REGION_LOGPROBS, 80, NULL);
	assert_memory_equal(copied, records, 7 * 8);
	/* A header that claims more than it has is not copied. */
	old->regions[REGION_TEXT].bytes = 1u << 20;
	assert_int_equal(body_copy(&other, 0, old, &index, &err), SVC_CORRUPT);
}

static void the_first_failure_stays(void **state)
{
	(void)state;
	struct body body = {0};
	struct svc_err err = {.code = SVC_NUMERIC, .param = "seed"}, seen;
	memset(err.msg, 'x', sizeof err.msg - 1);
	assert_false(body_failure(&body, &seen));
	body_fail(&body, &err);
	body_fail(&body, &(struct svc_err){.code = SVC_CANCELLED, .msg = "second"});
	assert_true(body_failure(&body, &seen));
	assert_int_equal(seen.code, SVC_NUMERIC);
	assert_string_equal(seen.param, "seed");
	assert_int_equal(strlen(seen.msg), sizeof body.fail_msg - 1);
	/* Damage is a failure too, and an unknown code none of ours. */
	memset(body.fail_msg, 'y', sizeof body.fail_msg);
	memset(body.fail_param, 'y', sizeof body.fail_param);
	atomic_store(&body.fail_code, 12345);
	assert_true(body_failure(&body, &seen));
	assert_int_equal(seen.code, SVC_INTERNAL);
	assert_int_equal(strlen(seen.msg), sizeof body.fail_msg - 1);
}

static void ids_are_counted_up_to_what_fits(void **state)
{
	(void)state;
	struct body_plan plan = test_body_plan(100);
	begin(&gateway, 0);
	struct body *body = body_get(&run, alloc(&gateway, 0, &plan), 0);
	atomic_store(&body->n_prompt, 10);
	atomic_store(&body->n_tokens, 5);
	assert_int_equal(body_n_ids(&run, body), 15);
	atomic_store(&body->n_tokens, UINT32_MAX);
	assert_int_equal(body_n_ids(&run, body), TEST_CTX);
	body->regions[REGION_IDS].offset = 1;
	assert_int_equal(body_n_ids(&run, body), 0);
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(regions_lie_apart_and_inside),
		IN_RUN(a_damaged_header_reaches_nothing),
		IN_RUN(blocks_have_one_body),
		IN_RUN(a_full_pool_still_has_room_for_a_fence),
		IN_RUN(what_never_fits_is_refused_for_good),
		IN_RUN(a_dead_gateways_blocks_come_back),
		IN_RUN(a_passed_body_outlives_its_gateway),
		IN_RUN(nobody_frees_what_another_fills),
		IN_RUN(blocks_are_left_only_while_the_word_stands),
		IN_RUN(a_look_tells_whether_it_still_holds),
		IN_RUN(a_copy_has_what_is_counted),
		cmocka_unit_test(the_first_failure_stays),
		IN_RUN(ids_are_counted_up_to_what_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
