#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <zmq.h>
#include <cmocka.h>

#include "services/bus.h"
#include "shm/testing.h"

#define PATIENCE_MS 10000

static struct shm_run run, alice, bob;
static struct bus *from_alice, *to_bob;

static int set_up(void **state)
{
	(void)state;
	struct svc_err err = {0};
	run = test_run_make();
	alice = test_join(&run, ROLE_GATEWAY);
	bob = test_join(&run, ROLE_TOKENIZER);
	test_must(bus_open(&alice, &from_alice, &err) == SVC_OK, err.msg);
	test_must(bus_open(&bob, &to_bob, &err) == SVC_OK, err.msg);
	bus_refresh(from_alice);
	bus_refresh(to_bob);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	from_alice = bus_close(from_alice);
	to_bob = bus_close(to_bob);
	test_end(&alice);
	test_end(&bob);
	test_run_remove(&run);
	return 0;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* As the loop does: waits for the descriptor, then asks until there is nothing more. */
static bool receive(struct bus *bus, struct msg *ret_msg)
{
	for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
		struct pollfd fd = {bus_fd(bus), POLLIN, 0};
		if (bus_receive(bus, ret_msg))
			return true;
		poll(&fd, 1, 10);
	}
	return false;
}

/* A connection takes a moment; until then a hint is dropped. */
static void send_once(struct bus *bus, uint32_t entry, struct msg *msg)
{
	uint64_t sent = bus_counters(bus)->sent;
	for (int ms = 0; ms < PATIENCE_MS && bus_counters(bus)->sent == sent; ms++) {
		bus_send(bus, entry, msg);
		nap();
	}
	assert_int_equal(bus_counters(bus)->sent, sent + 1);
}

static void a_hint_arrives(void **state)
{
	(void)state;
	struct msg hint = {.kind = MSG_LOOK, .n_slots = 2, .slots = {7, 9}}, seen;
	send_once(from_alice, bob.me, &hint);
	assert_true(receive(to_bob, &seen));
	assert_int_equal(seen.kind, MSG_LOOK);
	assert_int_equal(seen.sender, alice.number);
	assert_int_equal(seen.sequence, 1);
	assert_int_equal(seen.n_slots, 2);
	assert_int_equal(seen.slots[1], 9);
	assert_false(bus_receive(to_bob, &seen));
	assert_int_equal(bus_counters(to_bob)->received, 1);
	assert_int_equal(bus_counters(to_bob)->gaps + bus_counters(to_bob)->repeats, 0);
}

/* Writes to bob's socket as if it were alice. */
static void forge(uint64_t sequence, const void *bytes, size_t len)
{
	static void *context, *push;
	struct msg msg = {.kind = MSG_LOOK, .sender = alice.number, .sequence = sequence};
	uint8_t room[MSG_MAX_BYTES];
	char endpoint[320];
	int linger = PATIENCE_MS;
	context = zmq_ctx_new();
	push = zmq_socket(context, ZMQ_PUSH);
	snprintf(endpoint, sizeof endpoint, "ipc://%s/bus/%lu", run.dir, bob.number);
	zmq_setsockopt(push, ZMQ_LINGER, &linger, sizeof linger);
	assert_int_equal(zmq_connect(push, endpoint), 0);
	if (!bytes) {
		len = msg_encode(&msg, room);
		bytes = room;
	}
	assert_int_equal(zmq_send(push, bytes, len, 0), len);
	zmq_close(push);
	zmq_ctx_term(context);
}

static void gaps_and_repeats_are_counted(void **state)
{
	(void)state;
	const struct {
		uint64_t sequence, gaps, repeats;
	} rows[] = {{1, 0, 0}, {2, 0, 0}, {4, 1, 0}, {4, 1, 1}, {3, 1, 2}, {5, 1, 2}, {9, 2, 2}};
	struct msg seen;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		forge(rows[i].sequence, NULL, 0);
		assert_true(receive(to_bob, &seen));
		assert_int_equal(bus_counters(to_bob)->gaps, rows[i].gaps);
		assert_int_equal(bus_counters(to_bob)->repeats, rows[i].repeats);
	}
}

/* Sequences begin with 1: a first message that says otherwise comes after a lost one. */
static void a_lost_beginning_is_a_gap(void **state)
{
	(void)state;
	struct msg seen;
	forge(2, NULL, 0);
	assert_true(receive(to_bob, &seen));
	assert_int_equal(bus_counters(to_bob)->gaps, 1);
}

static void garbage_is_counted_and_skipped(void **state)
{
	(void)state;
	static char large[MSG_MAX_BYTES + 100];
	struct msg seen;
	forge(0, "\xff\xff\xff", 3);
	forge(0, large, sizeof large);
	forge(1, NULL, 0);
	assert_true(receive(to_bob, &seen));
	assert_int_equal(seen.sequence, 1);
	/* They came by different connections, in any order. */
	for (int ms = 0; ms < PATIENCE_MS && bus_counters(to_bob)->malformed < 2; ms++) {
		assert_false(bus_receive(to_bob, &seen));
		nap();
	}
	assert_int_equal(bus_counters(to_bob)->malformed, 2);
}

