#include "npu-worker/device/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/device/layers_private.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/layout.h"

static const enum part_role part_roles[MANIFEST_PARTS] = {
	PART_ATTN_NORM,
	PART_Q,
	PART_K,
	PART_V,
	PART_O,
	PART_FFN_NORM,
	PART_GATE,
	PART_UP,
	PART_DOWN,
	PART_Q_BIAS,
	PART_K_BIAS,
	PART_V_BIAS,
	PART_O_BIAS,
	PART_Q_NORM,
	PART_K_NORM,
	PART_POST_ATTN_NORM,
	PART_POST_FFN_NORM,
};

static bool has(const struct plan *plan, enum part_role role, uint32_t layer)
{
	return plan_find(plan, role, layer) != NULL;
}

/* A part of a layer: a tensor, or rows of one that holds several parts. */
struct piece {
	const struct plan_part *tensor; /* NULL: there is none */
	uint32_t row;
};

static struct piece find_piece(const struct plan *plan, enum manifest_part part, uint32_t layer)
{
	const struct model_config *c = &plan->config;
	const struct plan_part *own = plan_find(plan, part_roles[part], layer),
			       *qkv = plan_find(plan, PART_QKV, layer),
			       *gate_up = plan_find(plan, PART_GATE_UP, layer);
	uint32_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
	if (own)
		return (struct piece){own, 0};
	if (part == MANIFEST_Q || part == MANIFEST_K || part == MANIFEST_V)
		return (struct piece){qkv, part == MANIFEST_Q	? 0
					   : part == MANIFEST_K ? q
								: q + kv};
	if (part == MANIFEST_GATE || part == MANIFEST_UP)
		return (struct piece){gate_up, part == MANIFEST_GATE ? 0 : c->n_ffn};
	return (struct piece){NULL, 0};
}

static uint64_t piece_offset(const struct piece *piece)
{
	const struct plan_part *t = piece->tensor;
	return t->offset +
	       (piece->row ? piece->row / KERNELS_BLOCK_ROWS * layout_stride(t->type, t->cols) : 0);
}

/* Packed weights are blocks of rows: a product can begin only where a block does. */
static bool is_cut_at_blocks(const struct plan *plan)
{
	for (enum manifest_part part = 0; part < MANIFEST_PARTS; part++)
		if (find_piece(plan, part, 0).row % KERNELS_BLOCK_ROWS)
			return false;
	return true;
}

static const struct plan_part *head_part(const struct plan *plan)
{
	const struct plan_part *own = plan_find(plan, PART_OUTPUT, 0);
	return own ? own : plan_find(plan, PART_EMBED, 0);
}

/* The kernel that a layer needs: its types and windows may differ from another's. */
static bool shape_of(const struct plan *plan, uint32_t layer, struct manifest_shape *ret)
{
	static const uint32_t places[7] = {MANIFEST_Q,	  MANIFEST_K,  MANIFEST_V,   MANIFEST_O,
					   MANIFEST_GATE, MANIFEST_UP, MANIFEST_DOWN};
	const struct model_config *c = &plan->config;
	*ret = (struct manifest_shape){c->n_embd,   c->n_ffn,	    c->n_heads, c->n_kv_heads,
				       c->head_dim, c->interleaved, 0,		0,
				       {0}};
	for (uint32_t i = 0; i < 7; i++) {
		const struct piece piece = find_piece(plan, places[i], layer);
		if (!piece.tensor)
			return false;
		ret->types[i] = piece.tensor->type;
	}
	ret->window = c->windowed[layer] ? c->window : 0;
	ret->features = (has(plan, PART_Q_BIAS, layer) ? MANIFEST_WITH_QKV_BIAS : 0u) |
			(has(plan, PART_O_BIAS, layer) ? MANIFEST_WITH_O_BIAS : 0u) |
			(has(plan, PART_Q_NORM, layer) ? MANIFEST_WITH_HEAD_NORMS : 0u) |
			(has(plan, PART_POST_ATTN_NORM, layer) ? MANIFEST_WITH_POST_NORMS : 0u) |
			(c->gelu ? MANIFEST_WITH_GELU : 0u) |
			(c->attn_softcap != 0.0f ? MANIFEST_WITH_SOFTCAP : 0u);
	/* All of a kind or none. */
	for (enum manifest_part p = 0; p < MANIFEST_PARTS; p++)
		if ((find_piece(plan, p, layer).tensor != NULL) != manifest_has_part(ret, p))
			return false;
	return true;
}

