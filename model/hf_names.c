#include "model/hf_names.h"

#include <stdio.h>
#include <string.h>

enum {
	ON_LLAMA = 1 << HF_LLAMA,
	ON_GEMMA3 = 1 << HF_GEMMA3,
	ON_PHI3 = 1 << HF_PHI3,
	ON_ALL = (1 << HF_ARCH_COUNT) - 1,
	BUT_PHI3 = ON_ALL & ~ON_PHI3,
	BUT_GEMMA3 = ON_ALL & ~ON_GEMMA3
};

#define NORM(hf, gguf, per_layer, cols, archs)                                      \
	{                                                                           \
		hf, gguf, per_layer, HF_ONE, cols, false, false, false, true, archs \
	}
#define VECTOR(hf, gguf, per_layer, cols, q, k, archs)                       \
	{                                                                    \
		hf, gguf, per_layer, HF_ONE, cols, false, q, k, false, archs \
	}
#define MATRIX(hf, gguf, per_layer, rows, cols, q, k, archs)              \
	{                                                                 \
		hf, gguf, per_layer, rows, cols, true, q, k, false, archs \
	}

static const struct hf_tensor tensors[] = {
	MATRIX("model.embed_tokens.weight", "token_embd.weight", false, HF_VOCAB, HF_HIDDEN, false,
	       false, ON_ALL),
	MATRIX("lm_head.weight", "output.weight", false, HF_VOCAB, HF_HIDDEN, false, false, ON_ALL),
	NORM("model.norm.weight", "output_norm.weight", false, HF_HIDDEN, ON_ALL),
	VECTOR("rope_freqs.weight", "rope_freqs.weight", false, HF_ROPE, false, false, ON_ALL),
	VECTOR("model.rotary_emb.inv_freq", "rope_inv_freq.weight", false, HF_ROPE, false, false,
	       ON_ALL),
	VECTOR("rope.long.weight", "rope_factors_long.weight", false, HF_ROPE, false, false,
	       ON_ALL),
	VECTOR("rope.short.weight", "rope_factors_short.weight", false, HF_ROPE, false, false,
	       ON_ALL),
	NORM("input_layernorm.weight", "attn_norm.weight", true, HF_HIDDEN, ON_ALL),
	MATRIX("self_attn.q_proj.weight", "attn_q.weight", true, HF_Q, HF_HIDDEN, true, false,
	       BUT_PHI3),
	MATRIX("self_attn.k_proj.weight", "attn_k.weight", true, HF_KV, HF_HIDDEN, false, true,
	       BUT_PHI3),
	MATRIX("self_attn.v_proj.weight", "attn_v.weight", true, HF_KV, HF_HIDDEN, false, false,
	       BUT_PHI3),
	MATRIX("self_attn.qkv_proj.weight", "attn_qkv.weight", true, HF_QKV, HF_HIDDEN, false,
	       false, ON_PHI3),
	VECTOR("self_attn.q_proj.bias", "attn_q.bias", true, HF_Q, true, false, BUT_PHI3),
	VECTOR("self_attn.k_proj.bias", "attn_k.bias", true, HF_KV, false, true, BUT_PHI3),
	VECTOR("self_attn.v_proj.bias", "attn_v.bias", true, HF_KV, false, false, BUT_PHI3),
	NORM("self_attn.q_norm.weight", "attn_q_norm.weight", true, HF_HEAD, BUT_PHI3),
	NORM("self_attn.k_norm.weight", "attn_k_norm.weight", true, HF_HEAD, BUT_PHI3),
	MATRIX("self_attn.o_proj.weight", "attn_output.weight", true, HF_HIDDEN, HF_Q, false, false,
	       ON_ALL),
	VECTOR("self_attn.o_proj.bias", "attn_output.bias", true, HF_HIDDEN, false, false,
	       ON_LLAMA),
	NORM("post_attention_layernorm.weight", "ffn_norm.weight", true, HF_HIDDEN, BUT_GEMMA3),
	NORM("post_attention_layernorm.weight", "post_attention_norm.weight", true, HF_HIDDEN,
	     ON_GEMMA3),
	NORM("pre_feedforward_layernorm.weight", "ffn_norm.weight", true, HF_HIDDEN, ON_GEMMA3),
	MATRIX("mlp.gate_proj.weight", "ffn_gate.weight", true, HF_FFN, HF_HIDDEN, false, false,
	       BUT_PHI3),
	MATRIX("mlp.up_proj.weight", "ffn_up.weight", true, HF_FFN, HF_HIDDEN, false, false,
	       BUT_PHI3),
	MATRIX("mlp.gate_up_proj.weight", "ffn_up.weight", true, HF_FFN2, HF_HIDDEN, false, false,
	       ON_PHI3),
	MATRIX("mlp.down_proj.weight", "ffn_down.weight", true, HF_HIDDEN, HF_FFN, false, false,
	       ON_ALL),
	NORM("post_feedforward_layernorm.weight", "post_ffw_norm.weight", true, HF_HIDDEN,
	     ON_GEMMA3),
};

