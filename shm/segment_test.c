#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "shm/cgroup.h"
#include "shm/segment.h"
#include "shm/testing.h"

#define RUN_ID 77u

static char dir[64];
static const struct seg_place place = {dir, "part", SEG_BODIES, RUN_ID};

static int make_dir(void **state)
{
	(void)state;
	test_dir_make(dir, sizeof dir);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	test_dir_remove(dir);
	return 0;
}

static unsigned count_files(const char *path)
{
	DIR *files = opendir(path);
	unsigned n = 0;
	assert_non_null(files);
	for (struct dirent *item; (item = readdir(files));)
		n += item->d_name[0] != '.';
	closedir(files);
	return n;
}

static struct segment create(size_t bytes)
{
	struct segment seg;
	struct svc_err err;
	assert_int_equal(seg_create(&place, bytes, &seg, &err), SVC_OK);
	return seg;
}

static void write_text(struct segment *seg, const char *text)
{
	memcpy((char *)seg->base + SHM_LINE, text, strlen(text) + 1);
}

static bool publish(struct segment *seg)
{
	struct svc_err err;
	bool won = false;
	assert_int_equal(seg_publish(&place, seg, &won, &err), SVC_OK);
	return won;
}

static enum svc_code attach(struct segment *seg, struct svc_err *err)
{
	return seg_attach(&place, false, seg, err);
}

static void a_segment_is_invisible_until_it_is_complete(void **state)
{
	(void)state;
	struct svc_err err;
	struct segment seg = create(10000), seen;
	assert_int_equal(attach(&seen, &err), SVC_NOT_FOUND);
	assert_int_equal(count_files(dir), 0);
	write_text(&seg, "complete");
	assert_true(publish(&seg));
	assert_int_equal(attach(&seen, &err), SVC_OK);
	assert_string_equal((char *)seen.base + SHM_LINE, "complete");
	assert_int_equal(seen.bytes, 12288);
	seg_unmap(&seg);
	seg_unmap(&seen);
}

static void the_first_builder_wins(void **state)
{
	(void)state;
	struct svc_err err;
	struct segment first = create(4096), second = create(4096), seen;
	write_text(&first, "first");
	write_text(&second, "second");
	assert_true(publish(&first));
	assert_false(publish(&second));
	assert_int_equal(attach(&seen, &err), SVC_OK);
	assert_string_equal((char *)seen.base + SHM_LINE, "first");
	seg_unmap(&first);
	seg_unmap(&second);
	seg_unmap(&seen);
}

/* Neither a name nor memory: the file goes with its builder. */
/* What one killed builder of 8 MiB leaves in use, if nobody else uses the file system. */
static bool a_builder_dies(void)
{
	struct statvfs before, after;
	statvfs(dir, &before);
	pid_t child = fork();
	if (child == 0) {
		create(8 << 20);
		raise(SIGKILL);
	}
	waitpid(child, NULL, 0);
	statvfs(dir, &after);
	assert_int_equal(count_files(dir), 0);
	return (int64_t)(before.f_bfree - after.f_bfree) < (int64_t)((4 << 20) / after.f_bsize);
}

static void a_builder_that_dies_leaves_nothing(void **state)
{
	(void)state;
	/* Others share the file system: one quiet moment is enough. */
	bool nothing = false;
	for (int i = 0; i < 20 && !nothing; i++)
		nothing = a_builder_dies();
	assert_true(nothing);
}

static void a_discarded_segment_keeps_no_descriptor(void **state)
{
	(void)state;
	unsigned before = count_files("/proc/self/fd");
	struct segment seg = create(4096);
	seg_unmap(&seg);
	seg = create(4096);
	publish(&seg);
	seg_unmap(&seg);
	assert_int_equal(count_files("/proc/self/fd"), before);
}

static void overwrite(size_t offset, uint32_t value)
{
	char path[100];
	snprintf(path, sizeof path, "%s/part", dir);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)offset), sizeof value);
	close(fd);
}

