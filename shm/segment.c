#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "shm/cgroup.h"

#define HUGE_PAGE ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

static enum svc_code check_room(int fd, const struct seg_place *place, size_t bytes,
				struct svc_err *err)
{
	struct statvfs fs;
	if (fstatvfs(fd, &fs) != 0)
		return svc_fail_errno(err, __func__, "segment %s: statvfs of %s", place->name,
				      place->dir);
	uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes > room)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"segment %s needs %zu MiB, %s has %" PRIu64
				" MiB free; use a smaller --ctx, --kv-tokens or --slots, or a "
				"larger tmpfs (docker: shm_size or the "
				"volume's size=)",
				place->name, (bytes >> 20) + 1, place->dir, room >> 20);
	/* A memory cgroup doesn't fail an allocation, it kills: look before touching the pages. */
	room = cgroup_room("/sys/fs/cgroup", "/proc/self/cgroup");
	if (bytes > room)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"segment %s needs %zu MiB, the memory cgroup has %" PRIu64
				" MiB left; raise the memory limit or use a smaller --ctx, "
				"--kv-tokens or --slots",
				place->name, (bytes >> 20) + 1, room >> 20);
	return SVC_OK;
}

static enum svc_code reserve(int fd, const struct seg_place *place, size_t bytes,
			     struct svc_err *err)
{
	int failed = posix_fallocate(fd, 0, (off_t)bytes);
	if (failed) {
		errno = failed;
		return svc_fail_errno(err, __func__, "segment %s: cannot reserve %zu MiB in %s",
				      place->name, (bytes >> 20) + 1, place->dir);
	}
	return SVC_OK;
}

static enum svc_code open_unnamed(const struct seg_place *place, int *ret_fd, struct svc_err *err)
{
	int fd = open(place->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
		return svc_fail(err, SVC_IO, __func__,
				"segment %s: the file system of %s has no unnamed files; use a "
				"tmpfs, ext4, xfs or btrfs",
				place->name, place->dir);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "segment %s: cannot create a file in %s",
				      place->name, place->dir);
	/* 0 means "none" in struct segment. */
	if (fd == 0) {
		fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
		close(0);
	}
	*ret_fd = fd;
	return SVC_OK;
}