const struct hf_tensor *hf_tensors(size_t *ret_count)
{
	*ret_count = sizeof tensors / sizeof *tensors;
	return tensors;
}

void hf_name(const struct hf_tensor *tensor, uint32_t layer, char ret_name[HF_NAME_BYTES])
{
	if (tensor->per_layer)
		snprintf(ret_name, HF_NAME_BYTES, "model.layers.%u.%s", layer, tensor->hf);
	else
		snprintf(ret_name, HF_NAME_BYTES, "%s", tensor->hf);
}

void hf_gguf_name(const struct hf_tensor *tensor, uint32_t layer, char ret_name[HF_NAME_BYTES])
{
	if (tensor->per_layer)
		snprintf(ret_name, HF_NAME_BYTES, "blk.%u.%s", layer, tensor->gguf);
	else
		snprintf(ret_name, HF_NAME_BYTES, "%s", tensor->gguf);
}

/* "blk.12.rest" behind "blk.": 12 and "rest". false: not of that form, or a leading zero. */
static bool split_layer(struct span name, const char *prefix, uint32_t *ret_layer,
			struct span *ret_rest)
{
	size_t at = strlen(prefix), start = at;
	uint32_t layer = 0;
	if (name.len <= at || memcmp(name.ptr, prefix, at) != 0)
		return false;
	for (; at < name.len && at - start < 4 && name.ptr[at] >= '0' && name.ptr[at] <= '9'; at++)
		layer = layer * 10 + (uint32_t)(name.ptr[at] - '0');
	if (at == start || at >= name.len || name.ptr[at] != '.' ||
	    (name.ptr[start] == '0' && at - start > 1))
		return false;
	*ret_layer = layer;
	*ret_rest = (struct span){name.ptr + at + 1, name.len - at - 1};
	return true;
}

const struct hf_tensor *hf_find(const struct hf_config *config, struct span name, bool gguf,
				uint32_t *ret_layer)
{
	struct span rest = name;
	uint32_t layer = 0;
	bool in_layer = split_layer(name, gguf ? "blk." : "model.layers.", &layer, &rest);
	if (in_layer && layer >= config->n_layers)
		return NULL;
	for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
		const struct hf_tensor *t = &tensors[i];
		if (!(t->archs & 1u << config->arch) || t->per_layer != in_layer ||
		    !span_is(rest, gguf ? t->gguf : t->hf))
			continue;
		*ret_layer = layer;
		return t;
	}
	return NULL;
}

uint32_t hf_width(const struct hf_config *config, uint8_t width)
{
	uint32_t q = config->heads * config->head_dim, kv = config->kv_heads * config->head_dim;
	switch ((enum hf_width)width) {
	case HF_ONE:
		return 1;
	case HF_HIDDEN:
		return config->hidden;
	case HF_FFN:
		return config->ffn;
	case HF_FFN2:
		return 2 * config->ffn;
	case HF_VOCAB:
		return config->vocab;
	case HF_Q:
		return q;
	case HF_KV:
		return kv;
	case HF_QKV:
		return q + 2 * kv;
	case HF_HEAD:
		return config->head_dim;
	case HF_ROPE:
		return config->rope_dims / 2;
	}
	return 0;
}
