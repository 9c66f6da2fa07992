#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/models.h"

static struct gw_model_list list;
static struct svc_err err;

static enum svc_code read_text(const char *text)
{
	return gw_models_read(span_of(text), "/run/group/models", &list, &err);
}

static const char *run_of(const char *name)
{
	const struct gw_model_entry *entry = gw_models_find(&list, span_of(name));
	return entry ? list.runs[entry->run] : NULL;
}

static void test_names_aliases_and_directories(void **state)
{
	(void)state;
	assert_int_equal(read_text("# two models\n"
				   "old = coder-1\n"
				   "coder-1\tcoder-1/ unlisted\n\r\n"
				   "tiny /srv/tiny\r\n"
				   "coder  coder-2\n"
				   "gpt-4o = coder"),
			 SVC_OK);
	assert_string_equal(run_of("tiny"), "/srv/tiny");
	assert_string_equal(run_of("coder"), "/run/group/coder-2");
	assert_string_equal(run_of("gpt-4o"), "/run/group/coder-2");
	assert_string_equal(run_of("coder-1"), "/run/group/coder-1");
	assert_string_equal(run_of("old"), "/run/group/coder-1");
	assert_null(run_of("other"));
	assert_null(run_of("*"));
	assert_null(run_of(""));
	assert_string_equal(gw_models_first(&list)->name, "tiny");
	struct buf names = {0};
	gw_models_names_print(&list, &names);
	assert_string_equal(names.ptr, "tiny, coder, gpt-4o");
	buf_free(&names);
}

static void test_any_name(void **state)
{
	(void)state;
	assert_int_equal(read_text("a x\nb y\n* = b\n"), SVC_OK);
	assert_string_equal(run_of("a"), "/run/group/x");
	assert_string_equal(run_of("whatever"), "/run/group/y");
	assert_string_equal(run_of("*"), "/run/group/y");
}

static void test_one_run_of_two_names_is_one(void **state)
{
	(void)state;
	assert_int_equal(read_text("a x\nb ./x\nc x\n"), SVC_OK);
	assert_int_equal(list.n_runs, 2);
	assert_int_equal(list.entries[0].run, list.entries[2].run);
}

static void test_mistakes_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *text, *said;
	} rows[] = {
		{"", "no model is listed"},
		{"a x unlisted", "no model is listed"},
		{"a", "line 1: behind a stands"},
		{"a x\na y", "line 2: a stands on an earlier line"},
		{"a x\nb = c", "line 2: b = c: the file has no model"},
		{"a x\nb = a\nc = b", "line 3: c = b: the file has no model"},
		{"a x\n* y", "line 2: a model's name"},
		{"a x\nb =", "line 2: a model's name"},
		{"a x listed", "line 1: only the word"},
		{"a x unlisted too", "line 1: only the word"},
		{"a x\nb = a too", "line 2: only the word"},
		{"a$ x", "line 1: a model's name"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(read_text(rows[i].text), SVC_BAD_CONFIG);
		assert_non_null(strstr(err.msg, rows[i].said));
		assert_string_equal(err.param, "models-file");
	}
}

static void test_limits(void **state)
{
	(void)state;
	struct buf text = {0};
	for (int i = 0; i < 16; i++)
		buf_print(&text, "m%d d%d\n", i, i);
	assert_int_equal(read_text(text.ptr), SVC_OK);
	buf_print(&text, "m16 d16\n");
	assert_int_equal(read_text(text.ptr), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "line 17: more than 16 run directories"));
	buf_clear(&text);
	for (int i = 0; i < 65; i++)
		buf_print(&text, "m%d d\n", i);
	assert_int_equal(read_text(text.ptr), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "line 65: more than 64 models"));
	buf_clear(&text);
	buf_print(&text, "m %0250d\n", 0);
	assert_int_equal(read_text(text.ptr), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "less than 200 bytes"));
	buf_free(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_aliases_and_directories),
		cmocka_unit_test(test_any_name),
		cmocka_unit_test(test_one_run_of_two_names_is_one),
		cmocka_unit_test(test_mistakes_are_named),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