static bool has_local_tables(const struct plan *plan)
{
	uint32_t windowed = 0;
	for (uint32_t layer = 0; layer < plan->config.n_layers; layer++)
		windowed += plan->config.windowed[layer];
	return has(plan, PART_ROPE_LOCAL, 0) && windowed && windowed < plan->config.n_layers;
}

/* What no such kernel does, whatever its shape; NULL: nothing of it. */
static const char *not_for_layers(const struct manifest *manifest, const struct plan *plan)
{
	const struct model_config *c = &plan->config;
	enum kernels_family family;
	struct svc_err err;
	if (engine_family_parse(manifest->family, &family, &err) != SVC_OK ||
	    kernels_family_kv(family) != KERNELS_KV_F16)
		return "whole layers are for keys and values in float16";
	if (!is_cut_at_blocks(plan))
		return "this model's fused projections have parts that don't begin at a multiple "
		       "of 16 rows, for which there are no whole layers";
	if (has_local_tables(plan) && c->rope.dims != c->rope_local.dims)
		return "this model's windowed layers turn another number of dimensions, for which "
		       "there are no whole layers";
	return NULL;
}

bool layers_fit(const struct manifest *manifest, const struct plan *plan,
		const struct manifest_layer **ret_kernels, char why[LAYERS_WHY])
{
	const struct plan_part *head = head_part(plan);
	const char *never = manifest->n_layers ? not_for_layers(manifest, plan) : "";
	struct manifest_shape shape;
	snprintf(why, LAYERS_WHY, "%s", never ? never : "");
	if (never)
		return false;
	if (!head || manifest->head->type != head->type || manifest->head->rows != head->rows ||
	    manifest->head->cols != head->cols) {
		snprintf(why, LAYERS_WHY, "no head of this model's size and type");
		return false;
	}
	for (uint32_t layer = 0; layer < plan->config.n_layers; layer++) {
		bool whole = shape_of(plan, layer, &shape);
		ret_kernels[layer] = whole ? manifest_find_layer(manifest, &shape) : NULL;
		if (ret_kernels[layer])
			continue;
		char text[200];
		manifest_describe(&shape, text, sizeof text);
		snprintf(why, LAYERS_WHY, "none for layer %u of this model: %s, or not for its %s",
			 layer, text, whole ? "types" : "tensors");
		return false;
	}
	return true;
}

static void find_parts(struct layers *l, const struct plan *plan)
{
	for (uint32_t layer = 0; layer < l->n_layers; layer++)
		for (enum manifest_part i = 0; i < MANIFEST_PARTS; i++) {
			const struct piece piece = find_piece(plan, i, layer);
			if (piece.tensor)
				l->parts[layer][i] = piece_offset(&piece);
		}
	l->head_parts[0] = plan_find(plan, PART_OUTPUT_NORM, 0)->offset;
	l->head_parts[1] = head_part(plan)->offset;
}

static enum svc_code open_areas(struct layers *l, struct svc_err *err)
{
	const struct layers_options *o = &l->options;
	enum svc_code code =
		area_open(o->device, o->pages, o->pages_bytes, "KV pages", &l->pages, err);
	if (code == SVC_OK)
		code = area_open(o->device, o->logits, o->logits_bytes, "logits", &l->logits, err);
	l->counts.in_place = l->work.in_place && l->pages.in_place && l->logits.in_place;
	l->seen = calloc(o->pages_bytes / o->page_bytes + 1, 1);
	if (code == SVC_OK && !l->seen)
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return code;
}

