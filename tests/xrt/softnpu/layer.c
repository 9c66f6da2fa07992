#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"

enum { LANES = 64, KEYS = 64, GROUP = 32, MAX_DIM = 512, MAX_ROWS = 4096 };

/* The work area, as docs/npu.md has it. */
struct head {
	uint32_t rows, logit_rows, slot, pairs;
	float eps, scale, cap;
	uint32_t x, bad, logits, places[2], tables[2], lists[2], local_tables[2];
};

struct place {
	uint32_t position, first_page;
};

struct job {
	const struct layer_words *w;
	const struct layer_memory *m;
	uint32_t rounding;
	struct head head;
	float *x, *h, *qkv, *heads, *gate_up; /* [rows][...] */
	uint8_t *acts;
	uint32_t *bad;
	const struct place *places;
	const float *tables;
	const uint64_t *pages;
};

/* ---- functions of docs/arithmetic.md, one number at a time */

static float half_tree(float lane[LANES])
{
	for (int width = LANES / 2; width; width /= 2)
		for (int i = 0; i < width; i++)
			lane[i] = lane[i] + lane[i + width];
	return lane[0];
}

/* e^x = 2^k (1 + m): m, and k in *ret_k. */
static float reduced(float x, int *ret_k)
{
	static const double divisors[] = {40320, 5040, 720, 120, 24, 6, 2};
	float k = fmaf(x, 0x1.715476p0f, 0x1.8p23f) - 0x1.8p23f;
	float r = fmaf(k, -0x1.7f7d1cp-20f, fmaf(k, -0x1.62e4p-1f, x));
	float q = (float)(1.0 / divisors[0]);
	for (int i = 1; i < 7; i++)
		q = fmaf(q, r, (float)(1.0 / divisors[i]));
	*ret_k = (int)k;
	return fmaf(q, r * r, r);
}

static float exponential(float x)
{
	int whole;
	if (isnan(x))
		return x;
	float m = reduced(x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x, &whole);
	int half = whole >= 0 ? whole / 2 : -((1 - whole) / 2);
	return (1.0f + m) * ldexpf(1.0f, half) * ldexpf(1.0f, whole - half);
}

/* (e^y - 1) / (e^y + 1) with y = 2 |x|, and e^y - 1 without the one that would swallow it. */
static float capped(float x, float cap)
{
	int k;
	if (isnan(x))
		return x;
	float y = 2.0f * fabsf(x / cap), power, m = reduced(y > 20.0f ? 20.0f : y, &k);
	power = ldexpf(1.0f, k);
	m = fmaf(power, m, power - 1.0f);
	return cap * copysignf(m / (m + 2.0f), x);
}

static float gated(float x, float u)
{
	float e = exponential(-fabsf(u));
	return x * ((u < 0.0f ? e : 1.0f) / (1.0f + e));
}

static float silu(float x)
{
	return gated(x, x);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3) */
static float gelu(float x)
{
	float linear = (float)1.5957691216057308, cubic = (float)0.07135481627260025;
	return gated(x, x * fmaf(cubic, x * x, linear));
}

static float half_float(const void *p)
{
	_Float16 h;
	memcpy(&h, p, 2);
	return (float)h;
}

static void norm(const float *x, const float *weight, float eps, uint32_t n, float *y)
{
	float lane[LANES] = {0};
	for (uint32_t i = 0; i < n; i++)
		lane[i % LANES] = fmaf(x[i], x[i], lane[i % LANES]);
	float factor = 1.0f / sqrtf(half_tree(lane) / (float)n + eps);
	for (uint32_t i = 0; i < n; i++)
		y[i] = x[i] * factor * weight[i];
}

/* ---- products */

static float to_bfloat16(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, 4);
	uint32_t rest = bits & 0xffff, whole = bits & 0xffff0000;
	if (rest > 0x8000 || (rest == 0x8000 && (whole & 0x10000)))
		whole += 0x10000;
	memcpy(&x, &whole, 4);
	return x;
}

static void round_rows_b16(struct job *j, const float *x, uint32_t cols, size_t stride,
			   uint32_t rows)
{
	float *to = (float *)(void *)j->acts;
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t i = 0; i < cols; i++) {
			float rounded = to_bfloat16(x[r * stride + i]);
			to[(size_t)r * cols + i] = rounded;
			if (!isfinite(rounded) || !isfinite(x[r * stride + i]))
				j->bad[r] = 1;
		}
}

