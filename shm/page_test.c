#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shm/page.h"
#include "shm/testing.h"

static struct shm_run run, gateway, worker, other;

static int set_up(void **state)
{
	(void)state;
	run = test_run_make();
	gateway = test_join(&run, ROLE_GATEWAY);
	worker = test_join(&run, ROLE_WORKER);
	other = test_join(&run, ROLE_WORKER);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	test_end(&gateway);
	test_end(&worker);
	test_end(&other);
	test_run_remove(&run);
	return 0;
}

static void a_page_is_taken_once(void **state)
{
	(void)state;
	uint32_t cursor = 0, theirs = 5;
	uint8_t taken[TEST_PAGES] = {0};
	for (uint32_t i = 0; i < TEST_PAGES; i++) {
		uint32_t page = i % 2 ? page_take(&worker, &cursor) : page_take(&other, &theirs);
		assert_true(page < TEST_PAGES);
		assert_int_equal(taken[page]++, 0);
	}
	assert_int_equal(page_take(&worker, &cursor), PAGE_NONE);
	assert_int_equal(page_count_free(&run), 0);
	assert_int_equal(page_count_mine(&worker), TEST_PAGES / 2);
	assert_int_equal(page_count_mine(&other), TEST_PAGES / 2);
}

static void a_page_is_free_when_its_last_holder_dropped_it(void **state)
{
	(void)state;
	uint32_t cursor = 0, page = page_take(&worker, &cursor);
	assert_true(page_hold(&other, page));
	assert_true(page_hold(&other, page));
	page_drop(&worker, page);
	assert_int_equal(page_count_free(&run), TEST_PAGES - 1);
	assert_true(page_is_mine(&other, page));
	assert_false(page_is_mine(&worker, page));
	page_drop(&other, page);
	assert_int_equal(page_count_free(&run), TEST_PAGES);
	assert_false(page_hold(&worker, page));
	/* A word with the same holders is another one: who slept since it read it changes nothing.
	 */
	assert_int_equal(page_take(&worker, &cursor), page + 1);
	uint64_t before = atomic_load(&run.page_words[page + 1].word);
	assert_true(page_hold(&other, page + 1));
	page_drop(&other, page + 1);
	assert_true(atomic_load(&run.page_words[page + 1].word) != before);
	assert_false(page_hold(&worker, TEST_PAGES));
	page_drop(&worker, TEST_PAGES);
}

/* A table that was read too late names a page that is another sequence's by now. */
static void a_stale_handle_gets_no_page(void **state)
{
	(void)state;
	uint32_t cursor = 0, page = page_take(&worker, &cursor);
	uint32_t handle = page_handle(&worker, page);
	assert_int_equal(page_of_handle(handle), page);
	assert_true(page_adopt(&other, handle));
	page_drop(&other, page);
	page_drop(&worker, page);
	assert_false(page_adopt(&other, handle));
	cursor = page;
	assert_int_equal(page_take(&worker, &cursor), page);
	assert_false(page_adopt(&other, handle));
	assert_false(page_is_mine(&other, page));
	/* Nor does the try cost the one who holds it now anything. */
	assert_false(page_adopt(&worker, handle));
	assert_true(page_is_mine(&worker, page));
	assert_true(page_adopt(&other, page_handle(&worker, page)));
	assert_false(page_adopt(&other, TEST_PAGES));
}

static void an_entry_holds_until_it_is_dropped_as_a_whole(void **state)
{
	(void)state;
	uint32_t cursor = 0;
	assert_false(page_is_holder(&run, worker.me));
	uint32_t shared = page_take(&worker, &cursor);
	page_take(&worker, &cursor);
	assert_true(page_hold(&other, shared));
	assert_true(page_is_holder(&run, worker.me));
	test_end(&worker);
	assert_false(inc_bury(&run, worker.me));
	page_drop_all(&other, worker.me, worker.number - 1);
	assert_true(page_is_holder(&run, worker.me));
	page_drop_all(&other, worker.me, worker.number);
	assert_false(page_is_holder(&run, worker.me));
	assert_int_equal(page_count_free(&run), TEST_PAGES - 1);
	assert_true(page_is_mine(&other, shared));
	assert_true(inc_bury(&run, worker.me));
	/* Entries beyond the workers' have no bit. */
	assert_false(page_is_holder(&run, INC_WORKER_END));
}

/* For a slot that became mine with the word it has now. */
static uint32_t take_row(struct shm_run *by, uint32_t slot, uint32_t keep)
{
	return row_take(by, slot, slot_load(by, slot), keep);
}

/* It woke: the row that its body names may be its heir's by now. */
static void who_lost_the_slot_gets_no_row(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_COMPUTE);
	struct slot_state before, mine;
	assert_true(slot_claim(&worker, 0, STAGE_COMPUTE, &before));
	uint32_t row = take_row(&worker, 0, PAGE_NONE);
	assert_true(slot_take_over(&other, 0, before, before.body, &mine));
	assert_int_equal(row_take(&worker, 0, before, row), PAGE_NONE);
	assert_int_equal(row_take(&other, 0, mine, row), row);
	assert_int_equal(row_take(&worker, 0, before, row), PAGE_NONE);
	row_drop(&worker, row, 0);
	assert_int_equal(take_row(&gateway, 1, PAGE_NONE), 1);
}

