#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "npu-worker/engine/hooks.h"
#include "verify/match.h"

/* ---- captures made by hand */

struct folder {
	char path[64], file[96];
};

static struct folder make_folder(void)
{
	struct folder folder = {.path = "/tmp/capture-test-XXXXXX"};
	assert_non_null(mkdtemp(folder.path));
	snprintf(folder.file, sizeof folder.file, "%s/records.lz4", folder.path);
	return folder;
}

static void remove_folder(const struct folder *folder)
{
	char path[96];
	unlink(folder->file);
	snprintf(path, sizeof path, "%s/manifest.json", folder->path);
	unlink(path);
	rmdir(folder->path);
}

static void add_row(struct vfy_recorder *recorder, struct vfy_record head, const float *row)
{
	head.rows = 1;
	head.cols = 4;
	head.bytes = 16;
	vfy_recorder_add(recorder, &head, row);
}

/* Three positions of a model with two layers, records added in no order. */
static void fill(struct vfy_recorder *recorder, float last)
{
	for (uint32_t position = 3; position-- > 0;) {
		float row[4] = {(float)position, 1, 2, position == 2 ? last : 3};
		add_row(recorder,
			(struct vfy_record){
				.position = position, .layer = 2, .checkpoint = VFY_LOGITS},
			row);
		add_row(recorder,
			(struct vfy_record){
				.position = position, .layer = 1, .checkpoint = ENGINE_DOWN},
			row);
		add_row(recorder,
			(struct vfy_record){
				.position = position, .layer = 0, .checkpoint = ENGINE_DOWN},
			row);
		add_row(recorder,
			(struct vfy_record){
				.position = position, .layer = 1, .checkpoint = ENGINE_Q_PROJ},
			row);
	}
}

static void write_capture(const struct folder *folder, float last)
{
	struct svc_err err;
	struct vfy_writer *writer = NULL;
	struct vfy_recorder recorder = {0};
	int32_t tokens[3] = {1, 2, 3};
	struct vfy_manifest manifest = {
		.family = "a16-v1",
		.isa = "scalar",
		.build = "test",
		.selection = {.level = VFY_LEVEL_ALL, .last_layer = 1, .last_position = UINT32_MAX},
		.n_layers = 2,
		.n_vocab = 4,
		.chunk = 1,
		.tokens = tokens,
		.n_prompt = 1,
		.n_new = 2};
	fill(&recorder, last);
	assert_int_equal(vfy_recorder_finish(&recorder, &err), SVC_OK);
	assert_int_equal(vfy_writer_open(folder->path, &writer, &err), SVC_OK);
	assert_int_equal(vfy_writer_put(writer, &recorder, &err), SVC_OK);
	assert_int_equal(vfy_writer_finish(writer, &manifest, &err), SVC_OK);
	vfy_writer_close(writer);
	vfy_recorder_free(&recorder);
}

static struct vfy_verdict compare(const struct folder *folder, float last, uint32_t depth)
{
	struct svc_err err;
	struct vfy_reader *reader = NULL;
	struct vfy_recorder recorder = {0};
	assert_int_equal(vfy_reader_open(folder->path, &reader, &err), SVC_OK);
	struct vfy_match match = {.a = reader, .options = {.depth = depth}};
	fill(&recorder, last);
	assert_int_equal(vfy_recorder_finish(&recorder, &err), SVC_OK);
	assert_int_equal(vfy_match_put(&match, &recorder, &err), SVC_OK);
	assert_int_equal(vfy_match_finish(&match, &err), SVC_OK);
	vfy_match_free(&match);
	vfy_recorder_free(&recorder);
	vfy_reader_close(reader);
	return match.verdict;
}

/* ---- tests */

static void test_order(void **state)
{
	(void)state;
	struct vfy_recorder recorder = {0};
	struct svc_err err;
	const void *data;
	fill(&recorder, 3);
	assert_int_equal(vfy_recorder_finish(&recorder, &err), SVC_OK);
	assert_int_equal(recorder.count, 12);
	const uint32_t layers[] = {0, 1, 1, 2};
	const uint32_t points[] = {ENGINE_DOWN, ENGINE_Q_PROJ, ENGINE_DOWN, VFY_LOGITS};
	for (size_t i = 0; i < 12; i++) {
		const struct vfy_record *record = vfy_recorder_at(&recorder, i, &data);
		assert_int_equal(record->position, i / 4);
		assert_int_equal(record->layer, layers[i % 4]);
		assert_int_equal(record->checkpoint, points[i % 4]);
	}
	vfy_recorder_free(&recorder);
}

static void test_identical(void **state)
{
	(void)state;
	struct folder folder = make_folder();
	write_capture(&folder, 3);
	struct vfy_verdict v = compare(&folder, 3, 0);
	assert_true(vfy_verdict_is_identical(&v));
	assert_int_equal(v.compared, 12);
	assert_int_equal(v.rows, 3);
	assert_int_equal(v.rows_identical, 3);
	remove_folder(&folder);
}

static void test_first_difference(void **state)
{
	(void)state;
	struct folder folder = make_folder();
	write_capture(&folder, 3);
	struct vfy_verdict v = compare(&folder, 3.0000002f, 0);
	assert_false(vfy_verdict_is_identical(&v));
	assert_int_equal(v.compared - v.identical, 4);
	assert_true(v.first.found);
	assert_int_equal(v.first.record.position, 2);
	assert_int_equal(v.first.record.layer, 0);
	assert_int_equal(v.first.record.checkpoint, ENGINE_DOWN);
	assert_int_equal(v.first.diff.first, 3);
	assert_true(v.max_ulp == 1);
	assert_int_equal(v.argmax_flips, 0);
	v = compare(&folder, 0, 0);
	assert_int_equal(v.argmax_flips, 1);
	/* Of one layer only what lies in it is compared. */
	v = compare(&folder, 3, 1);
	assert_int_equal(v.compared, 3);
	assert_true(vfy_verdict_is_identical(&v));
	remove_folder(&folder);
}

