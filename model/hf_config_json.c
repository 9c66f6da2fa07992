/* struct hf_config to config.json, and two of them beside each other. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/hf_config.h"

static const char *const model_types[HF_ARCH_COUNT] = {"llama", "qwen2", "qwen3", "gemma3_text",
						       "phi3"};
static const char *const classes[HF_ARCH_COUNT] = {"LlamaForCausalLM", "Qwen2ForCausalLM",
						   "Qwen3ForCausalLM", "Gemma3ForCausalLM",
						   "Phi3ForCausalLM"};

static void put_real(struct buf *out, const char *name, double value)
{
	if (value != 0.0)
		buf_print(out, ",\n  \"%s\": %.9g", name, value);
}

static void put_factors(struct buf *out, const char *name, const float *values, uint32_t n)
{
	buf_print(out, ", \"%s\": [", name);
	for (uint32_t i = 0; i < n; i++)
		buf_print(out, "%s%.9g", i ? ", " : "", (double)values[i]);
	buf_print(out, "]");
}

static void put_in_rope(struct buf *out, const char *name, double value)
{
	if (value > 0.0)
		buf_print(out, ", \"%s\": %.9g", name, value);
}

static void put_rope(struct buf *out, const struct hf_config *c)
{
	const struct hf_rope *rope = &c->rope;
	put_real(out, "rope_theta", rope->theta);
	put_real(out, "rope_local_base_freq", c->theta_local);
	if (strcmp(rope->type, "default") == 0)
		return;
	buf_print(out, ",\n  \"rope_scaling\": {\"rope_type\": \"%s\"", rope->type);
	put_in_rope(out, "factor", rope->factor);
	put_in_rope(out, "low_freq_factor", rope->low_freq_factor);
	put_in_rope(out, "high_freq_factor", rope->high_freq_factor);
	put_in_rope(out, "original_max_position_embeddings", rope->original_ctx);
	put_in_rope(out, "beta_fast", rope->beta_fast);
	put_in_rope(out, "beta_slow", rope->beta_slow);
	put_in_rope(out, "attention_factor", rope->attention_factor);
	if (rope->n_factors) {
		put_factors(out, "long_factor", rope->long_factor, rope->n_factors);
		put_factors(out, "short_factor", rope->short_factor, rope->n_factors);
	}
	buf_print(out, "}");
}

static void put_windows(struct buf *out, const struct hf_config *c)
{
	if (!c->window)
		return;
	buf_print(out, ",\n  \"sliding_window\": %u,\n  \"layer_types\": [", c->window);
	for (uint32_t i = 0; i < c->n_layers; i++)
		buf_print(out, "%s\"%s\"", i ? ", " : "",
			  c->windowed[i] ? "sliding_attention" : "full_attention");
	buf_print(out, "]");
}

static void put_ids(struct buf *out, const struct hf_config *c)
{
	if (c->bos >= 0)
		buf_print(out, ",\n  \"bos_token_id\": %" PRId64, c->bos);
	if (!c->n_ends)
		return;
	buf_print(out, ",\n  \"eos_token_id\": [");
	for (uint32_t i = 0; i < c->n_ends; i++)
		buf_print(out, "%s%" PRId64, i ? ", " : "", c->ends[i]);
	buf_print(out, "]");
}

void hf_config_to_json(const struct hf_config *config, bool q4nx, struct buf *out)
{
	const struct hf_config *c = config;
	bool gemma = c->arch == HF_GEMMA3;
	buf_print(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"",
		  classes[c->arch], model_types[c->arch]);
	buf_print(out, ",\n  \"hidden_size\": %u,\n  \"intermediate_size\": %u", c->hidden, c->ffn);
	buf_print(out, ",\n  \"num_hidden_layers\": %u,\n  \"num_attention_heads\": %u",
		  c->n_layers, c->heads);
	buf_print(out, ",\n  \"num_key_value_heads\": %u,\n  \"head_dim\": %u", c->kv_heads,
		  c->head_dim);
	buf_print(out, ",\n  \"vocab_size\": %u,\n  \"max_position_embeddings\": %u", c->vocab,
		  c->ctx);
	put_real(out, "rms_norm_eps", c->norm_eps);
	buf_print(out, ",\n  \"%s\": \"%s\"", gemma ? "hidden_activation" : "hidden_act",
		  gemma ? "gelu_pytorch_tanh" : "silu");
	buf_print(out, ",\n  \"tie_word_embeddings\": %s", c->tied ? "true" : "false");
	if (c->rope_dims != c->head_dim)
		put_real(out, "partial_rotary_factor", (double)c->rope_dims / c->head_dim);
	put_rope(out, c);
	put_windows(out, c);
	if (c->attn_scale > 0.0)
		put_real(out, "query_pre_attn_scalar", 1.0 / (c->attn_scale * c->attn_scale));
	put_real(out, "attn_logit_softcapping", c->attn_softcap);
	put_real(out, "final_logit_softcapping", c->final_softcap);
	put_ids(out, c);
	if (q4nx)
		buf_print(out,
			  ",\n  \"lockstep_q4nx\": {\"version\": 1, \"q8\": \"a\", \"scales\": "
			  "\"group\", \"k_padding\": \"zero groups to a multiple of 256\"}");
	buf_print(out, "\n}\n");
}

static bool differs(double a, double b)
{
	return fabs(a - b) > 1e-6 * fmax(fabs(a), fabs(b)); /* one was a float32 */
}

enum svc_code hf_config_compare(const struct hf_config *a, const struct hf_config *b,
				struct svc_err *err)
{
	const struct {
		const char *name;
		double a, b;
	} numbers[] = {
		{"model_type", a->arch, b->arch},
		{"num_hidden_layers", a->n_layers, b->n_layers},
		{"hidden_size", a->hidden, b->hidden},
		{"intermediate_size", a->ffn, b->ffn},
		{"vocab_size", a->vocab, b->vocab},
		{"num_attention_heads", a->heads, b->heads},
		{"num_key_value_heads", a->kv_heads, b->kv_heads},
		{"head_dim", a->head_dim, b->head_dim},
		{"max_position_embeddings", a->ctx, b->ctx},
		{"partial_rotary_factor", a->rope_dims, b->rope_dims},
		{"rms_norm_eps", a->norm_eps, b->norm_eps},
		{"query_pre_attn_scalar", a->attn_scale, b->attn_scale},
		{"attn_logit_softcapping", a->attn_softcap, b->attn_softcap},
		{"final_logit_softcapping", a->final_softcap, b->final_softcap},
		{"sliding_window", a->window, b->window},
		{"layer_types", memcmp(a->windowed, b->windowed, sizeof a->windowed) != 0, 0},
		{"rope_theta", a->rope.theta, b->rope.theta},
		{"rope_local_base_freq", a->theta_local, b->theta_local},
		{"rope_scaling.rope_type", strcmp(a->rope.type, b->rope.type) != 0, 0},
		{"rope_scaling.factor", a->rope.factor, b->rope.factor},
		{"rope_scaling.low_freq_factor", a->rope.low_freq_factor, b->rope.low_freq_factor},
		{"rope_scaling.high_freq_factor", a->rope.high_freq_factor,
		 b->rope.high_freq_factor},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (differs(numbers[i].a, numbers[i].b))
			return svc_fail(err, SVC_BAD_MODEL, "config.json",
					"%s is stated differently by config.json (%g) and "
					"metadata.gguf (%g)",
					numbers[i].name, numbers[i].a, numbers[i].b);
	return SVC_OK;
}
