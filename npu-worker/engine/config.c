#include "npu-worker/engine/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "npu-worker/engine/config_keys.h"

/* What an architecture's code, rather than its file, fixes. */
static const struct arch_traits {
	const char *name;
	bool interleaved, gelu, scaled_embedding;
	bool window_all;	   /* a window holds for every layer */
	uint32_t window_period;	   /* else every period-th layer sees everything; 0: a window is
				      refused */
	double theta, theta_local; /* where the file has none */
} arch_traits[MODEL_ARCH_COUNT] = {
	[MODEL_LLAMA] = {.name = "llama", .interleaved = true, .theta = 10000.0},
	[MODEL_QWEN2] = {.name = "qwen2", .theta = 10000.0},
	[MODEL_QWEN3] = {.name = "qwen3", .theta = 10000.0},
	[MODEL_GEMMA3] = {.name = "gemma3",
			  .gelu = true,
			  .scaled_embedding = true,
			  .window_period = 6,
			  .theta = 1000000.0,
			  .theta_local = 10000.0},
	[MODEL_PHI3] = {.name = "phi3", .window_all = true, .theta = 10000.0},
};

const char *model_arch_name(uint32_t arch)
{
	return arch < MODEL_ARCH_COUNT ? arch_traits[arch].name : "?";
}

/* A file being read: the first error stays, so that a run of reads is checked once. */
struct reader {
	const struct gguf *gguf;
	const char *arch;
	enum svc_code code;
	struct svc_err *err;
	char key[160];
};

static const char *full_key(struct reader *r, const char *suffix)
{
	snprintf(r->key, sizeof r->key, "%s.%s", r->arch, suffix);
	return r->key;
}

static void fail_range(struct reader *r, double value, const char *range)
{
	if (!r->code)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__, "%s is %g; it must be %s",
				   r->key, value, range);
}

/* absent: UINT32_MAX: the key must be there. */
static uint32_t read_u32(struct reader *r, const char *suffix, uint32_t low, uint32_t high,
			 uint32_t absent)
{
	uint64_t value;
	if (!gguf_u64(r->gguf, full_key(r, suffix), &value)) {
		if (absent == UINT32_MAX && !r->code)
			r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
					   "%s is missing or not one integer (values per layer "
					   "aren't supported)",
					   r->key);
		return absent;
	}
	if (value >= low && value <= high)
		return (uint32_t)value;
	char range[64];
	snprintf(range, sizeof range, "from %" PRIu32 " to %" PRIu32, low, high);
	fail_range(r, (double)value, range);
	return low;
}

/* A float above zero, or `absent` where there is none; zero counts as none if zero_is_none. */
static double read_f64(struct reader *r, const char *suffix, double absent, bool zero_is_none)
{
	double value;
	if (!gguf_f64(r->gguf, full_key(r, suffix), &value) || (zero_is_none && value == 0.0))
		return absent;
	if (!(value > 0.0 && value < 1e15))
		fail_range(r, value, "a positive number under 1e15");
	return value;
}

static void read_shape(struct reader *r, struct model_config *c)
{
	c->n_layers = read_u32(r, "block_count", 1, MODEL_MAX_LAYERS, UINT32_MAX);
	c->n_embd = read_u32(r, "embedding_length", 1, MODEL_MAX_WIDTH, UINT32_MAX);
	c->n_ffn = read_u32(r, "feed_forward_length", 1, MODEL_MAX_WIDTH, UINT32_MAX);
	c->n_heads = read_u32(r, "attention.head_count", 1, 4096, UINT32_MAX);
	c->n_kv_heads = read_u32(r, "attention.head_count_kv", 1, 4096, c->n_heads);
	c->trained_ctx = read_u32(r, "context_length", 1, MODEL_MAX_CTX, UINT32_MAX);
	if (r->code)
		return;
	c->head_dim = read_u32(r, "attention.key_length", 2, 512, c->n_embd / c->n_heads);
	uint32_t value_dim = read_u32(r, "attention.value_length", 2, 512, c->head_dim);
	if (value_dim != c->head_dim && !r->code)
		r->code =
			svc_fail(r->err, SVC_UNSUPPORTED, __func__,
				 "%s.attention.value_length %" PRIu32
				 " differs from the key length %" PRIu32 ", which isn't supported",
				 r->arch, value_dim, c->head_dim);
	if (c->n_heads % c->n_kv_heads && !r->code)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
				   "%s.attention.head_count %" PRIu32
				   " isn't a multiple of head_count_kv %" PRIu32,
				   r->arch, c->n_heads, c->n_kv_heads);
	if (model_q_width(c) > MODEL_MAX_WIDTH)
		fail_range(r, model_q_width(c),
			   "such that heads times head length is at most 1048576");
}

