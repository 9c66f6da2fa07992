/* What can be said about an NPU without XRT: device_probe of device.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "npu-worker/device/device_private.h"

#define DRIVER		  "/sys/bus/pci/drivers/amdxdna"
#define HEAP_BYTES	  (64u << 20) /* what the driver maps at the first open */
#define NO_DEVICE(e, ...) svc_fail(e, SVC_NO_DEVICE, "device", __VA_ARGS__)

static enum svc_code check_node(struct svc_err *err)
{
	int fd = open(DEVICE_NODE, O_RDWR | O_CLOEXEC);
	int why = errno;
	if (fd >= 0) {
		close(fd);
		return SVC_OK;
	}
	if (why == ENOENT && access(DRIVER, F_OK) != 0)
		return NO_DEVICE(err,
				 "no NPU: the amdxdna kernel driver is not loaded (Linux 6.14 or "
				 "later has it: modprobe amdxdna)");
	if (why == ENOENT)
		return NO_DEVICE(err,
				 "no NPU: the amdxdna driver is loaded, but " DEVICE_NODE
				 " is missing (is it passed into the container? dmesg says if the "
				 "firmware could not be loaded)");
	if (why == EACCES || why == EPERM)
		return NO_DEVICE(err,
				 DEVICE_NODE " may not be opened by user %u: add the user to the "
					     "node's group, usually render (compose: group_add)",
				 (unsigned)geteuid());
	return NO_DEVICE(err, DEVICE_NODE " cannot be opened: %s", strerror(why));
}

static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};
	return syscall(SYS_capget, &header, data) == 0 && data[0].effective >> CAP_IPC_LOCK & 1;
}

/* The driver locks what it maps, within the limit unless the process has the capability. */
static enum svc_code check_memlock(uint64_t bytes, struct svc_err *err)
{
	struct rlimit limit;
	if (may_lock_all() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes + HEAP_BYTES)
		return SVC_OK;
	return NO_DEVICE(
		err,
		"the memlock limit is %llu KiB; the NPU's memory needs %llu: raise it "
		"(ulimit -l unlimited; LimitMEMLOCK=infinity; compose: ulimits memlock -1)",
		(unsigned long long)limit.rlim_cur >> 10,
		(unsigned long long)(bytes + HEAP_BYTES) >> 10);
}

enum svc_code device_probe(const struct device_options *options, struct svc_err *err)
{
	enum svc_code code = check_node(err);
	if (code == SVC_OK)
		code = check_memlock(options->memory_bytes, err);
	return code;
}

void device_firmware(char version[DEVICE_FIRMWARE])
{
	char path[300];
	ssize_t n = 0;
	DIR *devices = opendir(DRIVER);
	/* Of its entries only the devices have one. */
	for (const struct dirent *d; n <= 0 && devices && (d = readdir(devices));) {
		snprintf(path, sizeof path, "%s/fw_version", d->d_name);
		int fd = openat(dirfd(devices), path, O_RDONLY | O_CLOEXEC);
		n = fd >= 0 ? read(fd, version, DEVICE_FIRMWARE - 1) : 0;
		if (fd >= 0)
			close(fd);
	}
	if (devices)
		closedir(devices);
	version[n > 0 ? n : 0] = 0;
	version[strcspn(version, "\n")] = 0;
	if (!*version)
		snprintf(version, DEVICE_FIRMWARE, "of unknown version");
}
