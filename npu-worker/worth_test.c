#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "npu-worker/worth.h"

static uint32_t length(double acceptance, double row, double make, double turn)
{
	const struct worth_draft draft = {acceptance, row, make, turn, false};
	return worth_length(&draft, 8);
}

static void drafts_that_are_wrong_are_not_made(void **state)
{
	(void)state;
	assert_int_equal(length(0, 0.1, 0, 0), 0);
	assert_int_equal(length(0.3, 0.3, 0, 0), 0);
	assert_int_equal(length(0.3, 0.35, 0, 0), 0);
	assert_int_equal(worth_length(&(struct worth_draft){.acceptance = 1}, 0), 0);
}

static void the_surer_the_longer(void **state)
{
	(void)state;
	uint32_t before = 0;
	for (int percent = 0; percent <= 100; percent++) {
		uint32_t n = length(percent / 100.0, 0.2, 0, 0.05);
		assert_true(n >= before);
		before = n;
	}
	assert_int_equal(before, 8);
	/* By hand: 1.6/1.3, 1.96/1.6, 2.176/1.9 tokens a step. */
	assert_int_equal(length(0.6, 0.3, 0, 0), 1);
}

static void what_drafts_cost_makes_them_fewer(void **state)
{
	(void)state;
	assert_true(length(0.8, 0.05, 0, 0) > length(0.8, 0.05, 0.2, 0));
	assert_int_equal(length(0.8, 0.05, 0.9, 0), 0);
	assert_int_equal(length(1, 0, 0, 1), 0); /* a turn as long as a step: nothing to win */
}

/* 2.71 / 2.1 = 1.29 tokens a step pay beside others, too; 1.9 / 1.55 = 1.23 only alone. */
static void beside_others_they_must_bring_more(void **state)
{
	(void)state;
	struct worth_draft draft = {.acceptance = 0.9, .row = 0.55, .beside = true};
	assert_int_equal(worth_length(&draft, 2), 2);
	assert_int_equal(worth_length(&draft, 1), 0);
	draft.beside = false;
	assert_int_equal(worth_length(&draft, 1), 1);
	struct worth_cost cost = {0};
	worth_learn(&cost, 2, 1000);
	assert_true(worth_shares(&cost, 2, 0, 0).beside);
	assert_false(worth_shares(&cost, 1, 0, 0).beside);
}

static void steps_teach_what_a_row_costs(void **state)
{
	(void)state;
	struct worth_cost cost = {0};
	assert_true(worth_step_us(&cost, 1) == 0);
	for (uint32_t i = 0; i < 200; i++)
		worth_learn(&cost, 1 + i % 9, 1000 + 200 * (1 + i % 9));
	assert_float_equal(worth_step_us(&cost, 1), 1200, 1);
	assert_float_equal(worth_step_us(&cost, 9), 2800, 1);
	struct worth_draft draft = worth_shares(&cost, 1, 600, 120);
	assert_float_equal(draft.row, 200.0 / 1200, 1e-3);
	assert_float_equal(draft.make, 0.5, 1e-3);
	assert_float_equal(draft.turn, 0.1, 1e-3);
	/* Four sequences: a draft for each. */
	assert_float_equal(worth_shares(&cost, 4, 0, 0).row, 800.0 / 1800, 1e-3);
	/* One that was interrupted for a second moves little. */
	worth_learn(&cost, 1, 1e6);
	assert_true(worth_step_us(&cost, 1) < 1400);
}

static void steps_of_one_size_teach_what_they_can(void **state)
{
	(void)state;
	struct worth_cost cost = {0};
	for (uint32_t i = 0; i < 50; i++)
		worth_learn(&cost, 1, 1000);
	assert_float_equal(worth_step_us(&cost, 1), 1000, 1e-6);
	assert_float_equal(worth_shares(&cost, 1, 0, 0).row, 0.25, 1e-6);
	/* Whatever was measured, a row costs something, and no more than a step. */
	for (uint32_t i = 0; i < 100; i++)
		worth_learn(&cost, 1 + i % 4, 1000 - 200 * (i % 4));
	assert_true(worth_shares(&cost, 1, 0, 0).row > 0);
	for (uint32_t i = 0; i < 100; i++)
		worth_learn(&cost, 1 + i % 4, 1000 * (1 + i % 4) * (1 + i % 4));
	assert_true(worth_shares(&cost, 1, 0, 0).row <= 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drafts_that_are_wrong_are_not_made),
		cmocka_unit_test(the_surer_the_longer),
		cmocka_unit_test(what_drafts_cost_makes_them_fewer),
		cmocka_unit_test(beside_others_they_must_bring_more),
		cmocka_unit_test(steps_teach_what_a_row_costs),
		cmocka_unit_test(steps_of_one_size_teach_what_they_can),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
