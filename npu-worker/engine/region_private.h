/* npu-worker/engine/region_private.h: what region.c and pack.c share. */
#pragma once
#include "npu-worker/engine/region.h"

static const uint64_t REGION_MAGIC = 0x0054475754534b4c;

/* header: in place, in front of its directory. */
uint64_t region_header_hash(const struct region_header *header);