static void test_missing_records(void **state)
{
	(void)state;
	struct folder folder = make_folder();
	write_capture(&folder, 3);
	struct svc_err err;
	struct vfy_reader *reader = NULL;
	struct vfy_recorder recorder = {0};
	assert_int_equal(vfy_reader_open(folder.path, &reader, &err), SVC_OK);
	struct vfy_match match = {.a = reader};
	const float row[4] = {1, 1, 2, 3};
	add_row(&recorder,
		(struct vfy_record){.position = 1, .layer = 0, .checkpoint = ENGINE_GATE}, row);
	add_row(&recorder,
		(struct vfy_record){.position = 1, .layer = 0, .checkpoint = ENGINE_DOWN}, row);
	assert_int_equal(vfy_recorder_finish(&recorder, &err), SVC_OK);
	assert_int_equal(vfy_match_put(&match, &recorder, &err), SVC_OK);
	assert_int_equal(vfy_match_finish(&match, &err), SVC_OK);
	assert_int_equal(match.verdict.only_b, 1);
	assert_int_equal(match.verdict.only_a, 11);
	assert_int_equal(match.verdict.identical, 1);
	assert_false(vfy_verdict_is_identical(&match.verdict));
	vfy_match_free(&match);
	vfy_recorder_free(&recorder);
	vfy_reader_close(reader);
	remove_folder(&folder);
}

static enum svc_code read_all(const struct folder *folder, struct svc_err *err)
{
	struct vfy_reader *reader = NULL;
	struct vfy_recorder frame = {0};
	enum svc_code code = vfy_reader_open(folder->path, &reader, err);
	while (!code) {
		code = vfy_reader_next(reader, &frame, err);
		if (frame.count == 0)
			break;
	}
	vfy_recorder_free(&frame);
	vfy_reader_close(reader);
	return code;
}

/* Every byte of the records is under some check. */
static void test_damage(void **state)
{
	(void)state;
	struct folder folder = make_folder();
	struct svc_err err;
	write_capture(&folder, 3);
	assert_int_equal(read_all(&folder, &err), SVC_OK);
	FILE *file = fopen(folder.file, "r+b");
	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	long size = ftell(file);
	for (long at = 0; at < size; at++) {
		fseek(file, at, SEEK_SET);
		int byte = fgetc(file);
		fseek(file, at, SEEK_SET);
		fputc(byte ^ 0x10, file);
		fflush(file);
		if (read_all(&folder, &err) != SVC_CORRUPT)
			fail_msg("byte %ld of %ld: damage wasn't seen", at, size);
		fseek(file, at, SEEK_SET);
		fputc(byte, file);
		fflush(file);
	}
	fclose(file);
	assert_int_equal(read_all(&folder, &err), SVC_OK);
	assert_int_equal(truncate(folder.file, size - 1), 0);
	assert_int_equal(read_all(&folder, &err), SVC_CORRUPT);
	remove_folder(&folder);
}

static void test_not_overwritten(void **state)
{
	(void)state;
	struct folder folder = make_folder();
	struct svc_err err;
	struct vfy_writer *writer = NULL;
	write_capture(&folder, 3);
	assert_int_equal(vfy_writer_open(folder.path, &writer, &err), SVC_CONFLICT);
	remove_folder(&folder);
}

static void test_levels(void **state)
{
	(void)state;
	struct vfy_selection hash = {VFY_LEVEL_HASH, 0, 9, 0, 99, false},
			     lean = {VFY_LEVEL_LEAN, 0, 9, 0, 99, false};
	struct vfy_selection layers = {VFY_LEVEL_LAYERS, 2, 3, 5, 6, false};
	struct vfy_selection all = {VFY_LEVEL_ALL, 0, 9, 0, 99, false};
	assert_true(vfy_selects(&hash, VFY_TOP, 0, 0));
	assert_false(vfy_selects(&hash, VFY_LOGITS, 0, 0));
	assert_true(vfy_selects(&lean, VFY_LOGITS, 10, 0));
	assert_false(vfy_selects(&lean, VFY_LOGITS_HASH, 10, 0));
	assert_false(vfy_selects(&lean, ENGINE_AFTER_FFN, 0, 0));
	assert_true(vfy_selects(&layers, ENGINE_AFTER_FFN, 2, 5));
	assert_false(vfy_selects(&layers, ENGINE_AFTER_FFN, 4, 5));
	assert_false(vfy_selects(&layers, ENGINE_AFTER_FFN, 2, 7));
	assert_false(vfy_selects(&layers, ENGINE_GATE, 2, 5));
	assert_true(vfy_selects(&layers, ENGINE_FINAL_NORM, 30, 5));
	assert_true(vfy_selects(&all, ENGINE_HEADS, 2, 5));
	assert_false(vfy_selects(&all, ENGINE_SCORES, 2, 5));
	all.scores = true;
	assert_true(vfy_selects(&all, ENGINE_SCORES, 2, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_identical),
		cmocka_unit_test(test_first_difference),
		cmocka_unit_test(test_missing_records),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_not_overwritten),
		cmocka_unit_test(test_levels),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
