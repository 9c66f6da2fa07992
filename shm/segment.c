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

static enum svc_code reserve(int fd, const char *dir, const char *name, size_t bytes,
			     struct svc_err *err)
{
	struct statvfs fs;
	if (fstatvfs(fd, &fs) != 0)
		return svc_fail_errno(err, __func__, "segment %s: statvfs of %s", name, dir);
	uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes > room)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"segment %s needs %zu MiB, %s has %" PRIu64
				" MiB free; use a smaller --ctx, --kv-tokens or --slots, or a "
				"larger tmpfs (docker: shm_size or the "
				"volume's size=)",
				name, (bytes >> 20) + 1, dir, room >> 20);
	/* A memory cgroup doesn't fail an allocation, it kills: look before touching the pages. */
	room = cgroup_room("/sys/fs/cgroup", "/proc/self/cgroup");
	if (bytes > room)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"segment %s needs %zu MiB, the memory cgroup has %" PRIu64
				" MiB left; raise the memory limit or use a smaller --ctx, "
				"--kv-tokens or --slots",
				name, (bytes >> 20) + 1, room >> 20);
	int failed = posix_fallocate(fd, 0, (off_t)bytes);
	if (failed) {
		errno = failed;
		return svc_fail_errno(err, __func__, "segment %s: cannot reserve %zu MiB in %s",
				      name, (bytes >> 20) + 1, dir);
	}
	return SVC_OK;
}

static int open_unnamed(const char *dir, const char *name, struct svc_err *err)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
		svc_fail(err, SVC_IO, __func__,
			 "segment %s: the file system of %s has no unnamed files; use a tmpfs, "
			 "ext4, xfs or btrfs",
			 name, dir);
	else if (fd < 0)
		svc_fail_errno(err, __func__, "segment %s: cannot create a file in %s", name, dir);
	/* 0 means "none" in struct segment. */
	if (fd == 0) {
		fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
		close(0);
	}
	return fd;
}

enum svc_code seg_create(const char *dir, const char *name, enum seg_kind kind, size_t bytes,
			 uint64_t run_id, struct segment *ret_seg, struct svc_err *err)
{
	bytes = (bytes + 4095) & ~(size_t)4095;
	int fd = open_unnamed(dir, name, err);
	if (fd < 0)
		return err ? err->code : SVC_IO;
	enum svc_code code = reserve(fd, dir, name, bytes, err);
	void *base = MAP_FAILED;
	if (code == SVC_OK) {
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (base == MAP_FAILED)
			code = svc_fail_errno(err, __func__, "segment %s: cannot map %zu MiB", name,
					      (bytes >> 20) + 1);
	}
	if (code != SVC_OK) {
		close(fd);
		return code;
	}
	struct seg_header *header = base;
	*header = (struct seg_header){.magic = SHM_MAGIC,
				      .version = SHM_VERSION,
				      .kind = kind,
				      .layout_hash = seg_layout_hash(),
				      .total_bytes = bytes,
				      .run_id = run_id};
	*ret_seg = (struct segment){base, bytes, true, fd};
	return SVC_OK;
}

enum svc_code seg_publish(const char *dir, const char *name, struct segment *seg, bool *ret_won,
			  struct svc_err *err)
{
	char from[64], to[1024];
	snprintf(from, sizeof from, "/proc/self/fd/%d", seg->unnamed_fd);
	snprintf(to, sizeof to, "%s/%s", dir, name);
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

static enum svc_code check_header(const struct seg_header *header, const char *path,
				  enum seg_kind kind, size_t file_bytes, uint64_t run_id,
				  struct svc_err *err)
{
	const struct {
		const char *field;
		uint64_t found, wanted;
	} checks[] = {
		{"magic", header->magic, SHM_MAGIC},
		{"version", header->version, SHM_VERSION},
		{"layout hash", header->layout_hash, seg_layout_hash()},
		{"kind", header->kind, kind},
		{"size", header->total_bytes, file_bytes},
		{"run id", header->run_id, run_id ? run_id : header->run_id},
	};
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
		if (checks[i].found != checks[i].wanted)
			return svc_fail(err, SVC_CORRUPT, __func__,
					"%s: %s is %#" PRIx64 ", this program wants %#" PRIx64
					"; it belongs to another build or run: use another "
					"--run-dir or deploy/down first",
					path, checks[i].field, checks[i].found, checks[i].wanted);
	return SVC_OK;
}

enum svc_code seg_attach(const char *dir, const char *name, enum seg_kind kind, bool writable,
			 uint64_t run_id, struct segment *ret_seg, struct svc_err *err)
{
	char path[1024];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT)
		return svc_fail(err, SVC_NOT_FOUND, __func__,
				"%s does not exist (is the keeper running?)", path);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot open %s", path);
	struct stat st;
	enum svc_code code = SVC_OK;
	void *base = MAP_FAILED;
	if (fstat(fd, &st) != 0)
		code = svc_fail_errno(err, __func__, "cannot stat %s", path);
	else if (st.st_size < (off_t)sizeof(struct seg_header))
		code = svc_fail(err, SVC_CORRUPT, __func__, "%s is only %lld bytes long", path,
				(long long)st.st_size);
	else
		base = mmap(NULL, (size_t)st.st_size, PROT_READ | (writable ? PROT_WRITE : 0),
			    MAP_SHARED, fd, 0);
	if (code == SVC_OK && base == MAP_FAILED)
		code = svc_fail_errno(err, __func__, "cannot map %s", path);
	close(fd);
	if (code != SVC_OK)
		return code;
	code = check_header(base, path, kind, (size_t)st.st_size, run_id, err);
	if (code != SVC_OK) {
		munmap(base, (size_t)st.st_size);
		return code;
	}
	*ret_seg = (struct segment){base, (size_t)st.st_size, writable, 0};
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
