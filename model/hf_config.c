/* config.json into struct hf_config. */
#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/hf_fields.h"

/* What an architecture's code, rather than its file, fixes. */
static const struct {
	const char *name, *model_type;
	double theta;
} archs[HF_ARCH_COUNT] = {
	[HF_LLAMA] = {"llama", "llama", 10000.0}, [HF_QWEN2] = {"qwen2", "qwen2", 10000.0},
	[HF_QWEN3] = {"qwen3", "qwen3", 10000.0}, [HF_GEMMA3] = {"gemma3", "gemma3_text", 1e6},
	[HF_PHI3] = {"phi3", "phi3", 10000.0},
};

const char *hf_arch_name(enum hf_arch arch)
{
	return arch < HF_ARCH_COUNT ? archs[arch].name : "?";
}

/* A file being read: the first error stays, so that a run of reads is checked once. */
struct reader {
	const json_t *root;
	const char *prefix; /* "rope_scaling.": for messages */
	enum svc_code code;
	struct svc_err *err;
};

#define BAD(r, ...)                        \
	((r)->code = (r)->code ? (r)->code \
			       : svc_fail((r)->err, SVC_BAD_MODEL, "config.json", __VA_ARGS__))
#define UNSUPPORTED(r, ...)                \
	((r)->code = (r)->code ? (r)->code \
			       : svc_fail((r)->err, SVC_UNSUPPORTED, "config.json", __VA_ARGS__))

static const json_t *field(const struct reader *r, const char *name)
{
	const json_t *value = json_object_get(r->root, name);
	return json_is_null(value) ? NULL : value;
}

/* absent UINT32_MAX: it must be there. */
static uint32_t read_u32(struct reader *r, const char *name, uint32_t low, uint32_t high,
			 uint32_t absent)
{
	const json_t *value = field(r, name);
	if (!value) {
		if (absent == UINT32_MAX)
			BAD(r, "%s%s is missing", r->prefix, name);
		return absent;
	}
	double number = json_number_value(value);
	if (!json_is_number(value) || !(number >= low && number <= high) ||
	    number != floor(number)) {
		BAD(r, "%s%s is not a whole number from %u to %u", r->prefix, name, low, high);
		return low;
	}
	return (uint32_t)number;
}

/* A positive number; absent where there is none. */
static double read_real(struct reader *r, const char *name, double absent)
{
	const json_t *value = field(r, name);
	if (!value)
		return absent;
	double number = json_number_value(value);
	if (!json_is_number(value) || !(number > 0.0 && number < 1e15)) {
		BAD(r, "%s%s is not a positive number under 1e15", r->prefix, name);
		return 1.0;
	}
	return number;
}

static bool read_flag(struct reader *r, const char *name, bool absent)
{
	const json_t *value = field(r, name);
	if (value && !json_is_boolean(value))
		BAD(r, "%s%s is not true or false", r->prefix, name);
	return value ? json_is_true(value) : absent;
}

static void read_arch(struct reader *r, struct hf_config *c)
{
	const char *type = json_string_value(field(r, "model_type"));
	for (uint32_t i = 0; type && i < HF_ARCH_COUNT; i++) {
		if (strcmp(type, archs[i].model_type) == 0) {
			c->arch = (enum hf_arch)i;
			return;
		}
	}
	/* Mistral's layers are Llama's; its window is checked as Llama's is. */
	if (type && strcmp(type, "mistral") == 0)
		c->arch = HF_LLAMA;
	else
		UNSUPPORTED(r,
			    "model_type '%.40s' isn't supported (llama, mistral, qwen2, qwen3, "
			    "gemma3_text, phi3 are)",
			    type ? type : "");
}

