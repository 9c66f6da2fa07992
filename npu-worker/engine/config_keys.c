#include "npu-worker/engine/config_keys.h"

#include <stdio.h>
#include <string.h>

enum key_use {
	/* config.c reads it as */
	KEY_INTEGER,
	KEY_NUMBER,
	KEY_TEXT,
	KEY_INTEGER_OR_ARRAY,
	/* says nothing about the mathematics of this file */
	KEY_NOTE,
	/* allowed only at the value that means "off" */
	KEY_OFF
};

static const struct key_rule {
	const char *suffix;
	enum key_use use;
	double off;
} rules[] = {
	{"vocab_size", KEY_INTEGER, 0},
	{"context_length", KEY_INTEGER, 0},
	{"embedding_length", KEY_INTEGER, 0},
	{"block_count", KEY_INTEGER, 0},
	{"feed_forward_length", KEY_INTEGER, 0},
	{"attention.head_count", KEY_INTEGER, 0},
	{"attention.head_count_kv", KEY_INTEGER, 0},
	{"attention.key_length", KEY_INTEGER, 0},
	{"attention.value_length", KEY_INTEGER, 0},
	{"attention.sliding_window", KEY_INTEGER, 0},
	{"rope.dimension_count", KEY_INTEGER, 0},
	{"rope.scaling.original_context_length", KEY_INTEGER, 0},
	{"attention.sliding_window_pattern", KEY_INTEGER_OR_ARRAY, 0},
	{"attention.layer_norm_rms_epsilon", KEY_NUMBER, 0},
	{"attention.scale", KEY_NUMBER, 0},
	{"attn_logit_softcapping", KEY_NUMBER, 0},
	{"final_logit_softcapping", KEY_NUMBER, 0},
	{"embedding_scale", KEY_NUMBER, 0},
	{"rope.freq_base", KEY_NUMBER, 0},
	{"rope.freq_base_swa", KEY_NUMBER, 0},
	{"rope.scale_linear", KEY_NUMBER, 0},
	{"rope.scaling.factor", KEY_NUMBER, 0},
	{"rope.scaling.attn_factor", KEY_NUMBER, 0},
	{"rope.scaling.low_freq_factor", KEY_NUMBER, 0},
	{"rope.scaling.high_freq_factor", KEY_NUMBER, 0},
	{"rope.scaling.yarn_attn_factor", KEY_NUMBER, 0},
	{"rope.scaling.yarn_beta_fast", KEY_NUMBER, 0},
	{"rope.scaling.yarn_beta_slow", KEY_NUMBER, 0},
	{"rope.scaling.type", KEY_TEXT, 0},
	{"rope.scaling.finetuned", KEY_NOTE, 0},
	{"tensor_data_layout", KEY_NOTE, 0},
	{"rope.scaling.yarn_ext_factor", KEY_OFF, 1},
	{"rope.scaling.yarn_log_multiplier", KEY_OFF, 0},
	{"attention.causal", KEY_OFF, 1},
	{"attention.max_alibi_bias", KEY_OFF, 0},
	{"attention.clamp_kqv", KEY_OFF, 0},
	{"use_parallel_residual", KEY_OFF, 0},
	{"expert_count", KEY_OFF, 0},
	{"expert_used_count", KEY_OFF, 0},
	{"expert_shared_count", KEY_OFF, 0},
	{"nextn_predict_layers", KEY_OFF, 0},
	{"pooling_type", KEY_OFF, 0},
	{"logit_scale", KEY_OFF, 1},
	{"residual_scale", KEY_OFF, 1},
};
enum { RULES = sizeof rules / sizeof rules[0] };

static const struct key_rule *find_rule(struct span suffix)
{
	for (unsigned i = 0; i < RULES; i++) {
		if (span_is(suffix, rules[i].suffix))
			return &rules[i];
	}
	return NULL;
}

static bool has_kind(const struct gguf *gguf, const char *name, enum key_use use)
{
	uint64_t integer;
	double number;
	struct span text;
	struct gguf_array array;
	switch (use) {
	case KEY_INTEGER:
		return gguf_u64(gguf, name, &integer);
	case KEY_NUMBER:
		return gguf_f64(gguf, name, &number);
	case KEY_TEXT:
		return gguf_string(gguf, name, &text);
	case KEY_INTEGER_OR_ARRAY:
		return gguf_u64(gguf, name, &integer) || gguf_array(gguf, name, &array);
	case KEY_NOTE:
	case KEY_OFF:
		break;
	}
	return true;
}

static bool is_off(const struct gguf *gguf, const char *name, double off)
{
	double number;
	bool flag;
	if (gguf_bool(gguf, name, &flag))
		return off == (flag ? 1.0 : 0.0);
	return gguf_f64(gguf, name, &number) && number == off;
}

static enum svc_code check_key(const struct gguf *gguf, struct span key, size_t prefix,
			       struct svc_err *err)
{
	const struct key_rule *rule = find_rule((struct span){key.ptr + prefix, key.len - prefix});
	if (!rule)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"metadata key '%.*s' isn't known to this engine and may change the "
				"model's mathematics",
				(int)(key.len < 120 ? key.len : 120), key.ptr);
	char name[160]; /* a known suffix behind a known prefix: fits */
	snprintf(name, sizeof name, "%.*s", (int)key.len, key.ptr);
	if (!has_kind(gguf, name, rule->use))
		return svc_fail(err, SVC_BAD_MODEL, __func__, "metadata key '%s' isn't %s", name,
				rule->use == KEY_TEXT	  ? "a string"
				: rule->use == KEY_NUMBER ? "a number"
							  : "a single integer of zero or more");
	if (rule->use == KEY_OFF && !is_off(gguf, name, rule->off))
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"metadata key '%s' is supported only at the value %g", name,
				rule->off);
	return SVC_OK;
}

enum svc_code config_keys_check(const struct gguf *gguf, const char *arch, struct svc_err *err)
{
	size_t arch_length = strlen(arch);
	struct span key;
	enum gguf_type type;
	for (size_t i = 0; gguf_key_at(gguf, i, &key, &type); i++) {
		bool ours = key.len > arch_length + 1 && memcmp(key.ptr, arch, arch_length) == 0 &&
			    key.ptr[arch_length] == '.';
		if (!ours)
			continue;
		enum svc_code code = check_key(gguf, key, arch_length + 1, err);
		if (code)
			return code;
	}
	return SVC_OK;
}
