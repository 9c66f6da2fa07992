/* npu-worker/kernels/attention_simd.h: attention over the vectors of a simd_*.h, the formula of
 * scalar_attention.c. Lanes are keys for the scores and dimensions for the sums of values. Up to
 * ROWS query rows, a row being one head at one position, share each reading of a block. */
#pragma once
#include "npu-worker/kernels/forms.h"

enum { ROWS = 4, PADDED_HEAD_DIM = KERNELS_MAX_HEAD_DIM };

struct query_row {
	const float *q;
	float *result;
	uint32_t position, oldest; /* keys that are visible, inclusive */
	bool begun;
	float max, sum;
	float out[PADDED_HEAD_DIM];
	/* of the block at hand */
	uint32_t first, last; /* visible keys, 0..63; first > last: none */
	float block_max, block_sum;
	float weight[KERNELS_PAGE_KEYS];
	float block_out[PADDED_HEAD_DIM];
};

FM_INLINE vf load_kv(enum kernels_kv kv, const void *tile, size_t at)
{
	return kv == KERNELS_KV_F32 ? vf_load((const float *)tile + at)
				    : vf_load_f16((const uint16_t *)tile + at);
}

/* weight[] = q.k of `count` rows for all 64 keys of a block. */
FM_INLINE void block_scores(enum kernels_kv kv, uint32_t count, uint32_t head_dim,
			    const void *k_tile, struct query_row *rows)
{
	for (uint32_t key = 0; key < KERNELS_PAGE_KEYS; key += ATTENTION_VECTORS * LANES) {
		vf acc[ROWS][ATTENTION_VECTORS];
#pragma GCC unroll 4
		for (uint32_t r = 0; r < count; r++) {
#pragma GCC unroll 4
			for (uint32_t i = 0; i < ATTENTION_VECTORS; i++)
				acc[r][i] = vf_set1(0.0f);
		}
		for (uint32_t d = 0; d < head_dim; d++) {
			vf k[ATTENTION_VECTORS];
#pragma GCC unroll 4
			for (uint32_t i = 0; i < ATTENTION_VECTORS; i++)
				k[i] = load_kv(kv, k_tile,
					       (size_t)d * KERNELS_PAGE_KEYS + key + i * LANES);
#pragma GCC unroll 4
			for (uint32_t r = 0; r < count; r++) {
				vf q = vf_set1(rows[r].q[d]);
#pragma GCC unroll 4
				for (uint32_t i = 0; i < ATTENTION_VECTORS; i++)
					acc[r][i] = vf_fma(q, k[i], acc[r][i]);
			}
		}
#pragma GCC unroll 4
		for (uint32_t r = 0; r < count; r++) {
#pragma GCC unroll 4
			for (uint32_t i = 0; i < ATTENTION_VECTORS; i++)
				vf_store(rows[r].weight + key + i * LANES, acc[r][i]);
		}
	}
}

enum { BLOCK_VECTORS = KERNELS_PAGE_KEYS / LANES };

/* The tree of 64 over a block's lanes, as tree_sum has it: vectors first, then the halves of the
 * last. */
FM_INLINE float block_tree(const float *lanes, bool max)
{
	vf v[BLOCK_VECTORS];
#pragma GCC unroll 8
	for (uint32_t i = 0; i < BLOCK_VECTORS; i++)
		v[i] = vf_load(lanes + i * LANES);
#pragma GCC unroll 4
	for (uint32_t width = BLOCK_VECTORS / 2; width > 0; width /= 2) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < width; i++)
			v[i] = max ? vf_max(v[i], v[i + width]) : vf_add(v[i], v[i + width]);
	}
	return max ? vf_tree_max(v[0]) : vf_tree_sum(v[0]);
}

/* Scores to weights, with the block's maximum and sum. A masked score is -infinity, whose weight is
 * +0. */
static void block_weights(const struct kernels_attention *job, struct query_row *row)
{
	float *w = row->weight;
	for (uint32_t i = 0; i < KERNELS_PAGE_KEYS; i++)
		w[i] *= job->scale;
	if (job->softcap != 0.0f) {
		for (uint32_t i = 0; i < KERNELS_PAGE_KEYS; i++)
			w[i] = job->softcap * fm_tanhf(w[i] / job->softcap);
	}
	for (uint32_t i = 0; i < row->first; i++)
		w[i] = -INFINITY;
	for (uint32_t i = row->last + 1; i < KERNELS_PAGE_KEYS; i++)
		w[i] = -INFINITY;
	float max = block_tree(w, true);
	for (uint32_t i = 0; i < KERNELS_PAGE_KEYS; i++)
		w[i] = fm_expf(w[i] - max);
	row->block_max = max;
	row->block_sum = block_tree(w, false);
}