/* A file's huge pages are used as such only at addresses of their alignment. */
static void *map(int fd, size_t bytes, bool writable)
{
	int protection = PROT_READ | (writable ? PROT_WRITE : 0);
	bytes = (bytes + 4095) & ~(size_t)4095;
	if (bytes < HUGE_PAGE)
		return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	size_t before = -(uintptr_t)room & (HUGE_PAGE - 1);
	void *base = mmap(room + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED) {
		munmap(room, bytes + HUGE_PAGE);
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	munmap(room + before + bytes, HUGE_PAGE - before);
	return base;
}

/* What a step reads much of comes in huge pages where the system has them: with small ones
 * much of its time goes into finding them. Asked for while the file is a hole, but for the one page
 * that each needs to begin with (written, not touched: there may be no room). MADV_HUGEPAGE would
 * want a tmpfs that is mounted for it. */
static void want_huge_pages(enum seg_kind kind, int fd, void *base, size_t bytes)
{
	static const char zero;
	if (kind != SEG_WEIGHTS && kind != SEG_PAGES && kind != SEG_LOGITS)
		return;
	for (size_t at = 0; at + HUGE_PAGE <= bytes; at += HUGE_PAGE)
		if (pwrite(fd, &zero, 1, (off_t)at) != 1)
			return;
	madvise(base, bytes, MADV_COLLAPSE);
}

enum svc_code seg_create(const struct seg_place *place, size_t bytes, struct segment *ret_seg,
			 struct svc_err *err)
{
	int fd = -1;
	void *base = MAP_FAILED;
	bytes = (bytes + 4095) & ~(size_t)4095;
	enum svc_code code = open_unnamed(place, &fd, err);
	if (code != SVC_OK)
		return code;
	code = check_room(fd, place, bytes, err);
	if (code == SVC_OK && ftruncate(fd, (off_t)bytes) != 0)
		code = svc_fail_errno(err, __func__, "segment %s: cannot make a file of %zu MiB",
				      place->name, (bytes >> 20) + 1);
	if (code == SVC_OK)
		base = map(fd, bytes, true);
	if (code == SVC_OK && base == MAP_FAILED)
		code = svc_fail_errno(err, __func__, "segment %s: cannot map %zu MiB", place->name,
				      (bytes >> 20) + 1);
	if (code == SVC_OK) {
		want_huge_pages(place->kind, fd, base, bytes);
		code = reserve(fd, place, bytes, err);
	}
	if (code != SVC_OK) {
		if (base != MAP_FAILED)
			munmap(base, bytes);
		close(fd);
		return code;
	}
	struct seg_header *header = base;
	*header = (struct seg_header){.magic = SHM_MAGIC,
				      .version = SHM_VERSION,
				      .kind = place->kind,
				      .layout_hash = seg_layout_hash(),
				      .total_bytes = bytes,
				      .run_id = place->run_id};
	*ret_seg = (struct segment){base, bytes, true, fd};
	return SVC_OK;
}

static void path_of(const struct seg_place *place, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", place->dir, place->name);
}

enum svc_code seg_publish(const struct seg_place *place, struct segment *seg, bool *ret_won,
			  struct svc_err *err)
{
	char from[64], to[1024];
	snprintf(from, sizeof from, "/proc/self/fd/%d", seg->unnamed_fd);
	path_of(place, to, sizeof to);
	/* A link refuses to replace: the first builder wins. */
	int failed = linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0 ? errno : 0;
	if (failed && failed != EEXIST) {
		errno = failed;
		return svc_fail_errno(err, __func__, "cannot publish %s", to);
	}
	close(seg->unnamed_fd);
	seg->unnamed_fd = 0;
	*ret_won = failed == 0;
	return SVC_OK;
}

static enum svc_code check_header(const struct seg_header *header, const struct seg_place *place,
				  size_t file_bytes, struct svc_err *err)
{
	const struct {
		const char *field;
		uint64_t found, wanted;
	} checks[] = {
		{"magic", header->magic, SHM_MAGIC},
		{"version", header->version, SHM_VERSION},
		{"layout hash", header->layout_hash, seg_layout_hash()},
		{"kind", header->kind, place->kind},
		{"size", header->total_bytes, file_bytes},
		{"run id", header->run_id, place->run_id ? place->run_id : header->run_id},
	};
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
		if (checks[i].found != checks[i].wanted)
			return svc_fail(err, SVC_CORRUPT, __func__,
					"%s/%s: %s is %#" PRIx64 ", this program wants %#" PRIx64
					"; it belongs to another build or run: use another "
					"--run-dir or deploy/down first",
					place->dir, place->name, checks[i].field, checks[i].found,
					checks[i].wanted);
	return SVC_OK;
}

static enum svc_code map_file(int fd, const char *path, bool writable, struct segment *ret_seg,
			      struct svc_err *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return svc_fail_errno(err, __func__, "cannot stat %s", path);
	if (st.st_size < (off_t)sizeof(struct seg_header))
		return svc_fail(err, SVC_CORRUPT, __func__, "%s is only %lld bytes long", path,
				(long long)st.st_size);
	void *base = map(fd, (size_t)st.st_size, writable);
	if (base == MAP_FAILED)
		return svc_fail_errno(err, __func__, "cannot map %s", path);
	*ret_seg = (struct segment){base, (size_t)st.st_size, writable, 0};
	return SVC_OK;
}

enum svc_code seg_attach(const struct seg_place *place, bool writable, struct segment *ret_seg,
			 struct svc_err *err)
{
	char path[1024];
	struct segment seg = {0};
	path_of(place, path, sizeof path);
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return svc_fail(err, SVC_NOT_FOUND, __func__,
				"%s does not exist (is the keeper running?)", path);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot open %s", path);
	enum svc_code code = map_file(fd, path, writable, &seg, err);
	close(fd);
	if (!seg.base)
		return code;
	code = check_header(seg.base, place, seg.bytes, err);
	if (code != SVC_OK) {
		seg_unmap(&seg);
		return code;
	}
	*ret_seg = seg;
	return SVC_OK;
}

void seg_unmap(struct segment *seg)
{
	if (seg->base)
		munmap(seg->base, seg->bytes);
	if (seg->unnamed_fd)
		close(seg->unnamed_fd);
	*seg = (struct segment){0};
}
