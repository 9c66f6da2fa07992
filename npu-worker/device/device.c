/* The NPU through the XRT module: device.h over xrt_module.h. */
#include "npu-worker/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "npu-worker/device/device_private.h"

enum { MAX_RUNS = DEVICE_MAX_RUNS, POLL_US = 50 };
enum { STATE_COMPLETED = 4, STATE_ERROR, STATE_ABORT, STATE_SUBMITTED, STATE_TIMEOUT };

#define MODULE_NAME "liblockstep-xrt.so"

/* What a DRM driver can, as <drm/drm.h> has it, which not every system's C library comes with. */
struct capability {
	uint64_t which, value;
};
#define GET_CAPABILITY _IOWR('d', 0x0c, struct capability)

struct device {
	void *library;
	const struct xrt_module *module;
	void *handle;
	int lock; /* on the device's node, for as long as the process lives */
};

struct device_buffer {
	struct device *device;
	void *handle;
};

static enum svc_code load_module(struct device *device, const char *path, struct svc_err *err)
{
	char beside[4096];
	ssize_t n = readlink("/proc/self/exe", beside, sizeof beside - sizeof MODULE_NAME - 1);
	char *slash = n > 0 ? memrchr(beside, '/', (size_t)n) : NULL;
	if (*path) {
		device->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	} else if (slash) {
		snprintf(slash + 1, sizeof MODULE_NAME, "%s", MODULE_NAME);
		device->library = dlopen(beside, RTLD_NOW | RTLD_LOCAL);
	}
	if (!device->library && !*path)
		device->library = dlopen(MODULE_NAME, RTLD_NOW | RTLD_LOCAL);
	if (!device->library)
		return svc_fail(
			err, SVC_NO_DEVICE, "device",
			"the XRT module cannot be loaded (%.200s): install XRT 2.25 with its "
			"XDNA plug-in (Debian 13: libxrt2 and libxrt-npu2 from backports) "
			"and build with libxrt-dev",
			dlerror());
	xrt_module_get *get = (xrt_module_get *)dlsym(device->library, "lockstep_xrt_module");
	device->module = get ? get() : NULL;
	if (!device->module || device->module->version != XRT_MODULE_VERSION ||
	    device->module->bytes != sizeof *device->module)
		return svc_fail(err, SVC_NO_DEVICE, "device",
				"the XRT module is of another version than this program");
	return SVC_OK;
}

