/* tests/xrt/softnpu/driver.c: a stand-in for the amdxdna kernel driver, preloaded into a process
 * that runs unmodified libxrt and its XDNA plug-in. It answers the ioctls of /dev/accel/accel0 by
 * asking the software NPU (SOFTNPU_SOCKET) and hands out the NPU's memory. The files that XRT looks
 * for in /sys and /dev are made by the script in-root. */
#include <dlfcn.h>
#include <drm/amdxdna_accel.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define NODE "/dev/accel/accel0"
enum { MAX_FDS = 1024, MAX_HANDLES = 65536, POLL_US = 100 };

static bool is_device[MAX_FDS];
static int memory_of[MAX_HANDLES]; /* descriptor + 1 of a buffer's memory */
static bool has_activations[MAX_HANDLES];
static int npu = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

/* ---- the socket */

static int connect_npu(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("SOFTNPU_SOCKET");
	npu = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path ? path : "");
	if (connect(npu, (struct sockaddr *)&address, sizeof address) != 0) {
		close(npu);
		npu = -1;
	}
	return npu;
}

/* Sends m (with fd if it isn't -1), receives the answer into m (with a descriptor into *ret_fd). */
static int ask(struct wire_message *m, int fd, int *ret_fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {m, sizeof *m};
	struct msghdr header = {.msg_iov = &io, .msg_iovlen = 1};
	pthread_mutex_lock(&lock);
	if (npu < 0 && connect_npu() < 0) {
		pthread_mutex_unlock(&lock);
		return -ENODEV;
	}
	if (fd >= 0) {
		header.msg_control = control;
		header.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&header);
		*c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	ssize_t sent = sendmsg(npu, &header, MSG_NOSIGNAL);
	header.msg_control = control;
	header.msg_controllen = sizeof control;
	ssize_t got = sent == sizeof *m ? recvmsg(npu, &header, MSG_CMSG_CLOEXEC) : -1;
	struct cmsghdr *c = got == sizeof *m ? CMSG_FIRSTHDR(&header) : NULL;
	if (c && ret_fd)
		memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
	pthread_mutex_unlock(&lock);
	return got == sizeof *m ? m->status : -ENODEV;
}

/* ---- memory */

/* The file, and the place in it, behind an address of this process. path[4097]. */
static int file_behind(uint64_t address, uint64_t bytes, char *path, uint64_t *ret_offset)
{
	char line[4400];
	int fd = -1;
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && fd < 0 && fgets(line, sizeof line, maps)) {
		uint64_t from, to, offset;
		char flags[5];
		path[0] = 0;
		if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %4096[^\n]", &from, &to, flags, &offset,
			   path) < 4 ||
		    address < from || address + bytes > to || flags[3] != 's' || path[0] != '/')
			continue;
		fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
		*ret_offset = offset + (address - from);
	}
	if (maps)
		fclose(maps);
	return fd;
}

static int create_bo(struct amdxdna_drm_create_bo *c)
{
	struct wire_message m = {.op = WIRE_BO_NEW, .a = c->type, .b = c->size};
	char path[4097] = "";
	int fd = -1, status;
	if (c->vaddr && !c->size) {
		const struct amdxdna_drm_va_tbl *table = (const void *)(uintptr_t)c->vaddr;
		m = (struct wire_message){.op = WIRE_BO_WRAP,
					  .b = table->va_entries[0].len,
					  .c = table->va_entries[0].vaddr};
		fd = file_behind(m.c, m.b, path, &m.a);
		if (fd < 0 || getenv("SOFTNPU_NO_USER_POINTERS"))
			return -EOPNOTSUPP;
		status = ask(&m, fd, NULL);
		close(fd);
	} else {
		status = ask(&m, -1, &fd);
		if (status == 0 && fd >= 0 && m.a < MAX_HANDLES)
			memory_of[m.a] = fd + 1;
	}
	c->handle = (uint32_t)m.a;
	if (status == 0 && c->handle < MAX_HANDLES)
		has_activations[c->handle] = strstr(path, "/activations-");
	return status;
}

static int bo_info(struct amdxdna_drm_get_bo_info *info)
{
	/* A buffer with memory is mapped at its handle; one inside the heap has none of its own. */
	bool own = info->handle < MAX_HANDLES && memory_of[info->handle];
	struct wire_message m = {.op = WIRE_BO_MAPPED, .a = info->handle};
	int status = ask(&m, -1, NULL);
	info->map_offset = own ? (uint64_t)info->handle << 32 : AMDXDNA_INVALID_ADDR;
	info->vaddr = 0;
	info->xdna_addr = m.b;
	return status;
}

