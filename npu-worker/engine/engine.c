/* Opening: from a region's directory to layers of pointers, and the scratch memory of a step. */
#include "npu-worker/engine/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "npu-worker/engine/engine_private.h"

enum { PAGE_LAYOUT_VERSION = 1, MAX_ROWS = 1 << 16, MAX_SEQS = 1 << 12 };

enum svc_code engine_family_parse(const char *name, enum kernels_family *ret_family,
				  struct svc_err *err)
{
	static const enum kernels_family families[] = {KERNELS_F32, KERNELS_A16, KERNELS_A8,
						       KERNELS_A16_KV8, KERNELS_B16};
	for (unsigned i = 0; i < sizeof families / sizeof families[0]; i++) {
		if (strcmp(name, kernels_family_name(families[i])) == 0) {
			*ret_family = families[i];
			return SVC_OK;
		}
	}
	return svc_fail_param(err, SVC_BAD_CONFIG, "family",
			      "family '%s' isn't known; there are f32-v1, a16-v1, a8-v1, "
			      "a16-kv8-v1 and b16-v1",
			      name);
}

/* NULL if the model has no such part. */
static const float *find_floats(const struct engine *e, enum part_role role, uint32_t layer)
{
	const struct plan_part *part = plan_find(e->plan, role, layer);
	return part ? (const float *)(const void *)(e->region + part->offset) : NULL;
}

/* 0 if the model has no such part, else 1. */
static uint32_t find_matrix(const struct engine *e, enum part_role role, uint32_t layer,
			    struct kernels_matrix *ret)
{
	const struct plan_part *part = plan_find(e->plan, role, layer);
	if (!part)
		return 0;
	*ret = (struct kernels_matrix){.type = part->type,
				       .rows = part->rows,
				       .cols = part->cols,
				       .data = e->region + part->offset};
	return 1;
}

static void bind_layer(const struct engine *e, uint32_t i, struct engine_layer *layer)
{
	const struct model_config *c = &e->info.config;
	layer->attn_norm = find_floats(e, PART_ATTN_NORM, i);
	layer->q_bias = find_floats(e, PART_Q_BIAS, i);
	layer->k_bias = find_floats(e, PART_K_BIAS, i);
	layer->v_bias = find_floats(e, PART_V_BIAS, i);
	layer->q_norm = find_floats(e, PART_Q_NORM, i);
	layer->k_norm = find_floats(e, PART_K_NORM, i);
	layer->o_bias = find_floats(e, PART_O_BIAS, i);
	layer->post_attn_norm = find_floats(e, PART_POST_ATTN_NORM, i);
	layer->ffn_norm = find_floats(e, PART_FFN_NORM, i);
	layer->post_ffn_norm = find_floats(e, PART_POST_FFN_NORM, i);

	layer->n_qkv = find_matrix(e, PART_QKV, i, &layer->qkv[0]);
	static const enum part_role apart[] = {PART_Q, PART_K, PART_V};
	for (unsigned m = 0; m < 3; m++)
		layer->n_qkv += find_matrix(e, apart[m], i, &layer->qkv[layer->n_qkv]);
	layer->n_gate_up = find_matrix(e, PART_GATE_UP, i, &layer->gate_up[0]);
	layer->n_gate_up += find_matrix(e, PART_GATE, i, &layer->gate_up[layer->n_gate_up]);
	layer->n_gate_up += find_matrix(e, PART_UP, i, &layer->gate_up[layer->n_gate_up]);
	find_matrix(e, PART_O, i, &layer->o);
	find_matrix(e, PART_DOWN, i, &layer->down);

	bool local = c->windowed[i] && plan_find(e->plan, PART_ROPE_LOCAL, 0);
	layer->window = c->windowed[i] ? c->window : 0;
	layer->rope = find_floats(e, local ? PART_ROPE_LOCAL : PART_ROPE, 0);
	layer->rope_pairs = (local ? c->rope_local.dims : c->rope.dims) / 2;
}