/* Each field alone, with what was found and what is wanted in the message. */
static void a_mismatch_is_refused_by_name(void **state)
{
	(void)state;
	const struct {
		size_t offset;
		const char *name;
	} fields[] = {
		{offsetof(struct seg_header, magic), "magic"},
		{offsetof(struct seg_header, version), "version"},
		{offsetof(struct seg_header, layout_hash), "layout hash"},
		{offsetof(struct seg_header, kind), "kind"},
		{offsetof(struct seg_header, total_bytes), "size"},
		{offsetof(struct seg_header, run_id), "run id"},
	};
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		struct svc_err err;
		struct segment seg = create(4096), seen;
		assert_true(publish(&seg));
		seg_unmap(&seg);
		overwrite(fields[i].offset, 0xabcdef);
		assert_int_equal(attach(&seen, &err), SVC_CORRUPT);
		assert_non_null(strstr(err.msg, fields[i].name));
		assert_non_null(strstr(err.msg, "abcdef"));
		char path[100];
		snprintf(path, sizeof path, "%s/part", dir);
		unlink(path);
	}
}

static void a_short_file_is_refused(void **state)
{
	(void)state;
	struct svc_err err;
	struct segment seg = create(8192), seen;
	char path[100];
	assert_true(publish(&seg));
	seg_unmap(&seg);
	snprintf(path, sizeof path, "%s/part", dir);
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(attach(&seen, &err), SVC_CORRUPT);
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(attach(&seen, &err), SVC_CORRUPT);
	assert_non_null(strstr(err.msg, "10 bytes"));
}

static void what_does_not_fit_is_refused_before_it_is_touched(void **state)
{
	(void)state;
	struct svc_err err;
	struct segment seg;
	struct statvfs fs;
	statvfs(dir, &fs);
	size_t room = fs.f_bavail * fs.f_frsize;
	assert_int_equal(seg_create(&place, room * 2, &seg, &err), SVC_NO_MEMORY);
	assert_non_null(strstr(err.msg, "MiB free"));
	assert_int_equal(count_files(dir), 0);
}

/* KiB of huge pages that the mapping at `at` has, by /proc/self/smaps. */
static unsigned long huge_kib(const void *at)
{
	FILE *maps = fopen("/proc/self/smaps", "r");
	static const char key[] = "ShmemPmdMapped:";
	char line[512], begin[32];
	unsigned long kib = 0;
	bool here = false;
	assert_non_null(maps);
	snprintf(begin, sizeof begin, "%lx-", (unsigned long)(uintptr_t)at);
	while (fgets(line, sizeof line, maps)) {
		if (strncmp(line, begin, strlen(begin)) == 0)
			here = true;
		if (here && strncmp(line, key, sizeof key - 1) == 0) {
			kib = strtoul(line + sizeof key - 1, NULL, 10);
			break;
		}
	}
	fclose(maps);
	return kib;
}

/* Whether this system gives one to a file in dir: some do not, and a full or fragmented memory has
 * none. */
static bool has_huge_pages(void)
{
	enum { HUGE = 2 << 20 };
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, HUGE) == 0);
	char *room = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(room, MAP_FAILED);
	char *at = room + (-(uintptr_t)room & (HUGE - 1));
	assert_ptr_equal(mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), at);
	*at = 1;
	bool has = madvise(at, HUGE, 25 /* MADV_COLLAPSE, Linux 6.1 */) == 0;
	munmap(room, 2 * HUGE);
	close(fd);
	return has;
}

