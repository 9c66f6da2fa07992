/* struct hf_config from and to GGUF's keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/hf_config.h"

struct reader {
	const struct gguf *gguf;
	const char *arch;
	char key[128];
};

static const char *full_key(struct reader *r, const char *suffix)
{
	snprintf(r->key, sizeof r->key, "%s.%s", r->arch, suffix);
	return r->key;
}

static uint32_t read_u32(struct reader *r, const char *suffix, uint32_t absent)
{
	uint64_t value;
	return gguf_u64(r->gguf, full_key(r, suffix), &value) && value < UINT32_MAX
		       ? (uint32_t)value
		       : absent;
}

static double read_f64(struct reader *r, const char *suffix, double absent)
{
	double value = absent;
	gguf_f64(r->gguf, full_key(r, suffix), &value);
	return value;
}

static void read_factors(const struct gguf *gguf, const char *name, struct hf_rope *rope,
			 float factors[HF_MAX_PAIRS])
{
	const struct gguf_tensor *t = gguf_tensor_find(gguf, name);
	if (!t || t->type != GGUF_TENSOR_F32 || t->dims[0] > HF_MAX_PAIRS)
		return;
	rope->n_factors = (uint32_t)t->dims[0];
	memcpy(factors, t->data, (size_t)t->dims[0] * sizeof *factors);
}

static void read_rope(struct reader *r, struct hf_config *c)
{
	struct hf_rope *rope = &c->rope;
	struct span type = span_of("default");
	bool gemma = c->arch == HF_GEMMA3;
	gguf_string(r->gguf, full_key(r, "rope.scaling.type"), &type);
	if (gguf_tensor_find(r->gguf, "rope_factors_long.weight"))
		type = span_of("longrope");
	if (span_is(type, "none"))
		type = span_of("default");
	snprintf(rope->type, sizeof rope->type, "%.*s", (int)(type.len < 15 ? type.len : 15),
		 type.ptr);
	rope->theta = read_f64(r, "rope.freq_base", gemma ? 1e6 : 10000.0);
	c->theta_local = gemma ? read_f64(r, "rope.freq_base_swa", 10000.0) : 0.0;
	rope->factor = read_f64(r, "rope.scaling.factor", 0.0);
	if (strcmp(rope->type, "default") == 0 && rope->factor > 0.0)
		snprintf(rope->type, sizeof rope->type, "linear");
	rope->original_ctx = read_f64(r, "rope.scaling.original_context_length", 0.0);
	rope->low_freq_factor = read_f64(r, "rope.scaling.low_freq_factor", 0.0);
	rope->high_freq_factor = read_f64(r, "rope.scaling.high_freq_factor", 0.0);
	rope->beta_fast = read_f64(r, "rope.scaling.yarn_beta_fast", 0.0);
	rope->beta_slow = read_f64(r, "rope.scaling.yarn_beta_slow", 0.0);
	rope->attention_factor = read_f64(r, "rope.scaling.attn_factor", 0.0);
	read_factors(r->gguf, "rope_factors_long.weight", rope, rope->long_factor);
	read_factors(r->gguf, "rope_factors_short.weight", rope, rope->short_factor);
}

static void read_windows(struct reader *r, struct hf_config *c)
{
	struct gguf_array flags;
	c->window = read_u32(r, "attention.sliding_window", 0);
	if (!c->window)
		return;
	uint32_t period = read_u32(r, "attention.sliding_window_pattern",
				   c->arch == HF_GEMMA3 ? 6 : c->n_layers + 1);
	bool listed = gguf_array(r->gguf, full_key(r, "attention.sliding_window_pattern"), &flags);
	for (uint32_t i = 0; i < c->n_layers; i++) {
		int64_t flag = (i + 1) % period != 0;
		if (listed)
			gguf_array_i64(&flags, i, &flag);
		c->windowed[i] = flag != 0;
	}
}

static void read_ids(const struct gguf *gguf, struct hf_config *c)
{
	static const char *const keys[] = {"tokenizer.ggml.eos_token_id",
					   "tokenizer.ggml.eot_token_id",
					   "tokenizer.ggml.eom_token_id"};
	if (!gguf_i64(gguf, "tokenizer.ggml.bos_token_id", &c->bos))
		c->bos = -1;
	for (size_t i = 0; i < 3; i++) {
		int64_t id;
		bool known = false;
		if (!gguf_i64(gguf, keys[i], &id) || id < 0)
			continue;
		for (uint32_t k = 0; k < c->n_ends; k++)
			known |= c->ends[k] == id;
		if (!known)
			c->ends[c->n_ends++] = id;
	}
}

static enum svc_code read_arch(const struct gguf *gguf, struct hf_config *c, struct svc_err *err)
{
	struct span name = {"", 0};
	gguf_string(gguf, "general.architecture", &name);
	for (uint32_t i = 0; i < HF_ARCH_COUNT; i++) {
		c->arch = (enum hf_arch)i;
		if (span_is(name, hf_arch_name(c->arch)))
			return SVC_OK;
	}
	return svc_fail(err, SVC_UNSUPPORTED, __func__,
			"general.architecture '%.*s' isn't supported",
			(int)(name.len < 60 ? name.len : 60), name.ptr);
}

enum svc_code hf_config_from_gguf(const struct gguf *gguf, struct hf_config *ret_config,
				  struct svc_err *err)
{
	static const struct hf_config none;
	struct hf_config c = none;
	enum svc_code code = read_arch(gguf, &c, err);
	struct reader r = {.gguf = gguf, .arch = hf_arch_name(c.arch)};
	const struct gguf_tensor *embedding = gguf_tensor_find(gguf, "token_embd.weight");
	struct gguf_array tokens = {.count = 0};
	if (code != SVC_OK)
		return code;
	gguf_array(gguf, "tokenizer.ggml.tokens", &tokens);
	c.n_layers = read_u32(&r, "block_count", 0);
	c.hidden = read_u32(&r, "embedding_length", 0);
	c.ffn = read_u32(&r, "feed_forward_length", 0);
	c.heads = read_u32(&r, "attention.head_count", 0);
	c.ctx = read_u32(&r, "context_length", 0);
	/* A file of metadata alone has no embedding to count the rows of. */
	c.vocab = read_u32(&r, "vocab_size", (uint32_t)tokens.count);
	if (embedding)
		c.vocab = (uint32_t)embedding->dims[1];
	if (!c.n_layers || c.n_layers > HF_MAX_LAYERS || !c.hidden || !c.ffn || !c.heads ||
	    !c.ctx || !c.vocab)
		return svc_fail(
			err, SVC_BAD_MODEL, __func__,
			"one of block_count, embedding_length, feed_forward_length, "
			"attention.head_count, context_length and the vocabulary is missing, "
			"zero, or not one number");
	c.kv_heads = read_u32(&r, "attention.head_count_kv", c.heads);
	c.head_dim = read_u32(&r, "attention.key_length", c.hidden / c.heads);
	c.rope_dims = read_u32(&r, "rope.dimension_count", c.head_dim);
	c.norm_eps = read_f64(&r, "attention.layer_norm_rms_epsilon", 0.0);
	c.attn_scale = read_f64(&r, "attention.scale", 0.0);
	c.attn_softcap = read_f64(&r, "attn_logit_softcapping", 0.0);
	c.final_softcap = read_f64(&r, "final_logit_softcapping", 0.0);
	c.tied = !gguf_tensor_find(gguf, "output.weight");
	read_rope(&r, &c);
	read_windows(&r, &c);
	read_ids(gguf, &c);
	*ret_config = c;
	return SVC_OK;
}