static void *map_bo(void *at, size_t length, int protection, int flags, uint32_t handle)
{
	if (handle >= MAX_HANDLES || !memory_of[handle]) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	void *memory = REAL(mmap)(at, length, protection, flags, memory_of[handle] - 1, 0);
	struct wire_message m = {
		.op = WIRE_BO_MAPPED, .a = handle, .b = (uint64_t)(uintptr_t)memory};
	if (memory != MAP_FAILED)
		(void)ask(&m, -1, NULL);
	return memory;
}

static int close_bo(uint32_t handle)
{
	struct wire_message m = {.op = WIRE_BO_FREE, .a = handle};
	if (handle < MAX_HANDLES && memory_of[handle]) {
		close(memory_of[handle] - 1);
		memory_of[handle] = 0;
	}
	return ask(&m, -1, NULL);
}

/* ---- commands */

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int wait_for(uint64_t sequence, int64_t until_ns)
{
	for (;;) {
		struct wire_message m = {.op = WIRE_DONE, .a = sequence};
		int status = ask(&m, -1, NULL);
		if (status != 0 || m.a)
			return status;
		if (now_ns() >= until_ns)
			return -ETIME;
		usleep(POLL_US);
	}
}

static int execute(struct amdxdna_drm_exec_cmd *e)
{
	struct wire_message m = {.op = WIRE_EXECUTE, .b = e->hwctx};
	m.a = e->cmd_count > 1 ? *(const uint32_t *)(uintptr_t)e->cmd_handles : e->cmd_handles;
	int status = ask(&m, -1, NULL);
	e->seq = m.a;
	return status;
}

static int create_context(struct amdxdna_drm_create_hwctx *c)
{
	struct wire_message m = {.op = WIRE_CONTEXT_NEW};
	int status = ask(&m, -1, NULL);
	c->handle = c->syncobj_handle = (uint32_t)m.a;
	c->umq_doorbell = AMDXDNA_INVALID_DOORBELL_OFFSET;
	return status;
}

/* The program comes with the configuration of compute units; nothing else is configured. */
static int configure_context(const struct amdxdna_drm_config_hwctx *c)
{
	const struct amdxdna_hwctx_param_config_cu *units = (const void *)(uintptr_t)c->param_val;
	if (c->param_type != DRM_AMDXDNA_HWCTX_CONFIG_CU || units->num_cus != 1)
		return -EOPNOTSUPP;
	struct wire_message m = {
		.op = WIRE_CONTEXT_CONFIGURE, .a = c->handle, .b = units->cu_configs[0].cu_bo};
	return ask(&m, -1, NULL);
}

static int free_context(const struct amdxdna_drm_destroy_hwctx *d)
{
	struct wire_message m = {.op = WIRE_CONTEXT_FREE, .a = d->handle};
	return ask(&m, -1, NULL);
}

static int get_info(const struct amdxdna_drm_get_info *g)
{
	void *out = (void *)(uintptr_t)g->buffer;
	struct amdxdna_drm_query_aie_metadata metadata = {
		.col_size = 1 << 20, .cols = 8, .rows = 6, .version = {2, 0}};
	struct amdxdna_drm_query_firmware_version firmware = {1, 0, 0, 166};
	metadata.core.row_count = 4;
	metadata.core.row_start = 2;
	metadata.mem.row_count = metadata.mem.row_start = metadata.shim.row_count = 1;
	memset(out, 0, g->buffer_size);
	const void *from = g->param == DRM_AMDXDNA_QUERY_AIE_METADATA	    ? (void *)&metadata
			   : g->param == DRM_AMDXDNA_QUERY_FIRMWARE_VERSION ? (void *)&firmware
									    : NULL;
	size_t size =
		g->param == DRM_AMDXDNA_QUERY_AIE_METADATA ? sizeof metadata : sizeof firmware;
	if (from)
		memcpy(out, from, size < g->buffer_size ? size : g->buffer_size);
	return 0;
}

/* To show that a missing sync is seen, SOFTNPU_DROP_SYNC leaves some out. activations: to the
 * device, of that segment; positions: the same, but not what lies at its start; results: from the
 * device, of the user's memory. */
