/* What a role's last process said, for who asks why there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "services/why.h"
#include "shm/testing.h"

static struct shm_run run;
static char text[SVC_WHY_TEXT], path[300];

static int set_up(void **unused)
{
	(void)unused;
	run = test_run_make();
	snprintf(path, sizeof path, "%s/npu-worker.why", run.dir);
	return 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	test_run_remove(&run);
	return 0;
}

static bool read_why(enum shm_role role)
{
	memset(text, 'x', sizeof text);
	return svc_why_read(&run, role, text);
}

static void test_note_and_forget(void **unused)
{
	(void)unused;
	assert_false(read_why(ROLE_WORKER));
	assert_string_equal(text, "");
	svc_why_note(&run, ROLE_WORKER, "the device is \"gone\"");
	assert_true(read_why(ROLE_WORKER));
	assert_string_equal(text, "the device is \"gone\"");
	/* Each role has its own, and the last one counts. */
	assert_false(read_why(ROLE_SAMPLER));
	svc_why_note(&run, ROLE_WORKER, "no");
	assert_true(read_why(ROLE_WORKER));
	assert_string_equal(text, "no");
	svc_why_forget(&run, ROLE_WORKER);
	assert_false(read_why(ROLE_WORKER));
	assert_int_equal(access(path, F_OK), -1);
	svc_why_forget(&run, ROLE_WORKER);
}

static void test_a_long_text_is_cut(void **unused)
{
	char longer[2 * SVC_WHY_TEXT];
	(void)unused;
	memset(longer, 'a', sizeof longer - 1);
	longer[sizeof longer - 1] = 0;
	svc_why_note(&run, ROLE_WORKER, longer);
	assert_true(read_why(ROLE_WORKER));
	assert_int_equal(strlen(text), SVC_WHY_TEXT - 1);
}

static void test_a_role_that_is_there(void **unused)
{
	struct shm_run first = test_join(&run, ROLE_WORKER), second = test_join(&run, ROLE_WORKER);
	(void)unused;
	svc_why_note(&second, ROLE_WORKER, "in use by another");
	assert_false(read_why(ROLE_WORKER));
	test_end(&first);
	svc_why_note(&second, ROLE_WORKER, "it failed");
	assert_true(read_why(ROLE_WORKER));
	assert_string_equal(text, "it failed");
	test_end(&second);
}

/* The file of 8 bytes and the text, as somebody else left it. */
static void leave(uint64_t run_id, size_t bytes, int fill)
{
	char content[sizeof run_id + SVC_WHY_TEXT];
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	memset(content, fill, sizeof content);
	memcpy(content, &run_id, sizeof run_id);
	assert_int_equal(fwrite(content, 1, bytes, file), bytes);
	fclose(file);
}

static void test_what_says_nothing(void **unused)
{
	uint64_t id = run.ctl->header.run_id;
	(void)unused;
	leave(id, 100, 'a'); /* in part */
	assert_false(read_why(ROLE_WORKER));
	leave(id, sizeof id + SVC_WHY_TEXT, 'a'); /* without an end */
	assert_false(read_why(ROLE_WORKER));
	leave(id, sizeof id + SVC_WHY_TEXT, 0);
	assert_false(read_why(ROLE_WORKER));
	svc_why_note(&run, ROLE_WORKER, "of this run");
	assert_true(read_why(ROLE_WORKER));
	run.ctl->header.run_id = id + 1;
	assert_false(read_why(ROLE_WORKER));
	run.ctl->header.run_id = id;
	assert_true(read_why(ROLE_WORKER));
	/* Nowhere to write: nothing happens. */
	struct shm_run nowhere = run;
	snprintf(nowhere.dir, sizeof nowhere.dir, "/nowhere");
	svc_why_note(&nowhere, ROLE_WORKER, "lost");
	svc_why_forget(&nowhere, ROLE_WORKER);
	assert_false(svc_why_read(&nowhere, ROLE_WORKER, text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_note_and_forget, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_long_text_is_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_a_role_that_is_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_says_nothing, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