/* The peer's process is killed: sending neither blocks nor fails, and its successor in the same
 * entry gets nothing that was meant for it. */
static void a_dead_peer_costs_nothing(void **state)
{
	(void)state;
	int tell[2];
	uint64_t said[2];
	assert_int_equal(pipe(tell), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct svc_err err = {0};
		struct bus *bus = NULL;
		struct shm_run mine = test_join(&run, ROLE_SAMPLER);
		test_must(bus_open(&mine, &bus, &err) == SVC_OK, err.msg);
		said[0] = mine.me;
		said[1] = mine.number;
		test_must(write(tell[1], said, sizeof said) == sizeof said, "write");
		for (;;)
			pause();
	}
	assert_int_equal(read(tell[0], said, sizeof said), sizeof said);
	uint32_t entry = (uint32_t)said[0];
	struct msg hint = {.kind = MSG_LOOK, .n_slots = 1}, seen;
	send_once(from_alice, entry, &hint);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(tell[0]);
	close(tell[1]);
	uint64_t dropped = bus_counters(from_alice)->dropped;
	for (int i = 0; i < 2000; i++)
		bus_send(from_alice, entry, &hint);
	assert_true(bus_counters(from_alice)->dropped > dropped);
	assert_true(inc_is_dead(&run, entry));
	assert_true(inc_bury(&run, entry));
	struct svc_err err = {0};
	struct bus *bus = NULL;
	struct shm_run successor = test_join(&run, ROLE_SAMPLER);
	assert_int_equal(successor.me, entry);
	assert_int_equal(bus_open(&successor, &bus, &err), SVC_OK);
	hint.slots[0] = 5;
	send_once(from_alice, entry, &hint);
	assert_true(receive(bus, &seen));
	assert_int_equal(seen.sequence, 1);
	assert_int_equal(seen.slots[0], 5);
	assert_false(bus_receive(bus, &seen));
	bus_close(bus);
	test_end(&successor);
}

/* Nobody reads: what doesn't fit is dropped and counted, never waited for. */
static void a_full_peer_is_not_waited_for(void **state)
{
	(void)state;
	struct msg hint = {.kind = MSG_LOOK, .n_slots = MSG_MAX_SLOTS};
	send_once(from_alice, bob.me, &hint);
	for (int i = 0; i < 20000; i++)
		bus_send(from_alice, bob.me, &hint);
	const struct bus_counters *counters = bus_counters(from_alice);
	assert_true(counters->dropped > 0);
	struct msg seen;
	uint64_t got = 0;
	while (receive(to_bob, &seen) && ++got < counters->sent)
		;
	assert_int_equal(got, counters->sent);
	/* Only what was accepted has a number: a drop at the sender is no gap. */
	assert_int_equal(bus_counters(to_bob)->gaps, 0);
}

static void everybody_else_is_told(void **state)
{
	(void)state;
	struct svc_err err = {0};
	struct bus *bus = NULL;
	struct shm_run carol = test_join(&run, ROLE_SAMPLER);
	struct msg hello = {.kind = MSG_HELLO}, seen;
	assert_int_equal(bus_open(&carol, &bus, &err), SVC_OK);
	send_once(from_alice, bob.me, &hello);
	send_once(from_alice, carol.me, &hello);
	assert_true(receive(to_bob, &seen) && receive(bus, &seen));
	uint64_t sent = bus_counters(from_alice)->sent;
	bus_broadcast(from_alice, &hello);
	assert_int_equal(bus_counters(from_alice)->sent, sent + 2);
	assert_true(receive(to_bob, &seen) && receive(bus, &seen));
	/* To nobody, to myself, to entries that don't exist: nothing happens. */
	bus_send(from_alice, 0, &hello);
	bus_send(from_alice, alice.me, &hello);
	bus_send(from_alice, INC_COUNT, &hello);
	assert_int_equal(bus_counters(from_alice)->sent, sent + 2);
	bus_close(bus);
	test_end(&carol);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
	(void)state;
	struct svc_err err = {0};
	struct bus *bus = NULL;
	struct shm_run far = alice;
	memset(far.dir, 'x', 150);
	far.dir[0] = '/';
	far.dir[150] = 0;
	assert_int_equal(bus_open(&far, &bus, &err), SVC_IO);
	assert_non_null(strstr(err.msg, "107 bytes"));
	assert_null(bus_close(NULL));
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(a_hint_arrives),
		IN_RUN(gaps_and_repeats_are_counted),
		IN_RUN(a_lost_beginning_is_a_gap),
		IN_RUN(garbage_is_counted_and_skipped),
		IN_RUN(a_dead_peer_costs_nothing),
		IN_RUN(a_full_peer_is_not_waited_for),
		IN_RUN(everybody_else_is_told),
		IN_RUN(a_path_that_is_too_long_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
