/* npu-worker/device/device.h: the NPU as the worker sees it: memory, runs, a deadline. One process
 * opens the device, under a lock that goes with it. Everything here is called from one thread.
 * The `host` device is the CPU engine: it needs none of this. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct device;
struct device_buffer;

enum { DEVICE_ARGS = 3, DEVICE_MAX_RUNS = 320 };

struct device_options {
	const char *module;  /* path of liblockstep-xrt.so; "": beside the program, then the
				loader's places */
	const char *program; /* xclbin */
	const char *kernel;
	uint64_t memory_bytes; /* what will be mapped, for the check of the memlock limit */
};

/* Everything that can be found out without XRT, in this order: a driver, a device node, permission,
 * the memlock limit, the module. SVC_NO_DEVICE says what is missing and what to do about it. */
SVC_CHECKED enum svc_code device_probe(const struct device_options *options, struct svc_err *err);

/* Probes, takes the device's lock, loads the program. SVC_NO_DEVICE as above, or in XRT's words
 * with the likeliest cause and remedy. */
SVC_CHECKED enum svc_code device_open(const struct device_options *options,
				      struct device **ret_device, struct svc_err *err);
/* NULL is fine. Returns NULL. Nothing may be running. */
struct device *device_close(struct device *device);

/* Is it still there? SVC_NO_DEVICE if the driver no longer answers for it. No command runs for
 * that, so a device that sleeps goes on sleeping; that it hangs or has lost its context only a
 * command shows (device_wait). NULL: the host, which always is. */
SVC_CHECKED enum svc_code device_health(const struct device *device, struct svc_err *err);

enum device_memory {
	DEVICE_INSTRUCTIONS,
	DEVICE_DATA /* argument 0, 1 or 2 of a run */
};
/* Memory of the driver's, at device_buffer_memory(). bytes: any. */
SVC_CHECKED enum svc_code device_buffer_new(struct device *device, enum device_memory kind,
					    size_t bytes, struct device_buffer **ret_buffer,
					    struct svc_err *err);
/* The caller's own shared, page-aligned memory, which must outlive the buffer: nothing is copied.
 * SVC_UNSUPPORTED: this driver has no user-pointer buffers. */
SVC_CHECKED enum svc_code device_buffer_wrap(struct device *device, void *memory, size_t bytes,
					     struct device_buffer **ret_buffer,
					     struct svc_err *err);
struct device_buffer *device_buffer_free(struct device_buffer *buffer);
void *device_buffer_memory(const struct device_buffer *buffer);

enum device_direction { DEVICE_TO, DEVICE_FROM };
SVC_CHECKED enum svc_code device_sync(struct device_buffer *buffer, enum device_direction direction,
				      size_t offset, size_t bytes, struct svc_err *err);

struct device_run {
	struct device_buffer *instructions;
	uint32_t n_words;
	struct device_buffer *args[DEVICE_ARGS];
};
/* Starts the runs as one unit, in order. n: 1 to DEVICE_MAX_RUNS. */
SVC_CHECKED enum svc_code device_submit(struct device *device, const struct device_run *runs,
					uint32_t n, struct svc_err *err);
/* Waits for what was submitted. SVC_DEVICE: it ended otherwise than completed (reset after a hang,
 * abort, error), or not within limit_us; after the latter nothing may be freed: leave by _exit.
 * beat is called between looks. */
SVC_CHECKED enum svc_code device_wait(struct device *device, uint64_t limit_us,
				      void (*beat)(void *context), void *context,
				      struct svc_err *err);
