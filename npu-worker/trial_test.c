#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "npu-worker/trial.h"

struct machine {
	uint64_t now_us, n_tokens;
	uint32_t us[2]; /* of a step, by way */
	uint32_t went[2];
};

static void run(struct trial *trial, struct machine *machine, uint32_t steps)
{
	machine->went[0] = machine->went[1] = 0;
	for (uint32_t i = 0; i < steps; i++) {
		bool way = trial_way(trial);
		machine->went[way]++;
		machine->n_tokens += 8;
		machine->now_us += machine->us[way];
		trial_step(trial, machine->now_us, machine->n_tokens);
	}
}

static void the_faster_way_is_taken(void **state)
{
	(void)state;
	for (int faster = 0; faster < 2; faster++) {
		struct trial trial = {0};
		struct machine machine = {.us = {10000, 10000}};
		machine.us[!faster] = 10300;
		run(&trial, &machine, 4 * 32);
		assert_int_equal(machine.went[0], machine.went[1]);
		run(&trial, &machine, 10000);
		assert_true(machine.went[!faster] < 10000 / 30);
		assert_int_equal(trial_way(&trial), faster);
	}
}

static void it_is_found_out_again_when_things_change(void **state)
{
	(void)state;
	struct trial trial = {0};
	struct machine machine = {.us = {10000, 9000}};
	run(&trial, &machine, 5000);
	machine.us[1] = 12000;
	run(&trial, &machine, 5000);
	run(&trial, &machine, 5000);
	assert_true(machine.went[0] > 4800);
}

/* Every step gets dearer, by more than the ways differ. */
static void a_drift_deceives_nobody(void **state)
{
	(void)state;
	struct trial trial = {0};
	struct machine machine = {.us = {10000, 9500}};
	for (int i = 0; i < 40; i++) {
		run(&trial, &machine, 50);
		machine.us[0] = machine.us[0] * 26 / 25;
		machine.us[1] = machine.us[1] * 26 / 25;
	}
	run(&trial, &machine, 1000);
	assert_true(machine.went[1] > 900);
}

/* A pause of a second in every turn, told; and pairs that are all too short teach nothing. */
static void what_is_interrupted_does_not_count(void **state)
{
	(void)state;
	struct trial trial = {0};
	struct machine machine = {.us = {10000, 9500}};
	for (int i = 0; i < 100; i++) {
		run(&trial, &machine, 10);
		machine.now_us += 1000000;
		trial_interrupt(&trial);
	}
	assert_int_equal(trial.n_pairs, 0);
	for (int i = 0; i < 100; i++) {
		run(&trial, &machine, 25);
		machine.now_us += 1000000;
		trial_interrupt(&trial);
	}
	assert_int_equal(trial.n_pairs, 0);
	run(&trial, &machine, 1000);
	assert_true(machine.went[1] > 900);
}

/* With something else every few steps nothing new is learnt, and what is known decides. */
static void interruptions_do_not_hold_the_slower_way(void **state)
{
	(void)state;
	for (uint32_t steps = 3; steps < 48; steps++)
		for (int faster = 0; faster < 2; faster++) {
			struct trial trial = {0};
			struct machine machine = {.us = {10000, 10000}};
			uint32_t slower = 0;
			machine.us[!faster] = 11000;
			run(&trial, &machine, 4 * 32 + 512 + 16); /* in the fifth pair */
			for (int i = 0; i < 100; i++) {
				trial_interrupt(&trial);
				run(&trial, &machine, steps);
				slower += machine.went[!faster];
			}
			assert_true(slower <= 50 * steps);
		}
}

/* For a minute, in the first turn: one of four comparisons. */
static void one_that_stood_still_says_little(void **state)
{
	(void)state;
	struct trial trial = {0};
	struct machine machine = {.us = {10000, 8000}};
	run(&trial, &machine, 10);
	machine.now_us += 60000000;
	run(&trial, &machine, 118);
	assert_true(trial_way(&trial));
}

static void no_tokens_no_division(void **state)
{
	(void)state;
	struct trial trial = {0};
	for (int i = 0; i < 100; i++)
		trial_step(&trial, 5, 5);
	assert_int_equal(trial.n_pairs, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_faster_way_is_taken),
		cmocka_unit_test(it_is_found_out_again_when_things_change),
		cmocka_unit_test(a_drift_deceives_nobody),
		cmocka_unit_test(what_is_interrupted_does_not_count),
		cmocka_unit_test(interruptions_do_not_hold_the_slower_way),
		cmocka_unit_test(one_that_stood_still_says_little),
		cmocka_unit_test(no_tokens_no_division),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