/* Rounds rows of x into the form that product_run reads. */
static void round_rows(struct job *j, const float *x, uint32_t cols, size_t stride,
		       struct product_words *p)
{
	uint32_t rows = p->tokens, groups = cols / GROUP;
	int16_t *codes = (int16_t *)(void *)j->acts;
	if (j->rounding == ROUND_B16) {
		round_rows_b16(j, x, cols, stride, rows);
		return;
	}
	p->steps = rows * cols * 2;
	p->sums = p->steps + rows * groups * 4;
	float *steps = (float *)(void *)(j->acts + p->steps),
	      *sums = (float *)(void *)(j->acts + p->sums);
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t g = 0; g < groups; g++) {
			const float *from = x + r * stride + (size_t)g * GROUP;
			int16_t *to = codes + (size_t)r * cols + (size_t)g * GROUP;
			float most = 0.0f, *step = &steps[r * groups + g];
			int32_t sum = 0;
			bool finite = true;
			for (int i = 0; i < GROUP; i++) {
				finite = finite && isfinite(from[i]);
				most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
			}
			bool none = !finite || most < 0x1p-100f;
			float factor = none ? 0.0f : 32767.0f / most;
			for (int i = 0; i < GROUP; i++) {
				float code = none ? 0.0f : rintf(from[i] * factor);
				code = code > 32767.0f	  ? 32767.0f
				       : code < -32767.0f ? -32767.0f
							  : code;
				to[i] = (int16_t)code;
				sum += to[i];
			}
			*step = !finite ? NAN : none ? 0.0f : most / 32767.0f;
			sums[r * groups + g] = (float)sum * *step;
			if (!finite)
				j->bad[r] = 1;
		}
}

static uint64_t whole(const uint32_t words[2])
{
	return (uint64_t)words[1] << 32 | words[0];
}

static bool multiply(struct job *j, struct product_words p, uint32_t type, uint32_t rows,
		     const uint32_t part[2], float *y, uint32_t stride)
{
	p.type = type;
	p.rows = rows;
	p.stride = stride;
	p.output = 0;
	p.weights_low = part[0];
	p.weights_high = part[1];
	uint64_t bytes = product_weight_bytes(&p), at = whole(part);
	if (!bytes || at > j->m->weight_bytes || bytes > j->m->weight_bytes - at)
		return false;
	(j->rounding == ROUND_B16 ? product_run_b16 : product_run)(&p, j->m->weights, j->acts,
								   (uint8_t *)y);
	return true;
}

static const float *floats(const struct job *j, const uint32_t part[2], uint32_t n)
{
	uint64_t at = whole(part);
	if (at % 4 || at > j->m->weight_bytes || (uint64_t)n * 4 > j->m->weight_bytes - at)
		return NULL;
	return (const float *)(const void *)(j->m->weights + at);
}

static void norm_rows(struct job *j, const float *weight)
{
	uint32_t n = j->w->embd;
	for (uint32_t r = 0; r < j->w->rows; r++)
		norm(j->x + (size_t)r * n, weight, j->head.eps, n, j->h + (size_t)r * n);
}

/* The branch in h, after its own norm if it has one, to the residual. */
static bool add_rows(struct job *j, uint32_t post_norm)
{
	uint32_t n = j->w->embd;
	if (j->w->with & WITH_POST_NORMS) {
		const float *weight = floats(j, j->w->more[post_norm], n);
		for (uint32_t r = 0; weight && r < j->w->rows; r++)
			norm(j->h + (size_t)r * n, weight, j->head.eps, n, j->h + (size_t)r * n);
		if (!weight)
			return false;
	}
	for (size_t i = 0; i < (size_t)j->w->rows * n; i++)
		j->x[i] = j->x[i] + j->h[i];
	return true;
}

/* To n values of each row of y. */
static bool add_bias(const struct job *j, uint32_t part, uint32_t n, float *y, size_t stride)
{
	const float *bias = floats(j, j->w->more[part], n);
	for (uint32_t r = 0; bias && r < j->w->rows; r++)
		for (uint32_t i = 0; i < n; i++)
			y[r * stride + i] = y[r * stride + i] + bias[i];
	return bias != NULL;
}

/* ---- attention */

static void turn(const struct job *j, float *vector, const float *table)
{
	uint32_t pairs = j->head.pairs;
	for (uint32_t i = 0; i < pairs; i++) {
		float *a = vector + (j->w->interleaved ? 2 * i : i);
		float *b = j->w->interleaved ? a + 1 : a + pairs;
		float c = table[i], s = table[pairs + i], x = *a, y = *b;
		*a = fmaf(x, c, -(y * s));
		*b = fmaf(y, c, x * s);
	}
}

static uint32_t value_stride(uint32_t dim)
{
	return (dim + 15) / 16 * 16;
}