/* block_out[at ..] of `count` rows that see the same keys, `vectors` vectors wide. */
FM_INLINE void block_values(enum kernels_kv kv, uint32_t count, uint32_t vectors,
			    const void *v_tile, size_t v_stride, size_t at, struct query_row *rows)
{
	vf acc[ROWS][ATTENTION_VECTORS];
#pragma GCC unroll 4
	for (uint32_t r = 0; r < count; r++) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < vectors; i++)
			acc[r][i] = vf_set1(0.0f);
	}
	for (uint32_t key = rows->first; key <= rows->last; key++) {
		vf v[ATTENTION_VECTORS];
#pragma GCC unroll 4
		for (uint32_t i = 0; i < vectors; i++)
			v[i] = load_kv(kv, v_tile, key * v_stride + at + i * LANES);
#pragma GCC unroll 4
		for (uint32_t r = 0; r < count; r++) {
			vf w = vf_set1(rows[r].weight[key]);
#pragma GCC unroll 4
			for (uint32_t i = 0; i < vectors; i++)
				acc[r][i] = vf_fma(w, v[i], acc[r][i]);
		}
	}
	/* The chain goes on over the keys after the last visible one, +0 each: that only turns -0
	 * into +0. */
	bool masked_end = rows->last < KERNELS_PAGE_KEYS - 1;
#pragma GCC unroll 4
	for (uint32_t r = 0; r < count; r++) {
#pragma GCC unroll 4
		for (uint32_t i = 0; i < vectors; i++)
			vf_store(rows[r].block_out + at + i * LANES,
				 masked_end ? vf_add(acc[r][i], vf_set1(0.0f)) : acc[r][i]);
	}
}

/* Calls f with the row count, and the KV type, as constants. */
#define WITH_COUNT(f, kv, count, ...)          \
	do {                                   \
		if ((count) == 1)              \
			f(kv, 1, __VA_ARGS__); \
		else if ((count) == 2)         \
			f(kv, 2, __VA_ARGS__); \
		else if ((count) == 3)         \
			f(kv, 3, __VA_ARGS__); \
		else                           \
			f(kv, 4, __VA_ARGS__); \
	} while (0)
#define WITH_CONSTANTS(f, kv, count, ...)                                  \
	do {                                                               \
		if ((kv) == KERNELS_KV_F32)                                \
			WITH_COUNT(f, KERNELS_KV_F32, count, __VA_ARGS__); \
		else                                                       \
			WITH_COUNT(f, KERNELS_KV_F16, count, __VA_ARGS__); \
	} while (0)

static void all_values(const struct kernels_attention *job, uint32_t count, const void *v_tile,
		       struct query_row *rows)
{
	size_t stride = (job->head_dim + 15) / 16 * 16, at = 0;
	for (; at + ATTENTION_VECTORS * LANES <= stride; at += ATTENTION_VECTORS * LANES)
		WITH_CONSTANTS(block_values, job->kv, count, ATTENTION_VECTORS, v_tile, stride, at,
			       rows);
	for (; at < stride; at += LANES)
		WITH_CONSTANTS(block_values, job->kv, count, 1, v_tile, stride, at, rows);
}

/* Takes the block at hand into the row's result so far. */
static void merge_block(struct query_row *row, uint32_t head_dim)
{
	float max = row->block_max > row->max ? row->block_max : row->max;
	float old = fm_expf(row->max - max), new = fm_expf(row->block_max - max);
	if (!row->begun) {
		row->begun = true;
		row->max = row->block_max;
		row->sum = row->block_sum;
		memcpy(row->out, row->block_out, head_dim * sizeof *row->out);
		return;
	}
	row->max = max;
	row->sum = fmaf(row->block_sum, new, row->sum * old);
	for (uint32_t i = 0; i < head_dim; i++)
		row->out[i] = fmaf(row->block_out[i], new, row->out[i] * old);
}