static void what_a_step_reads_is_in_huge_pages(void **state)
{
	(void)state;
	const struct seg_place weights = {dir, "weights", SEG_WEIGHTS, RUN_ID};
	struct segment seg, seen;
	struct svc_err err;
	bool won;
	if (!has_huge_pages())
		skip();
	assert_int_equal(seg_create(&weights, (5 << 20) + 4096, &seg, &err), SVC_OK);
	memset((char *)seg.base + SHM_LINE, 1, seg.bytes - SHM_LINE);
	assert_int_equal(huge_kib(seg.base), 4 << 10);
	assert_int_equal(seg_publish(&weights, &seg, &won, &err), SVC_OK);
	assert_int_equal(seg_attach(&weights, false, &seen, &err), SVC_OK);
	assert_memory_equal(seen.base, seg.base, seg.bytes);
	assert_int_equal(huge_kib(seen.base), 4 << 10);
	seg_unmap(&seg);
	seg_unmap(&seen);
}

static void a_reader_cannot_write(void **state)
{
	(void)state;
	struct svc_err err;
	struct segment seg = create(4096), seen;
	assert_true(publish(&seg));
	assert_int_equal(attach(&seen, &err), SVC_OK);
	pid_t child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*((volatile char *)seen.base + SHM_LINE) = 1;
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(((char *)seg.base)[SHM_LINE], 0);
	seg_unmap(&seg);
	seg_unmap(&seen);
}

static void an_offset_becomes_a_pointer_only_inside(void **state)
{
	(void)state;
	char bytes[100];
	struct segment seg = {.base = bytes, .bytes = sizeof bytes};
	assert_ptr_equal(seg_at(&seg, 0, 100), bytes);
	assert_ptr_equal(seg_at(&seg, 100, 0), bytes + 100);
	assert_null(seg_at(&seg, 0, 101));
	assert_null(seg_at(&seg, 1, 100));
	assert_null(seg_at(&seg, 101, 0));
	assert_null(seg_at(&seg, UINT64_MAX, 2));
	assert_null(seg_at(&seg, 2, UINT64_MAX));
}

static void put(const char *sub, const char *name, const char *text)
{
	char path[200];
	snprintf(path, sizeof path, "%s%s", dir, sub);
	mkdir(path, 0700);
	snprintf(path, sizeof path, "%s%s/%s", dir, sub, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* The nearest limit counts, and page cache that could be dropped is room. */
static void the_memory_cgroup_has_room(void **state)
{
	(void)state;
	char membership[100];
	put("/a", "memory.max", "max\n");
	put("/a/b", "memory.max", "1000000\n");
	put("/a/b", "memory.current", "700000\n");
	put("/a/b", "memory.stat", "anon 200000\nfile 500000\nshmem 100000\n");
	put("/a/b/c", "memory.max", "max\n");
	put("", "self", "0::/a/b/c\n");
	snprintf(membership, sizeof membership, "%s/self", dir);
	assert_int_equal(cgroup_room(dir, membership), 1000000 - (700000 - 400000));
	put("/a/b/c", "memory.max", "5000\n");
	put("/a/b/c", "memory.current", "4000\n");
	assert_int_equal(cgroup_room(dir, membership), 1000);
	put("/a/b/c", "memory.current", "6000\n");
	assert_int_equal(cgroup_room(dir, membership), 0);
	put("", "self", "0::/a\n");
	assert_true(cgroup_room(dir, membership) == UINT64_MAX);
	assert_true(cgroup_room("/nowhere", "/nowhere/self") == UINT64_MAX);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_DIR(a_segment_is_invisible_until_it_is_complete),
		IN_DIR(the_first_builder_wins),
		IN_DIR(a_builder_that_dies_leaves_nothing),
		IN_DIR(a_discarded_segment_keeps_no_descriptor),
		IN_DIR(a_mismatch_is_refused_by_name),
		IN_DIR(a_short_file_is_refused),
		IN_DIR(what_does_not_fit_is_refused_before_it_is_touched),
		IN_DIR(what_a_step_reads_is_in_huge_pages),
		IN_DIR(a_reader_cannot_write),
		cmocka_unit_test(an_offset_becomes_a_pointer_only_inside),
		IN_DIR(the_memory_cgroup_has_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
