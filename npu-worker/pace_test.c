#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "npu-worker/pace.h"

static const struct pace_question alone = {false, 1000, 256, 64};

static uint32_t busy(struct pace *pace, uint32_t waiting)
{
	const struct pace_question question = {true, waiting, 256, 64};
	return pace_rows(pace, &question);
}

static void step(struct pace *pace, uint32_t n_decode, uint32_t n_prompt, double us, bool is_busy)
{
	pace_learn(pace, n_decode, n_prompt, us);
	pace_step_over(pace, is_busy);
}

/* A step that generates takes 10 ms, a prompt's position 1 ms. */
static struct pace usual(void)
{
	struct pace pace = {0};
	step(&pace, 0, 100, 100000, false);
	step(&pace, 8, 0, 10000, true);
	return pace;
}

static void a_prompt_alone_has_the_step(void **state)
{
	(void)state;
	struct pace pace = {0};
	assert_int_equal(pace_rows(&pace, &alone), 256);
	pace = usual();
	assert_int_equal(pace_rows(&pace, &alone), 256);
}

static void a_long_prompt_is_cut_so_that_streams_go_on(void **state)
{
	(void)state;
	struct pace pace = {0};
	assert_int_equal(busy(&pace, 8000), 64);
	pace = usual();
	assert_int_equal(busy(&pace, 8000), 15);
	assert_int_equal(busy(&pace, 257), 15);
	pace.row_us = 100000;
	assert_int_equal(busy(&pace, 8000), 4);
	pace.row_us = 1;
	assert_int_equal(busy(&pace, 8000), 64);
}

static void short_prompts_are_computed_at_once_but_not_often(void **state)
{
	(void)state;
	struct pace pace = usual();
	assert_int_equal(busy(&pace, 10), 15);
	assert_int_equal(busy(&pace, 256), 256);
	step(&pace, 8, 256, 266000, true);
	for (int i = 0; i < 128; i++) {
		assert_true(busy(&pace, 256) < 20);
		step(&pace, 8, 15, 25000, true);
	}
	assert_int_equal(busy(&pace, 256), 256);
	/* Who began after it hasn't seen it. */
	step(&pace, 8, 256, 266000, true);
	assert_true(busy(&pace, 256) < 20);
	step(&pace, 0, 100, 100000, false);
	assert_int_equal(busy(&pace, 256), 256);
}

/* Where a step is long by itself, too, and whatever else is in the steps between. */
static void a_long_step_is_one_that_was_granted(void **state)
{
	(void)state;
	struct pace pace = {0};
	const struct pace_question question = {true, 150, 256, 1};
	step(&pace, 0, 100, 100000, false);
	step(&pace, 8, 0, 100000, true);
	assert_int_equal(pace_rows(&pace, &question), 150);
	step(&pace, 8, 150, 250000, true);
	for (int i = 0; i < 128; i++) {
		assert_int_equal(pace_rows(&pace, &question), 1);
		pace_step_over(&pace, true);
	}
	assert_int_equal(pace_rows(&pace, &question), 150);
}

static void one_that_stood_still_says_little(void **state)
{
	(void)state;
	struct pace pace = usual();
	step(&pace, 8, 0, 600e6, true);
	assert_true(pace.decode_us < 12000);
}

static void what_takes_too_long_is_cut_in_any_case(void **state)
{
	(void)state;
	struct pace pace = usual();
	pace.row_us = 2000;
	assert_int_equal(busy(&pace, 200), 200);
	assert_int_equal(busy(&pace, 201), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompt_alone_has_the_step),
		cmocka_unit_test(a_long_prompt_is_cut_so_that_streams_go_on),
		cmocka_unit_test(short_prompts_are_computed_at_once_but_not_often),
		cmocka_unit_test(a_long_step_is_one_that_was_granted),
		cmocka_unit_test(one_that_stood_still_says_little),
		cmocka_unit_test(what_takes_too_long_is_cut_in_any_case),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