static enum svc_code bind_parts(struct engine *e, struct svc_err *err)
{
	const struct model_config *c = &e->info.config;
	e->layers = calloc(c->n_layers, sizeof *e->layers);
	if (!e->layers)
		return svc_fail_errno(err, __func__, "no memory for %" PRIu32 " layers",
				      c->n_layers);
	for (uint32_t i = 0; i < c->n_layers; i++)
		bind_layer(e, i, &e->layers[i]);
	find_matrix(e, PART_EMBED, 0, &e->embed);
	if (!find_matrix(e, PART_OUTPUT, 0, &e->head))
		e->head = e->embed;
	e->output_norm = find_floats(e, PART_OUTPUT_NORM, 0);
	return SVC_OK;
}

static void set_widths(struct engine *e)
{
	const struct model_config *c = &e->info.config;
	e->kv = kernels_family_kv(e->info.family);
	e->q_width = model_q_width(c);
	e->kv_width = model_kv_width(c);
	e->qkv_width = e->q_width + 2 * e->kv_width;
	e->k_tile_bytes = kernels_k_tile_bytes(e->kv, c->head_dim);
	e->v_tile_bytes = kernels_v_tile_bytes(e->kv, c->head_dim);
	e->info.page_bytes =
		(size_t)c->n_layers * c->n_kv_heads * (e->k_tile_bytes + e->v_tile_bytes);
}

/* What a KV page's bytes depend on besides its tokens. The tables' rows of position 1 stand for the
 * whole tables. */
static struct model_hash make_identity(const struct engine *e)
{
	const struct model_config *c = &e->info.config;
	XXH3_state_t *state = XXH3_createState();
	if (!state)
		return (struct model_hash){0};
	const uint32_t version = PAGE_LAYOUT_VERSION;
	const char *family = kernels_family_name(e->info.family);
	XXH3_128bits_reset(state);
	XXH3_128bits_update(state, &e->info.model, sizeof e->info.model);
	XXH3_128bits_update(state, &version, sizeof version);
	XXH3_128bits_update(state, family, strlen(family));
	for (uint32_t i = 0; i < c->n_layers && e->info.ctx > 1; i++) {
		const struct engine_layer *layer = &e->layers[i];
		size_t floats = 2 * (size_t)layer->rope_pairs;
		XXH3_128bits_update(state, layer->rope + floats, floats * sizeof(float));
	}
	XXH128_hash_t hash = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	return (struct model_hash){.low = hash.low64, .high = hash.high64};
}

/* Gives out 64-byte aligned parts of one allocation; with base NULL it only adds up. */
struct carver {
	uint8_t *base;
	size_t used;
};

static void *carve(struct carver *carver, size_t count, size_t size)
{
	void *at = carver->base ? carver->base + carver->used : NULL;
	carver->used += (count * size + 63) / 64 * 64;
	return at;
}

