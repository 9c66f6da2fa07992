#include "verify/rig.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model/open.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/pool.h"
#include "verify/rig_private.h"

enum { MAX_NEIGHBOURS = 63, MAX_CHUNK = 512 };

struct vfy_state {
	uint8_t *pages;
	uint32_t *neighbour_pos;
};

static enum svc_code check_config(const struct vfy_config *c, struct svc_err *err)
{
	if (c->chunk < 1 || c->chunk > MAX_CHUNK)
		return svc_fail_param(err, SVC_USAGE, "chunk",
				      "--chunk is %" PRIu32 "; 1 to %d positions fit a step",
				      c->chunk, MAX_CHUNK);
	if (c->neighbours > MAX_NEIGHBOURS)
		return svc_fail_param(err, SVC_USAGE, "neighbours",
				      "--neighbours is %" PRIu32 "; at most %d are allowed",
				      c->neighbours, MAX_NEIGHBOURS);
	return SVC_OK;
}

static enum svc_code pack_model(struct vfy_rig *rig, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	struct pool *pool = NULL;
	enum svc_code code = model_open(rig->config.model, NULL, &gguf, err);
	if (!code)
		code = plan_open(gguf, rig->config.ctx, &rig->plan, err);
	if (!code)
		code = pool_open(rig->config.threads, &pool, err);
	if (!code) {
		rig->region_bytes = rig->plan->total_bytes;
		rig->region = vfy_rig_memory(&rig->region_bytes);
		if (!rig->region)
			code = svc_fail_errno(err, __func__, "no memory for the weights");
	}
	if (!code) {
		struct region_job job = {.gguf = gguf,
					 .plan = rig->plan,
					 .model = region_model_hash(gguf),
					 .region = rig->region};
		code = region_pack(&job, pool, err);
	}
	pool_close(pool);
	gguf_close(gguf);
	return code;
}

static enum svc_code open_engine(struct vfy_rig *rig, struct svc_err *err)
{
	struct engine_options options = {.region = rig->region,
					 .region_bytes = rig->plan->total_bytes,
					 .isa = rig->config.isa,
					 .threads = rig->config.threads,
					 .max_rows = rig->config.chunk + rig->config.neighbours,
					 .max_seqs = 1 + rig->config.neighbours};
	enum svc_code code = engine_family_parse(rig->config.family, &options.family, err);
	return code ? code : engine_open(&options, &rig->engine, err);
}

/* Page p of sequence s is page p * sequences + s: neighbours in memory belong to different
 * sequences. */
static enum svc_code make_memory(struct vfy_rig *rig, struct svc_err *err)
{
	const struct engine_info *info = engine_info(rig->engine);
	uint32_t seqs = 1 + rig->config.neighbours;
	rig->pages_each = (info->ctx + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
	uint32_t n_pages = seqs * rig->pages_each;
	enum kernels_kv kv = kernels_family_kv(info->family);
	if (kv == KERNELS_KV_I8 && !rig->config.logits_only)
		return svc_fail_param(err, SVC_UNSUPPORTED, "family",
				      "family %s keeps keys and values as int8 codes; the verify "
				      "instruments compare floats: use a16-v1, a8-v1 or f32-v1",
				      rig->config.family);
	rig->kv_bytes = kv == KERNELS_KV_F32 ? 4 : 2;
	rig->k_tile = kernels_k_tile_bytes(kv, info->config.head_dim);
	rig->v_tile = kernels_v_tile_bytes(kv, info->config.head_dim);
	rig->pages_bytes = n_pages * info->page_bytes;
	rig->pages = vfy_rig_memory(&rig->pages_bytes);
	rig->tables = calloc(n_pages, sizeof *rig->tables);
	rig->seqs = calloc(seqs, sizeof *rig->seqs);
	rig->neighbour_pos = calloc(seqs, sizeof *rig->neighbour_pos);
	rig->neighbour_tokens = calloc(seqs, sizeof *rig->neighbour_tokens);
	if (!rig->pages || !rig->tables || !rig->seqs || !rig->neighbour_pos ||
	    !rig->neighbour_tokens)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for %" PRIu32 " KV pages of %zu bytes; a smaller --ctx "
				"or fewer --neighbours need less",
				n_pages, info->page_bytes);
	for (uint32_t s = 0; s < seqs; s++)
		for (uint32_t p = 0; p < rig->pages_each; p++)
			rig->tables[s * rig->pages_each + p] = p * seqs + s;
	vfy_rig_reset(rig);
	return engine_set_pages(rig->engine, rig->pages, info->page_bytes, n_pages, err);
}

