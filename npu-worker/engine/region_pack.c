/* Fills a region from a model file: region_pack of region.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "npu-worker/engine/region_private.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/f16.h"
#include "npu-worker/kernels/kernels.h"
#include "npu-worker/kernels/pool.h"

/* One dispatch does this much, so that progress shows and a beat is never far: some 10 ms. */
enum {
	CHUNK_WEIGHTS = 1 << 21,
	CHUNK_POSITIONS = 1024,
	GRAIN_POSITIONS = 64,
	HASH_BYTES = 16 << 20
};

struct matrix_job {
	struct kernels_matrix shape;
	const void *source;
	void *target;
	uint32_t first; /* block that item 0 stands for */
};

static void pack_blocks(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct matrix_job *m = context;
	(void)thread;
	kernels_pack(&m->shape, m->source, m->target, m->first + first, m->first + last);
}

static void run(struct pool *pool, pool_work *work, void *context, uint32_t count, uint32_t grain)
{
	if (pool)
		pool_run(pool, work, context, count, grain);
	else
		work(context, 0, count, 0);
}

static void report(const struct region_job *job, uint64_t done_bytes)
{
	if (job->progress)
		job->progress(job->context, done_bytes, job->plan->total_bytes);
}

static void pack_matrix(const struct region_job *job, struct pool *pool,
			const struct plan_part *part, const void *source)
{
	uint32_t blocks = kernels_block_count(part->rows);
	struct matrix_job m = {.shape = {part->type, part->rows, part->cols, NULL},
			       .source = source,
			       .target = (char *)job->region + part->offset};
	/* The padding behind the last block is part of what the content hash covers. */
	memset((char *)m.target + part->size_bytes - 64, 0, 64);
	uint32_t chunk = CHUNK_WEIGHTS / KERNELS_BLOCK_ROWS / part->cols + 1;
	for (m.first = 0; m.first < blocks; m.first += chunk) {
		uint32_t count = blocks - m.first < chunk ? blocks - m.first : chunk;
		run(pool, pack_blocks, &m, count, count / 16 + 1);
		report(job, part->offset + part->size_bytes / blocks * (m.first + count));
	}
}

