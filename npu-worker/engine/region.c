#include "npu-worker/engine/region.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "npu-worker/engine/region_private.h"

struct model_hash region_model_hash(const struct gguf *gguf)
{
	struct span bytes = gguf_bytes(gguf);
	XXH128_hash_t hash = XXH3_128bits(bytes.ptr, bytes.len);
	return (struct model_hash){.low = hash.low64, .high = hash.high64};
}

uint64_t region_header_hash(const struct region_header *header)
{
	const size_t from = offsetof(struct region_header, layout_version);
	const size_t to = offsetof(struct region_header, header_hash);
	uint64_t fields = XXH3_64bits((const char *)header + from, to - from);
	return XXH3_64bits_withSeed((const char *)header + REGION_HEADER_BYTES,
				    header->n_parts * sizeof(struct plan_part), fields);
}

static uint64_t content_hash(const struct region_header *header)
{
	return XXH3_64bits((const char *)header + REGION_HEADER_BYTES,
			   header->total_bytes - REGION_HEADER_BYTES);
}

static enum svc_code corrupt(struct svc_err *err, const char *what, uint64_t found, uint64_t wanted)
{
	return svc_fail(err, SVC_CORRUPT, "region_attach",
			"weights region: %s is %" PRIu64 ", %" PRIu64
			" is needed; remove it and start again",
			what, found, wanted);
}

static enum svc_code check_header(const struct region_header *h, size_t size, struct svc_err *err)
{
	if (__atomic_load_n(&h->magic, __ATOMIC_ACQUIRE) != REGION_MAGIC)
		return svc_fail(
			err, SVC_CORRUPT, "region_attach",
			"weights region: no magic; it is another file, or was never finished");
	if (h->layout_version != REGION_LAYOUT_VERSION)
		return corrupt(err, "layout version", h->layout_version, REGION_LAYOUT_VERSION);
	if (h->header_bytes != REGION_HEADER_BYTES)
		return corrupt(err, "header size", h->header_bytes, REGION_HEADER_BYTES);
	if (h->part_bytes != sizeof(struct plan_part))
		return corrupt(err, "size of a directory entry", h->part_bytes,
			       sizeof(struct plan_part));
	if (h->config_bytes != sizeof(struct model_config))
		return corrupt(err, "size of the configuration", h->config_bytes,
			       sizeof(struct model_config));
	if (h->total_bytes > size)
		return corrupt(err, "stated size", h->total_bytes, size);
	if (h->n_parts == 0 || h->n_parts > PLAN_MAX_PARTS)
		return corrupt(err, "number of parts", h->n_parts, PLAN_MAX_PARTS);
	if (region_parts_offset(h->n_parts) > h->total_bytes)
		return corrupt(err, "size", h->total_bytes, region_parts_offset(h->n_parts));
	if (h->header_hash != region_header_hash(h))
		return corrupt(err, "header hash", h->header_hash, region_header_hash(h));
	return SVC_OK;
}

static enum svc_code check_places(const struct plan *plan, struct svc_err *err)
{
	uint64_t end = region_parts_offset(plan->n_parts);
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		const struct plan_part *part = &plan->parts[i];
		if (part->offset != end)
			return corrupt(err, "offset of a part", part->offset, end);
		end = part->offset + (part->size_bytes + 63) / 64 * 64;
	}
	return end == plan->total_bytes ? SVC_OK : corrupt(err, "size", plan->total_bytes, end);
}

static struct plan *copy_plan(const struct region_header *h, const void *region)
{
	struct plan *plan = calloc(1, sizeof *plan);
	struct plan_part *parts = malloc(h->n_parts * sizeof *parts);
	if (!plan || !parts) {
		free(plan);
		free(parts);
		return NULL;
	}
	memcpy(parts, (const char *)region + REGION_HEADER_BYTES, h->n_parts * sizeof *parts);
	*plan = (struct plan){.config = h->config,
			      .ctx = h->ctx,
			      .n_parts = h->n_parts,
			      .parts = parts,
			      .total_bytes = h->total_bytes};
	return plan;
}

enum svc_code region_attach(const void *region, size_t size, const struct model_hash *model,
			    bool check_content, struct plan **ret_plan, struct svc_err *err)
{
	const struct region_header *header = region;
	if (size < REGION_HEADER_BYTES)
		return corrupt(err, "size", size, REGION_HEADER_BYTES);
	enum svc_code code = check_header(header, size, err);
	if (code)
		return code;
	if (model && (model->low != header->model.low || model->high != header->model.high))
		return svc_fail(err, SVC_CORRUPT, __func__,
				"weights region: packed from model %016" PRIx64 "%016" PRIx64
				", not from %016" PRIx64 "%016" PRIx64,
				header->model.high, header->model.low, model->high, model->low);
	if (check_content && header->content_hash != content_hash(header))
		return svc_fail(
			err, SVC_CORRUPT, __func__,
			"weights region: content differs from its hash; remove it and start again");
	struct plan *plan = copy_plan(header, region);
	if (!plan)
		return svc_fail_errno(err, __func__, "no memory for the model's plan");
	code = plan_check(plan, err);
	if (!code)
		code = check_places(plan, err);
	if (code) {
		plan_close(plan);
		return code;
	}
	*ret_plan = plan;
	return SVC_OK;
}