static uint64_t tile_bytes(uint32_t dim)
{
	return ((uint64_t)dim + value_stride(dim)) * KEYS * 2;
}

/* The tiles of a KV head in the page of a row's block; NULL: outside. */
static uint8_t *tile_of(const struct job *j, uint32_t row, uint32_t block, uint32_t kv_head)
{
	const struct layer_words *w = j->w;
	uint64_t list = j->places[row].first_page + (uint64_t)block;
	uint64_t at = j->head.lists[j->head.slot] + list * 8;
	if (at + 8 > j->m->work_bytes)
		return NULL;
	at = j->pages[list] + w->kv + kv_head * tile_bytes(w->head_dim);
	if (at > j->m->third_bytes || tile_bytes(w->head_dim) > j->m->third_bytes - at)
		return NULL;
	return j->m->third + at;
}

static bool store_keys(struct job *j, uint32_t row)
{
	const struct layer_words *w = j->w;
	uint32_t dim = w->head_dim, position = j->places[row].position, key = position % KEYS;
	const float *k =
		j->qkv + (size_t)row * (w->heads + 2 * w->kv_heads) * dim + (size_t)w->heads * dim;
	const float *v = k + (size_t)w->kv_heads * dim;
	for (uint32_t head = 0; head < w->kv_heads; head++, k += dim, v += dim) {
		uint8_t *tile = tile_of(j, row, position / KEYS, head);
		if (!tile)
			return false;
		_Float16 *keys = (_Float16 *)(void *)tile, *values = keys + (size_t)dim * KEYS;
		for (uint32_t i = 0; i < dim; i++) {
			keys[i * KEYS + key] = (_Float16)k[i];
			values[key * value_stride(dim) + i] = (_Float16)v[i];
			if (!(fabsf(k[i]) <= 65519.0f && fabsf(v[i]) <= 65519.0f))
				j->bad[row] = 1;
		}
	}
	return true;
}

struct part {
	float most, sum, out[MAX_DIM];
};

/* Keys first .. n - 1 of one block are visible. */
static void attend_block(const struct job *j, const uint8_t *tile, const float *q, uint32_t first,
			 uint32_t n, struct part *ret)
{
	uint32_t dim = j->w->head_dim;
	const uint8_t *values = tile + (size_t)dim * KEYS * 2;
	float weight[KEYS] = {0}, lane[KEYS];
	ret->most = -INFINITY;
	for (uint32_t key = first; key < n; key++) {
		float s = 0.0f;
		for (uint32_t i = 0; i < dim; i++)
			s = fmaf(q[i], half_float(tile + 2 * (i * KEYS + key)), s);
		s = s * j->head.scale;
		weight[key] = j->w->with & WITH_SOFTCAP ? capped(s, j->head.cap) : s;
		ret->most = weight[key] > ret->most ? weight[key] : ret->most;
	}
	for (uint32_t key = first; key < n; key++)
		weight[key] = exponential(weight[key] - ret->most);
	memcpy(lane, weight, sizeof lane);
	ret->sum = half_tree(lane);
	for (uint32_t i = 0; i < dim; i++) {
		float out = 0.0f;
		for (uint32_t key = 0; key < KEYS; key++)
			out = fmaf(weight[key],
				   key >= first && key < n
					   ? half_float(values + 2 * (key * value_stride(dim) + i))
					   : 0.0f,
				   out);
		ret->out[i] = out;
	}
}

static bool attend(const struct job *j, uint32_t row, uint32_t head)
{
	const struct layer_words *w = j->w;
	uint32_t dim = w->head_dim, position = j->places[row].position;
	const float *q = j->qkv + ((size_t)row * (w->heads + 2 * w->kv_heads) + head) * dim;
	float *out = j->heads + ((size_t)row * w->heads + head) * dim;
	struct part all, next;
	uint32_t oldest = w->window && position >= w->window ? position - w->window + 1 : 0;
	uint32_t start = oldest / KEYS;
	for (uint32_t block = start; block <= position / KEYS && block < w->key_blocks; block++) {
		const uint8_t *tile = tile_of(j, row, block, head / (w->heads / w->kv_heads));
		uint32_t left = position - block * KEYS + 1;
		if (!tile)
			return false;
		attend_block(j, tile, q, block == start ? oldest % KEYS : 0,
			     left < KEYS ? left : KEYS, block == start ? &all : &next);
		if (block == start)
			continue;
		float most = next.most > all.most ? next.most : all.most;
		float a = exponential(all.most - most), b = exponential(next.most - most);
		all.most = most;
		all.sum = fmaf(next.sum, b, all.sum * a);
		for (uint32_t i = 0; i < dim; i++)
			all.out[i] = fmaf(next.out[i], b, all.out[i] * a);
	}
	for (uint32_t i = 0; i < dim; i++)
		out[i] = all.out[i] / all.sum;
	return true;
}

