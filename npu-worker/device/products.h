/* npu-worker/device/products.h: the engine on an NPU: whole layers where the kernel folder has them
 * for this model (layers.h), else its matrix products, a list of runs per dispatch, with everything
 * between them on the host. Always in the same family, so host and NPU workers may take each
 * other's requests over. The weights are the packed region that all workers share. */
#pragma once
#include <stdbool.h>

#include "npu-worker/device/area.h"
#include "npu-worker/device/device.h"
#include "npu-worker/device/manifest.h"
#include "npu-worker/engine/engine.h"

struct layers;
struct products;

struct products_options {
	const char *module, *kernels; /* kernels: the folder of the manifest */
	const char *family;	      /* that is served */
	void *region;		      /* packed, page aligned; mapped shared */
	size_t region_bytes;
	void *pages, *logits; /* the segments of KV pages and logits, mapped shared and writable */
	size_t pages_bytes, logits_bytes, page_bytes;
	uint64_t limit_us;   /* a dispatch may take */
	area_memory *memory; /* called once */
	void (*beat)(void *context);
	/* The device failed, and the process is about to leave; may be NULL. */
	void (*failed)(void *context, const struct svc_err *err);
	void *context;
};

/* Looks for an NPU that can do every layer, or every product, of the plan. SVC_NO_DEVICE says why
 * not and what to do. */
SVC_CHECKED enum svc_code products_open(const struct products_options *options,
					const struct plan *plan, struct products **ret_products,
					struct svc_err *err);
/* NULL is fine. Returns NULL. Nothing may be running. */
struct products *products_close(struct products *products);
/* For engine_set_executor. If the device fails, it says so in the log and leaves the
 * process with SVC_DEVICE's exit status: nothing that a hung device may still write can be freed.
 */
struct engine_executor products_executor(struct products *products);
/* Between two passes: a device that is gone (device_health) has failed. */
void products_check(const struct products *products);
/* The region was changed in place, as nothing in service does: the device is to see it from now on.
 */
SVC_CHECKED enum svc_code products_refresh(struct products *products, struct svc_err *err);
/* The device reads and writes the shared memory itself, not copies. */
bool products_in_place(const struct products *products);
/* Why the folder's layers don't do for this model; "": they do, or there are none. */
const char *products_no_layers(const struct products *products);
/* NULL: products alone are on the device. */
const struct layers *products_layers(const struct products *products);
