/* model/pack_private.h: what pack.c (opens), pack_order.c (where tiles lie), pack_make.c (the
 * Q4NX file) and pack_check.c (compares) share. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"
#include "model/hf_config.h"
#include "model/hf_names.h"
#include "model/pack.h"

enum { PACK_Q, PACK_K, PACK_V, PACK_O, PACK_GATE, PACK_UP, PACK_DOWN, PACK_MATRICES };
enum { PACK_MAX_VECTORS = 12, PACK_TILE_BYTES = 5120 };

struct pack_matrix {
	const struct hf_tensor *what;
	uint32_t rows, cols;
	uint32_t n_tiles;
};

/* What pack.json says. */
struct pack_layout {
	uint8_t attention[3]; /* PACK_Q, PACK_K, PACK_V in the order of their runs */
	bool up_first;	      /* in each group of up and gate */
	uint32_t chunk_tiles; /* of each of the two in a group */
	uint32_t o_cols;
	char vectors[PACK_MAX_VECTORS][HF_NAME_BYTES]; /* behind a layer's tiles, in this order */
	uint32_t n_vectors;
	struct pack_counts stated;
};

struct pack {
	char path[4096];
	struct hf_config config;
	struct pack_layout layout;
	struct pack_matrix matrices[PACK_MATRICES], head;
	const struct hf_tensor *vectors[PACK_MAX_VECTORS];
	uint64_t layer_tiles, groups; /* of each layer */
	struct pack_counts derived;   /* from config.json */
	struct span layers[HF_MAX_LAYERS], head_file, embedding;
	uint64_t stamp;
};

/* SVC_UNSUPPORTED or SVC_BAD_MODEL names a field of pack.json. */
SVC_CHECKED enum svc_code pack_layout_read(const json_t *root, struct pack_layout *ret_layout,
					   struct svc_err *err);
/* Reads pack.json and config.json, maps the files and holds all sizes and counts together. */
SVC_CHECKED enum svc_code pack_open(const char *path, struct pack **ret_pack, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct pack *pack_close(struct pack *pack);

/* ---- pack_order.c: a device reads two strips of 32 rows side by side, column by column */

/* Which tile of a matrix, in row-major order, stands at this place of the device's order. */
uint32_t pack_tile_at(const struct pack_matrix *matrix, uint32_t place);
/* And the inverse. */
uint32_t pack_place_of(const struct pack_matrix *matrix, uint32_t tile);
/* Where tile `tile` of a layer's matrix begins in the layer's file. */
uint64_t pack_offset(const struct pack *pack, uint32_t matrix, uint32_t tile);
/* Where vector v begins. */
uint64_t pack_vector_offset(const struct pack *pack, uint32_t v);
uint32_t pack_vector_bytes(const struct pack *pack, uint32_t v);

/* ---- pack_make.c, pack_check.c */

/* The plan of model.q4nx; the pack must outlive it. */
SVC_CHECKED enum svc_code pack_draft(const struct pack *pack, struct draft *ret_draft,
				     struct svc_err *err);
/* Compares the file at path with the pack, in the pack's order. */
SVC_CHECKED enum svc_code pack_check(const struct pack *pack, const char *path,
				     const struct draft_progress *progress,
				     struct pack_counts *ret_counts, struct svc_err *err);