/* ---- a layer */

static bool finish_heads(struct job *j, uint32_t width)
{
	const struct layer_words *w = j->w;
	uint32_t dim = w->head_dim, q = w->heads * dim, kv = w->kv_heads * dim;
	const float *q_norm = floats(j, w->more[Q_NORM], dim),
		    *k_norm = floats(j, w->more[K_NORM], dim);
	if ((w->with & WITH_QKV_BIAS) && (!add_bias(j, Q_BIAS, q, j->qkv, width) ||
					  !add_bias(j, K_BIAS, kv, j->qkv + q, width) ||
					  !add_bias(j, V_BIAS, kv, j->qkv + q + kv, width)))
		return false;
	if ((w->with & WITH_HEAD_NORMS) && (!q_norm || !k_norm))
		return false;
	for (uint32_t r = 0; r < w->rows; r++) {
		const float *table = j->tables + (size_t)r * 2 * j->head.pairs;
		for (uint32_t head = 0; head < w->heads + w->kv_heads; head++) {
			float *vector = j->qkv + (size_t)r * width + (size_t)head * dim;
			if (w->with & WITH_HEAD_NORMS)
				norm(vector, head < w->heads ? q_norm : k_norm, j->head.eps, dim,
				     vector);
			turn(j, vector, table);
		}
		if (!store_keys(j, r))
			return false;
	}
	return true;
}

static bool attention_half(struct job *j)
{
	const struct layer_words *w = j->w;
	uint32_t dim = w->head_dim, q = w->heads * dim, kv = w->kv_heads * dim, width = q + 2 * kv;
	struct product_words p = {.cols = w->embd, .tokens = w->rows};
	const float *weight = floats(j, w->parts[ATTN_NORM], w->embd);
	if (!weight)
		return false;
	norm_rows(j, weight);
	round_rows(j, j->h, w->embd, w->embd, &p);
	if (!multiply(j, p, w->types[0], q, w->parts[Q], j->qkv, width) ||
	    !multiply(j, p, w->types[1], kv, w->parts[K], j->qkv + q, width) ||
	    !multiply(j, p, w->types[2], kv, w->parts[V], j->qkv + q + kv, width) ||
	    !finish_heads(j, width))
		return false;
	for (uint32_t r = 0; r < w->rows; r++)
		for (uint32_t head = 0; head < w->heads; head++)
			if (!attend(j, r, head))
				return false;
	p.cols = q;
	round_rows(j, j->heads, q, q, &p);
	if (!multiply(j, p, w->types[3], w->embd, w->parts[O], j->h, w->embd) ||
	    ((w->with & WITH_O_BIAS) && !add_bias(j, O_BIAS, w->embd, j->h, w->embd)))
		return false;
	return add_rows(j, POST_ATTN_NORM);
}

static bool ffn_half(struct job *j)
{
	const struct layer_words *w = j->w;
	struct product_words p = {.cols = w->embd, .tokens = w->rows};
	const float *weight = floats(j, w->parts[FFN_NORM], w->embd);
	if (!weight)
		return false;
	norm_rows(j, weight);
	round_rows(j, j->h, w->embd, w->embd, &p);
	if (!multiply(j, p, w->types[4], w->ffn, w->parts[GATE], j->gate_up, 2 * w->ffn) ||
	    !multiply(j, p, w->types[5], w->ffn, w->parts[UP], j->gate_up + w->ffn, 2 * w->ffn))
		return false;
	for (uint32_t r = 0; r < w->rows; r++) {
		float *gate = j->gate_up + (size_t)r * 2 * w->ffn, *up = gate + w->ffn;
		for (uint32_t i = 0; i < w->ffn; i++)
			gate[i] = (w->with & WITH_GELU ? gelu : silu)(gate[i]) * up[i];
	}
	p.cols = w->ffn;
	round_rows(j, j->gate_up, w->ffn, 2 * (size_t)w->ffn, &p);
	return multiply(j, p, w->types[6], w->embd, w->parts[DOWN], j->h, w->embd) &&
	       add_rows(j, POST_FFN_NORM);
}

static void *at(const struct layer_memory *m, uint64_t offset, uint64_t bytes)
{
	return offset % 4 || offset > m->work_bytes || bytes > m->work_bytes - offset
		       ? NULL
		       : m->work + offset;
}

