/* Attention, one query and one key block at a time, as docs/arithmetic.md has it. */
#include "npu-worker/kernels/f16.h"
#include "npu-worker/kernels/forms.h"

struct query {
	const struct kernels_attention *job;
	const float *q;
	float *scores; /* NULL, or where the next block's go */
};

/* What is known of one query after some of its blocks. */
struct partial {
	float max, sum;
	float out[KERNELS_MAX_HEAD_DIM];
};

static float element(enum kernels_kv kv, const void *tile, size_t index)
{
	if (kv == KERNELS_KV_I8)
		return (float)((const int8_t *)tile)[index];
	return kv == KERNELS_KV_F32 ? ((const float *)tile)[index]
				    : f16_to_f32(((const uint16_t *)tile)[index]);
}

/* What an int8 vector's codes are multiples of; the other types have none. */
static float step_of(enum kernels_kv kv, const void *tile, size_t elements, uint32_t key)
{
	return kv == KERNELS_KV_I8
		       ? ((const float *)(const void *)((const int8_t *)tile + elements))[key]
		       : 1.0f;
}

static float score(const struct kernels_attention *job, const void *k_tile, const float *q,
		   uint32_t key)
{
	float s = 0.0f;
	for (uint32_t i = 0; i < job->head_dim; i++)
		s = fmaf(q[i], element(job->kv, k_tile, i * KERNELS_PAGE_KEYS + key), s);
	if (job->kv == KERNELS_KV_I8)
		s *= step_of(job->kv, k_tile, (size_t)job->head_dim * KERNELS_PAGE_KEYS, key);
	s *= job->scale;
	return job->softcap != 0.0f ? job->softcap * fm_tanhf(s / job->softcap) : s;
}

/* The block's keys first..last (inclusive, of 0..63) are visible. */
static void attend_block(struct query *query, const uint8_t *page, uint32_t first, uint32_t last,
			 struct partial *ret)
{
	const struct kernels_attention *job = query->job;
	const void *k_tile = page + job->k_offset, *v_tile = page + job->v_offset;
	float weight[KERNELS_PAGE_KEYS] = {0}, tree[KERNELS_PAGE_KEYS];
	ret->max = -INFINITY;
	for (uint32_t key = first; key <= last; key++) {
		weight[key] = score(job, k_tile, query->q, key);
		ret->max = weight[key] > ret->max ? weight[key] : ret->max;
		if (query->scores)
			*query->scores++ = weight[key];
	}
	for (uint32_t key = first; key <= last; key++)
		weight[key] = fm_expf(weight[key] - ret->max);
	memcpy(tree, weight, sizeof tree);
	ret->sum = tree_sum(tree);
	size_t v_stride = (job->head_dim + 15) / 16 * 16;
	for (uint32_t key = first; key <= last && job->kv == KERNELS_KV_I8; key++)
		weight[key] *= step_of(job->kv, v_tile, v_stride * KERNELS_PAGE_KEYS, key);
	for (uint32_t i = 0; i < job->head_dim; i++) {
		float out = 0.0f;
		for (uint32_t key = 0; key < KERNELS_PAGE_KEYS; key++) {
			bool visible = key >= first && key <= last;
			float v = visible ? element(job->kv, v_tile, key * v_stride + i) : 0.0f;
			out = fmaf(weight[key], v, out);
		}
		ret->out[i] = out;
	}
}

/* into = into and then next. */
static void merge(const struct partial *next, uint32_t head_dim, struct partial *into)
{
	float max = next->max > into->max ? next->max : into->max;
	float old = fm_expf(into->max - max), new = fm_expf(next->max - max);
	into->max = max;
	into->sum = fmaf(next->sum, new, into->sum * old);
	for (uint32_t i = 0; i < head_dim; i++)
		into->out[i] = fmaf(next->out[i], new, into->out[i] * old);
}

