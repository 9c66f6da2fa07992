/* When a device that fails is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "npu-worker/device/backoff.h"

#define SECOND UINT64_C(1000000)

static char dir[] = "/tmp/lockstep-backoff-XXXXXX", path[64];

static int make(void **unused)
{
	(void)unused;
	snprintf(path, sizeof path, "%s/npu-failures", mkdtemp(dir));
	return 0;
}

static int clear(void **unused)
{
	(void)unused;
	unlink(path);
	return rmdir(dir);
}

static uint64_t until(uint64_t now_s)
{
	return backoff_until(dir, now_s * SECOND, 30 * SECOND) / SECOND;
}

static void test_backoff(void **unused)
{
	(void)unused;
	assert_int_equal(until(100), 0);
	backoff_note(dir, 100 * SECOND);
	backoff_note(dir, 120 * SECOND);
	assert_int_equal(until(121), 0); /* two may happen */
	backoff_note(dir, 150 * SECOND);
	assert_int_equal(until(150), 180);
	assert_int_equal(until(179), 180);
	assert_int_equal(until(180), 0);
	/* 120 to 181 is more than a minute; then 150, 181, 182. */
	backoff_note(dir, 181 * SECOND);
	assert_int_equal(until(181), 0);
	backoff_note(dir, 182 * SECOND);
	assert_int_equal(until(182), 212);
	/* Of a clock that has begun anew. */
	assert_int_equal(until(20), 0);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	fputs("short", file);
	fclose(file);
	assert_int_equal(until(182), 0);
	backoff_note("/nowhere", 1);
	assert_int_equal(backoff_until("/nowhere", 1, SECOND), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_backoff)};
	return cmocka_run_group_tests(tests, make, clear);
}
