#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/trace_hops.h"

#define US 1000u

static struct traced span_of(enum trace_kind kind, uint32_t slot, uint32_t position,
			     uint64_t start_us, uint64_t took_us)
{
	return (struct traced){{start_us * US, took_us * US, kind, slot, position}, 1};
}

/* Two tokens of one slot and one of another, in the order in which rings are read. */
static void spans_of_a_token_are_joined(void **state)
{
	(void)state;
	struct traced spans[] = {
		span_of(TRACE_STEP, 3, 40, 1000, 100),	span_of(TRACE_STEP, 3, 41, 1190, 90),
		span_of(TRACE_STEP, 5, 41, 1190, 90),	span_of(TRACE_PREFILL, 5, 40, 900, 90),
		span_of(TRACE_DRAW, 3, 40, 1120, 30),	span_of(TRACE_DRAW, 5, 41, 1300, 10),
		span_of(TRACE_SEND, 3, 40, 1200, 20),	span_of(TRACE_DRAW, 3, 41, 1310, 30),
		span_of(TRACE_TOKENIZE, 3, 0, 100, 10),
	};
	struct hop_times hops[HOP_COUNT];
	assert_true(hops_find(spans, sizeof spans / sizeof *spans, hops));
	assert_int_equal(hops[HOP_STEP].n, 3);
	assert_int_equal(hops[HOP_DRAW].n, 3);
	assert_int_equal(hops[HOP_TOKEN].n, 1);
	assert_int_equal(hops[HOP_TO_CLIENT].n, 1);
	assert_true(hop_percentile(&hops[HOP_STEP], 0) == 90);
	assert_true(hop_percentile(&hops[HOP_STEP], 1) == 100);
	assert_true(hops[HOP_TOKEN].us[0] == 190);
	assert_true(hops[HOP_TO_WORKER].us[0] == 40);
	assert_true(hops[HOP_TO_CLIENT].us[0] == 70);
	assert_true(hop_percentile(&hops[HOP_TO_SAMPLER], 0.5) == 20);
	hops_free(hops);
}

/* The next step began while the sampler drew: no time was waited. */
static void a_step_that_ran_ahead_waited_for_nothing(void **state)
{
	(void)state;
	struct traced spans[] = {
		span_of(TRACE_STEP, 0, 10, 100, 50),
		span_of(TRACE_DRAW, 0, 10, 170, 20),
		span_of(TRACE_STEP, 0, 11, 151, 50),
	};
	struct hop_times hops[HOP_COUNT];
	assert_true(hops_find(spans, 3, hops));
	assert_int_equal(hops[HOP_TO_WORKER].n, 1);
	assert_true(hops[HOP_TO_WORKER].us[0] == 0);
	assert_true(hops[HOP_TOKEN].us[0] == 51);
	hops_free(hops);
}

/* A slot's next request has small positions again: its spans are another token's. */
static void another_request_is_another_token(void **state)
{
	(void)state;
	struct traced spans[] = {
		span_of(TRACE_STEP, 0, 10, 100, 50),
		span_of(TRACE_DRAW, 0, 10, 5000000, 20),
	};
	struct hop_times hops[HOP_COUNT];
	assert_true(hops_find(spans, 2, hops));
	assert_int_equal(hops[HOP_DRAW].n, 0);
	hops_free(hops);
	assert_true(hops_find(spans, 0, hops));
	assert_true(hop_percentile(&hops[HOP_STEP], 0.5) == 0);
	hops_free(hops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spans_of_a_token_are_joined),
		cmocka_unit_test(a_step_that_ran_ahead_waited_for_nothing),
		cmocka_unit_test(another_request_is_another_token),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