/* Sizes are products of numbers that config.c and engine_open limit to 2^46 bytes altogether. */
static void carve_scratch(struct engine *e, struct carver *carver)
{
	const struct model_config *c = &e->info.config;
	size_t rows = e->info.max_rows, seqs = e->info.max_seqs;
	size_t pages = (e->info.ctx + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
	uint32_t widest = c->n_embd > c->n_ffn ? c->n_embd : c->n_ffn;
	widest = widest > e->q_width ? widest : e->q_width;
	e->rows = carve(carver, rows, sizeof *e->rows);
	e->pass_rows = carve(carver, rows, sizeof *e->pass_rows);
	e->spans = carve(carver, seqs, sizeof *e->spans);
	e->x = carve(carver, rows * c->n_embd, sizeof(float));
	e->h = carve(carver, rows * c->n_embd, sizeof(float));
	e->qkv = carve(carver, rows * e->qkv_width, sizeof(float));
	e->heads = carve(carver, rows * e->q_width, sizeof(float));
	e->gate_up = carve(carver, rows * 2 * c->n_ffn, sizeof(float));
	e->logits = carve(carver, (size_t)LOGIT_ROWS * c->n_vocab, sizeof(float));
	e->acts_memory =
		carve(carver, 1, kernels_acts_bytes(e->info.family, e->info.max_rows, widest));
	uint8_t **table = carve(carver, seqs * pages, sizeof *table);
	for (size_t s = 0; carver->base && s < seqs; s++)
		e->spans[s].pages = table + s * pages;
}

static enum svc_code make_scratch(struct engine *e, struct svc_err *err)
{
	struct carver carver = {0};
	carve_scratch(e, &carver);
	e->scratch = aligned_alloc(64, carver.used);
	if (!e->scratch)
		return svc_fail_errno(
			err, __func__,
			"no memory for a step's %zu bytes; a smaller batch needs less",
			carver.used);
	carver = (struct carver){.base = e->scratch};
	carve_scratch(e, &carver);
	return SVC_OK;
}

static enum svc_code open_parts(struct engine *e, const struct engine_options *o,
				struct svc_err *err)
{
	enum svc_code code = region_attach(o->region, o->region_bytes, o->model, o->check_content,
					   &e->plan, err);
	if (code)
		return code;
	const struct region_header *header = o->region;
	e->region = o->region;
	e->info = (struct engine_info){.config = e->plan->config,
				       .model = header->model,
				       .family = o->family,
				       .threads = o->threads_of ? o->threads_of->info.threads
								: o->threads,
				       .ctx = e->plan->ctx,
				       .max_rows = o->max_rows,
				       .max_seqs = o->max_seqs};
	code = kernels_select(o->isa, &e->kernels, err);
	e->borrows_pool = o->threads_of != NULL;
	if (!code && e->borrows_pool)
		e->pool = o->threads_of->pool;
	else if (!code)
		code = pool_open(o->threads, &e->pool, err);
	if (!code && o->cores)
		code = pool_pin(e->pool, o->cores, err);
	if (!code)
		code = bind_parts(e, err);
	if (code)
		return code;
	e->info.isa = e->kernels->name;
	set_widths(e);
	e->info.identity = make_identity(e);
	return make_scratch(e, err);
}

enum svc_code engine_open(const struct engine_options *options, struct engine **ret_engine,
			  struct svc_err *err)
{
	if (options->max_rows < 1 || options->max_rows > MAX_ROWS || options->max_seqs < 1 ||
	    options->max_seqs > MAX_SEQS)
		return svc_fail(err, SVC_BAD_CONFIG, __func__,
				"a step of %" PRIu32 " tokens and %" PRIu32
				" sequences; 1 to %d and 1 to %d are allowed",
				options->max_rows, options->max_seqs, MAX_ROWS, MAX_SEQS);
	struct engine *engine = calloc(1, sizeof *engine);
	if (!engine)
		return svc_fail_errno(err, __func__, "no memory for the engine");
	enum svc_code code = open_parts(engine, options, err);
	if (code)
		engine_close(engine);
	else
		*ret_engine = engine;
	return code;
}

struct engine *engine_close(struct engine *engine)
{
	if (!engine)
		return NULL;
	if (!engine->borrows_pool)
		pool_close(engine->pool);
	plan_close(engine->plan);
	free(engine->layers);
	free(engine->scratch);
	free(engine->scores);
	free(engine);
	return NULL;
}

const struct engine_info *engine_info(const struct engine *engine)
{
	return &engine->info;
}

void engine_set_executor(struct engine *engine, const struct engine_executor *executor)
{
	engine->executor = executor ? *executor : (struct engine_executor){.context = NULL};
}

enum svc_code engine_set_pages(struct engine *engine, void *base, size_t stride, uint32_t count,
			       struct svc_err *err)
{
	if (!base || (uintptr_t)base % 64 || stride % 64 || stride < engine->info.page_bytes)
		return svc_fail(err, SVC_INVALID, __func__,
				"KV pages at %p, %zu bytes apart; multiples of 64 and at least %zu "
				"bytes are needed",
				base, stride, engine->info.page_bytes);
	engine->page_base = base;
	engine->page_stride = stride;
	engine->page_count = count;
	return SVC_OK;
}
