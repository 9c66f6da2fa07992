#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "gateway/gw_meta.h"

static struct gw_shape shape_of(unsigned bits)
{
	return (struct gw_shape){
		.endpoint = bits & 1 ? GW_CHAT : GW_COMPLETIONS,
		.stream = bits & 2,
		.meta = {.created_s = INT64_MAX - bits,
			 .chat = bits & 1,
			 .include_usage = bits & 4,
			 .logprobs = bits & 8,
			 .echo = bits & 16,
			 .token_ids = bits & 32,
			 .keep_special = bits & 64,
			 .n = 1 + bits},
	};
}

static void what_is_written_is_read(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 128; bits++) {
		struct gw_shape shape = shape_of(bits), back;
		struct svc_err err;
		struct buf text = {0};
		gw_shape_print(&text, &shape);
		assert_true(text.len < GW_SHAPE_BYTES);
		/* As in a region: a terminator, then what was there before. */
		buf_append(&text, "\0garbage", 8);
		assert_int_equal(gw_shape_read((struct span){text.ptr, text.len}, &back, &err),
				 SVC_OK);
		assert_int_equal(back.endpoint, shape.endpoint);
		assert_true(back.stream == shape.stream && back.meta.chat == shape.meta.chat);
		assert_true(back.meta.include_usage == shape.meta.include_usage);
		assert_true(back.meta.logprobs == shape.meta.logprobs);
		assert_true(back.meta.echo == shape.meta.echo);
		assert_true(back.meta.token_ids == shape.meta.token_ids);
		assert_true(back.meta.keep_special == shape.meta.keep_special);
		assert_true(back.meta.n == shape.meta.n);
		assert_true(back.meta.created_s == shape.meta.created_s);
		buf_free(&text);
	}
}

static void damage_is_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",
		"x",
		"{}",
		"[]",
		"{\"endpoint\":1,\"n\":1}",
		"{\"endpoint\":4,\"created\":1,\"n\":1,\"stream\":true,\"usage\":true,\"logprobs\":"
		"true,"
		"\"echo\":true,\"ids\":true,\"special\":true}",
		"{\"endpoint\":1,\"created\":1,\"n\":0,\"stream\":true,\"usage\":true,\"logprobs\":"
		"true,"
		"\"echo\":true,\"ids\":true,\"special\":true}",
		"{\"endpoint\":1,\"created\":1,\"n\":1,\"stream\":1,\"usage\":true,\"logprobs\":"
		"true,"
		"\"echo\":true,\"ids\":true,\"special\":true}",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct gw_shape shape;
		struct svc_err err;
		assert_int_equal(gw_shape_read(span_of(texts[i]), &shape, &err), SVC_CORRUPT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(damage_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
