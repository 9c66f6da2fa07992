#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "services/bell.h"
#include "shm/testing.h"

#define RINGS	    20000u
#define PATIENCE_MS 10000

static struct shm_run run, alice, bob;
static struct bell *from_alice, *at_bob;

static int set_up(void **state)
{
	(void)state;
	struct svc_err err = {0};
	run = test_run_make();
	alice = test_join(&run, ROLE_GATEWAY);
	bob = test_join(&run, ROLE_TOKENIZER);
	test_must(bell_open(&alice, &from_alice, &err) == SVC_OK, err.msg);
	test_must(bell_open(&bob, &at_bob, &err) == SVC_OK, err.msg);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	from_alice = bell_close(from_alice);
	at_bob = bell_close(at_bob);
	test_end(&alice);
	test_end(&bob);
	test_run_remove(&run);
	return 0;
}

static bool hears(int timeout_ms)
{
	struct pollfd fd = {bell_fd(at_bob), POLLIN, 0};
	return poll(&fd, 1, timeout_ms) == 1;
}

static void ring(uint32_t slot)
{
	bell_ring(from_alice, bob.me, slot);
	bell_flush(from_alice);
}

static void who_sleeps_is_woken_once(void **state)
{
	(void)state;
	uint32_t slot;
	assert_true(bell_sleep(at_bob));
	assert_false(hears(0));
	ring(3);
	ring(9);
	assert_true(hears(PATIENCE_MS));
	bell_quiet(at_bob);
	assert_false(hears(0));
	bell_wake(at_bob);
	assert_true(bell_answer(at_bob, &slot));
	assert_int_equal(slot, 3);
	assert_true(bell_answer(at_bob, &slot));
	assert_int_equal(slot, 9);
	assert_false(bell_answer(at_bob, &slot));
}

static void who_is_awake_gets_no_byte(void **state)
{
	(void)state;
	uint32_t slot;
	ring(5);
	ring(5);
	assert_false(hears(0));
	/* But doesn't fall asleep over it. */
	assert_false(bell_sleep(at_bob));
	assert_true(bell_answer(at_bob, &slot));
	assert_int_equal(slot, 5);
	assert_false(bell_answer(at_bob, &slot));
	assert_true(bell_sleep(at_bob));
}

static void nothing_is_told_before_the_flush(void **state)
{
	(void)state;
	assert_true(bell_sleep(at_bob));
	bell_ring(from_alice, bob.me, 1);
	assert_false(hears(0));
	bell_flush(from_alice);
	assert_true(hears(PATIENCE_MS));
}

static void what_is_nobody_or_no_slot_is_not_rung(void **state)
{
	(void)state;
	uint32_t slot;
	assert_true(bell_sleep(at_bob));
	bell_ring(from_alice, 0, 1);
	bell_ring(from_alice, INC_COUNT, 1);
	bell_ring(from_alice, alice.me, 1);
	bell_ring(from_alice, bob.me, run.n_table);
	bell_flush(from_alice);
	assert_false(hears(0));
	assert_false(bell_answer(at_bob, &slot));
	assert_false(bell_answer(from_alice, &slot));
}

/* Whoever may map the segment may set any bit. */
static void bits_beyond_the_table_say_nothing(void **state)
{
	(void)state;
	uint32_t slot;
	atomic_store(&run.bells[(size_t)bob.me * run.bell_lines].rung[0], UINT64_MAX);
	for (uint32_t i = 0; i < run.n_table; i++) {
		assert_true(bell_answer(at_bob, &slot));
		assert_int_equal(slot, i);
	}
	assert_false(bell_answer(at_bob, &slot));
}

static void a_successor_is_found(void **state)
{
	(void)state;
	struct svc_err err = {0};
	uint32_t slot;
	assert_true(bell_sleep(at_bob));
	ring(1);
	/* As if killed: the FIFO has no reader any more, the entry says "asleep". */
	at_bob = bell_close(at_bob);
	atomic_store(&run.ctl->incs[bob.me].asleep, 1);
	ring(2);
	uint32_t entry = bob.me;
	test_end(&bob);
	assert_true(inc_bury(&alice, entry));
	bob = test_join(&run, ROLE_TOKENIZER);
	assert_int_equal(bob.me, entry);
	assert_int_equal(bell_open(&bob, &at_bob, &err), SVC_OK);
	/* What its predecessor was rung for is looked at, too. */
	assert_false(bell_sleep(at_bob));
	while (bell_answer(at_bob, &slot))
		;
	assert_true(bell_sleep(at_bob));
	ring(7);
	assert_true(hears(PATIENCE_MS));
	assert_true(bell_answer(at_bob, &slot));
	assert_int_equal(slot, 7);
}

static void *ring_many(void *arg)
{
	const _Atomic uint32_t *answered = arg;
	for (uint32_t i = 0; i < RINGS; i++) {
		ring(i % run.n_table);
		while (atomic_load(answered) <= i)
			sched_yield();
	}
	return NULL;
}

/* Each ring is answered before the next: with one that is slept over this waits until the poll's
 * end. */
static void no_ring_is_slept_over(void **state)
{
	(void)state;
	_Atomic uint32_t answered = 0;
	pthread_t ringer;
	assert_int_equal(pthread_create(&ringer, NULL, ring_many, &answered), 0);
	bool in_time = true;
	while (atomic_load(&answered) < RINGS) {
		uint32_t slot;
		if (bell_sleep(at_bob))
			in_time &= hears(PATIENCE_MS);
		bell_wake(at_bob);
		bell_quiet(at_bob);
		while (bell_answer(at_bob, &slot)) {
			in_time &= slot == atomic_load(&answered) % run.n_table;
			atomic_fetch_add(&answered, 1);
		}
		if (!in_time)
			atomic_store(&answered, RINGS);
	}
	pthread_join(ringer, NULL);
	assert_true(in_time);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_sleeps_is_woken_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(who_is_awake_gets_no_byte, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_is_told_before_the_flush, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(what_is_nobody_or_no_slot_is_not_rung, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(bits_beyond_the_table_say_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_successor_is_found, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_ring_is_slept_over, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
