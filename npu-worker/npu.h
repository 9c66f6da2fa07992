/* npu-worker/npu.h: on an NPU or on the host. */
#pragma once
#include "npu-worker/worker_private.h"

/* First of all: SVC_NO_DEVICE if --device demands an NPU and there is none. ret_wanted: the weights
 * are to be mapped so that a device can take them over (drivers pin only writable memory). */
SVC_CHECKED enum svc_code npu_look(const struct svc *svc, bool *ret_wanted, struct svc_err *err);
/* After the engine is open: gives its products to an NPU if --device allows or demands it. */
SVC_CHECKED enum svc_code npu_open(struct worker *worker, struct svc_err *err);
/* Between steps, once a second: a device that is gone has failed, also if nothing was asked of it.
 */
void npu_check(struct worker *worker);
void npu_close(struct worker *worker);