static void read_shape(struct reader *r, struct hf_config *c)
{
	c->n_layers = read_u32(r, "num_hidden_layers", 1, HF_MAX_LAYERS, UINT32_MAX);
	c->hidden = read_u32(r, "hidden_size", 1, 1 << 20, UINT32_MAX);
	c->ffn = read_u32(r, "intermediate_size", 1, 1 << 20, UINT32_MAX);
	c->vocab = read_u32(r, "vocab_size", 1, 1 << 22, UINT32_MAX);
	c->heads = read_u32(r, "num_attention_heads", 1, 4096, UINT32_MAX);
	c->kv_heads = read_u32(r, "num_key_value_heads", 1, 4096, c->heads);
	if (r->code)
		return;
	c->head_dim = read_u32(r, "head_dim", 2, 512, c->hidden / c->heads);
	if (c->head_dim < 2 || c->head_dim > 512)
		BAD(r, "head_dim %u (hidden_size / num_attention_heads) is not from 2 to 512",
		    c->head_dim);
	c->ctx = read_u32(r, "max_position_embeddings", 1, 1 << 22, UINT32_MAX);
	c->norm_eps = read_real(r, "rms_norm_eps", 0.0);
	if (!(c->norm_eps > 0.0 && c->norm_eps < 1.0))
		BAD(r, "rms_norm_eps is missing or not under 1");
	c->tied = read_flag(r, "tie_word_embeddings", c->arch == HF_GEMMA3);
	double part = read_real(r, "partial_rotary_factor", 1.0);
	c->rope_dims = (uint32_t)(part * c->head_dim);
	if (part > 1.0 || c->rope_dims < 2 || c->rope_dims % 2)
		BAD(r, "partial_rotary_factor %g leaves no even number of rotated dimensions",
		    part);
}

static void read_activation(struct reader *r, const struct hf_config *c)
{
	static const char *const names[] = {"hidden_act", "hidden_activation"};
	const char *wanted = c->arch == HF_GEMMA3 ? "gelu_pytorch_tanh" : "silu";
	for (size_t i = 0; i < 2; i++) {
		const json_t *value = field(r, names[i]);
		const char *name = json_string_value(value);
		if (value && (!name || strcmp(name, wanted) != 0))
			UNSUPPORTED(r, "%s '%.40s' isn't supported for %s; %s is", names[i],
				    name ? name : "?", hf_arch_name(c->arch), wanted);
	}
}

static void read_factors(struct reader *r, const char *name, struct hf_rope *rope,
			 float ret_factors[HF_MAX_PAIRS])
{
	const json_t *list = field(r, name);
	size_t n = json_array_size(list);
	if (n == 0 || n > HF_MAX_PAIRS || (rope->n_factors && n != rope->n_factors)) {
		BAD(r, "%s%s is not a list of 1 to %d numbers, as long as its sister", r->prefix,
		    name, HF_MAX_PAIRS);
		return;
	}
	rope->n_factors = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		double number = json_number_value(json_array_get(list, i));
		if (!(number > 0.0 && number < 1e15))
			BAD(r, "%s%s[%zu] is not a positive number", r->prefix, name, i);
		ret_factors[i] = (float)number;
	}
}

/* What transformers takes where a variant doesn't state its original context. */
static void complete_rope(struct reader *r, const struct hf_config *c, struct hf_rope *rope)
{
	bool scaled = strcmp(rope->type, "default") != 0;
	bool longrope = strcmp(rope->type, "longrope") == 0;
	if (scaled && !longrope && rope->factor <= 0.0)
		BAD(r, "%sfactor is missing for rope type %s", r->prefix, rope->type);
	if (strcmp(rope->type, "llama3") == 0 &&
	    !(rope->low_freq_factor > 0.0 && rope->high_freq_factor > rope->low_freq_factor))
		BAD(r,
		    "%slow_freq_factor and a larger high_freq_factor are needed for rope type "
		    "llama3",
		    r->prefix);
	if (longrope && rope->n_factors != c->rope_dims / 2)
		BAD(r, "%slong_factor has %u numbers; %u rotated dimensions need %u", r->prefix,
		    rope->n_factors, c->rope_dims, c->rope_dims / 2);
	if (scaled && rope->original_ctx <= 0.0)
		rope->original_ctx = c->ctx;
}

