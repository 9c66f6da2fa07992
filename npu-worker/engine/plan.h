/* npu-worker/engine/plan.h: which tensors a model of a given configuration has, their shapes, and
 * where each lies in the packed region. Built from a model file before packing and from a region's
 * own header when attaching. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"
#include "npu-worker/engine/config.h"

enum part_role {
	PART_EMBED, /* token_embd.weight: rows to look up, and the head if there is no output.weight
		     */
	PART_OUTPUT,
	PART_OUTPUT_NORM,
	PART_ROPE,	 /* position tables, [ctx][2][pairs] */
	PART_ROPE_LOCAL, /* of windowed layers, where they have their own */
	PART_ATTN_NORM,	 /* per layer from here on */
	PART_Q,
	PART_K,
	PART_V,
	PART_QKV, /* the three in one, rows in this order */
	PART_Q_BIAS,
	PART_K_BIAS,
	PART_V_BIAS,
	PART_Q_NORM,
	PART_K_NORM,
	PART_O,
	PART_O_BIAS,
	PART_POST_ATTN_NORM,
	PART_FFN_NORM,
	PART_GATE,
	PART_UP,
	PART_GATE_UP, /* the two in one, gate first */
	PART_DOWN,
	PART_POST_FFN_NORM,
	PART_ROLE_COUNT
};

struct plan_part {
	uint32_t role;	/* enum part_role */
	uint32_t layer; /* 0 for the ones without */
	uint32_t type;	/* of the file's tensor; a matrix keeps it, anything else becomes
			   GGUF_TENSOR_F32 */
	uint32_t rows, cols;
	uint32_t is_matrix;	     /* packed by kernels_pack; else float32 [rows][cols] */
	uint64_t offset, size_bytes; /* in the region; offset a multiple of 64 */
};

enum { PLAN_MAX_PARTS = PART_ROLE_COUNT * MODEL_MAX_LAYERS };

struct plan {
	struct model_config config;
	uint32_t ctx; /* positions the tables cover */
	uint32_t n_parts;
	struct plan_part *parts; /* [n_parts], in region order */
	uint64_t total_bytes;	 /* of the region, header and directory included */
};

/* Reads and checks a model: every tensor it must have is there with the shape its configuration
 * implies and a type with kernels; a tensor that no part uses is refused by name. ctx: 1 .. the
 * trained context. */
SVC_CHECKED enum svc_code plan_open(const struct gguf *gguf, uint32_t ctx, struct plan **ret_plan,
				    struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct plan *plan_close(struct plan *plan);

/* For a directory that was read rather than made: every role, shape, type and size is what the
 * configuration implies. SVC_CORRUPT names the part. */
SVC_CHECKED enum svc_code plan_check(const struct plan *plan, struct svc_err *err);

/* "blk.3.attn_q.weight": the file's tensor of a part, "" for the tables; text[64]. */
void plan_tensor_name(const struct plan_part *part, char text[64]);
const struct plan_part *plan_find(const struct plan *plan, enum part_role role, uint32_t layer);
