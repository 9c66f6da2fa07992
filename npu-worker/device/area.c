#include "npu-worker/device/area.h"

#include <string.h>

#include "base/log.h"

enum svc_code area_open(struct device *device, void *base, size_t bytes, const char *what,
			struct area *ret_area, struct svc_err *err)
{
	struct area area = {.base = base, .bytes = bytes};
	enum svc_code code = device_buffer_wrap(device, base, bytes, &area.buffer, err);
	area.in_place = code == SVC_OK;
	if (code == SVC_UNSUPPORTED) {
		log_info("NPU: %s; the %s are copied", err->msg, what);
		code = device_buffer_new(device, DEVICE_DATA, bytes, &area.buffer, err);
	}
	if (code == SVC_OK)
		*ret_area = area;
	return code;
}

void area_close(struct area *area)
{
	device_buffer_free(area->buffer);
	area->buffer = NULL;
}

enum svc_code area_send(const struct area *area, size_t offset, size_t bytes, struct svc_err *err)
{
	if (!area->in_place)
		memcpy((char *)device_buffer_memory(area->buffer) + offset, area->base + offset,
		       bytes);
	return device_sync(area->buffer, DEVICE_TO, offset, bytes, err);
}

enum svc_code area_fetch(const struct area *area, size_t offset, size_t bytes, struct svc_err *err)
{
	enum svc_code code = device_sync(area->buffer, DEVICE_FROM, offset, bytes, err);
	if (code == SVC_OK && !area->in_place)
		memcpy(area->base + offset,
		       (const char *)device_buffer_memory(area->buffer) + offset, bytes);
	return code;
}
