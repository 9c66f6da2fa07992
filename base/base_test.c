#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/cores.h"
#include "base/err.h"

static void json_string_escapes_and_replaces(void **state)
{
	(void)state;
	struct buf buf = {0};
	buf_json_string(&buf, (struct span){"a\"\\\n\x01\xC3\x28\xED\xA0\xBD\xF0\x9F\xA6\x99", 14});
	assert_string_equal(buf.ptr,
			    "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD(\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
			    "\xF0\x9F\xA6\x99\"");
	buf_free(&buf);
}

/* As Python's bytes.decode(errors="replace"): F stands for U+FFFD. */
static void broken_utf8_is_replaced_by_maximal_subparts(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"\xF0\x9F", "F"},
		{"\xF0\x9F\xA6", "F"},
		{"\xF0\x9F\xA6\xF0\x9F\xA6\x99", "F\xF0\x9F\xA6\x99"},
		{"\xF0\x9F\xF0\x9F", "FF"},
		{"\xE6\xAD", "F"},
		{"\xE6\xADx", "Fx"},
		{"\xE6", "F"},
		{"\x80\x80", "FF"},
		{"\xC0\xAF", "FF"},
		{"\xE0\x80\x80", "FFF"},
		{"\xED\xA0\x80", "FFF"},
		{"\xF4\x90\x80\x80", "FFFF"},
		{"\xF0\x80\x80\x80", "FFFF"},
		{"\xFF\xFE", "FF"},
		{"\xC3\xC3\xA9", "F\xC3\xA9"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct buf got = {0}, want = {0};
		buf_json_string(&got, span_of(cases[i][0]));
		buf_append(&want, "\"", 1);
		for (const char *c = cases[i][1]; *c; c++)
			buf_append(&want, *c == 'F' ? "\xEF\xBF\xBD" : c, *c == 'F' ? 3 : 1);
		buf_append(&want, "\"", 1);
		assert_string_equal(got.ptr, want.ptr);
		buf_free(&got);
		buf_free(&want);
	}
}

static void buf_limit_is_kept(void **state)
{
	(void)state;
	struct buf buf = {.limit = 8};
	buf_append(&buf, "12345678", 8);
	assert_false(buf.failed);
	buf_append(&buf, "9", 1);
	assert_true(buf.failed);
	assert_int_equal(buf.len, 8);
	buf_free(&buf);
}

static void arena_limit_is_kept(void **state)
{
	(void)state;
	struct arena arena;
	arena_init(&arena, 64);
	assert_non_null(arena_alloc(&arena, 33));
	assert_null(arena_alloc(&arena, 17));
	assert_non_null(arena_alloc(&arena, 16));
	arena_free(&arena);
	assert_non_null(arena_copy(&arena, span_of("again")));
	arena_free(&arena);
}

static void error_keeps_its_first_cause(void **state)
{
	(void)state;
	struct svc_err err = {0};
	errno = ENOSPC;
	assert_int_equal(svc_fail_errno(&err, __func__, "cannot reserve %d bytes", 7),
			 SVC_NO_MEMORY);
	svc_err_prefix(&err, "segment %s", "kv");
	assert_string_equal(err.msg, "segment kv: cannot reserve 7 bytes: No space left on device");
	assert_int_equal(svc_code_info((enum svc_code)9999)->http_status, 500);
	for (int i = 0; i < SVC_CODE_COUNT; i++)
		assert_non_null(svc_code_info((enum svc_code)i)->name);
}

/* Client libraries look for these words. */
static void full_context_is_said_in_known_words(void **state)
{
	(void)state;
	struct svc_err err = {0};
	assert_int_equal(svc_fail_too_long(&err, "messages", "prompt", 9031, 1, 8192),
			 SVC_TOO_LONG);
	assert_string_equal(err.param, "messages");
	assert_non_null(strstr(err.msg, "prompt is too long: 9031 tokens > 8191 maximum"));
	assert_non_null(strstr(err.msg, "this model's maximum context length is 8192 tokens"));
	assert_int_equal(svc_fail_too_long(&err, "prompt", "prompt", 8000, 500, 8192),
			 SVC_TOO_LONG);
	assert_non_null(strstr(err.msg, "exceed context limit: 8000 + 500 > 8192;"));
	/* The prompt fits by itself: shortening a history would be the wrong advice. */
	assert_null(strstr(err.msg, "too long"));
	assert_int_equal(svc_fail_too_long(&err, "input", "input", 8193, 0, 8192), SVC_TOO_LONG);
	assert_non_null(strstr(err.msg, "input is too long: 8193 tokens > 8192 maximum;"));
}

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

/* The least of a group's limits and of those above it, rounded up. */
static void limits_of_a_control_group(void **state)
{
	(void)state;
	char root[] = "/tmp/lockstep-base-test-XXXXXX", inner[64], path[80];
	assert_non_null(mkdtemp(root));
	snprintf(inner, sizeof inner, "%s/a", root);
	assert_int_equal(mkdir(inner, 0700), 0);
	assert_int_equal(cores_of_group(root, "/a"), UINT32_MAX);
	write_file(inner, "cpu.max", "max 100000\n");
	assert_int_equal(cores_of_group(root, "/a"), UINT32_MAX);
	write_file(inner, "cpu.max", "150000 100000\n");
	assert_int_equal(cores_of_group(root, "/a"), 2);
	assert_int_equal(cores_of_group(root, "/a/gone"), 2);
	assert_int_equal(cores_of_group(root, "/"), UINT32_MAX);
	write_file(root, "cpu.max", "50000 100000\n");
	assert_int_equal(cores_of_group(root, "/a"), 1);
	write_file(root, "cpu.max", "0 0\n");
	assert_int_equal(cores_of_group(root, "/a"), 2);
	/* The first version's two files. */
	write_file(inner, "cpu.max", "");
	write_file(inner, "cpu.cfs_quota_us", "-1\n");
	write_file(inner, "cpu.cfs_period_us", "100000\n");
	assert_int_equal(cores_of_group(root, "/a"), UINT32_MAX);
	write_file(inner, "cpu.cfs_quota_us", "210000\n");
	assert_int_equal(cores_of_group(root, "/a"), 3);
	const char *const files[] = {
		"a/cpu.max", "a/cpu.cfs_quota_us", "a/cpu.cfs_period_us", "cpu.max", "a", ""};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, "%s/%s", root, files[i]);
		assert_int_equal(remove(path), 0);
	}
}

static void cores_it_may_not_run_on_dont_count(void **state)
{
	(void)state;
	cpu_set_t before, one;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	assert_in_range(cores_usable(), 1, CPU_COUNT(&before));
	CPU_ZERO(&one);
	for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	assert_int_equal(cores_usable(), 1);
	uint32_t cores[2];
	assert_int_equal(cores_list(2, cores), 1);
	assert_true(CPU_ISSET(cores[0], &one));
	assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_context_is_said_in_known_words),
		cmocka_unit_test(json_string_escapes_and_replaces),
		cmocka_unit_test(broken_utf8_is_replaced_by_maximal_subparts),
		cmocka_unit_test(buf_limit_is_kept),
		cmocka_unit_test(arena_limit_is_kept),
		cmocka_unit_test(error_keeps_its_first_cause),
		cmocka_unit_test(limits_of_a_control_group),
		cmocka_unit_test(cores_it_may_not_run_on_dont_count),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
