/* npu-worker/engine/region.h: the packed weights in one run of memory, usually a shared-memory
 * segment that several workers map read-only and a restarted worker attaches to. Position
 * independent: offsets, no pointers.
 *
 *   header (4096 bytes) | directory: n_parts x struct plan_part | parts, each 64-byte aligned
 *
 * The same for every arithmetic family and instruction set. The magic is written last: a region
 * without it was not finished. docs/engine.md has the layout. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "npu-worker/engine/plan.h"

struct pool;

enum { REGION_LAYOUT_VERSION = 1, REGION_HEADER_BYTES = 4096 };

struct model_hash { /* XXH3-128 of the model file's bytes */
	uint64_t low, high;
};

struct region_header {
	uint64_t magic; /* written last; its bytes are "LKSTWGT" and a zero */
	uint32_t layout_version, header_bytes;
	uint32_t part_bytes,
		config_bytes; /* sizes of the structs: a build of another layout is refused */
	uint64_t total_bytes;
	struct model_hash model;
	uint64_t content_hash; /* XXH3-64 of everything behind the header */
	uint32_t n_parts, ctx;
	struct model_config config;
	uint64_t header_hash; /* XXH3-64 of the header from layout_version up to here, and of the
				 directory */
};
_Static_assert(sizeof(struct region_header) <= REGION_HEADER_BYTES, "the header has its page");

static inline uint64_t region_parts_offset(uint32_t n_parts)
{
	return (REGION_HEADER_BYTES + (uint64_t)n_parts * sizeof(struct plan_part) + 63) / 64 * 64;
}

struct model_hash region_model_hash(const struct gguf *gguf);

/* Fills region, plan->total_bytes of writable memory at a 64-byte boundary, in the pool's threads
 * (NULL: the caller alone). progress (NULL is fine) is called from the caller's thread, several
 * times a second. */
struct region_job {
	const struct gguf *gguf;
	const struct plan *plan;
	struct model_hash model;
	void *region;
	void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
	void *context;
};
SVC_CHECKED enum svc_code region_pack(const struct region_job *job, struct pool *pool,
				      struct svc_err *err);

/* Checks a finished region of `size` bytes: magic, versions, sizes, header hash, every part inside,
 * and, if check_content, the hash of the content (some 10 GB/s). model: NULL, or the hash it must
 * have. The plan is the region's directory; SVC_CORRUPT says what differs. */
SVC_CHECKED enum svc_code region_attach(const void *region, size_t size,
					const struct model_hash *model, bool check_content,
					struct plan **ret_plan, struct svc_err *err);