static float float_at(const struct gguf_tensor *tensor, uint32_t i)
{
	const uint8_t *bytes = tensor->data;
	float value;
	uint16_t half;
	if (tensor->type == GGUF_TENSOR_F32) {
		memcpy(&value, bytes + (size_t)i * 4, 4);
		return value;
	}
	memcpy(&half, bytes + (size_t)i * 2, 2);
	return tensor->type == GGUF_TENSOR_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

struct table_job {
	const float *inv_freq;
	uint32_t pairs;
	float factor;
	uint32_t first; /* position that item 0 stands for */
	float *target;	/* [ctx][2][pairs] */
};

static void fill_rows(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct table_job *t = context;
	(void)thread;
	for (uint32_t position = t->first + first; position < t->first + last; position++)
		rope_row(t->inv_freq, t->pairs, t->factor, position,
			 t->target + (size_t)position * 2 * t->pairs);
}

/* The literal divisors that hold for this context, or NULL. */
static const struct gguf_tensor *find_divisors(const struct region_job *job)
{
	const struct rope_config *rope = &job->plan->config.rope;
	if (rope->type != ROPE_LONGROPE)
		return gguf_tensor_find(job->gguf, "rope_freqs.weight");
	bool longer = (double)job->plan->ctx > rope->original_ctx;
	return gguf_tensor_find(job->gguf,
				longer ? "rope_factors_long.weight" : "rope_factors_short.weight");
}

/* ret_values: [pairs]; left alone if there is no such tensor. */
static enum svc_code read_literal(const struct gguf_tensor *tensor, uint32_t pairs,
				  float *ret_values, struct svc_err *err)
{
	for (uint32_t j = 0; tensor && j < pairs; j++) {
		float value = float_at(tensor, j);
		if (!(value > 0.0f) || isinf(value))
			return svc_fail(err, SVC_BAD_MODEL, __func__,
					"tensor %.*s holds %g at %u; it must be positive",
					(int)tensor->name.len, tensor->name.ptr, (double)value, j);
		ret_values[j] = value;
	}
	return SVC_OK;
}

static enum svc_code pack_table(const struct region_job *job, struct pool *pool,
				const struct plan_part *part, struct svc_err *err)
{
	bool local = part->role == PART_ROPE_LOCAL;
	const struct rope_config *rope =
		local ? &job->plan->config.rope_local : &job->plan->config.rope;
	const struct gguf_tensor *literal = local ? NULL : find_divisors(job);
	uint32_t pairs = rope->dims / 2;
	float inv_freq[KERNELS_MAX_HEAD_DIM / 2], divisors[KERNELS_MAX_HEAD_DIM / 2];
	enum svc_code code = read_literal(literal, pairs, divisors, err);
	if (code)
		return code;
	struct table_job t = {.inv_freq = inv_freq,
			      .pairs = pairs,
			      .target = (float *)(void *)((char *)job->region + part->offset)};
	t.factor = rope_inv_freq(rope, job->plan->ctx, literal ? divisors : NULL, inv_freq);
	if (!local)
		code = read_literal(gguf_tensor_find(job->gguf, ROPE_OWN_TABLE), pairs, inv_freq,
				    err);
	if (code)
		return code;
	for (; t.first < job->plan->ctx; t.first += CHUNK_POSITIONS) {
		uint32_t left = job->plan->ctx - t.first;
		run(pool, fill_rows, &t, left < CHUNK_POSITIONS ? left : CHUNK_POSITIONS,
		    GRAIN_POSITIONS);
		report(job, part->offset);
	}
	return SVC_OK;
}

static enum svc_code pack_part(const struct region_job *job, struct pool *pool,
			       const struct plan_part *part, struct svc_err *err)
{
	if (part->role == PART_ROPE || part->role == PART_ROPE_LOCAL)
		return pack_table(job, pool, part, err);
	char name[64];
	plan_tensor_name(part, name);
	const struct gguf_tensor *tensor = gguf_tensor_find(job->gguf, name);
	if (!tensor)
		return svc_fail(err, SVC_INTERNAL, __func__,
				"tensor %s isn't in the file the plan was made of", name);
	if (part->is_matrix) {
		pack_matrix(job, pool, part, tensor->data);
		return SVC_OK;
	}
	float *target = (float *)(void *)((char *)job->region + part->offset);
	for (uint32_t i = 0; i < part->cols; i++)
		target[i] = float_at(tensor, i);
	return SVC_OK;
}

/* In pieces: a large region takes longer than a beat may. */
static enum svc_code hash_content(const struct region_job *job, uint64_t *ret_hash,
				  struct svc_err *err)
{
	const char *at = (const char *)job->region + REGION_HEADER_BYTES;
	uint64_t left = job->plan->total_bytes - REGION_HEADER_BYTES;
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return svc_fail_errno(err, __func__, "no memory for a hash");
	XXH3_64bits_reset(state);
	for (uint64_t count; left > 0; at += count, left -= count) {
		count = left < HASH_BYTES ? left : HASH_BYTES;
		XXH3_64bits_update(state, at, count);
		report(job, job->plan->total_bytes);
	}
	*ret_hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return SVC_OK;
}

enum svc_code region_pack(const struct region_job *job, struct pool *pool, struct svc_err *err)
{
	const struct plan *plan = job->plan;
	struct region_header *header = job->region;
	memset(header, 0, region_parts_offset(plan->n_parts));
	memcpy((char *)job->region + REGION_HEADER_BYTES, plan->parts,
	       plan->n_parts * sizeof *plan->parts);
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		const struct plan_part *part = &plan->parts[i];
		uint64_t end = part->offset + part->size_bytes;
		memset((char *)job->region + end, 0, (64 - end % 64) % 64);
		enum svc_code code = pack_part(job, pool, part, err);
		if (code)
			return code;
		report(job, end);
	}
	header->layout_version = REGION_LAYOUT_VERSION;
	header->header_bytes = REGION_HEADER_BYTES;
	header->part_bytes = sizeof(struct plan_part);
	header->config_bytes = sizeof(struct model_config);
	header->total_bytes = plan->total_bytes;
	header->model = job->model;
	header->n_parts = plan->n_parts;
	header->ctx = plan->ctx;
	header->config = plan->config;
	enum svc_code code = hash_content(job, &header->content_hash, err);
	if (code)
		return code;
	header->header_hash = region_header_hash(header);
	/* Whoever sees the magic sees all that was written before it. */
	__atomic_store_n(&header->magic, REGION_MAGIC, __ATOMIC_RELEASE);
	return SVC_OK;
}
