#include "shm/body.h"

#include <string.h>

#include "shm/block.h"

#define POOL_OFFSET SHM_LINE

uint32_t body_logprob_bytes(uint32_t n_top)
{
	return (uint32_t)sizeof(struct body_logprob) + n_top * 8u;
}

size_t body_sum_bytes(uint32_t n_embd)
{
	size_t bytes = sizeof(struct body_sum) + (size_t)n_embd * sizeof(double);
	return (bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

size_t body_vector_bytes(uint32_t n_embd)
{
	return 2 * body_sum_bytes(n_embd) + (size_t)n_embd * sizeof(float);
}

static uint32_t load(const _Atomic uint32_t *counter)
{
	return atomic_load_explicit(counter, memory_order_acquire);
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

static struct body *body_at(const struct shm_run *run, uint32_t index)
{
	return seg_at(&run->bodies, POOL_OFFSET + (uint64_t)index * BODY_BLOCK_BYTES,
		      sizeof(struct body));
}

static uint32_t index_of(const struct shm_run *run, const struct body *body)
{
	uint64_t offset = (uint64_t)((const char *)body - (const char *)run->bodies.base);
	return (uint32_t)((offset - POOL_OFFSET) / BODY_BLOCK_BYTES);
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

/* Blocks that admission leaves free, so that a frozen process can still be fenced: a spare body of
 * this size for every running sequence, but at most a quarter of the pool. */
static uint32_t spare_blocks(const struct shm_run *run, uint32_t n)
{
	uint64_t spare = (uint64_t)run->n_slots * n;
	return spare < run->n_blocks / 4 ? (uint32_t)spare : run->n_blocks / 4;
}

static enum svc_code allocate(struct shm_run *run, uint32_t slot, const struct body_plan *plan,
			      uint32_t *ret_body, struct svc_err *err)
{
	uint32_t n = body_plan_blocks(plan), first = n ? block_take(run, n, slot) : 0;
	if (first == 0)
		return svc_fail(err, SVC_BUSY, __func__,
				"the pool for requests is full (%u KiB); retry later",
				run->n_blocks * (BODY_BLOCK_BYTES / 1024));
	struct body *body = body_at(run, first);
	if (!body || !seg_at(&run->bodies, POOL_OFFSET + (uint64_t)first * BODY_BLOCK_BYTES,
			     (uint64_t)n * BODY_BLOCK_BYTES)) {
		block_give_back(run, first, slot);
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the bodies segment is smaller than its block table");
	}
	lay_out(body, slot, n, plan);
	*ret_body = first;
	return SVC_OK;
}

bool body_fits(const struct shm_run *run, uint32_t blocks, uint64_t n)
{
	return blocks && n * blocks + spare_blocks(run, blocks) < run->n_blocks;
}

enum svc_code body_alloc(struct shm_run *run, uint32_t slot, const struct body_plan *plan,
			 uint32_t *ret_body, struct svc_err *err)
{
	uint32_t n = body_plan_blocks(plan), spare = spare_blocks(run, n);
	if (!body_fits(run, n, 1))
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"the request needs more memory than the pool of %u KiB can give "
				"one; raise --body-pool-mb",
				run->n_blocks * (BODY_BLOCK_BYTES / 1024));
	if (block_count_free(run) < n + spare)
		return svc_fail(err, SVC_BUSY, __func__,
				"the pool for requests is full (%u KiB); retry later",
				run->n_blocks * (BODY_BLOCK_BYTES / 1024));
	return allocate(run, slot, plan, ret_body, err);
}

/* What was counted when the copy began. */
struct committed {
	uint32_t n_prompt, tokenized, n_kv, n_pages, n_tokens, n_scored, n_out;
};

static struct committed count(const struct body *body)
{
	struct committed counts = {.n_tokens = load(&body->n_tokens)};
	counts.n_scored = load(&body->n_scored);
	counts.n_kv = load(&body->n_kv);
	counts.n_pages = load(&body->n_pages);
	counts.tokenized = load(&body->tokenized);
	counts.n_prompt = load(&body->n_prompt);
	counts.n_out = load(&body->n_out);
	return counts;
}

/* Bytes of a region that are written and stay as they are. */
static uint64_t committed_bytes(const struct body *body, const struct committed *counts,
				enum body_region region, const uint32_t *ends)
{
	uint64_t n_ids = (uint64_t)counts->n_prompt + counts->n_tokens;
	uint64_t record = body_logprob_bytes(body->params.top_logprobs);
	bool by_position = body->params.flags & BODY_PROMPT_LOGPROBS;
	switch (region) {
	case REGION_IDS:
		return n_ids * sizeof(int32_t);
	case REGION_PAGES:
		return counts->n_pages * (uint64_t)sizeof(uint32_t);
	case REGION_ENDS:
		return counts->n_tokens * (uint64_t)sizeof *ends;
	case REGION_OUT:
		/* The sampler's bytes are counted per token, the tokenizer's all at once. */
		if (body->kind != BODY_GENERATE)
			return counts->n_out;
		return counts->n_tokens && ends ? ends[counts->n_tokens - 1] : 0;
	case REGION_LOGPROBS:
		if (by_position)
			return (counts->n_tokens ? n_ids : counts->n_scored) * record;
		return counts->n_tokens * record;
	case REGION_TEXT:
	case REGION_META:
	case REGION_STOP:
	case REGION_STOP_IDS:
	case REGION_BIAS:
	case REGION_GRAMMAR:
	case REGION_VECTOR: /* a sum that is torn says so */
	case REGION_COUNT:
		break;
	}
	return UINT64_MAX;
}

static void copy_regions(const struct shm_run *run, const struct body *old, struct body *copy,
			 const struct committed *counts)
{
	const uint32_t *ends =
		body_region(run, old, REGION_ENDS, counts->n_tokens * sizeof *ends, NULL);
	for (int i = 0; i < REGION_COUNT; i++) {
		enum body_region region = (enum body_region)i;
		size_t bytes = 0, room = 0;
		const void *from = body_region(run, old, region, 0, &bytes);
		void *to = body_region(run, copy, region, 0, &room);
		uint64_t wanted = committed_bytes(old, counts, region, ends);
		if (bytes > room)
			bytes = room;
		if (wanted < bytes)
			bytes = (size_t)wanted;
		if (from && to && bytes)
			memcpy(to, from, bytes);
	}
}

#define CARRY(field) atomic_store(&copy->field, atomic_load(&old->field))

static void copy_lines(const struct body *old, struct body *copy, const struct committed *counts)
{
	copy->generation = old->generation;
	copy->kind = old->kind;
	copy->input = old->input;
	copy->template_time_s = old->template_time_s;
	copy->params = old->params;
	atomic_store(&copy->n_prompt, counts->n_prompt);
	atomic_store(&copy->tokenized, counts->tokenized);
	atomic_store(&copy->n_kv, counts->n_kv);
	atomic_store(&copy->n_pages, counts->n_pages);
	atomic_store(&copy->n_tokens, counts->n_tokens);
	atomic_store(&copy->n_scored, counts->n_scored);
	atomic_store(&copy->n_out, counts->n_out);
	CARRY(row);
	CARRY(worker);
	CARRY(n_cached);
	CARRY(first_us);
	CARRY(began_us);
	CARRY(last_us);
	/* Possibly ahead of n_tokens: then the stage is SAMPLE, and the sampler stores them anew.
	 */
	CARRY(finish);
	CARRY(stop_id);
	CARRY(stop_index);
	CARRY(sampler);
	CARRY(deaths);
	CARRY(death_mark);
	CARRY(takeovers);
	struct svc_err failure;
	if (body_failure(old, &failure))
		body_fail(copy, &failure);
}

enum svc_code body_copy(struct shm_run *run, uint32_t slot, const struct body *old,
			uint32_t *ret_body, struct svc_err *err)
{
	struct committed counts = count(old);
	struct body_plan plan;
	for (int i = 0; i < REGION_COUNT; i++)
		plan.bytes[i] = old->regions[i].bytes;
	uint32_t n = body_plan_blocks(&plan), first = index_of(run, old);
	if (n == 0 || n != block_run_length(run, first, slot))
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	uint32_t index = 0;
	enum svc_code code = allocate(run, slot, &plan, &index, err);
	if (code != SVC_OK)
		return code;
	struct body *copy = body_at(run, index);
	copy_regions(run, old, copy, &counts);
	copy_lines(old, copy, &counts);
	*ret_body = index;
	return SVC_OK;
}

void body_free_all(struct shm_run *run, uint32_t slot)
{
	block_free(run, slot);
}

uint32_t body_count_used(const struct shm_run *run)
{
	return run->n_blocks - 1 - block_count_free(run);
}

struct body *body_get(const struct shm_run *run, uint32_t index, uint32_t slot)
{
	uint32_t n = block_run_length(run, index, slot);
	struct body *body = n ? body_at(run, index) : NULL;
	return body && body->magic == BODY_MAGIC && body->slot == slot && body->n_blocks == n
		       ? body
		       : NULL;
}

bool body_stands(const struct shm_run *run, uint32_t slot, const struct body_seen *seen)
{
	return slot_load(run, slot).body == seen->word.body &&
	       block_identity(run, seen->word.body) == seen->run;
}

struct body_seen body_peek(const struct shm_run *run, uint32_t slot)
{
	struct body_seen seen;
	do {
		seen.word = slot_load(run, slot);
		seen.run = block_identity(run, seen.word.body);
		seen.body = body_get(run, seen.word.body, slot);
	} while (!body_stands(run, slot, &seen));
	return seen;
}

void *body_region(const struct shm_run *run, const struct body *body, enum body_region region,
		  size_t need, size_t *ret_bytes)
{
	/* The header lies in shared memory: copy, check, use. */
	struct body_extent extent = body->regions[region];
	uint64_t start = (uint64_t)((const char *)body - (const char *)run->bodies.base);
	uint64_t end = (uint64_t)extent.offset + extent.bytes;
	if (extent.offset < sizeof *body || extent.offset % SHM_LINE || extent.bytes < need ||
	    end > (uint64_t)body->n_blocks * BODY_BLOCK_BYTES)
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
	uint64_t n = (uint64_t)load(&body->n_prompt) + load(&body->n_tokens);
	return n <= bytes / sizeof(int32_t) ? (uint32_t)n : (uint32_t)(bytes / sizeof(int32_t));
}