/* Per-layer windows: the file's pattern (a period, or a flag per layer) or the architecture's. */
static void read_windows(struct reader *r, const struct arch_traits *traits, struct model_config *c)
{
	c->window = read_u32(r, "attention.sliding_window", 0, UINT32_MAX - 1, 0);
	if (!c->window)
		return;
	uint32_t period = read_u32(r, "attention.sliding_window_pattern", 1, MODEL_MAX_LAYERS,
				   traits->window_period);
	struct gguf_array flags;
	bool listed = gguf_array(r->gguf, full_key(r, "attention.sliding_window_pattern"), &flags);
	if (!listed && !period && !traits->window_all) {
		if (c->window < c->trained_ctx && !r->code)
			r->code = svc_fail(
				r->err, SVC_UNSUPPORTED, __func__,
				"%s.attention.sliding_window isn't supported for this architecture",
				r->arch);
		c->window = 0;
		return;
	}
	if (listed && flags.count != c->n_layers && !r->code)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
				   "%s has %" PRIu64 " elements for %" PRIu32 " layers", r->key,
				   flags.count, c->n_layers);
	for (uint32_t i = 0; i < c->n_layers && !r->code; i++) {
		int64_t flag = traits->window_all || (period && (i + 1) % period);
		if (listed && !gguf_array_i64(&flags, i, &flag))
			r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
					   "%s isn't an array of flags", r->key);
		c->windowed[i] = flag != 0;
	}
}

static void check_scaling(struct reader *r, const struct rope_config *rope)
{
	bool scaled = rope->type != ROPE_DEFAULT && rope->type != ROPE_LONGROPE;
	const char *missing = NULL;
	if (scaled && rope->factor <= 0.0)
		missing = "rope.scaling.factor";
	if (rope->type == ROPE_LLAMA3 &&
	    !(rope->low_freq_factor > 0.0 && rope->high_freq_factor > rope->low_freq_factor))
		missing = "rope.scaling.low_freq_factor and a larger high_freq_factor";
	if (rope->type == ROPE_DYNAMIC && rope->dims <= 2)
		missing = "rope.dimension_count above 2";
	bool has_attention_factor = rope->type == ROPE_YARN || rope->type == ROPE_LONGROPE;
	if (rope->attention_factor > 0.0 && rope->attention_factor != 1.0 && !has_attention_factor)
		r->code = svc_fail(r->err, SVC_UNSUPPORTED, __func__,
				   "%s.rope.scaling.attn_factor isn't supported for rope type %s",
				   r->arch, rope_type_name(rope->type));
	if (missing)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__, "rope type %s needs %s.%s",
				   rope_type_name(rope->type), r->arch, missing);
}

static void read_scaling(struct reader *r, struct rope_config *rope, uint32_t trained_ctx)
{
	struct span type;
	double old_linear = read_f64(r, "rope.scale_linear", 0.0, true);
	rope->factor = read_f64(r, "rope.scaling.factor", old_linear, true);
	if (gguf_string(r->gguf, full_key(r, "rope.scaling.type"), &type)) {
		if (!rope_type_parse(type, &rope->type) && !r->code)
			r->code = svc_fail(r->err, SVC_UNSUPPORTED, __func__,
					   "%s '%.*s' isn't known; none, linear, llama3, dynamic, "
					   "yarn and longrope are",
					   r->key, (int)(type.len < 40 ? type.len : 40), type.ptr);
	} else if (rope->factor > 0.0) {
		rope->type = ROPE_LINEAR;
	}
	/* Converted phi3 files don't state their type, but bring its factors. */
	if (rope->type == ROPE_DEFAULT && gguf_tensor_find(r->gguf, "rope_factors_long.weight"))
		rope->type = ROPE_LONGROPE;
	rope->trained_ctx = trained_ctx;
	rope->original_ctx = read_f64(r, "rope.scaling.original_context_length", trained_ctx, true);
	rope->low_freq_factor = read_f64(r, "rope.scaling.low_freq_factor", 0.0, true);
	rope->high_freq_factor = read_f64(r, "rope.scaling.high_freq_factor", 0.0, true);
	rope->beta_fast = read_f64(r, "rope.scaling.yarn_beta_fast", 32.0, true);
	rope->beta_slow = read_f64(r, "rope.scaling.yarn_beta_slow", 1.0, true);
	double attn = read_f64(r, "rope.scaling.yarn_attn_factor", 0.0, true);
	rope->attention_factor = read_f64(r, "rope.scaling.attn_factor", attn, true);
	if (!r->code)
		check_scaling(r, rope);
}

