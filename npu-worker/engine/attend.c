/* The attention of a step, cut into items that the pool's threads take. An item is some of the
 * query heads that share a KV head, for some consecutive tokens of a sequence. The cut has no
 * influence on the result (attention.h). */
#include "npu-worker/engine/engine_private.h"
#include "npu-worker/engine/hooks.h"

#include <stdlib.h>

/* Multiply-adds of one item, at most: between two beats a slow machine must manage them in some 100
 * ms. */
static const uint64_t ITEM_WORK = 64u << 20;
enum { ITEM_TOKENS = 32 };

static uint32_t divide_up(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

static uint32_t kv_group(const struct model_config *c)
{
	return c->n_heads / c->n_kv_heads;
}

static size_t tile_offset(const struct engine *e, uint32_t layer, uint32_t kv_head)
{
	return ((size_t)layer * e->info.config.n_kv_heads + kv_head) *
	       (e->k_tile_bytes + e->v_tile_bytes);
}

void *attend_k_tile(const struct step *step, uint32_t row, uint32_t kv_head)
{
	const struct engine_row *at = &step->engine->rows[row];
	uint8_t *page = step->engine->spans[at->seq].pages[at->position / ENGINE_PAGE_TOKENS];
	return page + tile_offset(step->engine, step->layer, kv_head);
}

void *attend_v_tile(const struct step *step, uint32_t row, uint32_t kv_head)
{
	return (uint8_t *)attend_k_tile(step, row, kv_head) + step->engine->k_tile_bytes;
}

/* Keys of the last query, which sees the most. */
static uint32_t keys_of(const struct engine_seq *seq)
{
	return seq->pos + seq->n_tokens;
}

static void plan_span(const struct engine *e, const struct engine_seq *seq,
		      struct engine_span *span)
{
	const struct model_config *c = &e->info.config;
	uint64_t work = (uint64_t)keys_of(seq) * 2 * c->head_dim * kv_group(c);
	uint64_t tokens = ITEM_WORK / work;
	span->tile_tokens = tokens < 1 ? 1 : tokens > ITEM_TOKENS ? ITEM_TOKENS : (uint32_t)tokens;
	/* Too few items for the threads: a KV head's query heads are spread, too. */
	uint32_t items = c->n_kv_heads * divide_up(seq->n_tokens, span->tile_tokens);
	uint32_t parts = divide_up(e->info.threads, items);
	span->tile_heads = divide_up(kv_group(c), parts);
	span->items = items * divide_up(kv_group(c), span->tile_heads);
}

static enum svc_code make_scores_room(struct engine *e, size_t wanted, struct svc_err *err)
{
	if (wanted <= e->scores_room)
		return SVC_OK;
	float *scores = realloc(e->scores, wanted * sizeof *scores);
	if (!scores)
		return svc_fail_errno(err, __func__, "no memory for %zu attention scores", wanted);
	e->scores = scores;
	e->scores_room = wanted;
	return SVC_OK;
}

enum svc_code attend_plan(struct step *step, struct svc_err *err)
{
	struct engine *e = step->engine;
	size_t scores = 0;
	step->n_items = 0;
	for (uint32_t s = 0; s < step->batch->n_seqs; s++) {
		const struct engine_seq *seq = &step->batch->seqs[s];
		struct engine_span *span = &e->spans[s];
		span->first_item = step->n_items;
		span->items = 0;
		if (seq->status != SVC_OK)
			continue;
		plan_span(e, seq, span);
		step->n_items += span->items;
		size_t most = (size_t)span->tile_tokens * span->tile_heads * keys_of(seq);
		scores = most > scores ? most : scores;
	}
	return step_tells_scores(step) ? make_scores_room(e, scores, err) : SVC_OK;
}

/* Of an item whose queries are heads `head` and on of rows `row` and on. */
static void tell_scores(const struct step *step, const struct kernels_attention *job, size_t row,
			uint32_t head)
{
	const struct engine_hooks *hooks = step->batch->hooks;
	for (uint32_t i = 0; i < job->tokens * job->heads; i++) {
		uint32_t position = job->position + i / job->heads;
		bool is_cut = job->window && position >= job->window;
		struct engine_record record = {
			.checkpoint = ENGINE_SCORES,
			.layer = step->layer,
			.seq = step->engine->rows[row].seq,
			.position = position,
			.part = head + i % job->heads,
			.rows = 1,
			.cols = is_cut ? job->window : position + 1,
			.data = job->scores + i * job->scores_stride,
		};
		hooks->probe(hooks->context, &record);
	}
}

static void attend_item(const struct step *step, uint32_t s, uint32_t item)
{
	const struct engine *e = step->engine;
	const struct engine_seq *seq = &step->batch->seqs[s];
	const struct engine_span *span = &e->spans[s];
	const struct engine_layer *layer = &e->layers[step->layer];
	const struct model_config *c = &e->info.config;
	uint32_t group = kv_group(c), head_tiles = divide_up(group, span->tile_heads);
	uint32_t kv_head = item % c->n_kv_heads;
	uint32_t first_head = item / c->n_kv_heads % head_tiles * span->tile_heads;
	uint32_t first = item / c->n_kv_heads / head_tiles * span->tile_tokens;
	size_t row = span->row + first, head = (size_t)(kv_head * group + first_head) * c->head_dim;
	struct kernels_attention job = {
		.kv = e->kv,
		.head_dim = c->head_dim,
		.pages = (const uint8_t *const *)span->pages,
		.k_offset = tile_offset(e, step->layer, kv_head),
		.v_offset = tile_offset(e, step->layer, kv_head) + e->k_tile_bytes,
		.position = seq->pos + first,
		.tokens = seq->n_tokens - first < span->tile_tokens ? seq->n_tokens - first
								    : span->tile_tokens,
		.heads = group - first_head < span->tile_heads ? group - first_head
							       : span->tile_heads,
		.window = layer->window,
		.scale = c->attn_scale,
		.softcap = c->attn_softcap,
		.q = e->qkv + row * e->qkv_width + head,
		.q_stride = e->qkv_width,
		.out = e->heads + row * e->q_width + head,
		.out_stride = e->q_width,
		.scores = step_tells_scores(step) ? e->scores : NULL,
		.scores_stride = keys_of(seq),
	};
	bool blocks = step_varies(step, VARIANT_ATTENTION, ENGINE_HEADS);
	bool other_exp = step_varies(step, VARIANT_EXP, ENGINE_HEADS);
	if (blocks || other_exp)
		variant_attention(&job, step->n_rows, blocks, other_exp);
	else
		e->kernels->attention(&job);
	if (job.scores)
		tell_scores(step, &job, row, kv_head * group + first_head);
}

static void attend_items(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine_span *spans = step->engine->spans;
	uint32_t s = 0;
	for (uint32_t item = first; item < last; item++) {
		while (item - spans[s].first_item >= spans[s].items)
			s++;
		attend_item(step, s, item - spans[s].first_item);
		step_beat(step, thread);
	}
}

void attend_run(struct step *step)
{
	if (step_tells_scores(step))
		attend_items(step, 0, step->n_items, 0);
	else
		pool_run(step->engine->pool, attend_items, step, step->n_items, 1);
}
