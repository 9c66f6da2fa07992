/* npu-worker/device/layers_private.h: shared by layers.c (buffers, streams, the pass) and
 * layers_work.c (the work area). */
#pragma once
#include "npu-worker/device/layers.h"
#include "npu-worker/device/work.h"

enum { STREAM_SETS = 8, MAX_LAYERS = MODEL_MAX_LAYERS };

/* The instruction streams of a pass: they depend on how many rows there are and how many keys the
 * longest sees, so a set serves many tokens. */
struct stream_set {
	uint32_t rows, logit_rows, key_blocks; /* rows 0: empty */
	uint64_t used;
	struct device_buffer *streams[MAX_LAYERS + 1]; /* the last is the head's */
};

struct layers {
	struct layers_options options;
	const struct manifest_layer *kernels[MAX_LAYERS];
	const struct manifest_head *head;
	struct area work, pages, logits;
	struct work_head shape; /* offsets and constants of the work area */
	uint32_t n_layers, embd, vocab, max_rows, pages_per_row;
	uint64_t parts[MAX_LAYERS][MANIFEST_PARTS], head_parts[2];
	size_t kv_bytes; /* of a layer, in a page */
	bool has_local;	 /* windowed layers have position tables of their own */
	struct stream_set sets[STREAM_SETS];
	/* What the rows of the pass at hand need in a slot, before it is compared with what is
	 * there. */
	struct work_place *places; /* [max_rows] */
	uint64_t *page_list;	   /* [max_rows * pages_per_row] */
	uint32_t n_pages;
	uint32_t slot, slot_rows[WORK_SLOTS], slot_pages[WORK_SLOTS];
	uint8_t *seen; /* [pages_bytes / page_bytes]: this process' device has had it */
	struct layers_counts counts;
};

/* Rows [first, first + count) of a pass. */
struct layers_rows {
	const struct engine_pass *pass;
	uint32_t first, count, n_logits;
};

/* ---- layers_work.c */

SVC_CHECKED enum svc_code work_open(struct layers *l, const struct plan *plan, struct svc_err *err);
/* Input, positions and pages of the rows, to the device. */
SVC_CHECKED enum svc_code work_send(struct layers *l, struct layers_rows *rows,
				    struct svc_err *err);
/* While the device computes these rows: the positions of the tokens that will follow, into the
 * other slot. */
SVC_CHECKED enum svc_code work_prepare(struct layers *l, const struct layers_rows *rows,
				       struct svc_err *err);
/* Sets the rows' bad flags. */
SVC_CHECKED enum svc_code work_fetch(struct layers *l, const struct layers_rows *rows,
				     struct svc_err *err);
