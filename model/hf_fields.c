#include "model/hf_fields.h"

#include <stdint.h>
#include <string.h>

enum use {
	READ, /* hf_config.c reads it */
	NOTE, /* says nothing about the mathematics of inference */
	OFF   /* allowed only at the value that means "off" */
};

struct rule {
	const char *name;
	enum use use;
	double off;
};

static const struct rule model_rules[] = {
	{"model_type", READ, 0},
	{"hidden_size", READ, 0},
	{"intermediate_size", READ, 0},
	{"num_hidden_layers", READ, 0},
	{"num_attention_heads", READ, 0},
	{"num_key_value_heads", READ, 0},
	{"head_dim", READ, 0},
	{"vocab_size", READ, 0},
	{"max_position_embeddings", READ, 0},
	{"rms_norm_eps", READ, 0},
	{"rope_theta", READ, 0},
	{"rope_local_base_freq", READ, 0},
	{"rope_scaling", READ, 0},
	{"rope_parameters", READ, 0},
	{"original_max_position_embeddings", READ, 0},
	{"partial_rotary_factor", READ, 0},
	{"tie_word_embeddings", READ, 0},
	{"hidden_act", READ, 0},
	{"hidden_activation", READ, 0},
	{"sliding_window", READ, 0},
	{"sliding_window_pattern", READ, 0},
	{"use_sliding_window", READ, 0},
	{"layer_types", READ, 0},
	{"query_pre_attn_scalar", READ, 0},
	{"attn_logit_softcapping", READ, 0},
	{"final_logit_softcapping", READ, 0},
	{"eos_token_id", READ, 0},
	{"bos_token_id", READ, 0},
	{"lockstep_q4nx", READ, 0},
	/* Biases are taken from the tensors that are there. */
	{"attention_bias", NOTE, 0},
	{"architectures", NOTE, 0},
	{"pad_token_id", NOTE, 0},
	{"add_bos_token", NOTE, 0},
	{"torch_dtype", NOTE, 0},
	{"dtype", NOTE, 0},
	{"transformers_version", NOTE, 0},
	{"use_cache", NOTE, 0},
	{"cache_implementation", NOTE, 0},
	{"initializer_range", NOTE, 0},
	{"attention_dropout", NOTE, 0},
	{"resid_pdrop", NOTE, 0},
	{"embd_pdrop", NOTE, 0},
	{"max_window_layers", NOTE, 0},
	{"pretraining_tp", NOTE, 0},
	{"auto_map", NOTE, 0},
	{"attn_implementation", NOTE, 0},
	{"return_dict", NOTE, 0},
	{"output_attentions", NOTE, 0},
	{"output_hidden_states", NOTE, 0},
	{"unsloth_fixed", NOTE, 0},
	{"unsloth_version", NOTE, 0},
	{"transformers.js_config", NOTE, 0},
	{"use_bidirectional_attention", OFF, 0},
	/* Q4NX folders of other tools */
	{"flm_version", NOTE, 0},
	{"algo_config", NOTE, 0},
	{"addr_qk", NOTE, 0},
	{"addr_kv", NOTE, 0},
	{"addr_kk", NOTE, 0},
	{"addr_l_begin_mha", NOTE, 0},
	{"addr_l_end_mha", NOTE, 0},
	{"mlp_bias", OFF, 0},
	{"rope_interleaved", OFF, 0},
	{"is_llama_config", NOTE, 0},
	{"embedding_multiplier", OFF, 1},
	{"residual_multiplier", OFF, 1},
	{"attention_multiplier", OFF, 1},
	{"logits_scaling", OFF, 1},
	{"embedding_scale", OFF, 1},
	{"residual_scale", OFF, 1},
	{"logit_scale", OFF, 1},
	{"num_experts", OFF, 0},
	{"num_local_experts", OFF, 0},
	{0},
};

static const struct rule rope_rules[] = {
	{"rope_type", READ, 0},
	{"type", READ, 0},
	{"rope_theta", READ, 0},
	{"factor", READ, 0},
	{"low_freq_factor", READ, 0},
	{"high_freq_factor", READ, 0},
	{"original_max_position_embeddings", READ, 0},
	{"beta_fast", READ, 0},
	{"beta_slow", READ, 0},
	{"attention_factor", READ, 0},
	{"long_factor", READ, 0},
	{"short_factor", READ, 0},
	{"partial_rotary_factor", OFF, 1},
	{0},
};

static const struct rule *find(const struct rule *rules, const char *name)
{
	for (; rules->name; rules++)
		if (strcmp(rules->name, name) == 0)
			return rules;
	return NULL;
}

static bool is_off(const json_t *value, double off)
{
	if (json_is_boolean(value))
		return off == (json_is_true(value) ? 1.0 : 0.0);
	return json_is_number(value) && json_number_value(value) == off;
}

enum svc_code hf_fields_check(const json_t *object, enum hf_fields which, const char *prefix,
			      struct svc_err *err)
{
	const char *key;
	json_t *value;
	/* jansson's iterator takes no const. */
	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		const struct rule *rule =
			find(which == HF_FIELDS_ROPE ? rope_rules : model_rules, key);
		if (json_is_null(value) || key[0] == '_' || (rule && rule->use != OFF))
			continue;
		if (!rule)
			return svc_fail(err, SVC_UNSUPPORTED, "config.json",
					"field %s%.60s isn't known and may change the model's "
					"mathematics; remove it if it doesn't",
					prefix, key);
		if (!is_off(value, rule->off))
			return svc_fail(err, SVC_UNSUPPORTED, "config.json",
					"field %s%s is supported only at the value %g", prefix, key,
					rule->off);
	}
	return SVC_OK;
}
