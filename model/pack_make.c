/* The model.q4nx of a pack: which tensors, and each tile from its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/pack_private.h"
#include "model/q4nx_file.h"
#include "model/tile.h"

/* Where a tensor's bytes come from. */
struct recipe {
	const struct pack *pack;
	const struct pack_matrix *matrix; /* NULL: bytes as they are, at plain */
	uint32_t layer, index;		  /* index: PACK_Q ...; the head: PACK_MATRICES */
	const char *plain;
};

static const char *tile_bytes(const struct recipe *r, uint32_t tile)
{
	if (r->index == PACK_MATRICES)
		return r->pack->head_file.ptr +
		       (size_t)pack_place_of(r->matrix, tile) * PACK_TILE_BYTES;
	return r->pack->layers[r->layer].ptr + pack_offset(r->pack, r->index, tile);
}

static enum svc_code make(const struct draft_tensor *t, uint32_t strip, uint8_t *out,
			  struct svc_err *err)
{
	const struct recipe *r = t->recipe;
	(void)err;
	if (!r->matrix) {
		memcpy(out, r->plain + strip * t->strip_bytes, draft_strip_bytes(t, strip));
		return SVC_OK;
	}
	uint32_t width = r->matrix->cols / TILE_COLS;
	for (uint32_t column = 0; column < width; column++, out += PACK_TILE_BYTES)
		memcpy(out, tile_bytes(r, strip * width + column), PACK_TILE_BYTES);
	return SVC_OK;
}

struct plan {
	const struct pack *pack;
	struct draft *draft;
	struct q4nx_item *items;
	size_t n;
};

/* rows, cols: of the entry; cols 0: a vector. */
static bool add(struct plan *plan, const struct hf_tensor *what, const struct recipe *recipe,
		uint64_t rows, uint64_t cols)
{
	struct q4nx_item *item = &plan->items[plan->n++];
	struct safetensors_tensor *e = &item->entry;
	struct recipe *r = arena_alloc(&plan->draft->arena, sizeof *r);
	if (!r)
		return false;
	*r = *recipe;
	hf_name(what, r->layer, item->tensor.name);
	e->dtype = r->matrix ? ST_I8 : ST_BF16;
	e->n_dims = cols ? 2 : 1;
	e->dims[0] = rows;
	e->dims[1] = cols;
	e->size_bytes = r->matrix ? rows * cols : 2 * rows * (cols ? cols : 1);
	item->tensor.size_bytes = e->size_bytes;
	item->tensor.strip_bytes = r->matrix ? r->matrix->cols / TILE_COLS * PACK_TILE_BYTES
				   : cols    ? (uint64_t)DRAFT_STRIP_ROWS * cols * 2
					     : e->size_bytes;
	item->tensor.make = make;
	item->tensor.recipe = r;
	return true;
}

static bool add_layer(struct plan *plan, uint32_t layer)
{
	const struct pack *p = plan->pack;
	bool fine = true;
	for (uint32_t i = 0; i < PACK_MATRICES && fine; i++) {
		const struct recipe r = {p, &p->matrices[i], layer, i, NULL};
		fine = add(plan, p->matrices[i].what, &r, p->matrices[i].n_tiles, PACK_TILE_BYTES);
	}
	for (uint32_t v = 0; v < p->layout.n_vectors && fine; v++) {
		const struct recipe r = {.pack = p,
					 .layer = layer,
					 .plain = p->layers[layer].ptr + pack_vector_offset(p, v)};
		fine = add(plan, p->vectors[v], &r, pack_vector_bytes(p, v) / 2, 0);
	}
	return fine;
}

static bool add_rest(struct plan *plan)
{
	const struct pack *p = plan->pack;
	const struct hf_config *c = &p->config;
	uint32_t layer;
	const struct hf_tensor *embedding =
		hf_find(c, span_of("model.embed_tokens.weight"), false, &layer);
	const struct hf_tensor *norm = hf_find(c, span_of("model.norm.weight"), false, &layer);
	const struct recipe head = {p, &p->head, 0, PACK_MATRICES, NULL};
	const struct recipe rows = {.pack = p, .plain = p->embedding.ptr};
	const struct recipe last = {
		.pack = p, .plain = p->head_file.ptr + (size_t)p->head.n_tiles * PACK_TILE_BYTES};
	return add(plan, p->head.what, &head, p->head.n_tiles, PACK_TILE_BYTES) &&
	       add(plan, embedding, &rows, c->vocab, c->hidden) &&
	       add(plan, norm, &last, c->hidden, 0);
}

enum svc_code pack_draft(const struct pack *pack, struct draft *ret_draft, struct svc_err *err)
{
	struct draft draft = {.n = 0};
	struct plan plan = {.pack = pack, .draft = &draft};
	arena_init(&draft.arena, 0);
	plan.items = calloc(pack->derived.tensors, sizeof *plan.items);
	bool fine = plan.items && add_rest(&plan);
	for (uint32_t layer = 0; layer < pack->config.n_layers && fine; layer++)
		fine = add_layer(&plan, layer);
	enum svc_code code =
		fine ? q4nx_arrange(plan.items, plan.n, &draft, err)
		     : svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the directory");
	free(plan.items);
	if (code == SVC_OK)
		*ret_draft = draft;
	else
		draft_free(&draft);
	return code;
}