enum svc_code vfy_rig_open(const struct vfy_config *config, struct vfy_rig **ret_rig,
			   struct svc_err *err)
{
	enum svc_code code = check_config(config, err);
	if (code)
		return code;
	struct vfy_rig *rig = calloc(1, sizeof *rig);
	if (!rig)
		return svc_fail_errno(err, __func__, "no memory for a rig");
	rig->config = *config;
	code = pack_model(rig, err);
	if (!code)
		code = open_engine(rig, err);
	if (!code)
		code = make_memory(rig, err);
	if (!code)
		code = vfy_rig_open_device(rig, err);
	if (code)
		vfy_rig_close(rig);
	else
		*ret_rig = rig;
	return code;
}

struct vfy_rig *vfy_rig_close(struct vfy_rig *rig)
{
	if (!rig)
		return NULL;
	vfy_rig_close_device(rig);
	engine_close(rig->engine);
	plan_close(rig->plan);
	free(rig->region);
	free(rig->pages);
	free(rig->tables);
	free(rig->seqs);
	free(rig->neighbour_pos);
	free(rig->neighbour_tokens);
	free(rig);
	return NULL;
}

const struct engine_info *vfy_rig_info(const struct vfy_rig *rig)
{
	return engine_info(rig->engine);
}

const struct vfy_config *vfy_rig_config(const struct vfy_rig *rig)
{
	return &rig->config;
}

/* A neighbour's ids are a function of its number and place: noise, but the same noise each time. It
 * starts anew when its context is full. */
static void feed_neighbour(struct vfy_rig *rig, uint32_t s)
{
	const struct engine_info *info = engine_info(rig->engine);
	if (rig->neighbour_pos[s] == info->ctx)
		rig->neighbour_pos[s] = 0;
	uint32_t pos = rig->neighbour_pos[s]++;
	uint32_t noise = (pos * 64 + s) * 2654435761u;
	rig->neighbour_tokens[s] = (int32_t)((noise >> 8) % info->config.n_vocab);
	rig->seqs[s] = (struct engine_seq){.tokens = &rig->neighbour_tokens[s],
					   .n_tokens = 1,
					   .pos = pos,
					   .pages = rig->tables + s * rig->pages_each,
					   .n_pages = rig->pages_each};
}

enum svc_code vfy_rig_feed(struct vfy_rig *rig, const struct vfy_feed *feed, struct svc_err *err)
{
	const struct engine_info *info = engine_info(rig->engine);
	uint32_t n_seqs = feed->alone ? 1 : 1 + rig->config.neighbours;
	rig->seqs[0] = (struct engine_seq){.tokens = feed->tokens,
					   .n_tokens = feed->n,
					   .pos = feed->pos,
					   .pages = rig->tables,
					   .n_pages = rig->pages_each,
					   .n_logits = feed->n_logits,
					   .logits = rig->logits ? rig->logits : feed->logits,
					   .logits_stride = info->config.n_vocab};
	for (uint32_t s = 1; s < n_seqs; s++)
		feed_neighbour(rig, s);
	struct engine_batch batch = {.seqs = rig->seqs, .n_seqs = n_seqs, .hooks = feed->hooks};
	enum svc_code code = engine_step(rig->engine, &batch, err);
	if (code)
		return code;
	if (rig->seqs[0].status)
		return svc_fail(err, rig->seqs[0].status, __func__,
				"the step of positions %" PRIu32 " to %" PRIu32 " failed: %s",
				feed->pos, feed->pos + feed->n - 1,
				svc_code_info(rig->seqs[0].status)->name);
	if (rig->logits && feed->n_logits)
		memcpy(feed->logits, rig->logits,
		       (size_t)feed->n_logits * info->config.n_vocab * sizeof(float));
	return SVC_OK;
}

