/* model/hf_names.h: a tensor's name in GGUF and in Hugging Face's checkpoints (and Q4NX files). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "model/hf_config.h"

enum hf_width {
	HF_ONE,
	HF_HIDDEN,
	HF_FFN,
	HF_FFN2,
	HF_VOCAB,
	HF_Q,
	HF_KV,
	HF_QKV,
	HF_HEAD,
	HF_ROPE
};

/* What a tensor is, apart from its layer. */
struct hf_tensor {
	const char *hf, *gguf; /* behind "model.layers.N." and "blk.N.", or the whole name */
	bool per_layer;
	uint8_t rows, cols; /* enum hf_width */
	bool is_matrix;
	bool pairs_q, pairs_k; /* llama files have these rows in the order of interleaved rope */
	bool is_norm;	       /* gemma3's GGUF files hold 1 + w */
	uint8_t archs;	       /* bit 1 << enum hf_arch */
};

enum { HF_NAME_BYTES = 96 };

/* All there are, in the order in which a GGUF file gets them. */
const struct hf_tensor *hf_tensors(size_t *ret_count);
void hf_name(const struct hf_tensor *tensor, uint32_t layer, char ret_name[HF_NAME_BYTES]);
void hf_gguf_name(const struct hf_tensor *tensor, uint32_t layer, char ret_name[HF_NAME_BYTES]);
/* The tensor of a GGUF or Hugging Face name, or NULL. */
const struct hf_tensor *hf_find(const struct hf_config *config, struct span name, bool gguf,
				uint32_t *ret_layer);
uint32_t hf_width(const struct hf_config *config, uint8_t width);
