/* npu-worker/worker.h: the npu-worker process: owns the device or the host engine, KV pages and
 * batches. Knows nothing of text. */
#pragma once
#include "services/service.h"

extern const struct svc_spec worker_spec;
