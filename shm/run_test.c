#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <cmocka.h>

#include "shm/testing.h"

static char dir[64], bulk[80];

static int make_dir(void **state)
{
	(void)state;
	test_dir_make(dir, sizeof dir);
	snprintf(bulk, sizeof bulk, "%s/bulk", dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	test_dir_remove(dir);
	return 0;
}

static enum svc_code create(const struct run_plan *plan, bool *created, struct svc_err *err)
{
	struct shm_run run;
	enum svc_code code = run_create(dir, bulk, plan, &run, created, err);
	if (code == SVC_OK)
		run_detach(&run);
	return code;
}

static enum svc_code attach(enum shm_role role, struct svc_err *err)
{
	struct shm_run run;
	enum svc_code code = run_attach(dir, bulk, role, &run, err);
	if (code == SVC_OK)
		run_detach(&run);
	return code;
}

static bool exists(const char *name)
{
	char path[200];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static void a_second_keeper_attaches(void **state)
{
	(void)state;
	struct svc_err err;
	struct stat st;
	bool created = false;
	assert_int_equal(attach(ROLE_WORKER, &err), SVC_NOT_FOUND);
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	assert_true(created);
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	assert_false(created);
	assert_int_equal(attach(ROLE_WORKER, &err), SVC_OK);
	assert_int_equal(stat(bulk, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
}

static void another_plan_is_refused(void **state)
{
	(void)state;
	struct svc_err err;
	bool created = false;
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	struct run_plan other = test_plan;
	other.ctx = 512;
	assert_int_equal(create(&other, &created, &err), SVC_CONFLICT);
	assert_non_null(strstr(err.msg, "--ctx 0x100"));
	assert_non_null(strstr(err.msg, "0x200"));
}

/* A role maps what it needs and nothing more. */
static void a_role_maps_only_its_segments(void **state)
{
	(void)state;
	const struct {
		enum shm_role role;
		bool bodies, pages, logits, writes_logits;
	} rows[] = {
		{ROLE_GATEWAY, true, false, false, false},
		{ROLE_TOKENIZER, true, false, false, false},
		{ROLE_WORKER, true, true, true, true},
		{ROLE_SAMPLER, true, false, true, false},
		{ROLE_KEEPER, false, false, false, false},
	};
	struct svc_err err;
	bool created = false;
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct shm_run run;
		assert_int_equal(run_attach(dir, bulk, rows[i].role, &run, &err), SVC_OK);
		assert_int_equal(run.bodies.base != NULL, rows[i].bodies);
		assert_int_equal(run.pages.base != NULL, rows[i].pages);
		assert_int_equal(run.logits.base != NULL, rows[i].logits);
		assert_int_equal(run.logits.writable, rows[i].writes_logits);
		run_detach(&run);
	}
}

static void rows_and_pages_lie_inside_and_apart(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	const char *before = NULL;
	for (uint32_t row = 0; row < run.n_rows; row++)
		for (uint32_t which = 0; which < 2; which++) {
			const char *at = (const char *)run_logits(&run, row, which);
			assert_non_null(at);
			assert_true(!before || at >= before + TEST_VOCAB * sizeof(float));
			before = at;
		}
	assert_null(run_logits(&run, run.n_rows, 0));
	assert_null(run_logits(&run, 0, 2));
	assert_null(run_logits(&run, UINT32_MAX, 0));
	assert_ptr_equal((char *)run_page(&run, 1), (char *)run_page(&run, 0) + run.page_bytes);
	assert_non_null(run_page(&run, TEST_PAGES - 1));
	assert_null(run_page(&run, TEST_PAGES));
	/* What a peer writes there afterwards changes nothing. */
	run.ctl->config.n_pages = 1u << 30;
	assert_null(run_page(&run, TEST_PAGES));
	test_run_remove(&run);
}

static void overwrite(size_t offset, const void *bytes, size_t n)
{
	char path[100];
	snprintf(path, sizeof path, "%s/control", dir);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, bytes, n, (off_t)(offsetof(struct ctl, config) + offset)), n);
	close(fd);
}

static void a_damaged_control_segment_is_refused(void **state)
{
	(void)state;
	const size_t numbers[] = {
		offsetof(struct ctl_config, n_slots), offsetof(struct ctl_config, n_table),
		offsetof(struct ctl_config, n_blocks), offsetof(struct ctl_config, n_pages),
		offsetof(struct ctl_config, ctx)};
	struct svc_err err;
	bool created = false;
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		uint32_t good, bad = 0x7fffffff;
		struct shm_run run;
		assert_int_equal(run_attach(dir, bulk, ROLE_KEEPER, &run, &err), SVC_OK);
		memcpy(&good, (char *)&run.ctl->config + numbers[i], sizeof good);
		run_detach(&run);
		overwrite(numbers[i], &bad, sizeof bad);
		assert_int_equal(attach(ROLE_KEEPER, &err), SVC_CORRUPT);
		/* In range, but the tables would not lie inside. */
		bad = good * 200;
		overwrite(numbers[i], &bad, sizeof bad);
		if (numbers[i] != offsetof(struct ctl_config, ctx))
			assert_int_equal(attach(ROLE_KEEPER, &err), SVC_CORRUPT);
		overwrite(numbers[i], &good, sizeof good);
		assert_int_equal(attach(ROLE_KEEPER, &err), SVC_OK);
	}
	char endless[512];
	memset(endless, 'x', sizeof endless);
	overwrite(offsetof(struct ctl_config, model_path), endless, sizeof endless);
	assert_int_equal(attach(ROLE_KEEPER, &err), SVC_CORRUPT);
}