static void read_rope_object(struct reader *r, struct hf_config *c, struct hf_rope *rope)
{
	static const char *const known[] = {"default", "linear", "llama3",
					    "dynamic", "yarn",	 "longrope"};
	const char *type = json_string_value(field(r, "rope_type"));
	type = type ? type : json_string_value(field(r, "type"));
	type = type && strcmp(type, "su") == 0 ? "longrope" : type;
	bool found = !type;
	for (size_t i = 0; type && i < sizeof known / sizeof *known; i++)
		found |= strcmp(type, known[i]) == 0;
	if (!found)
		UNSUPPORTED(r,
			    "%srope_type '%.40s' isn't known; default, linear, llama3, dynamic, "
			    "yarn and longrope are",
			    r->prefix, type);
	if (!r->code)
		r->code = hf_fields_check(r->root, HF_FIELDS_ROPE, r->prefix, r->err);
	snprintf(rope->type, sizeof rope->type, "%.15s", type && found ? type : "default");
	rope->theta = read_real(r, "rope_theta", rope->theta);
	rope->factor = read_real(r, "factor", 0.0);
	rope->low_freq_factor = read_real(r, "low_freq_factor", 0.0);
	rope->high_freq_factor = read_real(r, "high_freq_factor", 0.0);
	rope->original_ctx = read_real(r, "original_max_position_embeddings", rope->original_ctx);
	rope->beta_fast = read_real(r, "beta_fast", 0.0);
	rope->beta_slow = read_real(r, "beta_slow", 0.0);
	rope->attention_factor = read_real(r, "attention_factor", 0.0);
	if (strcmp(rope->type, "longrope") == 0) {
		read_factors(r, "long_factor", rope, rope->long_factor);
		read_factors(r, "short_factor", rope, rope->short_factor);
	}
	if (!r->code)
		complete_rope(r, c, rope);
}

/* An object of rope_scaling's or rope_parameters' kind under another name. */
static void read_rope_at(struct reader *r, const json_t *object, const char *prefix,
			 struct hf_config *c, struct hf_rope *rope)
{
	struct reader inner = {object, prefix, r->code, r->err};
	if (!json_is_object(object))
		BAD(&inner, "%.40s is not an object", prefix);
	if (!inner.code)
		read_rope_object(&inner, c, rope);
	r->code = inner.code;
}

static void read_rope(struct reader *r, struct hf_config *c)
{
	const json_t *scaling = field(r, "rope_scaling"), *set = field(r, "rope_parameters");
	struct hf_rope *rope = &c->rope;
	snprintf(rope->type, sizeof rope->type, "default");
	rope->theta = read_real(r, "rope_theta", archs[c->arch].theta);
	rope->original_ctx = read_real(r, "original_max_position_embeddings", 0.0);
	if (c->arch == HF_GEMMA3)
		c->theta_local = read_real(r, "rope_local_base_freq", 10000.0);
	const json_t *full = json_object_get(set, "full_attention");
	const json_t *local = json_object_get(set, "sliding_attention");
	if (full && c->arch == HF_GEMMA3) {
		struct hf_rope windowed = {.theta = c->theta_local};
		read_rope_at(r, full, "rope_parameters.full_attention.", c, rope);
		if (local)
			read_rope_at(r, local, "rope_parameters.sliding_attention.", c, &windowed);
		if (local && !r->code && strcmp(windowed.type, "default") != 0)
			UNSUPPORTED(r,
				    "rope_parameters.sliding_attention of type %s isn't supported",
				    windowed.type);
		c->theta_local = windowed.theta;
	} else if (set) {
		read_rope_at(r, set, "rope_parameters.", c, rope);
	} else if (scaling) {
		read_rope_at(r, scaling, "rope_scaling.", c, rope);
	}
}

static bool is_windowed(struct reader *r, const json_t *value, uint32_t layer)
{
	const char *type = json_string_value(value);
	bool windowed = type && strcmp(type, "sliding_attention") == 0;
	if (!windowed && (!type || strcmp(type, "full_attention") != 0))
		UNSUPPORTED(r, "layer_types[%u] '%.40s' isn't supported", layer, type ? type : "?");
	return windowed;
}

static void read_layer_types(struct reader *r, struct hf_config *c)
{
	const json_t *types = field(r, "layer_types");
	uint32_t period = read_u32(r, "sliding_window_pattern", 1, HF_MAX_LAYERS,
				   c->arch == HF_GEMMA3 ? 6 : 0);
	if (types && json_array_size(types) != c->n_layers) {
		BAD(r, "layer_types has %zu elements for %u layers", json_array_size(types),
		    c->n_layers);
		return;
	}
	for (uint32_t i = 0; i < c->n_layers; i++) {
		c->windowed[i] = types ? is_windowed(r, json_array_get(types, i), i)
				       : period == 0 || (i + 1) % period != 0;
	}
}

