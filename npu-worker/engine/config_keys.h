/* npu-worker/engine/config_keys.h: every metadata key under an architecture's prefix is read,
 * harmless at the value it has, or refused. */
#pragma once
#include "base/err.h"
#include "model/gguf.h"

/* SVC_UNSUPPORTED names the first key that isn't known, or is known and changes the mathematics at
 * its value. */
SVC_CHECKED enum svc_code config_keys_check(const struct gguf *gguf, const char *arch,
					    struct svc_err *err);