static bool open_work(struct job *j, const struct layer_memory *m, uint32_t rows, uint32_t embd)
{
	j->m = m;
	if (m->work_bytes < sizeof j->head)
		return false;
	memcpy(&j->head, m->work, sizeof j->head);
	uint32_t slot = j->head.slot;
	if (slot > 1 || !rows || rows > MAX_ROWS || rows > j->head.rows)
		return false;
	j->x = at(m, j->head.x, (uint64_t)j->head.rows * embd * 4);
	j->bad = at(m, j->head.bad, (uint64_t)j->head.rows * 4);
	j->places = at(m, j->head.places[slot], (uint64_t)rows * sizeof *j->places);
	bool local = j->w && j->w->window && j->head.local_tables[slot];
	j->tables = at(m, (local ? j->head.local_tables : j->head.tables)[slot],
		       (uint64_t)rows * 2 * j->head.pairs * 4);
	j->pages = at(m, j->head.lists[slot], 8);
	return j->x && j->bad && j->places && j->tables && j->pages;
}

static bool make_room(struct job *j, uint64_t rows, uint64_t embd, uint64_t qkv, uint64_t heads,
		      uint64_t ffn)
{
	uint64_t widest = embd > heads ? embd : heads;
	widest = widest > ffn ? widest : ffn;
	j->h = malloc(rows * embd * 4);
	j->qkv = malloc(rows * qkv * 4 + 4);
	j->heads = malloc(rows * heads * 4 + 4);
	j->gate_up = malloc(rows * 2 * ffn * 4 + 4);
	j->acts = malloc(rows * widest * 4);
	return j->h && j->qkv && j->heads && j->gate_up && j->acts;
}

static void leave_room(struct job *j)
{
	free(j->h);
	free(j->qkv);
	free(j->heads);
	free(j->gate_up);
	free(j->acts);
}

bool layer_run(const struct layer_words *w, const struct layer_memory *m)
{
	struct job j = {.w = w, .rounding = w->rounding};
	bool sane = w->embd && w->embd % GROUP == 0 && w->embd <= 1 << 16 && w->ffn &&
		    w->ffn % GROUP == 0 && w->ffn <= 1 << 18 && w->kv_heads && w->heads <= 1024 &&
		    w->heads % w->kv_heads == 0 && w->head_dim && w->head_dim <= MAX_DIM &&
		    w->heads * w->head_dim % GROUP == 0;
	if (!sane || !open_work(&j, m, w->rows, w->embd) || j.head.pairs * 2 > w->head_dim)
		return false;
	uint64_t q = (uint64_t)w->heads * w->head_dim, kv = (uint64_t)w->kv_heads * w->head_dim;
	bool good = make_room(&j, w->rows, w->embd, q + 2 * kv, q, w->ffn) && attention_half(&j) &&
		    ffn_half(&j);
	leave_room(&j);
	return good;
}

struct wanted {
	uint32_t row, reserved;
	uint64_t offset;
};

static bool head_row(struct job *j, const struct head_words *w, const struct wanted *wanted,
		     const float *weight)
{
	struct product_words p = {.cols = w->embd, .tokens = 1};
	uint32_t flags = 0, *bad = j->bad;
	if (wanted->row >= j->head.rows || wanted->offset % 4 ||
	    wanted->offset > j->m->third_bytes ||
	    (uint64_t)w->vocab * 4 > j->m->third_bytes - wanted->offset)
		return false;
	norm(j->x + (size_t)wanted->row * w->embd, weight, j->head.eps, w->embd, j->h);
	j->bad = &flags;
	round_rows(j, j->h, w->embd, w->embd, &p);
	j->bad = bad;
	bad[wanted->row] |= flags;
	return multiply(j, p, w->type, w->vocab, w->matrix,
			(float *)(void *)(j->m->third + wanted->offset), w->vocab);
}

bool head_run(const struct head_words *w, const struct layer_memory *m)
{
	struct job j = {.rounding = w->rounding};
	if (!w->embd || w->embd % GROUP || w->embd > 1 << 16 || !w->vocab || w->vocab > 1 << 22 ||
	    !open_work(&j, m, 1, w->embd) || w->rows > j.head.logit_rows)
		return false;
	const struct wanted *wanted = at(m, j.head.logits, (uint64_t)w->rows * sizeof *wanted);
	const float *weight = floats(&j, w->norm, w->embd);
	bool good = wanted && weight && make_room(&j, 1, w->embd, 0, 0, 0);
	for (uint32_t i = 0; i < w->rows && good; i++)
		good = head_row(&j, w, &wanted[i], weight);
	leave_room(&j);
	return good;
}
