/* npu-worker/engine/hooks.h: what a step tells while it runs: to its caller between pieces of work,
 * to the instruments at every checkpoint. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Checkpoints of one position, in execution order (docs/verification.md). */
enum engine_checkpoint {
	ENGINE_EMBED,
	ENGINE_ATTN_NORM,
	ENGINE_Q_PROJ,
	ENGINE_K_PROJ,
	ENGINE_V_PROJ,
	ENGINE_Q_NORM,
	ENGINE_K_NORM,
	ENGINE_Q_ROPE,
	ENGINE_K_ROPE,
	ENGINE_KV_WRITE,
	ENGINE_SCORES, /* only if they are asked for */
	ENGINE_HEADS,
	ENGINE_O_PROJ,
	ENGINE_POST_ATTN_NORM,
	ENGINE_AFTER_ATTN,
	ENGINE_FFN_NORM,
	ENGINE_GATE,
	ENGINE_UP,
	ENGINE_ACT,
	ENGINE_DOWN,
	ENGINE_POST_FFN_NORM,
	ENGINE_AFTER_FFN,
	ENGINE_FINAL_NORM,
	ENGINE_LOGITS,
	ENGINE_CHECKPOINT_COUNT
};
const char *engine_checkpoint_name(enum engine_checkpoint checkpoint);

/* What one checkpoint holds for one position of one sequence. data is valid during the call only.
 */
struct engine_record {
	enum engine_checkpoint checkpoint;
	uint32_t layer;
	uint32_t seq; /* index in the step */
	uint32_t position;
	/* ENGINE_KV_WRITE: 2 * KV head + (0 key, 1 value); ENGINE_SCORES: the query head, whose
	 * visible keys are the columns, oldest first; else 0 */
	uint32_t part;
	uint32_t rows, cols; /* heads and head_dim, or 1 and the width */
	bool is_f16;	     /* else float32 */
	const void *data;
};

struct variant;
/* Probe, variant and seed: not with an executor of layers. */
struct engine_hooks {
	void *context;
	/* Called from the caller's thread between pieces of work, many times a second. NULL is
	 * fine. */
	void (*beat)(void *context);
	/* Called from the caller's thread between layers; false: the step is abandoned, and
	 * engine_step says SVC_CANCELLED. What it wrote to KV pages is worth nothing, no logits
	 * were written. NULL is fine. */
	bool (*goes_on)(void *context);
	/* NULL in ordinary service. The operations between matrix products then run in the caller's
	 * thread alone, so that records come one at a time; their bits are the same. */
	void (*probe)(void *context, const struct engine_record *record);
	/* probe is told attention's scores, too, as they go into the softmax. Attention then runs
	 * in the caller's thread alone as well. */
	bool scores;
	/* For the instruments; NULL in service. Other arithmetic at chosen sites (variant.h), with
	 * the f32 family alone. And a fault on purpose: called before probe, it may change data,
	 * the record's values, which are then what the step goes on with. Not for kv_write, which
	 * is rounded and in its page, for scores, which were used, and for logits, which are handed
	 * out. */
	const struct variant *variant;
	void (*seed)(void *context, const struct engine_record *record, float *data);
	void *seed_context;
};