/* A sequence keeps its row from one npu-worker to the next. */
static void a_row_goes_with_its_sequence(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_COMPUTE);
	test_request(&gateway, 1, STAGE_COMPUTE);
	uint32_t row = take_row(&worker, 0, PAGE_NONE);
	assert_int_equal(row, 0);
	assert_int_equal(take_row(&worker, 1, PAGE_NONE), 1);
	assert_int_equal(take_row(&worker, 0, row), row);
	assert_int_equal(take_row(&other, 0, row), row);
	/* Not another sequence's. */
	assert_int_equal(take_row(&other, 0, 1), row);
	/* Only who took it last may drop it. */
	row_drop(&worker, row, 0);
	assert_int_equal(take_row(&other, 0, row), row);
	row_drop(&other, row, 0);
	assert_int_equal(take_row(&worker, 1, PAGE_NONE), row);
	row_drop(&worker, UINT32_MAX, 0);
}

static void a_full_table_of_rows_makes_wait(void **state)
{
	(void)state;
	for (uint32_t slot = 0; slot < run.n_rows; slot++) {
		test_request(&gateway, slot, STAGE_COMPUTE);
		assert_true(row_is_available(&run));
		assert_int_equal(take_row(&worker, slot, PAGE_NONE), slot);
	}
	test_request(&gateway, run.n_rows, STAGE_COMPUTE);
	assert_false(row_is_available(&run));
	assert_int_equal(take_row(&other, run.n_rows, PAGE_NONE), PAGE_NONE);
	row_drop(&worker, 3, 3);
	assert_true(row_is_available(&run));
	assert_int_equal(take_row(&other, run.n_rows, PAGE_NONE), 3);
}

static void move_request(uint32_t slot, enum slot_stage stage, uint32_t owner)
{
	struct slot_state seen = slot_load(&run, slot), mine;
	assert_true(slot_take_over(&gateway, slot, seen, seen.body, &mine));
	assert_int_equal(
		slot_pass(&gateway, slot, &mine,
			  (struct slot_state){.stage = stage, .owner = owner, .body = mine.body}),
		SVC_OK);
}

/* A frozen npu-worker may write its row whenever it wakes. */
static void a_row_is_its_writers_until_that_has_ended(void **state)
{
	(void)state;
	for (uint32_t slot = 0; slot < run.n_rows; slot++) {
		test_request(&gateway, slot, STAGE_SAMPLE);
		assert_int_equal(take_row(&worker, slot, PAGE_NONE), slot);
	}
	move_request(0, STAGE_DONE, 0);
	assert_false(row_is_available(&run));
	test_end(&worker);
	assert_true(row_is_available(&run));
	test_request(&gateway, run.n_rows, STAGE_COMPUTE);
	assert_int_equal(take_row(&other, run.n_rows, PAGE_NONE), 0);
	/* The samplers read the others' still. */
	assert_false(row_is_available(&run));
	/* ... but the sequence itself can have its own, even if its body doesn't name it. */
	assert_int_equal(take_row(&other, 5, PAGE_NONE), 5);
}

/* Npu-workers have died with all rows, some twice with rows of one sequence, and what they computed
 * waits: whoever is first in line, with a row or without, gets one. */
static void who_waits_keeps_no_row_from_others(void **state)
{
	(void)state;
	for (uint32_t row = 0; row < run.n_rows; row++) {
		uint32_t slot = row / 2;
		if (row % 2 == 0)
			test_request(&gateway, slot, STAGE_SAMPLE);
		assert_int_equal(take_row(row % 2 ? &other : &worker, slot, PAGE_NONE), row);
	}
	test_end(&worker);
	test_end(&other);
	assert_false(row_is_available(&run));
	for (uint32_t row = 0; row < run.n_rows; row += 2)
		move_request(row / 2, STAGE_COMPUTE, 0);
	assert_true(row_is_available(&run));
}

static void rows_of_ended_sequences_are_collected(void **state)
{
	(void)state;
	test_request(&gateway, 0, STAGE_COMPUTE);
	test_request(&gateway, 1, STAGE_COMPUTE);
	take_row(&worker, 0, PAGE_NONE);
	take_row(&worker, 1, PAGE_NONE);
	move_request(0, STAGE_DONE, 0);
	move_request(1, STAGE_COMPUTE, worker.me);
	row_collect(&other);
	assert_int_equal(take_row(&other, 1, 0), 2);
	row_collect(&worker);
	assert_int_equal(take_row(&other, 1, PAGE_NONE), 0);
	/* A sampler has it, then the npu-worker: row 1 is needed. */
	move_request(1, STAGE_SAMPLE, 0);
	row_collect(&worker);
	assert_int_equal(take_row(&gateway, 2, PAGE_NONE), 3);
	/* It waits for another npu-worker. */
	move_request(1, STAGE_COMPUTE, other.me);
	row_collect(&worker);
	assert_int_equal(take_row(&gateway, 3, PAGE_NONE), 1);
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(a_page_is_taken_once),
		IN_RUN(a_page_is_free_when_its_last_holder_dropped_it),
		IN_RUN(a_stale_handle_gets_no_page),
		IN_RUN(an_entry_holds_until_it_is_dropped_as_a_whole),
		IN_RUN(who_lost_the_slot_gets_no_row),
		IN_RUN(a_row_goes_with_its_sequence),
		IN_RUN(a_full_table_of_rows_makes_wait),
		IN_RUN(a_row_is_its_writers_until_that_has_ended),
		IN_RUN(who_waits_keeps_no_row_from_others),
		IN_RUN(rows_of_ended_sequences_are_collected),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