static bool see_block(struct query_row *row, uint32_t block)
{
	uint32_t base = block * KERNELS_PAGE_KEYS, end = base + KERNELS_PAGE_KEYS - 1;
	if (row->position < base || row->oldest > end)
		return false;
	row->first = row->oldest > base ? row->oldest - base : 0;
	row->last = (row->position < end ? row->position : end) - base;
	return true;
}

/* One block for neighbouring rows that all see some of it. */
static void attend_block(const struct kernels_attention *job, const uint8_t *page, uint32_t count,
			 struct query_row *rows)
{
	WITH_CONSTANTS(block_scores, job->kv, count, job->head_dim, page + job->k_offset, rows);
	for (uint32_t r = 0; r < count; r++)
		block_weights(job, &rows[r]);
	for (uint32_t r = 0, same; r < count; r += same) {
		same = 1;
		while (r + same < count && rows[r + same].first == rows[r].first &&
		       rows[r + same].last == rows[r].last)
			same++;
		all_values(job, same, page + job->v_offset, rows + r);
	}
	for (uint32_t r = 0; r < count; r++)
		merge_block(&rows[r], job->head_dim);
}

/* Rows are in order of position, so those that see a block are neighbours. */
static void attend_rows(const struct kernels_attention *job, uint32_t count, struct query_row *rows)
{
	uint32_t first_block = rows[0].oldest / KERNELS_PAGE_KEYS;
	uint32_t last_block = rows[count - 1].position / KERNELS_PAGE_KEYS;
	for (uint32_t b = first_block; b <= last_block; b++) {
		uint32_t from = 0, to;
		while (from < count && !see_block(&rows[from], b))
			from++;
		for (to = from; to < count && see_block(&rows[to], b);)
			to++;
		if (from < to)
			attend_block(job, job->pages[b], to - from, rows + from);
	}
	for (uint32_t r = 0; r < count; r++) {
		for (uint32_t i = 0; i < job->head_dim; i++)
			rows[r].result[i] = rows[r].out[i] / rows[r].sum;
	}
}

static void attention(const struct kernels_attention *job)
{
	struct query_row rows[ROWS];
	size_t total = (size_t)job->tokens * job->heads;
	for (size_t at = 0; at < total; at += ROWS) {
		uint32_t count = total - at < ROWS ? (uint32_t)(total - at) : ROWS;
		for (uint32_t r = 0; r < count; r++) {
			uint32_t token = (uint32_t)((at + r) / job->heads),
				 position = job->position + token;
			size_t head = (at + r) % job->heads * job->head_dim;
			rows[r].q = job->q + token * job->q_stride + head;
			rows[r].result = job->out + token * job->out_stride + head;
			rows[r].position = position;
			rows[r].oldest = job->window && position >= job->window
						 ? position - job->window + 1
						 : 0;
			rows[r].begun = false;
			rows[r].max = -INFINITY;
			rows[r].sum = 0.0f;
		}
		attend_rows(job, count, rows);
	}
}

/* Rounds head_dim floats to halves; up to 15 more are written. */
static void halves_of(const float *x, uint32_t head_dim, uint16_t *ret_halves)
{
	uint32_t i = 0;
	for (; i + LANES <= head_dim; i += LANES)
		vf_store_f16(ret_halves + i, vf_load(x + i));
	if (i < head_dim) {
		float tail[LANES] = {0};
		memcpy(tail, x + i, (head_dim - i) * sizeof *x);
		vf_store_f16(ret_halves + i, vf_load(tail));
	}
}

static void kv_write(enum kernels_kv kv, uint32_t head_dim, const float *k, const float *v,
		     uint32_t key, void *k_tile, void *v_tile)
{
	uint16_t halves[PADDED_HEAD_DIM];
	if (kv == KERNELS_KV_F32) {
		kernels_scalar_kv_write(kv, head_dim, k, v, key, k_tile, v_tile);
		return;
	}
	halves_of(k, head_dim, halves);
	for (uint32_t i = 0; i < head_dim; i++)
		((uint16_t *)k_tile)[i * KERNELS_PAGE_KEYS + key] = halves[i];
	halves_of(v, head_dim, halves);
	memcpy((uint16_t *)v_tile + (size_t)key * ((head_dim + 15) / 16 * 16), halves,
	       head_dim * sizeof *halves);
}