static void attend_query(struct query *query, uint32_t position, float *out)
{
	const struct kernels_attention *job = query->job;
	uint32_t oldest = job->window && position >= job->window ? position - job->window + 1 : 0;
	struct partial all = {.sum = 0.0f}, next;
	for (uint32_t b = oldest / KERNELS_PAGE_KEYS; b <= position / KERNELS_PAGE_KEYS; b++) {
		uint32_t base = b * KERNELS_PAGE_KEYS, end = position - base;
		bool first_block = b == oldest / KERNELS_PAGE_KEYS;
		attend_block(query, job->pages[b], first_block ? oldest - base : 0,
			     end < KERNELS_PAGE_KEYS ? end : KERNELS_PAGE_KEYS - 1,
			     first_block ? &all : &next);
		if (!first_block)
			merge(&next, job->head_dim, &all);
	}
	for (uint32_t i = 0; i < job->head_dim; i++)
		out[i] = all.out[i] / all.sum;
}

void kernels_scalar_attention(const struct kernels_attention *job)
{
	for (uint32_t t = 0; t < job->tokens; t++) {
		for (uint32_t h = 0; h < job->heads; h++) {
			size_t row = (size_t)t * job->heads + h;
			struct query query = {
				job, job->q + t * job->q_stride + (size_t)h * job->head_dim,
				job->scores ? job->scores + row * job->scores_stride : NULL};
			attend_query(&query, job->position + t,
				     job->out + t * job->out_stride + (size_t)h * job->head_dim);
		}
	}
}

/* x[n] as codes `apart` places from each other, and its step. As an activation group is rounded. */
static void write_codes(const float *x, uint32_t n, int8_t *codes, size_t apart, float *ret_step)
{
	float most = 0.0f;
	bool finite = true;
	for (uint32_t i = 0; i < n; i++) {
		finite &= isfinite(x[i]) != 0;
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	bool none = !finite || most < 0x1p-100f;
	float factor = none ? 0.0f : 127.0f / most;
	for (uint32_t i = 0; i < n; i++) {
		float code = none ? 0.0f : nearbyintf(x[i] * factor);
		codes[i * apart] = (int8_t)(code > 127.0f    ? 127.0f
					    : code < -127.0f ? -127.0f
							     : code);
	}
	*ret_step = !finite ? NAN : none ? 0.0f : most / 127.0f;
}

static void write_i8(const struct kernels_kv_place *to, const float *k, const float *v)
{
	uint32_t dim = to->head_dim;
	size_t stride = (dim + 15) / 16 * 16;
	int8_t *k_codes = to->k_tile, *v_codes = to->v_tile;
	float *k_steps = (float *)(void *)(k_codes + (size_t)dim * KERNELS_PAGE_KEYS);
	float *v_steps = (float *)(void *)(v_codes + stride * KERNELS_PAGE_KEYS);
	write_codes(k, dim, k_codes + to->key, KERNELS_PAGE_KEYS, &k_steps[to->key]);
	write_codes(v, dim, v_codes + to->key * stride, 1, &v_steps[to->key]);
}

void kernels_scalar_kv_write(const struct kernels_kv_place *to, const float *k, const float *v)
{
	size_t v_at = (size_t)to->key * ((to->head_dim + 15) / 16 * 16);
	if (to->kv == KERNELS_KV_I8) {
		write_i8(to, k, v);
		return;
	}
	for (uint32_t i = 0; i < to->head_dim; i++) {
		size_t k_at = (size_t)i * KERNELS_PAGE_KEYS + to->key;
		if (to->kv == KERNELS_KV_F32) {
			((float *)to->k_tile)[k_at] = k[i];
			((float *)to->v_tile)[v_at + i] = v[i];
		} else {
			((uint16_t *)to->k_tile)[k_at] = f16_from_f32(k[i]);
			((uint16_t *)to->v_tile)[v_at + i] = f16_from_f32(v[i]);
		}
	}
}
