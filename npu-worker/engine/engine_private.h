/* npu-worker/engine/engine_private.h: the engine's inside, shared by engine.c (opening), step.c
 * (the order of things), rows.c (what happens to a row between matrix products) and attend.c. */
#pragma once
#include "npu-worker/engine/engine.h"
#include "npu-worker/engine/hooks.h"
#include "npu-worker/engine/variant.h"
#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/pool.h"

enum { LOGIT_ROWS = 32 }; /* rows that share one pass over the head */

struct engine_layer {
	const float *attn_norm, *q_bias, *k_bias, *v_bias, *q_norm,
		*k_norm; /* NULL: the model has none */
	const float *o_bias, *post_attn_norm, *ffn_norm, *post_ffn_norm;
	struct kernels_matrix qkv[3], gate_up[2], o, down;
	uint32_t n_qkv, n_gate_up; /* matrices: 1 if fused */
	const float *rope;	   /* [ctx][2][dims/2] */
	uint32_t rope_pairs, window;
};

/* Rows are the tokens of a step, sequence after sequence. */
struct engine_row {
	uint32_t seq, position;
	int32_t token;
	_Atomic bool bad; /* a NaN or an infinity was met */
};

struct engine_span {			 /* a sequence in the step */
	uint32_t row, first_item, items; /* of attention */
	uint32_t tile_tokens, tile_heads;
	uint8_t **pages; /* by index in the sequence */
};

struct engine {
	struct engine_info info;
	struct plan *plan;
	const uint8_t *region;
	const struct kernels *kernels;
	struct pool *pool;
	bool borrows_pool;
	struct engine_executor executor; /* none of its functions: the kernels */
	enum kernels_kv kv;
	struct engine_layer *layers;
	struct kernels_matrix embed, head;
	const float *output_norm;
	uint32_t q_width, kv_width, qkv_width;
	size_t k_tile_bytes, v_tile_bytes;

	uint8_t *page_base;
	size_t page_stride;
	uint32_t page_count;

	/* Scratch of one step, for max_rows rows. */
	void *scratch;
	struct engine_row *rows;
	struct engine_pass_row *pass_rows;
	struct engine_span *spans; /* [max_seqs] */
	float *x;		   /* [rows][n_embd], the residual */
	float *h;		   /* [rows][n_embd], what a norm or a product gives */
	float *qkv;		   /* [rows][qkv_width]: queries, keys, values */
	float *heads;		   /* [rows][q_width] */
	float *gate_up;		   /* [rows][2 n_ffn] */
	float *logits;		   /* [LOGIT_ROWS][n_vocab] */
	void *acts_memory;
	float *scores; /* of an item of attention, once they were asked for */
	size_t scores_room;
};

/* A step being done. */
struct step {
	struct engine *engine;
	const struct engine_batch *batch;
	uint32_t n_rows, layer;
	uint32_t n_items;		 /* of attention */
	struct kernels_acts acts;	 /* of the product to come */
	uint32_t logit_rows[LOGIT_ROWS]; /* of the pass over the head */
	uint32_t n_logit_rows;
};

static inline void step_beat(const struct step *step, uint32_t thread)
{
	const struct engine_hooks *hooks = step->batch->hooks;
	if (thread == 0 && hooks && hooks->beat)
		hooks->beat(hooks->context);
}
static inline bool step_is_probed(const struct step *step)
{
	const struct engine_hooks *hooks = step->batch->hooks;
	return hooks && (hooks->probe || hooks->seed);
}
/* Whether a probe is told attention's scores. */
static inline bool step_tells_scores(const struct step *step)
{
	const struct engine_hooks *hooks = step->batch->hooks;
	return hooks && hooks->probe && hooks->scores;
}
/* Whether the other primitive makes a checkpoint's values in this step and layer. */
static inline bool step_varies(const struct step *step, enum variant_primitive primitive,
			       enum engine_checkpoint site)
{
	const struct variant *variant = step->batch->hooks ? step->batch->hooks->variant : NULL;
	return variant && step->layer >= variant->first_layer &&
	       step->layer <= variant->last_layer && variant->sites[primitive] >> site & 1;
}

/* rows.c: work for rows [first, last). */
pool_work rows_embed, rows_enter_layer, rows_qkv, rows_heads, rows_after_attention, rows_activate,
	rows_leave_layer, rows_final_norm;
/* What happens to a row where n values of it are at a checkpoint. */
void rows_probe(const struct step *step, uint32_t row, enum engine_checkpoint checkpoint,
		float *data, uint32_t heads);

/* attend.c: the step's attention, from qkv and the pages to heads. */
SVC_CHECKED enum svc_code attend_plan(struct step *step, struct svc_err *err);
void attend_run(struct step *step);

/* Bytes of row r's tiles of one KV head in its page. */
void *attend_k_tile(const struct step *step, uint32_t row, uint32_t kv_head);
void *attend_v_tile(const struct step *step, uint32_t row, uint32_t kv_head);
