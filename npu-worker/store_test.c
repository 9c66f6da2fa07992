#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "npu-worker/store.h"

#define PAGE_BYTES 40000u

static char dir[64];
static uint8_t page[PAGE_BYTES], back[PAGE_BYTES];

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof dir, "/dev/shm/lockstep-store-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

/* Calls visit for every file but "." and ".."; returns how many there are. */
static int each_file(void (*visit)(const char *path))
{
	int n = 0;
	DIR *files = opendir(dir);
	assert_non_null(files);
	for (const struct dirent *file; (file = readdir(files));) {
		char path[400];
		if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, file->d_name);
		n++;
		if (visit)
			visit(path);
	}
	closedir(files);
	return n;
}

static void remove_file(const char *path)
{
	assert_int_equal(unlink(path), 0);
}

static int tear_down(void **state)
{
	(void)state;
	each_file(remove_file);
	return rmdir(dir);
}

static struct store *open_store(uint64_t limit_bytes)
{
	struct store *store = NULL;
	struct svc_err err = {0};
	const struct store_options options = {
		.dir = dir, .limit_bytes = limit_bytes, .page_bytes = PAGE_BYTES};
	assert_int_equal(store_open(&options, &store, &err), SVC_OK);
	return store;
}

/* Bytes that hardly compress, different for each seed. */
static void fill(uint32_t seed)
{
	for (uint32_t i = 0; i < PAGE_BYTES; i++) {
		seed = seed * 1664525u + 1013904223u;
		page[i] = (uint8_t)(seed >> 24);
	}
}

static void a_page_comes_back_as_it_was(void **state)
{
	(void)state;
	const struct prefix_key a = {1, 2}, b = {1, 3};
	struct store *store = open_store(1u << 20);
	fill(1);
	store_save(store, a, page);
	assert_true(store_load(store, a, back));
	assert_memory_equal(page, back, PAGE_BYTES);
	assert_false(store_load(store, b, back));
	memset(page, 0, PAGE_BYTES);
	store_save(store, b, page);
	store_close(store);
	/* Another start finds both. */
	store = open_store(1u << 20);
	assert_true(store_load(store, b, back));
	assert_memory_equal(page, back, PAGE_BYTES);
	fill(1);
	assert_true(store_load(store, a, back));
	assert_memory_equal(page, back, PAGE_BYTES);
	assert_int_equal(each_file(NULL), 2);
	store_close(store);
}

static size_t file_bytes;

static void measure(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	file_bytes = (size_t)st.st_size;
	assert_int_equal(st.st_mode & 0777, 0600);
}

static long damage_at;

static void damage(const char *path)
{
	uint8_t byte;
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, damage_at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, damage_at), 1);
	close(fd);
}

/* Wherever a bit has changed, the file is refused and gone. */
static void a_damaged_file_is_refused_and_removed(void **state)
{
	(void)state;
	const struct prefix_key key = {7, 8};
	struct store *store = open_store(1u << 20);
	fill(2);
	store_save(store, key, page);
	each_file(measure);
	for (size_t at = 0; at < file_bytes; at += at < 100 ? 1 : 997) {
		store_save(store, key, page);
		damage_at = (long)at;
		each_file(damage);
		assert_false(store_load(store, key, back));
		assert_int_equal(each_file(NULL), 0);
	}
	store_close(store);
}

static void cut(const char *path)
{
	assert_int_equal(truncate(path, damage_at), 0);
}

static void a_cut_file_is_refused(void **state)
{
	(void)state;
	const struct prefix_key key = {7, 8};
	struct store *store = open_store(1u << 20);
	fill(3);
	store_save(store, key, page);
	each_file(measure);
	const long sizes[] = {0,
			      1,
			      63,
			      64,
			      80,
			      (long)file_bytes - 1,
			      (long)file_bytes + 1,
			      (long)file_bytes + 1000000};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		store_save(store, key, page);
		damage_at = sizes[i];
		each_file(cut);
		assert_false(store_load(store, key, back));
		assert_int_equal(each_file(NULL), 0);
	}
	store_close(store);
}

static void rename_to_another_key(const char *path)
{
	char name[400];
	snprintf(name, sizeof name, "%s/%016x%016x.kvpage", dir, 5, 6);
	assert_int_equal(rename(path, name), 0);
}

static void a_file_under_anothers_name_is_refused(void **state)
{
	(void)state;
	struct store *store = open_store(1u << 20);
	fill(4);
	store_save(store, (struct prefix_key){1, 1}, page);
	each_file(rename_to_another_key);
	assert_false(store_load(store, (struct prefix_key){6, 5}, back));
	assert_int_equal(each_file(NULL), 0);
	store_close(store);
}

static void the_longest_unused_goes_first(void **state)
{
	(void)state;
	/* Room for four of these. */
	struct store *store = open_store(4 * PAGE_BYTES + 4096);
	for (uint32_t i = 0; i < 4; i++) {
		fill(100 + i);
		store_save(store, (struct prefix_key){i, 0}, page);
		usleep(10000);
	}
	assert_int_equal(each_file(NULL), 4);
	assert_true(store_load(store, (struct prefix_key){0, 0}, back));
	usleep(10000);
	fill(200);
	store_save(store, (struct prefix_key){9, 0}, page);
	assert_true(each_file(NULL) <= 4);
	assert_true(store_load(store, (struct prefix_key){9, 0}, back));
	assert_true(store_load(store, (struct prefix_key){0, 0}, back));
	assert_false(store_load(store, (struct prefix_key){1, 0}, back));
	store_close(store);
}

static void what_is_not_a_page_stays(void **state)
{
	(void)state;
	char path[100];
	snprintf(path, sizeof path, "%s/notes.txt", dir);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	struct store *store = open_store(PAGE_BYTES + 4096);
	for (uint32_t i = 0; i < 3; i++) {
		fill(i);
		store_save(store, (struct prefix_key){i, 1}, page);
	}
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(each_file(NULL), 2);
	store_close(store);
}

static void a_folder_that_cannot_be_is_refused(void **state)
{
	(void)state;
	struct store *store = NULL;
	struct svc_err err = {0};
	const struct store_options options = {
		.dir = "/proc/nowhere/pages", .limit_bytes = 1u << 20, .page_bytes = PAGE_BYTES};
	assert_int_equal(store_open(&options, &store, &err), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "/proc/nowhere/pages"));
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(a_page_comes_back_as_it_was),
		IN_DIR(a_damaged_file_is_refused_and_removed),
		IN_DIR(a_cut_file_is_refused),
		IN_DIR(a_file_under_anothers_name_is_refused),
		IN_DIR(the_longest_unused_goes_first),
		IN_DIR(what_is_not_a_page_stays),
		IN_DIR(a_folder_that_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
