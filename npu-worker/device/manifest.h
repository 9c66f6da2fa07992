/* npu-worker/device/manifest.h: a folder of NPU kernels: manifest.json, a program (xclbin), and for
 * every product it can do the instruction stream of one token.
 *
 *   {"format": 1, "family": "a16-v1", "program": "p.xclbin", "xxh3": "16 hex digits", "kernel":
 * "NAME", "max_tokens": 64, "products": [{"type": "Q4_1", "rows": 576, "cols": 576, "words": [...],
 *                  "linear": [{"word": 5, "step": 1}], "block": [{"word": 9, "tokens": 16, "step":
 * 1}], "weights": 6, "output": 11}]}
 *
 * The stream for n tokens is the one for 1 token with the rules applied: a linear word grows by
 * step for each further token, a block word by step for each further `tokens` of them. Then the
 * offset of the weights in their buffer (bytes, 64 bits in two words) and that of the output (32
 * bits) are put at their places.
 *
 * A manifest may have whole layers, and the head behind them, instead of products; a run each:
 *
 *  "layers": [{"embd": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "head_dim": 64, "interleaved":
 * true, "types": [q, k, v, o, gate, up, down], "words": [...], "linear": [...], "block": [...],
 * "keys": [{"word": 16, "keys": 64, "step": 1}], "parts": [9 words], "kv": 17}], "head": {"type":
 * "Q8_0", "rows": 49152, "cols": 576, "words": [...], ..., "parts": [2 words]}
 *
 * A word of "keys" grows by step for each further `keys` of them, the new token's own included. The
 * parts are the places of attention norm, q, k, v, o, ffn norm, gate, up, down (of the last norm
 * and the head) in the weights, 64 bits in two words; kv is the layer's place in a KV page. What a
 * layer has beyond the llama family's stands in "with", and its parts follow in this order:
 *
 *  "with": ["qkv_bias" (3 parts), "o_bias" (1), "head_norms" (2: q, k), "post_norms" (2: attention,
 *           ffn), "gelu" (instead of silu)], "window": 512 (keys that it sees; without: all) */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "npu-worker/kernels/kernels.h"

enum {
	MANIFEST_MAX_WORDS = 256,
	MANIFEST_MAX_RULES = 16,
	MANIFEST_MAX_PRODUCTS = 256,
	MANIFEST_MAX_LAYERS = 64
};

struct manifest_rule {
	uint32_t word, every, step; /* every 1: linear */
	bool keys;		    /* counts keys, not tokens */
};

/* An instruction stream for one token and one key, and how others come from it. */
struct manifest_stream {
	uint32_t n_words, n_rules;
	uint32_t words[MANIFEST_MAX_WORDS];
	struct manifest_rule rules[MANIFEST_MAX_RULES];
};

struct manifest_product {
	uint32_t type, rows, cols;
	uint32_t weights, output; /* words */
	struct manifest_stream stream;
};

enum manifest_part {
	MANIFEST_ATTN_NORM,
	MANIFEST_Q,
	MANIFEST_K,
	MANIFEST_V,
	MANIFEST_O,
	MANIFEST_FFN_NORM,
	MANIFEST_GATE,
	MANIFEST_UP,
	MANIFEST_DOWN,
	MANIFEST_Q_BIAS, /* these where the layer has them */
	MANIFEST_K_BIAS,
	MANIFEST_V_BIAS,
	MANIFEST_O_BIAS,
	MANIFEST_Q_NORM,
	MANIFEST_K_NORM,
	MANIFEST_POST_ATTN_NORM,
	MANIFEST_POST_FFN_NORM,
	MANIFEST_PARTS
};

enum manifest_feature {
	MANIFEST_WITH_QKV_BIAS = 1,
	MANIFEST_WITH_O_BIAS = 2,
	MANIFEST_WITH_HEAD_NORMS = 4,
	MANIFEST_WITH_POST_NORMS = 8,
	MANIFEST_WITH_GELU = 16,
	MANIFEST_WITH_SOFTCAP = 32
};

/* What a whole layer's kernel is made for. */
struct manifest_shape {
	uint32_t embd, ffn, heads, kv_heads, head_dim, interleaved;
	uint32_t features; /* enum manifest_feature */
	uint32_t window;   /* 0: none */
	uint32_t types[7]; /* q k v o gate up down */
};

bool manifest_has_part(const struct manifest_shape *shape, enum manifest_part part);
/* "576 wide, ffn 1536, ... with qkv_bias": types left out; cut to size. */
void manifest_describe(const struct manifest_shape *shape, char *text, size_t size);

struct manifest_layer {
	struct manifest_shape shape;
	uint32_t parts[MANIFEST_PARTS]; /* words; each of two; of those it has */
	uint32_t kv;			/* word */
	struct manifest_stream stream;
};

struct manifest_head {
	uint32_t type, rows, cols;
	uint32_t parts[2]; /* norm, matrix */
	struct manifest_stream stream;
};

struct manifest {
	char program[4096], kernel[64], family[16];
	uint32_t max_tokens, n_products, n_layers;
	struct manifest_product *products;
	struct manifest_layer *layers;
	struct manifest_head *head; /* NULL: none */
};

/* Reads folder/manifest.json and checks the program against its hash. SVC_NO_DEVICE names the file
 * and field. */
SVC_CHECKED enum svc_code manifest_open(const char *folder, struct manifest **ret_manifest,
					struct svc_err *err);
/* The fields alone, without a look at the program. */
SVC_CHECKED enum svc_code manifest_read(const json_t *root, const char *folder,
					struct manifest **ret_manifest, struct svc_err *err);
struct manifest *manifest_close(struct manifest *manifest);

/* NULL: there is no such product. */
const struct manifest_product *manifest_find(const struct manifest *manifest,
					     const struct kernels_matrix *matrix);
/* "Q4_1 576x576, ..., layers of ...": what there is, cut to size. */
void manifest_list(const struct manifest *manifest, char *text, size_t size);
/* ret_words: [stream->n_words]. */
void manifest_derive(const struct manifest_stream *stream, uint32_t tokens, uint32_t keys,
		     uint32_t *ret_words);
/* A product's, with its two places. */
void manifest_product_words(const struct manifest_product *product, uint32_t tokens,
			    uint64_t weights_offset, uint32_t output_offset, uint32_t *ret_words);
/* 64 bits into two words. */
void manifest_put(uint32_t *words, uint32_t at, uint64_t value);

/* NULL: there is none of this shape. */
const struct manifest_layer *manifest_find_layer(const struct manifest *manifest,
						 const struct manifest_shape *shape);