struct putter {
	struct gguf_writer *out;
	const char *arch;
	char key[128];
};

static void put_u32(struct putter *p, const char *suffix, uint32_t value)
{
	snprintf(p->key, sizeof p->key, "%s.%s", p->arch, suffix);
	gguf_put_u32(p->out, p->key, value);
}

/* Zero stands for "not stated". */
static void put_f32(struct putter *p, const char *suffix, double value)
{
	snprintf(p->key, sizeof p->key, "%s.%s", p->arch, suffix);
	if (value != 0.0)
		gguf_put_f32(p->out, p->key, (float)value);
}

static void put_rope(struct putter *p, const struct hf_config *c)
{
	const struct hf_rope *rope = &c->rope;
	put_u32(p, "rope.dimension_count", c->rope_dims);
	put_f32(p, "rope.freq_base", rope->theta);
	put_f32(p, "rope.freq_base_swa", c->theta_local);
	if (strcmp(rope->type, "default") == 0)
		return;
	snprintf(p->key, sizeof p->key, "%s.rope.scaling.type", p->arch);
	gguf_put_string(p->out, p->key, span_of(rope->type));
	put_f32(p, "rope.scaling.factor", rope->factor);
	if (rope->original_ctx > 0.0)
		put_u32(p, "rope.scaling.original_context_length", (uint32_t)rope->original_ctx);
	put_f32(p, "rope.scaling.low_freq_factor", rope->low_freq_factor);
	put_f32(p, "rope.scaling.high_freq_factor", rope->high_freq_factor);
	put_f32(p, "rope.scaling.yarn_beta_fast", rope->beta_fast);
	put_f32(p, "rope.scaling.yarn_beta_slow", rope->beta_slow);
	put_f32(p, "rope.scaling.attn_factor", rope->attention_factor);
}

void hf_config_to_gguf(const struct hf_config *config, const char *name, struct gguf_writer *out)
{
	struct putter p = {.out = out, .arch = hf_arch_name(config->arch)};
	gguf_put_string(out, "general.architecture", span_of(p.arch));
	gguf_put_string(out, "general.name", span_of(name));
	put_u32(&p, "block_count", config->n_layers);
	put_u32(&p, "context_length", config->ctx);
	put_u32(&p, "embedding_length", config->hidden);
	put_u32(&p, "feed_forward_length", config->ffn);
	put_u32(&p, "vocab_size", config->vocab);
	put_u32(&p, "attention.head_count", config->heads);
	put_u32(&p, "attention.head_count_kv", config->kv_heads);
	put_u32(&p, "attention.key_length", config->head_dim);
	put_u32(&p, "attention.value_length", config->head_dim);
	put_f32(&p, "attention.layer_norm_rms_epsilon", config->norm_eps);
	put_f32(&p, "attention.scale", config->attn_scale);
	put_f32(&p, "attn_logit_softcapping", config->attn_softcap);
	put_f32(&p, "final_logit_softcapping", config->final_softcap);
	put_rope(&p, config);
	if (!config->window)
		return;
	put_u32(&p, "attention.sliding_window", config->window);
	snprintf(p.key, sizeof p.key, "%s.attention.sliding_window_pattern", p.arch);
	gguf_put_bools(out, p.key, config->windowed, config->n_layers);
}