static bool is_dropped(const struct amdxdna_drm_sync_bo *s)
{
	const char *what = getenv("SOFTNPU_DROP_SYNC");
	bool known = s->handle < MAX_HANDLES, from = s->direction;
	bool activations = known && has_activations[s->handle] && !from;
	if (!what)
		return false;
	return (strcmp(what, "activations") == 0 && activations) ||
	       (strcmp(what, "positions") == 0 && activations && s->offset) ||
	       (strcmp(what, "results") == 0 && from && known && !memory_of[s->handle]);
}

static int sync_bo(const struct amdxdna_drm_sync_bo *s)
{
	struct wire_message m = {
		.op = WIRE_SYNC, .a = s->handle, .b = s->offset, .c = s->size, .d = s->direction};
	if (getenv("SOFTNPU_TRACE"))
		fprintf(stderr, "softnpu: sync %u %s: %llu bytes at %llu%s\n", s->handle,
			s->direction ? "from" : "to", (unsigned long long)s->size,
			(unsigned long long)s->offset, is_dropped(s) ? ", dropped" : "");
	return is_dropped(s) ? 0 : ask(&m, -1, NULL);
}

/* None; but the device has to be there to say so. */
static int capability(void)
{
	struct wire_message m = {.op = WIRE_LOOK};
	int status = ask(&m, -1, NULL);
	return status < 0 ? status : -EOPNOTSUPP;
}

static int driver_ioctl(unsigned long request, void *argument)
{
	unsigned number = _IOC_NR(request);
	if (request == DRM_IOCTL_GEM_CLOSE)
		return close_bo(((const struct drm_gem_close *)argument)->handle);
	if (number == _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT)) {
		const struct drm_syncobj_timeline_wait *w = argument;
		return wait_for(*(const uint64_t *)(uintptr_t)w->points, w->timeout_nsec);
	}
	if (request == DRM_IOCTL_GET_CAP)
		return capability();
	if (request == DRM_IOCTL_SYNCOBJ_DESTROY || request == DRM_IOCTL_SYNCOBJ_CREATE)
		return 0;
	switch ((int)number - DRM_COMMAND_BASE) {
	case DRM_AMDXDNA_CREATE_BO:
		return create_bo(argument);
	case DRM_AMDXDNA_GET_BO_INFO:
		return bo_info(argument);
	case DRM_AMDXDNA_SYNC_BO:
		return sync_bo(argument);
	case DRM_AMDXDNA_CREATE_HWCTX:
		return create_context(argument);
	case DRM_AMDXDNA_DESTROY_HWCTX:
		return free_context(argument);
	case DRM_AMDXDNA_CONFIG_HWCTX:
		return configure_context(argument);
	case DRM_AMDXDNA_EXEC_CMD:
		return execute(argument);
	case DRM_AMDXDNA_GET_INFO:
		return get_info(argument);
	case DRM_AMDXDNA_WAIT_CMD: {
		const struct amdxdna_drm_wait_cmd *w = argument;
		return wait_for(w->seq,
				w->timeout ? now_ns() + w->timeout * INT64_C(1000000) : INT64_MAX);
	}
	default:
		return -EOPNOTSUPP;
	}
}

/* ---- what the C library would have done */

static int note(const char *path, int fd)
{
	if (fd >= 0 && fd < MAX_FDS && path && strcmp(path, NODE) == 0)
		is_device[fd] = true;
	return fd;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	int mode = va_arg(more, int);
	va_end(more);
	return note(path, REAL(open)(path, flags, mode));
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	int mode = va_arg(more, int);
	va_end(more);
	return note(path, REAL(open64)(path, flags, mode));
}

int close(int fd)
{
	if (fd >= 0 && fd < MAX_FDS)
		is_device[fd] = false;
	return REAL(close)(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list more;
	va_start(more, request);
	void *argument = va_arg(more, void *);
	va_end(more);
	if (fd < 0 || fd >= MAX_FDS || !is_device[fd])
		return REAL(ioctl)(fd, request, argument);
	int status = driver_ioctl(request, argument);
	if (getenv("SOFTNPU_TRACE"))
		fprintf(stderr, "softnpu: ioctl %#lx -> %d\n", request, status);
	if (status >= 0)
		return status;
	errno = -status;
	return -1;
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	if (fd < 0 || fd >= MAX_FDS || !is_device[fd])
		return REAL(mmap)(at, length, protection, flags, fd, offset);
	return map_bo(at, length, protection, flags, (uint32_t)((uint64_t)offset >> 32));
}

void *mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
	return mmap(at, length, protection, flags, fd, offset);
}
