/* model/hf_fields.h: every field of a config.json that is known, and what it may be. */
#pragma once
#include <jansson.h>

#include "base/err.h"

enum hf_fields { HF_FIELDS_MODEL, HF_FIELDS_ROPE };

/* SVC_UNSUPPORTED names a field that isn't known (it may change the mathematics) or that isn't at
 * the one value at which it doesn't. prefix: of the object, for messages. */
SVC_CHECKED enum svc_code hf_fields_check(const json_t *object, enum hf_fields which,
					  const char *prefix, struct svc_err *err);