enum svc_code layers_open(const struct layers_options *options, const struct plan *plan,
			  struct layers **ret_layers, struct svc_err *err)
{
	const struct model_config *c = &plan->config;
	struct layers *l = calloc(1, sizeof *l);
	if (!l)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	l->options = *options;
	l->head = options->manifest->head;
	l->n_layers = c->n_layers;
	l->embd = c->n_embd;
	l->vocab = c->n_vocab;
	l->max_rows = options->manifest->max_tokens;
	l->kv_bytes = c->n_kv_heads * (kernels_k_tile_bytes(KERNELS_KV_F16, c->head_dim) +
				       kernels_v_tile_bytes(KERNELS_KV_F16, c->head_dim));
	l->has_local = has_local_tables(plan);
	char why[LAYERS_WHY];
	enum svc_code code = SVC_OK;
	if (layers_fit(options->manifest, plan, l->kernels, why))
		find_parts(l, plan);
	else
		code = svc_fail(err, SVC_NO_DEVICE, __func__, "%s", why);
	if (code == SVC_OK)
		code = work_open(l, plan, err);
	if (code == SVC_OK)
		code = open_areas(l, err);
	if (code == SVC_OK)
		*ret_layers = l;
	else
		layers_close(l);
	return code;
}

struct layers *layers_close(struct layers *layers)
{
	if (!layers)
		return NULL;
	for (uint32_t s = 0; s < STREAM_SETS; s++)
		for (uint32_t i = 0; i <= layers->n_layers; i++)
			device_buffer_free(layers->sets[s].streams[i]);
	area_close(&layers->work);
	area_close(&layers->pages);
	area_close(&layers->logits);
	free(layers->places);
	free(layers->page_list);
	free(layers->seen);
	free(layers);
	return NULL;
}

void layers_forget(struct layers *layers)
{
	memset(layers->slot_rows, 0, sizeof layers->slot_rows);
}

struct layers_counts layers_counts(const struct layers *layers)
{
	return layers->counts;
}

/* ---- instruction streams */

static enum svc_code put_stream(struct layers *l, struct device_buffer **buffer,
				const struct manifest_stream *stream, const uint32_t *words,
				struct svc_err *err)
{
	size_t bytes = stream->n_words * sizeof *words;
	enum svc_code code = SVC_OK;
	if (!*buffer)
		code = device_buffer_new(l->options.device, DEVICE_INSTRUCTIONS,
					 MANIFEST_MAX_WORDS * sizeof *words, buffer, err);
	if (code != SVC_OK)
		return code;
	memcpy(device_buffer_memory(*buffer), words, bytes);
	return device_sync(*buffer, DEVICE_TO, 0, bytes, err);
}

/* From the manifest's rules, and where each layer's parts lie. */
static enum svc_code derive(struct layers *l, struct stream_set *set, struct svc_err *err)
{
	uint32_t words[MANIFEST_MAX_WORDS], keys = set->key_blocks * ENGINE_PAGE_TOKENS;
	enum svc_code code = SVC_OK;
	for (uint32_t layer = 0; layer < l->n_layers && code == SVC_OK; layer++) {
		const struct manifest_layer *kernel = l->kernels[layer];
		manifest_derive(&kernel->stream, set->rows, keys, words);
		for (uint32_t i = 0; i < MANIFEST_PARTS; i++)
			if (manifest_has_part(&kernel->shape, i))
				manifest_put(words, kernel->parts[i], l->parts[layer][i]);
		words[kernel->kv] = (uint32_t)(layer * l->kv_bytes);
		code = put_stream(l, &set->streams[layer], &kernel->stream, words, err);
	}
	if (set->logit_rows && code == SVC_OK) {
		manifest_derive(&l->head->stream, set->logit_rows, keys, words);
		for (uint32_t i = 0; i < 2; i++)
			manifest_put(words, l->head->parts[i], l->head_parts[i]);
		code = put_stream(l, &set->streams[l->n_layers], &l->head->stream, words, err);
	}
	return code;
}

/* A set that is there, or made in the place of the one unused for longest. */
static enum svc_code find_streams(struct layers *l, const struct layers_rows *rows,
				  struct stream_set **ret_set, struct svc_err *err)
{
	struct stream_set *oldest = &l->sets[0];
	uint32_t most = 0;
	for (uint32_t i = 0; i < rows->count; i++) {
		uint32_t position = rows->pass->rows[rows->first + i].position;
		most = position > most ? position : most;
	}
	uint32_t blocks = most / ENGINE_PAGE_TOKENS + 1;
	for (uint32_t s = 0; s < STREAM_SETS; s++) {
		struct stream_set *set = &l->sets[s];
		oldest = set->used < oldest->used ? set : oldest;
		if (set->rows != rows->count || set->key_blocks != blocks ||
		    set->logit_rows != rows->n_logits)
			continue;
		set->used = l->counts.passes;
		*ret_set = set;
		return SVC_OK;
	}
	oldest->rows = rows->count;
	oldest->key_blocks = blocks;
	oldest->logit_rows = rows->n_logits;
	oldest->used = l->counts.passes;
	l->counts.derived++;
	*ret_set = oldest;
	return derive(l, oldest, err);
}