static void read_windows(struct reader *r, struct hf_config *c)
{
	uint32_t window = read_u32(r, "sliding_window", 0, UINT32_MAX - 1, 0);
	bool used = read_flag(r, "use_sliding_window",
			      c->arch == HF_GEMMA3 || c->arch == HF_PHI3 || c->arch == HF_LLAMA);
	bool can = c->arch == HF_GEMMA3 || c->arch == HF_PHI3;
	if (!window || !used)
		return;
	if (!can && window < c->ctx)
		UNSUPPORTED(r, "sliding_window isn't supported for model_type %s",
			    archs[c->arch].model_type);
	if (!can)
		return;
	c->window = window;
	read_layer_types(r, c);
}

static void read_scales(struct reader *r, struct hf_config *c)
{
	double scalar = read_real(r, "query_pre_attn_scalar", 0.0);
	if (scalar > 0.0 && (scalar != c->head_dim || c->arch != HF_GEMMA3))
		c->attn_scale = 1.0 / sqrt(scalar);
	/* Stated, so that no reader's rule for this size of Gemma gets in between. */
	if (c->arch == HF_GEMMA3 && c->n_layers == 62 && scalar > 0.0)
		c->attn_scale = 1.0 / sqrt(scalar);
	c->attn_softcap = read_real(r, "attn_logit_softcapping", 0.0);
	c->final_softcap = read_real(r, "final_logit_softcapping", 0.0);
	if (c->arch != HF_GEMMA3 &&
	    (scalar > 0.0 || c->attn_softcap > 0.0 || c->final_softcap > 0.0))
		UNSUPPORTED(r, "query_pre_attn_scalar, attn_logit_softcapping and "
			       "final_logit_softcapping are supported for gemma3_text only");
}

enum svc_code hf_config_read_ends(const json_t *root, struct hf_config *config, struct svc_err *err)
{
	const json_t *eos = json_object_get(root, "eos_token_id");
	size_t n = json_is_array(eos) ? json_array_size(eos) : json_is_integer(eos);
	if (eos && !json_is_null(eos) && n == 0)
		return svc_fail(err, SVC_BAD_MODEL, "config.json",
				"eos_token_id is neither a token id nor a list of some");
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_is_array(eos) ? json_array_get(eos, i) : eos;
		bool known = false;
		if (!json_is_integer(id) || json_integer_value(id) < 0 ||
		    json_integer_value(id) >= config->vocab)
			return svc_fail(err, SVC_BAD_MODEL, "config.json",
					"eos_token_id[%zu] is no id of the vocabulary (0 to %u)", i,
					config->vocab - 1);
		for (uint32_t k = 0; k < config->n_ends; k++)
			known |= config->ends[k] == json_integer_value(id);
		if (!known && config->n_ends == HF_MAX_ENDS)
			return svc_fail(err, SVC_BAD_MODEL, "config.json",
					"eos_token_id names more than %d tokens", HF_MAX_ENDS);
		if (!known)
			config->ends[config->n_ends++] = json_integer_value(id);
	}
	return SVC_OK;
}

enum svc_code hf_config_read(const json_t *root, struct hf_config *ret_config, struct svc_err *err)
{
	static const struct hf_config none;
	struct hf_config c = none;
	struct reader r = {root, "", SVC_OK, err};
	if (!json_is_object(root))
		return svc_fail(err, SVC_BAD_MODEL, "config.json", "it is not an object");
	read_arch(&r, &c);
	if (!r.code)
		r.code = hf_fields_check(root, HF_FIELDS_MODEL, "", err);
	if (!r.code)
		read_shape(&r, &c);
	if (!r.code)
		read_activation(&r, &c);
	if (!r.code)
		read_rope(&r, &c);
	if (!r.code)
		read_windows(&r, &c);
	if (!r.code)
		read_scales(&r, &c);
	c.bos = (int64_t)read_u32(&r, "bos_token_id", 0, c.vocab, UINT32_MAX - 1);
	c.bos = c.bos == UINT32_MAX - 1 ? -1 : c.bos;
	if (!r.code)
		r.code = hf_config_read_ends(root, &c, err);
	if (!r.code)
		*ret_config = c;
	return r.code;
}