static void a_run_that_does_not_fit_leaves_nothing(void **state)
{
	(void)state;
	struct svc_err err;
	struct statvfs fs;
	bool created = false;
	struct run_plan plan = test_plan;
	statvfs(dir, &fs);
	plan.page_bytes = fs.f_bavail * fs.f_frsize / plan.n_pages * 2;
	assert_int_equal(create(&plan, &created, &err), SVC_NO_MEMORY);
	assert_non_null(strstr(err.msg, "--kv-tokens"));
	assert_false(exists("bodies") || exists("bulk/pages") || exists("control"));
}

/* A keeper died after it had built some of the segments: the next one replaces them. */
static void half_a_run_is_built_anew(void **state)
{
	(void)state;
	char path[100];
	struct svc_err err;
	bool created = false;
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	snprintf(path, sizeof path, "%s/control", dir);
	unlink(path);
	assert_int_equal(create(&test_plan, &created, &err), SVC_OK);
	assert_true(created);
	/* Of the same run id, or this would be refused. */
	assert_int_equal(attach(ROLE_WORKER, &err), SVC_OK);
}

static void texts_that_do_not_fit_are_refused(void **state)
{
	(void)state;
	char text[600];
	struct svc_err err;
	bool created = false;
	struct run_plan plan = test_plan;
	memset(text, 'x', sizeof text);
	text[sizeof text - 1] = 0;
	plan.model_path = text;
	assert_int_equal(create(&plan, &created, &err), SVC_BAD_CONFIG);
	assert_string_equal(err.param, "model");
	plan = test_plan;
	plan.model_name = text;
	assert_int_equal(create(&plan, &created, &err), SVC_BAD_CONFIG);
	assert_string_equal(err.param, "model-name");
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(a_second_keeper_attaches),
		IN_DIR(another_plan_is_refused),
		IN_DIR(a_role_maps_only_its_segments),
		cmocka_unit_test(rows_and_pages_lie_inside_and_apart),
		IN_DIR(a_damaged_control_segment_is_refused),
		IN_DIR(a_run_that_does_not_fit_leaves_nothing),
		IN_DIR(half_a_run_is_built_anew),
		IN_DIR(texts_that_do_not_fit_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
