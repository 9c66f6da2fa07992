/* model/hf_config.h: what a Hugging Face config.json (and generation_config.json) says about a
 * model, and the same said by GGUF's keys. One plain struct stands between the two, so that each
 * can be made from the other and the two can be compared. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/gguf.h"
#include "model/gguf_write.h"

enum hf_arch { HF_LLAMA, HF_QWEN2, HF_QWEN3, HF_GEMMA3, HF_PHI3, HF_ARCH_COUNT };

enum { HF_MAX_LAYERS = 256, HF_MAX_ENDS = 16, HF_MAX_PAIRS = 256 };

struct hf_rope {
	char type[16]; /* default, linear, llama3, dynamic, yarn, longrope */
	double theta;
	double factor, low_freq_factor, high_freq_factor, original_ctx; /* 0: not stated */
	double beta_fast, beta_slow, attention_factor;
	uint32_t n_factors; /* longrope's lists */
	float long_factor[HF_MAX_PAIRS], short_factor[HF_MAX_PAIRS];
};

struct hf_config {
	enum hf_arch arch;
	uint32_t n_layers, hidden, ffn, vocab, heads, kv_heads, head_dim, ctx, rope_dims;
	uint32_t window; /* 0: none */
	uint8_t windowed[HF_MAX_LAYERS];
	double norm_eps, attn_scale; /* attn_scale 0: 1/sqrt(head_dim) */
	double attn_softcap, final_softcap;
	double theta_local; /* gemma3's windowed layers; 0: none */
	struct hf_rope rope;
	bool tied;
	int64_t bos; /* -1: none */
	int64_t ends[HF_MAX_ENDS];
	uint32_t n_ends;
};

/* "llama", ...: GGUF's name. */
const char *hf_arch_name(enum hf_arch arch);

/* Reads config.json. SVC_UNSUPPORTED names a field that isn't known, or whose value changes the
 * mathematics in a way that isn't implemented (scales, soft-caps, rope types, activations):
 * nothing is dropped silently. SVC_BAD_MODEL names one that is missing or out of range. */
SVC_CHECKED enum svc_code hf_config_read(const json_t *root, struct hf_config *ret_config,
					 struct svc_err *err);
/* eos_token_id (an id or a list) of either file, added to config->ends without repeats. */
SVC_CHECKED enum svc_code hf_config_read_ends(const json_t *root, struct hf_config *config,
					      struct svc_err *err);

/* The same from a GGUF file's keys; its vocabulary counts as tied if it has no output.weight. */
SVC_CHECKED enum svc_code hf_config_from_gguf(const struct gguf *gguf, struct hf_config *ret_config,
					      struct svc_err *err);
/* Appends general.architecture, general.name and the architecture's keys. */
void hf_config_to_gguf(const struct hf_config *config, const char *name, struct gguf_writer *out);
/* Appends config.json's text; q4nx: with the mark of this program's own Q4NX files. */
void hf_config_to_json(const struct hf_config *config, bool q4nx, struct buf *out);

/* SVC_BAD_MODEL names the first number that the two state differently. */
SVC_CHECKED enum svc_code hf_config_compare(const struct hf_config *a, const struct hf_config *b,
					    struct svc_err *err);
