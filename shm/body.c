#include "shm/body.h"

#include <string.h>

#define POOL_OFFSET SHM_LINE

uint32_t body_logprob_bytes(uint32_t n_top)
{
	return (uint32_t)sizeof(struct body_logprob) + n_top * 8u;
}

static uint64_t round_line(uint64_t bytes)
{
	return (bytes + SHM_LINE - 1) & ~(uint64_t)(SHM_LINE - 1);
}

uint32_t body_plan_blocks(const struct body_plan *plan)
{
	uint64_t bytes = sizeof(struct body);
	for (int i = 0; i < REGION_COUNT; i++)
		bytes += round_line(plan->bytes[i]);
	uint64_t blocks = (bytes + BODY_BLOCK_BYTES - 1) / BODY_BLOCK_BYTES;
	return blocks < 1u << SLOT_BODY_BITS ? (uint32_t)blocks : 0;
}

/* Tries to take blocks first..first+n-1 for tag; gives back what it took if one is in use. Returns
 * how many it got. */
static uint32_t take_run(struct shm_run *run, uint32_t first, uint32_t n, uint32_t tag)
{
	uint32_t got = 0;
	for (; got < n; got++) {
		uint32_t nobody = 0;
		if (!atomic_compare_exchange_strong(&run->blocks[first + got], &nobody, tag))
			break;
	}
	if (got < n)
		for (uint32_t i = 0; i < got; i++)
			atomic_store(&run->blocks[first + i], 0);
	return got;
}

static struct body *body_at(const struct shm_run *run, uint32_t index)
{
	return seg_at(&run->bodies, POOL_OFFSET + (uint64_t)index * BODY_BLOCK_BYTES,
		      sizeof(struct body));
}

static void lay_out(struct body *body, uint32_t slot, uint32_t n_blocks,
		    const struct body_plan *plan)
{
	memset(body, 0, sizeof *body);
	body->magic = BODY_MAGIC;
	body->n_blocks = n_blocks;
	body->slot = slot;
	uint64_t at = sizeof *body;
	for (int i = 0; i < REGION_COUNT; i++) {
		body->regions[i] = (struct body_extent){(uint32_t)at, plan->bytes[i]};
		at += round_line(plan->bytes[i]);
	}
	atomic_store(&body->stop_id, -1);
	atomic_store(&body->stop_index, -1);
}

enum svc_code body_alloc(struct shm_run *run, uint32_t slot, const struct body_plan *plan,
			 uint32_t *ret_body, struct svc_err *err)
{
	uint32_t n = body_plan_blocks(plan);
	if (n == 0 || n > run->n_blocks)
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"the request needs more memory than the pool of %u KiB has; raise "
				"--body-pool-mb",
				run->n_blocks * (BODY_BLOCK_BYTES / 1024));
	for (uint32_t first = 0; first + n <= run->n_blocks;) {
		uint32_t got = take_run(run, first, n, slot + 1);
		if (got < n) {
			first += got + 1;
			continue;
		}
		struct body *body = body_at(run, first);
		if (!body)
			return svc_fail(err, SVC_CORRUPT, __func__,
					"the bodies segment is smaller than its block table");
		lay_out(body, slot, n, plan);
		*ret_body = first;
		return SVC_OK;
	}
	return svc_fail(err, SVC_BUSY, __func__,
			"the pool for requests is full (%u KiB); retry later",
			run->n_blocks * (BODY_BLOCK_BYTES / 1024));
}

void body_free_all(struct shm_run *run, uint32_t slot)
{
	for (uint32_t i = 0; i < run->n_blocks; i++)
		if (atomic_load_explicit(&run->blocks[i], memory_order_relaxed) == slot + 1)
			atomic_store(&run->blocks[i], 0);
}

uint32_t body_count_used(const struct shm_run *run)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < run->n_blocks; i++)
		n += atomic_load_explicit(&run->blocks[i], memory_order_relaxed) != 0;
	return n;
}

struct body *body_get(const struct shm_run *run, uint32_t index, uint32_t slot)
{
	struct body *body = index < run->n_blocks ? body_at(run, index) : NULL;
	return body && body->magic == BODY_MAGIC && body->slot == slot ? body : NULL;
}

void *body_region(const struct shm_run *run, const struct body *body, enum body_region region,
		  size_t need, size_t *ret_bytes)
{
	/* The header lies in shared memory: copy, check, use. */
	struct body_extent extent = body->regions[region];
	uint64_t start = (uint64_t)((const char *)body - (const char *)run->bodies.base);
	if (extent.offset < sizeof *body || extent.offset % SHM_LINE || extent.bytes < need)
		return NULL;
	if (ret_bytes)
		*ret_bytes = extent.bytes;
	return seg_at(&run->bodies, start + extent.offset, extent.bytes);
}

void body_fail(struct body *body, const struct svc_err *err)
{
	if (atomic_load(&body->fail_code))
		return;
	size_t len = strnlen(err->msg, sizeof body->fail_msg - 1);
	memcpy(body->fail_msg, err->msg, len);
	body->fail_msg[len] = 0;
	body->fail_len = (uint32_t)len;
	size_t param = strnlen(err->param, sizeof body->fail_param - 1);
	memcpy(body->fail_param, err->param, param);
	body->fail_param[param] = 0;
	atomic_store(&body->fail_code, (uint32_t)err->code);
}

bool body_failure(const struct body *body, struct svc_err *ret_err)
{
	uint32_t code = atomic_load(&body->fail_code);
	if (code == SVC_OK)
		return false;
	*ret_err =
		(struct svc_err){.code = code < SVC_CODE_COUNT ? (enum svc_code)code : SVC_INTERNAL,
				 .where = "peer"};
	memcpy(ret_err->msg, body->fail_msg, sizeof body->fail_msg);
	ret_err->msg[sizeof body->fail_msg - 1] = 0;
	memcpy(ret_err->param, body->fail_param, sizeof body->fail_param);
	ret_err->param[sizeof body->fail_param - 1] = 0;
	return true;
}

uint32_t body_n_ids(const struct shm_run *run, const struct body *body)
{
	size_t bytes = 0;
	if (!body_region(run, body, REGION_IDS, 0, &bytes))
		return 0;
	uint64_t n = (uint64_t)atomic_load_explicit(&body->n_prompt, memory_order_acquire) +
		     atomic_load_explicit(&body->n_tokens, memory_order_acquire);
	return n <= bytes / sizeof(int32_t) ? (uint32_t)n : (uint32_t)(bytes / sizeof(int32_t));
}