/* The kernel drops it when the process ends, however it ends. */
static enum svc_code take_lock(struct device *device, struct svc_err *err)
{
	device->lock = open(DEVICE_NODE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (device->lock < 0)
		return svc_fail(err, SVC_NO_DEVICE, "device", DEVICE_NODE " cannot be opened: %s",
				strerror(errno));
	if (flock(device->lock, LOCK_EX | LOCK_NB) != 0)
		return svc_fail(err, SVC_NO_DEVICE, "device",
				DEVICE_NODE
				" is in use by another worker: one process owns the NPU "
				"(start the others with --device host)");
	return SVC_OK;
}

/* XRT's words with what usually stands behind them. */
static enum svc_code explain(int status, const char *why, struct svc_err *err)
{
	const char *cause = "";
	if (status == -EBUSY || status == -ENOSPC)
		cause = ": all hardware contexts are taken; end other users of the NPU";
	else if (status == -EAGAIN || status == -ENOMEM)
		cause = ": memory cannot be locked; raise the memlock limit (ulimit -l unlimited)";
	else if (status == -EACCES || status == -EPERM)
		cause = ": no permission; add the user to the group of " DEVICE_NODE;
	else if (status == -ENODEV || status == -ENOENT)
		cause = ": the device is gone, or XRT's XDNA plug-in (libxrt-npu2) is missing";
	return svc_fail(err, SVC_NO_DEVICE, "device", "XRT cannot open the NPU (%.250s)%s", why,
			cause);
}

/* The driver says "invalid argument" of a program that the firmware refuses, and some versions of
 * it when there is no context left. */
static enum svc_code explain_open(int status, const char *why, const char *program,
				  struct svc_err *err)
{
	char firmware[DEVICE_FIRMWARE];
	if (status != -EINVAL)
		return explain(status, why, err);
	device_firmware(firmware);
	return svc_fail(err, SVC_NO_DEVICE, "device",
			"XRT cannot open the NPU (%.120s): the NPU's firmware, %s, doesn't take "
			"the program %.120s (update it, or take kernels for this one), or all "
			"hardware contexts are taken (end other users of the NPU)",
			why, firmware, program);
}

enum svc_code device_open(const struct device_options *options, struct device **ret_device,
			  struct svc_err *err)
{
	char why[XRT_MODULE_WHY] = "";
	enum svc_code code = device_probe(options, err);
	if (code != SVC_OK)
		return code;
	struct device *device = calloc(1, sizeof *device);
	if (!device)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	device->lock = -1;
	code = take_lock(device, err);
	if (code == SVC_OK)
		code = load_module(device, options->module, err);
	if (code == SVC_OK && device->module) {
		int status = device->module->open(options->program, options->kernel,
						  &device->handle, why);
		code = status ? explain_open(status, why, options->program, err) : SVC_OK;
	}
	if (code != SVC_OK) {
		device_close(device);
		return code;
	}
	*ret_device = device;
	return SVC_OK;
}

struct device *device_close(struct device *device)
{
	if (!device)
		return NULL;
	if (device->handle)
		device->module->close(device->handle);
	if (device->lock >= 0)
		close(device->lock);
	/* The library stays: XRT's threads and static objects don't survive being unloaded. */
	free(device);
	return NULL;
}

/* The kernel refuses whatever is asked of a device that was unplugged, or whose driver was
 * unloaded; any other answer says nothing against it. */
enum svc_code device_health(const struct device *device, struct svc_err *err)
{
	struct capability asked = {.which = 0};
	if (!device || ioctl(device->lock, GET_CAPABILITY, &asked) == 0 || errno != ENODEV)
		return SVC_OK;
	return svc_fail(err, SVC_NO_DEVICE, __func__,
			"the NPU is gone: the driver no longer answers for " DEVICE_NODE
			" (dmesg says why; modprobe amdxdna, or a reboot, may bring it back)");
}

static enum svc_code make_buffer(struct device *device, bool instructions, void *memory,
				 size_t bytes, struct device_buffer **ret_buffer,
				 struct svc_err *err)
{
	char why[XRT_MODULE_WHY] = "";
	struct device_buffer *buffer = calloc(1, sizeof *buffer);
	if (!buffer)
		return svc_fail(err, SVC_NO_MEMORY, "device", "out of memory");
	buffer->device = device;
	int status = device->module->buffer(device->handle, instructions, memory, bytes,
					    &buffer->handle, why);
	if (status == 0) {
		*ret_buffer = buffer;
		return SVC_OK;
	}
	free(buffer);
	if (memory && (status == -EOPNOTSUPP || status == -EINVAL))
		return svc_fail(err, SVC_UNSUPPORTED, "device",
				"this driver has no user-pointer buffers (%.250s)", why);
	return explain(status, why, err);
}

enum svc_code device_buffer_new(struct device *device, enum device_memory kind, size_t bytes,
				struct device_buffer **ret_buffer, struct svc_err *err)
{
	return make_buffer(device, kind == DEVICE_INSTRUCTIONS, NULL, bytes, ret_buffer, err);
}

enum svc_code device_buffer_wrap(struct device *device, void *memory, size_t bytes,
				 struct device_buffer **ret_buffer, struct svc_err *err)
{
	return make_buffer(device, false, memory, bytes, ret_buffer, err);
}

struct device_buffer *device_buffer_free(struct device_buffer *buffer)
{
	if (buffer)
		buffer->device->module->buffer_free(buffer->handle);
	free(buffer);
	return NULL;
}

void *device_buffer_memory(const struct device_buffer *buffer)
{
	return buffer->device->module->buffer_memory(buffer->handle);
}

enum svc_code device_sync(struct device_buffer *buffer, enum device_direction direction,
			  size_t offset, size_t bytes, struct svc_err *err)
{
	char why[XRT_MODULE_WHY] = "";
	if (buffer->device->module->sync(buffer->handle, direction == DEVICE_TO, offset, bytes,
					 why) == 0)
		return SVC_OK;
	return svc_fail(err, SVC_DEVICE, __func__, "the NPU's memory cannot be synchronised: %s",
			why);
}

enum svc_code device_submit(struct device *device, const struct device_run *runs, uint32_t n,
			    struct svc_err *err)
{
	char why[XRT_MODULE_WHY] = "";
	struct xrt_module_run list[MAX_RUNS];
	for (uint32_t i = 0; i < n && i < MAX_RUNS; i++) {
		list[i].instructions = runs[i].instructions->handle;
		list[i].n_words = runs[i].n_words;
		for (uint32_t a = 0; a < DEVICE_ARGS; a++)
			list[i].args[a] = runs[i].args[a]->handle;
	}
	if (n >= 1 && n <= MAX_RUNS && device->module->submit(device->handle, list, n, why) == 0)
		return SVC_OK;
	return svc_fail(err, SVC_DEVICE, __func__, "the NPU takes no command: %s", why);
}

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static enum svc_code fail_state(int state, const char *why, struct svc_err *err)
{
	const char *words = state == STATE_TIMEOUT ? "was reset by the driver: it had hung"
			    : state == STATE_ABORT ? "was aborted by the driver"
			    : state == STATE_ERROR ? "ended with an error"
						   : "cannot be looked at";
	return svc_fail(err, SVC_DEVICE, "device_wait", "the NPU's command %s (state %d)%s%s",
			words, state, *why ? ": " : "", why);
}

enum svc_code device_wait(struct device *device, uint64_t limit_us, void (*beat)(void *context),
			  void *context, struct svc_err *err)
{
	uint64_t start = now_us();
	for (;;) {
		char why[XRT_MODULE_WHY] = "";
		int state = device->module->state(device->handle, why);
		if (state == STATE_COMPLETED)
			return SVC_OK;
		if (state < 0 || (state > STATE_COMPLETED && state != STATE_SUBMITTED))
			return fail_state(state, why, err);
		if (now_us() - start > limit_us)
			return svc_fail(err, SVC_DEVICE, __func__,
					"the NPU has not answered for %" PRIu64 " ms",
					limit_us / 1000);
		if (beat)
			beat(context);
		usleep(POLL_US);
	}
}
