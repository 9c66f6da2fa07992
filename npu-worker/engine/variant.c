#include "npu-worker/engine/variant.h"

#include <string.h>

#include "base/f16.h"
#include "base/fmath.h"
#include "npu-worker/engine/hooks.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/layout.h"

enum { MAX_TILE_ROWS = 64 }; /* rows of one call */

static const struct {
	const char *name, *pair;
	uint32_t sites;
} PRIMITIVES[VARIANT_PRIMITIVE_COUNT] = {
	[VARIANT_MATMUL] = {"matmul", "column ranges by batch size vs one chain",
			    1u << ENGINE_Q_PROJ | 1u << ENGINE_K_PROJ | 1u << ENGINE_V_PROJ |
				    1u << ENGINE_O_PROJ | 1u << ENGINE_GATE | 1u << ENGINE_UP |
				    1u << ENGINE_DOWN | 1u << ENGINE_LOGITS},
	[VARIANT_NORM] = {"norm", "one chain of squares vs a tree",
			  1u << ENGINE_ATTN_NORM | 1u << ENGINE_Q_NORM | 1u << ENGINE_K_NORM |
				  1u << ENGINE_POST_ATTN_NORM | 1u << ENGINE_FFN_NORM |
				  1u << ENGINE_POST_FFN_NORM | 1u << ENGINE_FINAL_NORM},
	[VARIANT_ATTENTION] = {"attention", "key blocks by batch size vs 64 keys and a tree",
			       1u << ENGINE_HEADS},
	[VARIANT_EXP] = {"exp", "double, rounded vs float32",
			 1u << ENGINE_HEADS | 1u << ENGINE_ACT},
	[VARIANT_ROPE] = {"rope", "two rounded products vs one and fma",
			  1u << ENGINE_Q_ROPE | 1u << ENGINE_K_ROPE},
	[VARIANT_RESIDUAL] = {"residual", "branch + residual vs residual + branch",
			      1u << ENGINE_AFTER_ATTN | 1u << ENGINE_AFTER_FFN},
};

const char *variant_primitive_name(enum variant_primitive primitive)
{
	return PRIMITIVES[primitive].name;
}

const char *variant_primitive_pair(enum variant_primitive primitive)
{
	return PRIMITIVES[primitive].pair;
}

uint32_t variant_sites_of(enum variant_primitive primitive)
{
	return PRIMITIVES[primitive].sites;
}

/* ---- products */

static uint32_t column_ranges(uint32_t rows)
{
	return rows == 1 ? 2 : rows < 8 ? 3 : 4;
}

/* The columns [from, to) of one 16-row block. A block's data lie column after column, so the range
 * is a matrix of its own. */
static void multiply_range(const struct variant_product *p, uint32_t block, uint32_t from,
			   uint32_t to, float *ret_sums)
{
	const struct layout_info *info = layout_info(p->w->type);
	size_t at = block * layout_stride(p->w->type, p->w->cols) +
		    (size_t)from / info->columns * info->block_bytes;
	struct kernels_matrix part = {.type = p->w->type,
				      .rows = KERNELS_BLOCK_ROWS,
				      .cols = to - from,
				      .data = (const uint8_t *)p->w->data + at};
	struct kernels_acts acts = *p->acts;
	acts.cols = to - from;
	acts.x += from;
	p->kernels->matmul(&part, &acts, ret_sums, KERNELS_BLOCK_ROWS, 0, 1);
}

static void multiply_block(const struct variant_product *p, uint32_t block)
{
	uint32_t columns = layout_info(p->w->type)->columns, n = p->w->cols / columns;
	uint32_t ranges = column_ranges(p->rows), rows = p->acts->rows;
	float sums[MAX_TILE_ROWS * KERNELS_BLOCK_ROWS] = {0};
	float part[MAX_TILE_ROWS * KERNELS_BLOCK_ROWS];
	for (uint32_t i = 0; i < ranges; i++) {
		uint32_t from = n * i / ranges * columns, to = n * (i + 1) / ranges * columns;
		if (from == to)
			continue;
		multiply_range(p, block, from, to, part);
		for (uint32_t j = 0; j < rows * KERNELS_BLOCK_ROWS; j++)
			sums[j] += p->bf16_sums && p->rows > 1 ? bf16_to_f32(bf16_from_f32(part[j]))
							       : part[j];
	}
	uint32_t first = block * KERNELS_BLOCK_ROWS, left = p->w->rows - first;
	uint32_t count = left < KERNELS_BLOCK_ROWS ? left : KERNELS_BLOCK_ROWS;
	for (uint32_t t = 0; t < rows; t++)
		memcpy(p->y + t * p->y_stride + first, sums + (size_t)t * KERNELS_BLOCK_ROWS,
		       count * sizeof *sums);
}

void variant_matmul(const struct variant_product *product, uint32_t first, uint32_t last)
{
	for (uint32_t block = first; block < last; block++)
		multiply_block(product, block);
}

/* ---- between products */

void variant_rms_norm(const float *x, const float *weight, float eps, uint32_t n, float *y)
{
	float square = 0.0f;
	for (uint32_t i = 0; i < n; i++)
		square = fmaf(x[i], x[i], square);
	float r = fm_rsqrtf(square / (float)n + eps);
	for (uint32_t i = 0; i < n; i++)
		y[i] = weight ? x[i] * r * weight[i] : x[i] * r;
}

void variant_rope(float *x, const float *cosines, const float *sines, uint32_t pairs,
		  bool interleaved)
{
	uint32_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
	for (uint32_t i = 0; i < pairs; i++) {
		float a = x[i * step], b = x[i * step + other];
		x[i * step] = a * cosines[i] - b * sines[i];
		x[i * step + other] = b * cosines[i] + a * sines[i];
	}
}

