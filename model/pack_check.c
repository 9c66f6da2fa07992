/* Reads what an import has written and makes the pack out of it again, in the pack's order: every
 * tile unpacked into numbers and packed again, and all bytes compared. It shares no index
 * arithmetic with pack_make.c: it walks the pack's files from front to back. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/pack_private.h"
#include "model/safetensors.h"
#include "model/tile.h"

struct check {
	const struct pack *pack;
	const struct safetensors *file;
	const struct draft_progress *progress;
	uint64_t done_bytes, total_bytes;
	struct pack_counts found;
	struct svc_err *err;
};

/* A file of the pack, read from front to back. */
struct cursor {
	const char *at;
	uint32_t layer;
};

static enum svc_code differs(struct check *c, const char *name, const char *what, uint32_t where)
{
	return svc_fail(c->err, SVC_CORRUPT, "pack_check",
			"%s: %s %u, packed again, isn't the pack's: what was written is damaged, "
			"or the pack has changed meanwhile; remove the .partial folder and import "
			"again",
			name, what, where);
}

static void advance(struct check *c, struct cursor *cursor, uint64_t bytes)
{
	cursor->at += bytes;
	c->done_bytes += bytes;
	if (c->progress->call)
		c->progress->call(c->progress->context, c->done_bytes, c->total_bytes);
}

static const struct safetensors_tensor *find(struct check *c, const struct hf_tensor *what,
					     uint32_t layer, uint64_t bytes)
{
	char name[HF_NAME_BYTES];
	hf_name(what, layer, name);
	const struct safetensors_tensor *t = safetensors_find(c->file, span_of(name));
	if (t && t->size_bytes == bytes)
		return t;
	(void)svc_fail(c->err, SVC_CORRUPT, "pack_check",
		       "tensor %s is missing, or has another size than the pack's", name);
	return NULL;
}

/* Places [first, first + n) of a matrix, in the device's order. */
static enum svc_code check_run(struct check *c, struct cursor *cursor, const struct pack_matrix *m,
			       uint32_t first, uint32_t n)
{
	struct tile tile;
	uint8_t again[PACK_TILE_BYTES];
	const struct safetensors_tensor *t =
		find(c, m->what, cursor->layer, (uint64_t)m->n_tiles * PACK_TILE_BYTES);
	if (!t)
		return SVC_CORRUPT;
	for (uint32_t place = first; place < first + n; place++) {
		uint32_t index = pack_tile_at(m, place);
		tile_read(TILE_A, (const uint8_t *)t->data + (size_t)index * PACK_TILE_BYTES,
			  &tile);
		tile_write(TILE_A, &tile, again);
		if (memcmp(again, cursor->at, sizeof again) != 0)
			return differs(c, m->what->hf, "tile", index);
		c->found.tiles++;
		advance(c, cursor, sizeof again);
	}
	return SVC_OK;
}

static enum svc_code check_vector(struct check *c, struct cursor *cursor,
				  const struct hf_tensor *what, uint64_t bytes)
{
	const struct safetensors_tensor *t = find(c, what, cursor->layer, bytes);
	if (!t)
		return SVC_CORRUPT;
	if (memcmp(t->data, cursor->at, bytes) != 0)
		return differs(c, what->hf, "vector of layer", cursor->layer);
	c->found.norm_anchors += what->is_norm;
	advance(c, cursor, bytes);
	return SVC_OK;
}

static enum svc_code check_groups(struct check *c, struct cursor *cursor)
{
	const struct pack *p = c->pack;
	const struct pack_matrix *gate = &p->matrices[PACK_GATE], *up = &p->matrices[PACK_UP];
	const struct pack_matrix *first = p->layout.up_first ? up : gate;
	const struct pack_matrix *second = p->layout.up_first ? gate : up;
	enum svc_code code = SVC_OK;
	for (uint32_t at = 0; at < up->n_tiles && code == SVC_OK; at += p->layout.chunk_tiles) {
		uint32_t left = up->n_tiles - at;
		uint32_t n = left < p->layout.chunk_tiles ? left : p->layout.chunk_tiles;
		code = check_run(c, cursor, first, at, n);
		if (code == SVC_OK)
			code = check_run(c, cursor, second, at, n);
		c->found.mlp_groups++;
	}
	return code;
}

static enum svc_code check_layer(struct check *c, uint32_t layer)
{
	const struct pack *p = c->pack;
	struct cursor cursor = {p->layers[layer].ptr, layer};
	enum svc_code code = SVC_OK;
	uint64_t before = c->found.tiles;
	for (uint32_t i = 0; i < 4 && code == SVC_OK; i++) {
		uint32_t which = i < 3 ? p->layout.attention[i] : PACK_O;
		const struct pack_matrix *m = &p->matrices[which];
		code = check_run(c, &cursor, m, 0, m->n_tiles);
	}
	c->found.attention_tiles = c->found.tiles - before;
	if (code == SVC_OK)
		code = check_groups(c, &cursor);
	const struct pack_matrix *down = &p->matrices[PACK_DOWN];
	if (code == SVC_OK)
		code = check_run(c, &cursor, down, 0, down->n_tiles);
	for (uint32_t v = 0; v < p->layout.n_vectors && code == SVC_OK; v++)
		code = check_vector(c, &cursor, p->vectors[v],
				    (uint64_t)2 * hf_width(&p->config, p->vectors[v]->cols));
	return code;
}

static enum svc_code check_rest(struct check *c)
{
	const struct pack *p = c->pack;
	const struct hf_config *config = &p->config;
	struct cursor head = {p->head_file.ptr, 0}, embedding = {p->embedding.ptr, 0};
	uint32_t layer;
	enum svc_code code = check_run(c, &head, &p->head, 0, p->head.n_tiles);
	if (code == SVC_OK)
		code = check_vector(c, &head,
				    hf_find(config, span_of("model.norm.weight"), false, &layer),
				    (uint64_t)2 * config->hidden);
	if (code == SVC_OK)
		code = check_vector(
			c, &embedding,
			hf_find(config, span_of("model.embed_tokens.weight"), false, &layer),
			p->embedding.len);
	return code;
}

enum svc_code pack_check(const struct pack *pack, const char *path,
			 const struct draft_progress *progress, struct pack_counts *ret_counts,
			 struct svc_err *err)
{
	struct safetensors *file = NULL;
	struct check c = {.pack = pack, .progress = progress, .err = err};
	enum svc_code code = safetensors_open(path, &file, err);
	if (code != SVC_OK)
		return code;
	c.file = file;
	c.found.tensors = safetensors_count(file);
	c.total_bytes = pack->head_file.len + pack->embedding.len +
			pack->layers[0].len * pack->config.n_layers;
	code = check_rest(&c);
	for (uint32_t layer = 0; layer < pack->config.n_layers && code == SVC_OK; layer++)
		code = check_layer(&c, layer);
	safetensors_close(file);
	if (code == SVC_OK && memcmp(&c.found, &pack->derived, sizeof c.found) != 0)
		code = svc_fail(err, SVC_CORRUPT, __func__,
				"%" PRIu64 " tensors and %" PRIu64 " tiles were written; %" PRIu64
				" and %" PRIu64 " are the pack's",
				c.found.tensors, c.found.tiles, pack->derived.tensors,
				pack->derived.tiles);
	if (code == SVC_OK)
		*ret_counts = c.found;
	return code;
}
