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

#define MIX(value) hash = (hash ^ (uint64_t)(value)) * 0x9E3779B97F4A7C15ull, hash ^= hash >> 29

uint64_t seg_layout_hash(void)
{
	uint64_t hash = SHM_VERSION;
	MIX(sizeof(struct seg_header));
	MIX(sizeof(struct inc_entry));
	MIX(offsetof(struct inc_entry, beat));
	MIX(offsetof(struct inc_entry, fenced));
	MIX(sizeof(struct slot_line));
	MIX(offsetof(struct slot_line, ended_us));
	MIX(sizeof(struct body));
	MIX(offsetof(struct body, params));
	MIX(offsetof(struct body, n_kv));
	MIX(offsetof(struct body, n_tokens));
	MIX(offsetof(struct body, deaths));
	MIX(REGION_COUNT);
	MIX(STAGE_COUNT);
	MIX(BODY_BLOCK_BYTES);
	MIX(PAGE_POSITIONS);
	MIX(sizeof(struct ctl_config));
	MIX(sizeof(struct ctl_counters));
	MIX(sizeof(struct ctl));
	return hash;
}

/* A memory cgroup doesn't fail an allocation, it kills: look before touching the pages. */
static uint64_t cgroup_room(void)
{
	const char *const names[2] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"};
	uint64_t values[2] = {UINT64_MAX, 0};
	for (int i = 0; i < 2; i++) {
		char text[32] = "";
		FILE *file = fopen(names[i], "re");
		if (!file)
			return UINT64_MAX;
		if (fgets(text, sizeof text, file) && text[0] >= '0' && text[0] <= '9')
			values[i] = strtoull(text, NULL, 10);
		fclose(file);
	}
	return values[0] > values[1] ? values[0] - values[1] : 0;
}

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
	if (bytes > cgroup_room())
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"segment %s needs %zu MiB, the memory cgroup has %" PRIu64
				" MiB left; raise the memory limit or use a smaller --ctx, "
				"--kv-tokens or --slots",
				name, (bytes >> 20) + 1, cgroup_room() >> 20);
	int failed = posix_fallocate(fd, 0, (off_t)bytes);
	if (failed) {
		errno = failed;
		return svc_fail_errno(err, __func__, "segment %s: cannot reserve %zu MiB in %s",
				      name, (bytes >> 20) + 1, dir);
	}
	return SVC_OK;
}

static void temporary_path(char *path, size_t size, const char *dir, const char *name)
{
	snprintf(path, size, "%s/%s.tmp.%d", dir, name, (int)getpid());
}

enum svc_code seg_create(const char *dir, const char *name, enum seg_kind kind, size_t bytes,
			 uint64_t run_id, struct segment *ret_seg, struct svc_err *err)
{
	char path[1024];
	temporary_path(path, sizeof path, dir, name);
	bytes = (bytes + 4095) & ~(size_t)4095;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot create %s", path);
	enum svc_code code = reserve(fd, dir, name, bytes, err);
	void *base = MAP_FAILED;
	if (code == SVC_OK) {
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (base == MAP_FAILED)
			code = svc_fail_errno(err, __func__, "cannot map %s", path);
	}
	close(fd);
	if (code != SVC_OK) {
		unlink(path);
		return code;
	}
	struct seg_header *header = base;
	*header = (struct seg_header){.magic = SHM_MAGIC,
				      .version = SHM_VERSION,
				      .kind = kind,
				      .layout_hash = seg_layout_hash(),
				      .total_bytes = bytes,
				      .run_id = run_id};
	*ret_seg = (struct segment){base, bytes, true};
	return SVC_OK;
}

enum svc_code seg_publish(const char *dir, const char *name, struct segment *seg, bool *ret_won,
			  struct svc_err *err)
{
	char from[1024], to[1024];
	(void)seg;
	temporary_path(from, sizeof from, dir, name);
	snprintf(to, sizeof to, "%s/%s", dir, name);
	/* link() refuses to replace, rename() would not: the first builder wins. */
	int failed = link(from, to) != 0 ? errno : 0;
	unlink(from);
	if (failed && failed != EEXIST) {
		errno = failed;
		return svc_fail_errno(err, __func__, "cannot publish %s", to);
	}
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
	*ret_seg = (struct segment){base, (size_t)st.st_size, writable};
	return SVC_OK;
}

void seg_unmap(struct segment *seg)
{
	if (seg->base)
		munmap(seg->base, seg->bytes);
	*seg = (struct segment){0};
}