size_t vfy_rig_kv_bytes(const struct vfy_rig *rig)
{
	return rig->kv_bytes;
}

/* The tiles of a page: npu-worker/kernels/attention.h. */
size_t vfy_rig_kv_offset(const struct vfy_rig *rig, uint32_t position, uint32_t layer,
			 uint32_t part, uint32_t i)
{
	const struct engine_info *info = engine_info(rig->engine);
	uint32_t dim = info->config.head_dim, key = position % ENGINE_PAGE_TOKENS;
	size_t page = (size_t)rig->tables[position / ENGINE_PAGE_TOKENS] * info->page_bytes;
	size_t tile =
		((size_t)layer * info->config.n_kv_heads + part / 2) * (rig->k_tile + rig->v_tile) +
		(part % 2 ? rig->k_tile : 0);
	size_t place = part % 2 ? (size_t)key * ((dim + 15) / 16 * 16) + i
				: (size_t)i * ENGINE_PAGE_TOKENS + key;
	return page + tile + place * rig->kv_bytes;
}

void vfy_rig_read_kv(const struct vfy_rig *rig, uint32_t position, uint32_t layer, uint32_t part,
		     void *ret_vector)
{
	uint32_t dim = engine_info(rig->engine)->config.head_dim;
	for (uint32_t i = 0; i < dim; i++)
		memcpy((uint8_t *)ret_vector + i * rig->kv_bytes,
		       rig->pages + vfy_rig_kv_offset(rig, position, layer, part, i),
		       rig->kv_bytes);
}

const float *vfy_rig_rope(const struct vfy_rig *rig, uint32_t layer, uint32_t position,
			  uint32_t *ret_pairs)
{
	const struct model_config *c = &engine_info(rig->engine)->config;
	const struct plan_part *local =
		c->windowed[layer] ? plan_find(rig->plan, PART_ROPE_LOCAL, 0) : NULL;
	const struct plan_part *part = local ? local : plan_find(rig->plan, PART_ROPE, 0);
	*ret_pairs = (local ? c->rope_local.dims : c->rope.dims) / 2;
	return (const float *)(const void *)(rig->region + part->offset) +
	       (size_t)position * 2 * *ret_pairs;
}

void vfy_rig_reset(struct vfy_rig *rig)
{
	memset(rig->pages, 0xff, rig->pages_bytes);
	memset(rig->neighbour_pos, 0, (1 + rig->config.neighbours) * sizeof *rig->neighbour_pos);
}

enum svc_code vfy_rig_save(const struct vfy_rig *rig, struct vfy_state **ret_state,
			   struct svc_err *err)
{
	size_t places = (1 + rig->config.neighbours) * sizeof *rig->neighbour_pos;
	struct vfy_state *state = calloc(1, sizeof *state);
	if (state) {
		state->pages = malloc(rig->pages_bytes);
		state->neighbour_pos = malloc(places);
	}
	if (!state || !state->pages || !state->neighbour_pos) {
		vfy_state_free(state);
		return svc_fail_errno(err, __func__, "no memory for a copy of the state");
	}
	memcpy(state->pages, rig->pages, rig->pages_bytes);
	memcpy(state->neighbour_pos, rig->neighbour_pos, places);
	*ret_state = state;
	return SVC_OK;
}

void vfy_rig_restore(struct vfy_rig *rig, const struct vfy_state *state)
{
	memcpy(rig->pages, state->pages, rig->pages_bytes);
	memcpy(rig->neighbour_pos, state->neighbour_pos,
	       (1 + rig->config.neighbours) * sizeof *rig->neighbour_pos);
}

struct vfy_state *vfy_state_free(struct vfy_state *state)
{
	if (state) {
		free(state->pages);
		free(state->neighbour_pos);
		free(state);
	}
	return NULL;
}

int32_t vfy_argmax(const float *logits, uint32_t n)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < n; i++)
		best = logits[i] > logits[best] ? i : best;
	return (int32_t)best;
}
