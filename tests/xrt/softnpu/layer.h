/* tests/xrt/softnpu/layer.h: whole layers and the head on the software NPU, in the arithmetic
 * of product.h; separate scalar code for everything between the products. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LAYER_WORDS = 55, HEAD_WORDS = 11 };
enum { ROUND_A16, ROUND_B16 }; /* activations: the families a16-v1, b16-v1 */
enum { OPERATION_PRODUCT = 1, OPERATION_LAYER, OPERATION_HEAD };
enum { ATTN_NORM, Q, K, V, O, FFN_NORM, GATE, UP, DOWN, LAYER_PARTS };
/* What a layer may have beyond the llama family's, with the parts that this needs. */
enum {
	WITH_QKV_BIAS = 1,
	WITH_O_BIAS = 2,
	WITH_HEAD_NORMS = 4,
	WITH_POST_NORMS = 8,
	WITH_GELU = 16,
	WITH_SOFTCAP = 32
};
enum { Q_BIAS, K_BIAS, V_BIAS, O_BIAS, Q_NORM, K_NORM, POST_ATTN_NORM, POST_FFN_NORM, MORE_PARTS };

/* A layer's instruction stream. Places are bytes in the weights: low word, high word. */
struct layer_words {
	uint32_t magic, operation, embd, ffn, heads, kv_heads, head_dim, interleaved;
	uint32_t types[7]; /* q k v o gate up down */
	uint32_t rows, key_blocks;
	uint32_t kv; /* of the layer, in a page */
	uint32_t parts[LAYER_PARTS][2];
	uint32_t rounding, with;
	uint32_t window; /* keys that it sees; 0: all */
	uint32_t more[MORE_PARTS][2];
};

struct head_words {
	uint32_t magic, operation, type, embd, vocab, rows;
	uint32_t norm[2], matrix[2];
	uint32_t rounding;
};

/* What a run may touch. */
struct layer_memory {
	const uint8_t *weights;
	uint8_t *work, *third; /* KV pages, or logits */
	uint64_t weight_bytes, work_bytes, third_bytes;
};

/* false: the stream or the work area is nonsense, or leaves its buffers. */
bool layer_run(const struct layer_words *w, const struct layer_memory *m);
bool head_run(const struct head_words *w, const struct layer_memory *m);
