/* What is done to each row between two matrix products. A row is touched by one thread at a time,
 * and every function here is the same for a row whatever the others are. */
#include "npu-worker/engine/engine_private.h"
#include "npu-worker/engine/hooks.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

void rows_probe(const struct step *step, uint32_t row, enum engine_checkpoint checkpoint,
		float *data, uint32_t heads)
{
	if (!step_is_probed(step))
		return;
	const struct engine *e = step->engine;
	const struct model_config *c = &e->info.config;
	static const uint8_t by_head[ENGINE_CHECKPOINT_COUNT] = {
		[ENGINE_Q_PROJ] = 1, [ENGINE_K_PROJ] = 1, [ENGINE_V_PROJ] = 1, [ENGINE_Q_NORM] = 1,
		[ENGINE_K_NORM] = 1, [ENGINE_Q_ROPE] = 1, [ENGINE_K_ROPE] = 1, [ENGINE_HEADS] = 1,
	};
	uint32_t cols = by_head[checkpoint] ? c->head_dim : c->n_embd;
	if (checkpoint == ENGINE_GATE || checkpoint == ENGINE_UP || checkpoint == ENGINE_ACT)
		cols = c->n_ffn;
	if (checkpoint == ENGINE_LOGITS)
		cols = c->n_vocab;
	struct engine_record record = {.checkpoint = checkpoint,
				       .layer = step->layer,
				       .seq = e->rows[row].seq,
				       .position = e->rows[row].position,
				       .rows = heads,
				       .cols = cols,
				       .data = data};
	const struct engine_hooks *hooks = step->batch->hooks;
	if (hooks->seed)
		hooks->seed(hooks->seed_context, &record, data);
	if (hooks->probe)
		hooks->probe(hooks->context, &record);
}

/* The activation form of row r of the product to come. */
static void quantise(const struct step *step, uint32_t r)
{
	if (!step->engine->kernels->quantise(&step->acts, r, r + 1))
		atomic_store_explicit(&step->engine->rows[r].bad, true, memory_order_relaxed);
}

/* The norm that gives the checkpoint `site`. */
static void norm(const struct step *step, enum engine_checkpoint site, const float *x,
		 const float *weight, float *y)
{
	const struct engine *e = step->engine;
	const struct model_config *c = &e->info.config;
	uint32_t n = site == ENGINE_Q_NORM || site == ENGINE_K_NORM ? c->head_dim : c->n_embd;
	if (step_varies(step, VARIANT_NORM, site))
		variant_rms_norm(x, weight, c->norm_eps, n, y);
	else
		e->kernels->rms_norm(x, weight, c->norm_eps, n, y);
}

void rows_embed(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	const struct model_config *c = &e->info.config;
	for (uint32_t r = first; r < last; r++) {
		float *x = e->x + (size_t)r * c->n_embd;
		kernels_dequantise_row(&e->embed, (uint32_t)e->rows[r].token, x);
		if (c->embed_scale != 1.0f)
			e->kernels->scale(x, c->embed_scale, c->n_embd);
		rows_probe(step, r, ENGINE_EMBED, x, 1);
		step_beat(step, thread);
	}
}

/* x += branch, after the branch's own norm if the model has one. h holds the branch. */
static void close_branch(const struct step *step, uint32_t r, const float *post_norm,
			 enum engine_checkpoint norm_point, enum engine_checkpoint sum_point)
{
	const struct engine *e = step->engine;
	uint32_t width = e->info.config.n_embd;
	float *h = e->h + (size_t)r * width, *x = e->x + (size_t)r * width;
	if (post_norm) {
		norm(step, norm_point, h, post_norm, h);
		rows_probe(step, r, norm_point, h, 1);
	}
	if (step_varies(step, VARIANT_RESIDUAL, sum_point))
		variant_add(x, h, width);
	else
		e->kernels->add(x, h, width);
	rows_probe(step, r, sum_point, x, 1);
}

void rows_enter_layer(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	uint32_t width = e->info.config.n_embd;
	for (uint32_t r = first; r < last; r++) {
		float *h = e->h + (size_t)r * width;
		norm(step, ENGINE_ATTN_NORM, e->x + (size_t)r * width,
		     e->layers[step->layer].attn_norm, h);
		rows_probe(step, r, ENGINE_ATTN_NORM, h, 1);
		quantise(step, r);
		step_beat(step, thread);
	}
}

static void add_bias(const struct engine *e, float *x, const float *bias, uint32_t n)
{
	if (bias)
		e->kernels->add(x, bias, n);
}