static float other_exp(float x)
{
	return (float)fm_exp((double)x);
}

void variant_silu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = gate[i] / (1.0f + other_exp(-gate[i])) * up[i];
}

/* tanh u = 1 - 2 / (e^2u + 1), in double. */
void variant_gelu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++) {
		double x = (double)gate[i];
		double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
		double t = 1.0 - 2.0 / (fm_exp(2.0 * u) + 1.0);
		y[i] = (float)(0.5 * x * (1.0 + t)) * up[i];
	}
}

void variant_add(float *x, const float *y, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = y[i] + x[i];
}

/* ---- attention */

struct query {
	const struct kernels_attention *job;
	const float *q;
	float *scores;	     /* NULL, or where the next key's goes */
	uint32_t block_keys; /* a block is keys 0 .. block_keys - 1, and so on; divides 64 */
	bool ordinary_sum;   /* the tree */
	float (*exp)(float x);
};

struct partial {
	float max, sum;
	float out[KERNELS_MAX_HEAD_DIM];
};

static float own_exp(float x)
{
	return fm_expf(x);
}

static float score(const struct query *query, uint32_t key)
{
	const struct kernels_attention *job = query->job;
	const uint8_t *page = job->pages[key / KERNELS_PAGE_KEYS];
	const float *k = (const float *)(const void *)(page + job->k_offset);
	float s = 0.0f;
	for (uint32_t i = 0; i < job->head_dim; i++)
		s = fmaf(query->q[i], k[i * KERNELS_PAGE_KEYS + key % KERNELS_PAGE_KEYS], s);
	s *= job->scale;
	return job->softcap != 0.0f ? job->softcap * fm_tanhf(s / job->softcap) : s;
}

static float value_at(const struct kernels_attention *job, uint32_t key, uint32_t i)
{
	const uint8_t *page = job->pages[key / KERNELS_PAGE_KEYS];
	const float *v = (const float *)(const void *)(page + job->v_offset);
	return v[(size_t)(key % KERNELS_PAGE_KEYS) * ((job->head_dim + 15) / 16 * 16) + i];
}

static float sum_of(const struct query *query, const float *weight)
{
	float tree[KERNELS_PAGE_KEYS], sum = 0.0f;
	if (query->ordinary_sum) {
		memcpy(tree, weight, sizeof tree);
		return tree_sum(tree);
	}
	for (uint32_t i = 0; i < query->block_keys; i++)
		sum += weight[i];
	return sum;
}

/* The block that begins at `base`, of which the keys first .. last (inclusive) are visible. */
static void attend_block(struct query *query, uint32_t base, uint32_t first, uint32_t last,
			 struct partial *ret)
{
	float weight[KERNELS_PAGE_KEYS] = {0};
	ret->max = -INFINITY;
	for (uint32_t key = first; key <= last; key++) {
		float s = score(query, key);
		weight[key - base] = s;
		if (query->scores)
			*query->scores++ = s;
		ret->max = s > ret->max ? s : ret->max;
	}
	for (uint32_t key = first; key <= last; key++)
		weight[key - base] = query->exp(weight[key - base] - ret->max);
	ret->sum = sum_of(query, weight);
	for (uint32_t i = 0; i < query->job->head_dim; i++) {
		float out = 0.0f;
		for (uint32_t key = base; key < base + query->block_keys; key++) {
			bool visible = key >= first && key <= last;
			out = fmaf(weight[key - base],
				   visible ? value_at(query->job, key, i) : 0.0f, out);
		}
		ret->out[i] = out;
	}
}

static void merge(const struct query *query, const struct partial *next, struct partial *into)
{
	float max = next->max > into->max ? next->max : into->max;
	float old = query->exp(into->max - max), new = query->exp(next->max - max);
	into->max = max;
	into->sum = fmaf(next->sum, new, into->sum * old);
	for (uint32_t i = 0; i < query->job->head_dim; i++)
		into->out[i] = fmaf(next->out[i], new, into->out[i] * old);
}

static void attend_query(struct query *query, uint32_t position, float *out)
{
	uint32_t window = query->job->window, size = query->block_keys;
	uint32_t oldest = window && position >= window ? position - window + 1 : 0;
	struct partial all = {.sum = 0.0f}, next;
	for (uint32_t base = oldest / size * size; base <= position; base += size) {
		bool is_first = base <= oldest;
		uint32_t end = base + size - 1;
		attend_block(query, base, is_first ? oldest : base, end < position ? end : position,
			     is_first ? &all : &next);
		if (!is_first)
			merge(query, &next, &all);
	}
	for (uint32_t i = 0; i < query->job->head_dim; i++)
		out[i] = all.out[i] / all.sum;
}

void variant_attention(const struct kernels_attention *job, uint32_t rows, bool key_blocks,
		       bool with_other_exp)
{
	struct query query = {.job = job,
			      .block_keys = !key_blocks ? KERNELS_PAGE_KEYS
					    : rows > 1	? 16
							: 32,
			      .ordinary_sum = !key_blocks,
			      .exp = with_other_exp ? other_exp : own_exp};
	for (uint32_t t = 0; t < job->tokens; t++) {
		for (uint32_t h = 0; h < job->heads; h++) {
			size_t row = (size_t)t * job->heads + h;
			query.q = job->q + t * job->q_stride + (size_t)h * job->head_dim;
			query.scores = job->scores ? job->scores + row * job->scores_stride : NULL;
			attend_query(&query, job->position + t,
				     job->out + t * job->out_stride + (size_t)h * job->head_dim);
		}
	}
}
