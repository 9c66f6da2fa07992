/* npu-worker/engine/region_private.h: what region.c and pack.c share. */
#pragma once
#include "npu-worker/engine/region.h"

#define REGION_MAGIC "LKSTWGT" /* seven letters and a zero */

/* header: in place, in front of its directory. */
uint64_t region_header_hash(const struct region_header *header);
