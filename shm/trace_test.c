#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "shm/testing.h"
#include "shm/trace.h"

static struct shm_run run, worker;

static int set_up(void **state)
{
	(void)state;
	run = test_run_make();
	worker = test_join(&run, ROLE_WORKER);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	test_end(&worker);
	test_run_remove(&run);
	return 0;
}

static void nothing_is_written_unless_somebody_traces(void **state)
{
	(void)state;
	trace_put(&worker, TRACE_STEP, 1, 2, trace_begin(&worker));
	assert_int_equal(trace_end_of(&run, worker.me), 0);
	trace_ask(&run, trace_now_ns() - 1);
	assert_int_equal(trace_begin(&worker), 0);
	trace_ask(&run, trace_now_ns() + 60000000000u);
	assert_true(trace_begin(&worker) > 0);
	trace_ask(&run, 0);
	assert_int_equal(trace_begin(&worker), 0);
}

static void spans_are_read_once_and_in_order(void **state)
{
	(void)state;
	struct trace_span spans[8];
	uint64_t cursor = trace_end_of(&run, worker.me), lost = 0;
	for (uint32_t i = 0; i < 5; i++)
		trace_put_span(&worker, &(struct trace_span){1000 + i, i, TRACE_DRAW, 7, 100 + i});
	assert_int_equal(trace_read(&run, worker.me, &cursor, spans, 3, &lost), 3);
	assert_int_equal(trace_read(&run, worker.me, &cursor, spans + 3, 5, &lost), 2);
	assert_int_equal(trace_read(&run, worker.me, &cursor, spans, 8, &lost), 0);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(spans[i].start_ns, 1000 + i);
		assert_int_equal(spans[i].took_ns, i);
		assert_int_equal(spans[i].kind, TRACE_DRAW);
		assert_int_equal(spans[i].slot, 7);
		assert_int_equal(spans[i].position, 100 + i);
	}
	assert_int_equal(lost, 0);
}

static void what_was_overwritten_is_counted(void **state)
{
	(void)state;
	static struct trace_span spans[TRACE_RING_RECORDS];
	uint64_t cursor = 0, lost = 0;
	for (uint32_t i = 0; i < TRACE_RING_RECORDS + 10; i++)
		trace_put_span(&worker, &(struct trace_span){i + 1, 0, TRACE_STEP, 0, i});
	assert_int_equal(trace_read(&run, worker.me, &cursor, spans, TRACE_RING_RECORDS, &lost),
			 TRACE_RING_RECORDS);
	assert_int_equal(lost, 10);
	assert_int_equal(spans[0].position, 10);
	/* A damaged count is no reason to read what isn't there. */
	cursor = UINT64_MAX;
	assert_int_equal(trace_read(&run, worker.me, &cursor, spans, 1, &lost), 0);
}

#define TOLD 200000u

static void *write_many(void *context)
{
	(void)context;
	for (uint32_t i = 0; i < TOLD; i++)
		trace_put_span(&worker, &(struct trace_span){i, 2ull * i, TRACE_STEP, i & 0xff, i});
	return NULL;
}

static void a_span_is_read_whole_or_not_at_all(void **state)
{
	(void)state;
	struct trace_span spans[64];
	uint64_t cursor = 0, lost = 0, read = 0;
	pthread_t writer;
	assert_int_equal(pthread_create(&writer, NULL, write_many, NULL), 0);
	while (cursor < TOLD) {
		uint32_t n = trace_read(&run, worker.me, &cursor, spans, 64, &lost);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(spans[i].start_ns, spans[i].position);
			assert_int_equal(spans[i].took_ns, 2ull * spans[i].position);
			assert_int_equal(spans[i].slot, spans[i].position & 0xff);
		}
		read += n;
	}
	pthread_join(writer, NULL);
	assert_int_equal(read + lost, TOLD);
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(nothing_is_written_unless_somebody_traces),
		IN_RUN(spans_are_read_once_and_in_order),
		IN_RUN(what_was_overwritten_is_counted),
		IN_RUN(a_span_is_read_whole_or_not_at_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