static void read_rope(struct reader *r, const struct arch_traits *traits, struct model_config *c)
{
	c->interleaved = traits->interleaved;
	c->rope.dims = read_u32(r, "rope.dimension_count", 2, c->head_dim, c->head_dim);
	if (c->rope.dims % 2)
		fail_range(r, c->rope.dims, "even");
	c->rope.theta = read_f64(r, "rope.freq_base", traits->theta, false);
	if (c->rope.theta <= 1.0)
		fail_range(r, c->rope.theta, "above 1");
	c->rope_local = c->rope;
	read_scaling(r, &c->rope, c->trained_ctx);
	/* A second, unscaled table only where the architecture has one: phi3's windows share the
	 * scaled one. */
	if (traits->theta_local > 0.0)
		c->rope_local.theta = read_f64(r, "rope.freq_base_swa", traits->theta_local, false);
	else
		c->rope_local = c->rope;
	if (c->rope_local.theta <= 1.0)
		fail_range(r, c->rope_local.theta, "above 1");
}

static void read_scales(struct reader *r, const struct arch_traits *traits, struct model_config *c)
{
	c->gelu = traits->gelu;
	c->norm_eps = (float)read_f64(r, "attention.layer_norm_rms_epsilon", 0.0, false);
	if (!(c->norm_eps > 0.0f && c->norm_eps < 1.0f))
		fail_range(r, c->norm_eps, "above 0 and under 1");
	double embed = traits->scaled_embedding ? sqrt((double)c->n_embd) : 1.0;
	c->embed_scale = (float)read_f64(r, "embedding_scale", embed, true);
	/* Gemma 3 of 27B (62 layers) divides by the embedding's share of a head, the others by the
	 * head's own width. */
	bool by_share = c->arch == MODEL_GEMMA3 && c->n_layers == 62;
	double width = by_share ? (double)c->n_embd / c->n_heads : (double)c->head_dim;
	c->attn_scale = (float)read_f64(r, "attention.scale", 1.0 / sqrt(width), true);
	c->attn_softcap = (float)read_f64(r, "attn_logit_softcapping", 0.0, true);
	c->final_softcap = (float)read_f64(r, "final_logit_softcapping", 0.0, true);
}

/* The vocabulary's size is the embedding's row count; the tokens and vocab_size must not contradict
 * it. */
static void read_vocab(struct reader *r, struct model_config *c)
{
	const struct gguf_tensor *embd = gguf_tensor_find(r->gguf, "token_embd.weight");
	if (r->code)
		return;
	if (!embd || embd->n_dims != 2 || !embd->dims[1] || embd->dims[1] > MODEL_MAX_VOCAB) {
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
				   "token_embd.weight is missing or isn't a matrix of 1 to %d rows",
				   MODEL_MAX_VOCAB);
		return;
	}
	c->n_vocab = (uint32_t)embd->dims[1];
	struct gguf_array tokens;
	uint32_t stated = read_u32(r, "vocab_size", 0, UINT32_MAX - 1, c->n_vocab);
	if (gguf_array(r->gguf, "tokenizer.ggml.tokens", &tokens) && tokens.count > c->n_vocab)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
				   "tokenizer.ggml.tokens has %" PRIu64
				   " tokens, token_embd.weight only %" PRIu32 " rows",
				   tokens.count, c->n_vocab);
	else if (stated != c->n_vocab && !r->code)
		r->code = svc_fail(r->err, SVC_BAD_MODEL, __func__,
				   "%s.vocab_size is %" PRIu32
				   ", but token_embd.weight has %" PRIu32 " rows",
				   r->arch, stated, c->n_vocab);
}

static enum svc_code find_arch(const struct gguf *gguf, uint32_t *ret_arch, struct svc_err *err)
{
	struct span name;
	if (!gguf_string(gguf, "general.architecture", &name))
		return svc_fail(err, SVC_BAD_MODEL, __func__, "general.architecture is missing");
	for (uint32_t i = 0; i < MODEL_ARCH_COUNT; i++) {
		if (span_is(name, arch_traits[i].name)) {
			*ret_arch = i;
			return SVC_OK;
		}
	}
	return svc_fail(err, SVC_UNSUPPORTED, __func__,
			"general.architecture '%.*s' isn't supported (llama, qwen2, qwen3, gemma3, "
			"phi3 are)",
			(int)(name.len < 60 ? name.len : 60), name.ptr);
}

enum svc_code model_config_read(const struct gguf *gguf, struct model_config *ret_config,
				struct svc_err *err)
{
	struct model_config c = {0};
	enum svc_code code = find_arch(gguf, &c.arch, err);
	if (code)
		return code;
	const struct arch_traits *traits = &arch_traits[c.arch];
	code = config_keys_check(gguf, traits->name, err);
	if (code)
		return code;
	struct reader r = {.gguf = gguf, .arch = traits->name, .err = err};
	read_shape(&r, &c);
	if (!r.code)
		read_windows(&r, traits, &c);
	if (!r.code)
		read_rope(&r, traits, &c);
	if (!r.code)
		read_scales(&r, traits, &c);
	if (!r.code)
		read_vocab(&r, &c);
	if (!r.code)
		*ret_config = c;
	return r.code;
}