static void norm_heads(const struct step *step, uint32_t r, float *x, const float *weight,
		       bool keys)
{
	const struct engine *e = step->engine;
	const struct model_config *c = &e->info.config;
	uint32_t heads = keys ? c->n_kv_heads : c->n_heads;
	if (!weight)
		return;
	for (uint32_t head = 0; head < heads; head++) {
		float *vector = x + (size_t)head * c->head_dim;
		norm(step, keys ? ENGINE_K_NORM : ENGINE_Q_NORM, vector, weight, vector);
	}
	rows_probe(step, r, keys ? ENGINE_K_NORM : ENGINE_Q_NORM, x, heads);
}

static void turn_heads(const struct step *step, uint32_t r, float *x, bool keys)
{
	const struct engine *e = step->engine;
	const struct engine_layer *layer = &e->layers[step->layer];
	const struct model_config *c = &e->info.config;
	uint32_t heads = keys ? c->n_kv_heads : c->n_heads;
	const float *cosines = layer->rope + (size_t)e->rows[r].position * 2 * layer->rope_pairs;
	const float *sines = cosines + layer->rope_pairs;
	bool varies = step_varies(step, VARIANT_ROPE, keys ? ENGINE_K_ROPE : ENGINE_Q_ROPE);
	for (uint32_t head = 0; head < heads; head++)
		(varies ? variant_rope : e->kernels->rope)(x + (size_t)head * c->head_dim, cosines,
							   sines, layer->rope_pairs,
							   c->interleaved);
	rows_probe(step, r, keys ? ENGINE_K_ROPE : ENGINE_Q_ROPE, x, heads);
}

/* One head's rounded key or value, read back from its tile: element i of the key is `keys` places
 * apart. */
static void probe_tile(const struct step *step, uint32_t r, const void *tile, uint32_t part,
		       uint32_t head)
{
	const struct engine *e = step->engine;
	uint32_t key = e->rows[r].position % ENGINE_PAGE_TOKENS, dim = e->info.config.head_dim;
	size_t element = e->kv == KERNELS_KV_F16 ? 2 : 4;
	uint8_t vector[KERNELS_MAX_HEAD_DIM * 4];
	size_t codes = (part == 0 ? dim : (dim + 15) / 16 * 16) * (size_t)ENGINE_PAGE_TOKENS;
	for (uint32_t i = 0; i < dim; i++) {
		size_t place = part == 0 ? (size_t)i * ENGINE_PAGE_TOKENS + key
					 : (size_t)key * ((dim + 15) / 16 * 16) + i;
		if (e->kv == KERNELS_KV_I8) {
			const float *steps =
				(const float *)(const void *)((const int8_t *)tile + codes);
			float value = steps[key] * (float)((const int8_t *)tile)[place];
			memcpy(vector + i * element, &value, element);
			continue;
		}
		memcpy(vector + i * element, (const uint8_t *)tile + place * element, element);
	}
	struct engine_record record = {.checkpoint = ENGINE_KV_WRITE,
				       .layer = step->layer,
				       .seq = e->rows[r].seq,
				       .position = e->rows[r].position,
				       .part = 2 * head + part,
				       .rows = 1,
				       .cols = dim,
				       .is_f16 = e->kv == KERNELS_KV_F16,
				       .data = vector};
	step->batch->hooks->probe(step->batch->hooks->context, &record);
}

/* A half ends at 65504 (what is below 65520 rounds to it). Beyond that the page would hold an
 * infinity, which a later softmax may hide. */
static bool fits_kv(const struct engine *e, const float *x, uint32_t n)
{
	float limit = e->kv == KERNELS_KV_F16 ? 65519.0f : FLT_MAX;
	bool fits = true;
	for (uint32_t i = 0; i < n; i++)
		fits &= fabsf(x[i]) <= limit;
	return fits;
}

static void write_kv(const struct step *step, uint32_t r, const float *k, const float *v)
{
	const struct engine *e = step->engine;
	const struct model_config *c = &e->info.config;
	uint32_t n = c->n_kv_heads * c->head_dim;
	if (!fits_kv(e, k, n) || !fits_kv(e, v, n))
		atomic_store_explicit(&e->rows[r].bad, true, memory_order_relaxed);
	for (uint32_t head = 0; head < c->n_kv_heads; head++) {
		size_t at = (size_t)head * c->head_dim;
		struct kernels_kv_place to = {.kv = e->kv,
					      .head_dim = c->head_dim,
					      .k_tile = attend_k_tile(step, r, head),
					      .v_tile = attend_v_tile(step, r, head),
					      .key = e->rows[r].position % ENGINE_PAGE_TOKENS};
		e->kernels->kv_write(&to, k + at, v + at);
		if (step_is_probed(step) && step->batch->hooks->probe) {
			probe_tile(step, r, to.k_tile, 0, head);
			probe_tile(step, r, to.v_tile, 1, head);
		}
	}
}

