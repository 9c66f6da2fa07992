/* traceparent as W3C's specification has it, and the form of a span. */
#include "gateway/otlp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the above first. */
#include <cmocka.h>

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static void contexts_are_read(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool good, sampled;
	} cases[] = {
		{"00-" TRACE "-" PARENT "-01", true, true},
		{"00-" TRACE "-" PARENT "-00", true, false},
		{"00-" TRACE "-" PARENT "-fe", true, false},
		{"00-" TRACE "-" PARENT "-ff", true, true},
		{"cc-" TRACE "-" PARENT "-01", true, true},
		{"cc-" TRACE "-" PARENT "-01-what-comes-later", true, true},
		{"cc-" TRACE "-" PARENT "-01.what", false, false},
		{"00-" TRACE "-" PARENT "-01-", false, false},
		{"ff-" TRACE "-" PARENT "-01", false, false},
		{"00-00000000000000000000000000000000-" PARENT "-01", false, false},
		{"00-" TRACE "-0000000000000000-01", false, false},
		{"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", false, false},
		{"00-" TRACE "-" PARENT "-0g", false, false},
		{"00-" TRACE "_" PARENT "-01", false, false},
		{"00-" TRACE "-" PARENT "-1", false, false},
		{"", false, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct gw_trace_context context;
		if (gw_traceparent_read(span_of(cases[i].text), &context) != cases[i].good)
			fail_msg("%s", cases[i].text);
		if (!cases[i].good)
			continue;
		assert_int_equal(context.sampled, cases[i].sampled);
		assert_memory_equal(context.trace, "\x0a\xf7\x65\x19\x16\xcd\x43\xdd", 8);
		assert_memory_equal(context.parent, "\xb7\xad\x6b\x71\x69\x20\x33\x31", 8);
	}
}

static void spans_are_written(void **state)
{
	(void)state;
	struct buf out = {0};
	struct gw_span span = {.name = "decode",
			       .start_us = 1700000000000001u,
			       .end_us = 1700000000000003u,
			       .has_parent = true,
			       .n_attributes = 2,
			       .attributes = {{"a", "\"\n", 0}, {"b", NULL, -5}}};
	struct gw_trace_context context;
	assert_true(gw_traceparent_read(span_of("00-" TRACE "-" PARENT "-01"), &context));
	memcpy(span.trace, context.trace, sizeof span.trace);
	memcpy(span.parent, context.parent, sizeof span.parent);
	memcpy(span.id, "\x01\x02\x03\x04\x05\x06\x07\x08", sizeof span.id);
	gw_span_print(&out, &span);
	assert_string_equal(out.ptr,
			    "{\"traceId\":\"" TRACE "\",\"spanId\":\"0102030405060708\","
			    "\"parentSpanId\":\"" PARENT "\",\"name\":\"decode\",\"kind\":1,"
			    "\"startTimeUnixNano\":\"1700000000000001000\","
			    "\"endTimeUnixNano\":\"1700000000000003000\",\"attributes\":["
			    "{\"key\":\"a\",\"value\":{\"stringValue\":\"\\\"\\n\"}},"
			    "{\"key\":\"b\",\"value\":{\"intValue\":\"-5\"}}],\"status\":{}}");
	buf_free(&out);
}

static void wrong_endpoints_are_refused(void **state)
{
	(void)state;
	static const char *const wrong[] = {
		"https://localhost",
		"localhost:4318",
		"http://",
		"http://:4318",
		"http://localhost:",
		"http://localhost:0",
		"http://localhost:65536",
		"http://localhost:1x",
		"http://a@localhost",
		"http://localhost/?x=1",
		"http://[::1",
		"http://[::1]4318",
		"http://a b",
	};
	struct event_base *base = event_base_new();
	struct gw_otlp *otlp = NULL;
	struct svc_err err;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		if (gw_otlp_open(base, wrong[i], "i", &otlp, &err) != SVC_BAD_CONFIG)
			fail_msg("%s", wrong[i]);
		assert_string_equal(err.param, "otlp-endpoint");
	}
	static const char *const good[] = {"http://127.0.0.1", "http://127.0.0.1:1/",
					   "http://[::1]:9/a"};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_int_equal(gw_otlp_open(base, good[i], "i", &otlp, &err), SVC_OK);
		otlp = gw_otlp_free(otlp);
	}
	event_base_free(base);
}

/* Nobody is there: the queue fills and stays within its limit; nothing waits for anything. */
static void a_dead_collector_costs_spans(void **state)
{
	(void)state;
	struct event_base *base = event_base_new();
	struct gw_otlp *otlp = NULL;
	const struct gw_span span = {.name = "queue"};
	struct svc_err err;
	assert_int_equal(gw_otlp_open(base, "http://127.0.0.1:1", "i", &otlp, &err), SVC_OK);
	for (unsigned i = 0; i < GW_OTLP_QUEUE + 100; i++)
		gw_otlp_add(otlp, &span);
	assert_int_equal(gw_otlp_counts(otlp).dropped, 100);
	assert_false(gw_otlp_flush(otlp));
	for (unsigned i = 0; i < 1000 && gw_otlp_counts(otlp).failures == 0; i++)
		event_base_loop(base, EVLOOP_ONCE);
	assert_int_equal(gw_otlp_counts(otlp).failures, 1);
	assert_int_equal(gw_otlp_counts(otlp).sent, 0);
	assert_true(gw_otlp_flush(otlp));
	gw_otlp_add(otlp, &span);
	assert_int_equal(gw_otlp_counts(otlp).dropped, 101);
	gw_otlp_free(otlp);
	event_base_free(base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contexts_are_read),
		cmocka_unit_test(spans_are_written),
		cmocka_unit_test(wrong_endpoints_are_refused),
		cmocka_unit_test(a_dead_collector_costs_spans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
