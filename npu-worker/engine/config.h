/* npu-worker/engine/config.h: what a model file says about its own mathematics, checked and brought
 * into one form. A plain struct without pointers: it is stored in the packed region, so that a
 * worker that attaches to one needs no model file. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h"
#include "npu-worker/engine/rope.h"

enum model_arch {
	MODEL_LLAMA,
	MODEL_QWEN2,
	MODEL_QWEN3,
	MODEL_GEMMA3,
	MODEL_PHI3,
	MODEL_ARCH_COUNT
};

enum {
	MODEL_MAX_LAYERS = 256,
	MODEL_MAX_WIDTH = 1 << 20, /* embd, ffn, heads * head_dim */
	MODEL_MAX_VOCAB = 1 << 22,
	MODEL_MAX_CTX = 1 << 22,
};

struct model_config {
	uint32_t arch; /* enum model_arch */
	uint32_t n_layers, n_embd, n_ffn, n_vocab;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t trained_ctx;
	uint32_t window; /* keys a windowed layer sees, its own included; 0: no layer is windowed */
	float norm_eps;
	float embed_scale; /* 1: none */
	float attn_scale;
	float attn_softcap;  /* 0: none */
	float final_softcap; /* 0: none */
	uint8_t interleaved; /* rope pairs (2i, 2i+1), as llama files have their rows; else (i, i +
				dims/2) */
	uint8_t gelu;	     /* gated tanh-gelu instead of silu */
	uint8_t pad[2];
	struct rope_config rope;       /* of the layers that see everything */
	struct rope_config rope_local; /* of windowed layers */
	uint8_t windowed[MODEL_MAX_LAYERS];
};

const char *model_arch_name(uint32_t arch);

static inline uint32_t model_q_width(const struct model_config *c)
{
	return c->n_heads * c->head_dim;
}
static inline uint32_t model_kv_width(const struct model_config *c)
{
	return c->n_kv_heads * c->head_dim;
}

/* Reads and checks the metadata of one of the architectures above. Refuses, by name: another
 * architecture, a missing or unusable value, a rope type that isn't known, and any key under the
 * architecture's prefix that this engine doesn't know, since it may change the mathematics. */
SVC_CHECKED enum svc_code model_config_read(const struct gguf *gguf,
					    struct model_config *ret_config, struct svc_err *err);