/* ---- a pass */

static size_t page_offset(const struct layers *l, const struct engine_pass_row *row, uint32_t page)
{
	return (size_t)(row->pages[page] - (const uint8_t *)l->pages.base);
}

/* Pages that others may have written since this device saw them. */
static enum svc_code send_pages(struct layers *l, const struct layers_rows *rows,
				struct svc_err *err)
{
	size_t bytes = l->options.page_bytes;
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct engine_pass_row *row = &rows->pass->rows[rows->first + i];
		bool again = i && row->pages == row[-1].pages;
		for (uint32_t p = 0; p <= row->position / ENGINE_PAGE_TOKENS; p++) {
			size_t at = page_offset(l, row, p);
			if (l->seen[at / bytes] && (row->settled || again))
				continue;
			l->seen[at / bytes] = 1;
			code = code == SVC_OK ? area_send(&l->pages, at, bytes, err) : code;
		}
	}
	return code;
}

/* What the rows have written: their keys and values into the shared pages, their logits. */
static enum svc_code fetch(struct layers *l, const struct layers_rows *rows, struct svc_err *err)
{
	enum svc_code code = work_fetch(l, rows, err);
	size_t last = SIZE_MAX;
	for (uint32_t i = 0; i < rows->count && code == SVC_OK; i++) {
		const struct engine_pass_row *row = &rows->pass->rows[rows->first + i];
		size_t at = page_offset(l, row, row->position / ENGINE_PAGE_TOKENS);
		if (at != last)
			code = area_fetch(&l->pages, at, l->options.page_bytes, err);
		if (code == SVC_OK && row->logits)
			code = area_fetch(&l->logits,
					  (size_t)((char *)row->logits - l->logits.base),
					  l->vocab * sizeof(float), err);
		last = at;
	}
	return code;
}

static enum svc_code submit(struct layers *l, const struct layers_rows *rows,
			    const struct stream_set *set, struct svc_err *err)
{
	struct device_run runs[MAX_LAYERS + 1];
	uint32_t n = l->n_layers;
	for (uint32_t i = 0; i < n; i++)
		runs[i] = (struct device_run){
			set->streams[i],
			l->kernels[i]->stream.n_words,
			{l->options.weights->buffer, l->work.buffer, l->pages.buffer}};
	if (rows->n_logits) {
		runs[n] = (struct device_run){
			set->streams[n],
			l->head->stream.n_words,
			{l->options.weights->buffer, l->work.buffer, l->logits.buffer}};
		n++;
	}
	return device_submit(l->options.device, runs, n, err);
}

static enum svc_code run_rows(struct layers *l, struct layers_rows *rows, struct svc_err *err)
{
	const struct layers_options *o = &l->options;
	struct stream_set *set = NULL;
	l->counts.passes++;
	enum svc_code code = work_send(l, rows, err);
	if (code == SVC_OK)
		code = send_pages(l, rows, err);
	if (code == SVC_OK)
		code = find_streams(l, rows, &set, err);
	if (code == SVC_OK)
		code = submit(l, rows, set, err);
	if (code == SVC_OK)
		code = work_prepare(l, rows, err);
	if (code == SVC_OK)
		code = device_wait(o->device, o->limit_us, o->beat, o->context, err);
	return code == SVC_OK ? fetch(l, rows, err) : code;
}

enum svc_code layers_run(struct layers *l, const struct engine_pass *pass, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	for (uint32_t first = 0; first < pass->n_rows && code == SVC_OK; first += l->max_rows) {
		uint32_t left = pass->n_rows - first;
		struct layers_rows rows = {pass, first, left < l->max_rows ? left : l->max_rows, 0};
		code = run_rows(l, &rows, err);
	}
	return code;
}