void rows_qkv(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	const struct engine_layer *layer = &e->layers[step->layer];
	const struct model_config *c = &e->info.config;
	for (uint32_t r = first; r < last; r++) {
		float *q = e->qkv + (size_t)r * e->qkv_width;
		float *k = q + e->q_width, *v = k + e->kv_width;
		add_bias(e, q, layer->q_bias, e->q_width);
		add_bias(e, k, layer->k_bias, e->kv_width);
		add_bias(e, v, layer->v_bias, e->kv_width);
		rows_probe(step, r, ENGINE_Q_PROJ, q, c->n_heads);
		rows_probe(step, r, ENGINE_K_PROJ, k, c->n_kv_heads);
		rows_probe(step, r, ENGINE_V_PROJ, v, c->n_kv_heads);
		norm_heads(step, r, q, layer->q_norm, false);
		norm_heads(step, r, k, layer->k_norm, true);
		turn_heads(step, r, q, false);
		turn_heads(step, r, k, true);
		write_kv(step, r, k, v);
		step_beat(step, thread);
	}
}

void rows_heads(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	for (uint32_t r = first; r < last; r++) {
		rows_probe(step, r, ENGINE_HEADS, e->heads + (size_t)r * e->q_width,
			   e->info.config.n_heads);
		quantise(step, r);
		step_beat(step, thread);
	}
}

void rows_after_attention(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	const struct engine_layer *layer = &e->layers[step->layer];
	uint32_t width = e->info.config.n_embd;
	for (uint32_t r = first; r < last; r++) {
		float *h = e->h + (size_t)r * width;
		add_bias(e, h, layer->o_bias, width);
		rows_probe(step, r, ENGINE_O_PROJ, h, 1);
		close_branch(step, r, layer->post_attn_norm, ENGINE_POST_ATTN_NORM,
			     ENGINE_AFTER_ATTN);
		norm(step, ENGINE_FFN_NORM, e->x + (size_t)r * width, layer->ffn_norm, h);
		rows_probe(step, r, ENGINE_FFN_NORM, h, 1);
		quantise(step, r);
		step_beat(step, thread);
	}
}

static void activate(const struct step *step, float *gate, const float *up)
{
	const struct engine *e = step->engine;
	uint32_t width = e->info.config.n_ffn;
	bool varies = step_varies(step, VARIANT_EXP, ENGINE_ACT);
	if (e->info.config.gelu)
		(varies ? variant_gelu_mul : e->kernels->gelu_mul)(gate, up, width, gate);
	else
		(varies ? variant_silu_mul : e->kernels->silu_mul)(gate, up, width, gate);
}

/* The gated activation goes where the gate was. */
void rows_activate(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	uint32_t width = e->info.config.n_ffn;
	for (uint32_t r = first; r < last; r++) {
		float *gate = e->gate_up + (size_t)r * 2 * width, *up = gate + width;
		rows_probe(step, r, ENGINE_GATE, gate, 1);
		rows_probe(step, r, ENGINE_UP, up, 1);
		activate(step, gate, up);
		rows_probe(step, r, ENGINE_ACT, gate, 1);
		quantise(step, r);
		step_beat(step, thread);
	}
}

void rows_leave_layer(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	for (uint32_t r = first; r < last; r++) {
		rows_probe(step, r, ENGINE_DOWN, e->h + (size_t)r * e->info.config.n_embd, 1);
		close_branch(step, r, e->layers[step->layer].post_ffn_norm, ENGINE_POST_FFN_NORM,
			     ENGINE_AFTER_FFN);
		step_beat(step, thread);
	}
}

/* Rows of the pass over the head, numbered within it: the norm's result goes to row i of h. */
void rows_final_norm(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	uint32_t width = e->info.config.n_embd;
	for (uint32_t i = first; i < last; i++) {
		uint32_t r = step->logit_rows[i];
		float *h = e->h + (size_t)i * width;
		norm(step, ENGINE_FINAL_NORM, e->x + (size_t)r * width, e->output_norm, h);
		rows_probe(step, r, ENGINE_FINAL_NORM, h, 1);
		if (!e->kernels->quantise(&step->acts, i, i + 1))
			atomic_store_explicit(&e->rows[r].bad, true, memory_order_relaxed);
		step_beat(step, thread);
	}
}
