/* npu-worker/device/area.h: the project's own shared memory as the device sees it: in place, as a
 * user-pointer buffer, or where the driver has none a copy in the driver's memory. */
#pragma once
#include <stdbool.h>

#include "npu-worker/device/device.h"

struct area {
	struct device_buffer *buffer;
	char *base; /* the shared memory */
	size_t bytes;
	bool in_place;
};

/* Shared memory for activations: page aligned, of this process alone, there until it ends. */
typedef enum svc_code area_memory(void *context, size_t bytes, void **ret_memory,
				  struct svc_err *err);

/* base: page aligned, mapped shared and writable; outlives the area. what: for the log. */
SVC_CHECKED enum svc_code area_open(struct device *device, void *base, size_t bytes,
				    const char *what, struct area *ret_area, struct svc_err *err);
void area_close(struct area *area);
/* What stands in the memory, to the device; what the device wrote, into the memory. */
SVC_CHECKED enum svc_code area_send(const struct area *area, size_t offset, size_t bytes,
				    struct svc_err *err);
SVC_CHECKED enum svc_code area_fetch(const struct area *area, size_t offset, size_t bytes,
				     struct svc_err *err);
