#include "npu-worker/engine/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/region.h"
#include "npu-worker/kernels/kernels.h"

enum width { W_ONE, W_EMBD, W_Q, W_KV, W_QKV, W_FFN, W_FFN2, W_VOCAB, W_HEAD, W_ROPE };

enum {
	ON_LLAMA = 1 << MODEL_LLAMA,
	ON_QWEN2 = 1 << MODEL_QWEN2,
	ON_QWEN3 = 1 << MODEL_QWEN3,
	ON_GEMMA3 = 1 << MODEL_GEMMA3,
	ON_PHI3 = 1 << MODEL_PHI3,
	ON_ALL = (1 << MODEL_ARCH_COUNT) - 1
};

/* must, may: architectures in which the tensor is required, or allowed. A fused tensor stands for
 * its parts: where it may be, either it or all of them are there (check_fused). */
static const struct part_rule {
	const char *suffix; /* NULL: a table that the engine makes */
	uint8_t rows, cols; /* enum width */
	uint8_t matrix;
	uint16_t must, may;
} rules[PART_ROLE_COUNT] = {
	[PART_EMBED] = {"token_embd.weight", W_VOCAB, W_EMBD, 1, ON_ALL, 0},
	[PART_OUTPUT] = {"output.weight", W_VOCAB, W_EMBD, 1, 0, ON_ALL},
	[PART_OUTPUT_NORM] = {"output_norm.weight", W_ONE, W_EMBD, 0, ON_ALL, 0},
	[PART_ROPE] = {NULL, W_ONE, W_ROPE, 0, ON_ALL, 0},
	[PART_ROPE_LOCAL] = {NULL, W_ONE, W_ROPE, 0, ON_GEMMA3, 0},
	[PART_ATTN_NORM] = {"attn_norm.weight", W_ONE, W_EMBD, 0, ON_ALL, 0},
	[PART_Q] = {"attn_q.weight", W_Q, W_EMBD, 1, ON_ALL & ~ON_PHI3, ON_PHI3},
	[PART_K] = {"attn_k.weight", W_KV, W_EMBD, 1, ON_ALL & ~ON_PHI3, ON_PHI3},
	[PART_V] = {"attn_v.weight", W_KV, W_EMBD, 1, ON_ALL & ~ON_PHI3, ON_PHI3},
	[PART_QKV] = {"attn_qkv.weight", W_QKV, W_EMBD, 1, 0, ON_PHI3},
	[PART_Q_BIAS] = {"attn_q.bias", W_ONE, W_Q, 0, ON_QWEN2, ON_LLAMA},
	[PART_K_BIAS] = {"attn_k.bias", W_ONE, W_KV, 0, ON_QWEN2, ON_LLAMA},
	[PART_V_BIAS] = {"attn_v.bias", W_ONE, W_KV, 0, ON_QWEN2, ON_LLAMA},
	[PART_Q_NORM] = {"attn_q_norm.weight", W_ONE, W_HEAD, 0, ON_QWEN3 | ON_GEMMA3, 0},
	[PART_K_NORM] = {"attn_k_norm.weight", W_ONE, W_HEAD, 0, ON_QWEN3 | ON_GEMMA3, 0},
	[PART_O] = {"attn_output.weight", W_EMBD, W_Q, 1, ON_ALL, 0},
	[PART_O_BIAS] = {"attn_output.bias", W_ONE, W_EMBD, 0, 0, ON_LLAMA},
	[PART_POST_ATTN_NORM] = {"post_attention_norm.weight", W_ONE, W_EMBD, 0, ON_GEMMA3, 0},
	[PART_FFN_NORM] = {"ffn_norm.weight", W_ONE, W_EMBD, 0, ON_ALL, 0},
	[PART_GATE] = {"ffn_gate.weight", W_FFN, W_EMBD, 1, ON_ALL & ~ON_PHI3, 0},
	[PART_UP] = {"ffn_up.weight", W_FFN, W_EMBD, 1, ON_ALL & ~ON_PHI3, 0},
	[PART_GATE_UP] = {"ffn_up.weight", W_FFN2, W_EMBD, 1, ON_PHI3, 0},
	[PART_DOWN] = {"ffn_down.weight", W_EMBD, W_FFN, 1, ON_ALL, 0},
	[PART_POST_FFN_NORM] = {"post_ffw_norm.weight", W_ONE, W_EMBD, 0, ON_GEMMA3, 0},
};

static bool is_per_layer(uint32_t role)
{
	return role >= PART_ATTN_NORM;
}

static uint32_t width_of(const struct model_config *c, uint32_t ctx, enum width width)
{
	switch (width) {
	case W_ONE:
		return 1;
	case W_EMBD:
		return c->n_embd;
	case W_Q:
		return model_q_width(c);
	case W_KV:
		return model_kv_width(c);
	case W_QKV:
		return model_q_width(c) + 2 * model_kv_width(c);
	case W_FFN:
		return c->n_ffn;
	case W_FFN2:
		return 2 * c->n_ffn;
	case W_VOCAB:
		return c->n_vocab;
	case W_HEAD:
		return c->head_dim;
	case W_ROPE:
		return ctx * c->rope.dims;
	}
	return 0;
}

void plan_tensor_name(const struct plan_part *part, char text[64])
{
	const char *suffix = rules[part->role].suffix;
	if (is_per_layer(part->role))
		snprintf(text, 64, "blk.%" PRIu32 ".%s", part->layer, suffix);
	else
		snprintf(text, 64, "%s", suffix ? suffix : "");
}

/* A norm, bias or factor list: any float type, one dimension of `cols`. */
static enum svc_code check_vector(const struct gguf_tensor *tensor, const char *name, uint32_t cols,
				  struct svc_err *err)
{
	bool is_float = tensor->type == GGUF_TENSOR_F32 || tensor->type == GGUF_TENSOR_F16 ||
			tensor->type == GGUF_TENSOR_BF16;
	if (!is_float)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"tensor %s has type %s; F32, F16 or BF16 is needed", name,
				gguf_tensor_type_name(tensor->type)
					? gguf_tensor_type_name(tensor->type)
					: "?");
	if (tensor->dims[0] != cols || tensor->dims[1] != 1 || tensor->dims[2] != 1 ||
	    tensor->dims[3] != 1)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"tensor %s has the shape [%" PRIu64 ", %" PRIu64 ", ...]; [%" PRIu32
				"] is needed",
				name, tensor->dims[0], tensor->dims[1], cols);
	return SVC_OK;
}

static enum svc_code check_matrix(const struct gguf_tensor *tensor, const char *name,
				  const struct plan_part *part, struct svc_err *err)
{
	if (tensor->dims[0] != part->cols || tensor->dims[1] != part->rows ||
	    tensor->dims[2] != 1 || tensor->dims[3] != 1)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"tensor %s has the shape [%" PRIu64 ", %" PRIu64 "%s]; [%" PRIu32
				", %" PRIu32 "] is needed",
				name, tensor->dims[0], tensor->dims[1],
				tensor->n_dims > 2 ? ", ..." : "", part->cols, part->rows);
	return kernels_check_matrix(name, tensor->type, part->rows, part->cols, err);
}

static void shape_part(const struct plan *plan, struct plan_part *part)
{
	const struct part_rule *rule = &rules[part->role];
	part->rows = width_of(&plan->config, plan->ctx, rule->rows);
	part->cols = width_of(&plan->config, plan->ctx, rule->cols);
	part->is_matrix = rule->matrix;
}

static uint64_t part_bytes(const struct plan_part *part)
{
	return part->is_matrix ? kernels_packed_bytes(part->type, part->rows, part->cols)
			       : (uint64_t)part->rows * part->cols * sizeof(float);
}

/* Adds the part of a role if the file has it. */
static enum svc_code plan_role(struct plan *plan, const struct gguf *gguf, struct plan_part part,
			       struct svc_err *err)
{
	const struct part_rule *rule = &rules[part.role];
	unsigned arch = 1u << plan->config.arch;
	if (!((rule->must | rule->may) & arch))
		return SVC_OK;
	shape_part(plan, &part);
	part.type = GGUF_TENSOR_F32;
	if (rule->suffix) {
		char name[64];
		plan_tensor_name(&part, name);
		const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);
		if (!tensor && !(rule->must & arch))
			return SVC_OK;
		if (!tensor)
			return svc_fail(err, SVC_BAD_MODEL, __func__, "tensor %s is missing", name);
		enum svc_code code = rule->matrix ? check_matrix(tensor, name, &part, err)
						  : check_vector(tensor, name, part.cols, err);
		if (code)
			return code;
		if (rule->matrix)
			part.type = tensor->type;
	}
	part.size_bytes = part_bytes(&part);
	plan->parts[plan->n_parts++] = part;
	return SVC_OK;
}

/* Either the fused tensor or its three parts, in every layer. */
static enum svc_code check_fused(const struct plan *plan, uint32_t layer, struct svc_err *err)
{
	bool fused = plan_find(plan, PART_QKV, layer) != NULL;
	int parts = (plan_find(plan, PART_Q, layer) != NULL) +
		    (plan_find(plan, PART_K, layer) != NULL) +
		    (plan_find(plan, PART_V, layer) != NULL);
	if (parts == (fused ? 0 : 3))
		return SVC_OK;
	return svc_fail(err, SVC_BAD_MODEL, __func__,
			"layer %" PRIu32
			" needs either attn_qkv.weight or all of attn_q, attn_k and attn_v",
			layer);
}

enum { LITERALS = 4, OWN_TABLE = 3 };
static const char *const divisor_names[LITERALS] = {"rope_freqs.weight", "rope_factors_long.weight",
						    "rope_factors_short.weight", ROPE_OWN_TABLE};

/* A table doesn't know of contexts, nor of divisors. */
static enum svc_code check_own_table(const struct rope_config *rope, bool divided,
				     struct svc_err *err)
{
	if (rope->type != ROPE_DYNAMIC && rope->type != ROPE_LONGROPE && !divided)
		return SVC_OK;
	return svc_fail(err, SVC_UNSUPPORTED, __func__,
			"%s together with %s isn't supported: one of them would be dropped",
			ROPE_OWN_TABLE, divided ? divisor_names[0] : rope_type_name(rope->type));
}

/* The literal divisors of the inverse frequencies, or themselves; pack.c reads them. */
static enum svc_code check_divisors(const struct plan *plan, const struct gguf *gguf,
				    struct svc_err *err)
{
	const struct rope_config *rope = &plan->config.rope;
	bool present[LITERALS] = {0};
	for (unsigned i = 0; i < LITERALS; i++) {
		const struct gguf_tensor *tensor = gguf_tensor_find(gguf, divisor_names[i]);
		present[i] = tensor != NULL;
		enum svc_code code =
			tensor ? check_vector(tensor, divisor_names[i], rope->dims / 2, err)
			       : SVC_OK;
		if (code)
			return code;
	}
	if (present[0] && rope->type != ROPE_DEFAULT)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"%s together with rope type %s isn't supported", divisor_names[0],
				rope_type_name(rope->type));
	bool longrope = rope->type == ROPE_LONGROPE;
	if (present[1] != longrope || present[2] != longrope)
		return svc_fail(err, SVC_BAD_MODEL, __func__, "rope type %s, but %s and %s are %s",
				rope_type_name(rope->type), divisor_names[1], divisor_names[2],
				longrope ? "not both there" : "there");
	return present[OWN_TABLE] ? check_own_table(rope, present[0], err) : SVC_OK;
}

static bool is_used(const struct plan *plan, struct span name)
{
	for (unsigned i = 0; i < LITERALS; i++) {
		if (span_is(name, divisor_names[i]))
			return true;
	}
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		char used[64];
		plan_tensor_name(&plan->parts[i], used);
		if (span_is(name, used))
			return true;
	}
	return false;
}

static enum svc_code check_unused(const struct plan *plan, const struct gguf *gguf,
				  struct svc_err *err)
{
	for (size_t t = 0; t < gguf_tensor_count(gguf); t++) {
		struct span name = gguf_tensor_at(gguf, t)->name;
		if (!is_used(plan, name))
			return svc_fail(
				err, SVC_UNSUPPORTED, __func__,
				"tensor '%.*s' has no place in a %s model as this engine knows it",
				(int)(name.len < 100 ? name.len : 100), name.ptr,
				model_arch_name(plan->config.arch));
	}
	return SVC_OK;
}

static enum svc_code add_parts(struct plan *plan, const struct gguf *gguf, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	for (uint32_t role = 0; role < PART_ATTN_NORM && !code; role++)
		code = plan_role(plan, gguf, (struct plan_part){.role = role}, err);
	for (uint32_t layer = 0; layer < plan->config.n_layers && !code; layer++) {
		for (uint32_t role = PART_ATTN_NORM; role < PART_ROLE_COUNT && !code; role++)
			code = plan_role(plan, gguf,
					 (struct plan_part){.role = role, .layer = layer}, err);
		if (!code)
			code = check_fused(plan, layer, err);
	}
	if (!code)
		code = check_divisors(plan, gguf, err);
	return code ? code : check_unused(plan, gguf, err);
}

static void place_parts(struct plan *plan)
{
	uint64_t offset = region_parts_offset(plan->n_parts);
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		plan->parts[i].offset = offset;
		offset += (plan->parts[i].size_bytes + 63) / 64 * 64;
	}
	plan->total_bytes = offset;
}

/* Scaled tables reach as far as their scaling does; a model's stated context may be the one before
 * scaling. */
static enum svc_code check_ctx(const struct model_config *c, uint32_t ctx, struct svc_err *err)
{
	double reach = c->trained_ctx;
	if (c->rope.type != ROPE_DEFAULT && c->rope.factor * c->rope.original_ctx > reach)
		reach = c->rope.factor * c->rope.original_ctx;
	if (ctx >= 1 && ctx <= MODEL_MAX_CTX && (double)ctx <= reach)
		return SVC_OK;
	return svc_fail_param(err, SVC_BAD_CONFIG, "ctx",
			      "a context of %" PRIu32 " was asked for; this model's is 1 to %.0f",
			      ctx, reach < MODEL_MAX_CTX ? reach : (double)MODEL_MAX_CTX);
}

enum svc_code plan_open(const struct gguf *gguf, uint32_t ctx, struct plan **ret_plan,
			struct svc_err *err)
{
	struct plan *plan = calloc(1, sizeof *plan);
	if (!plan)
		return svc_fail_errno(err, __func__, "no memory for the model's plan");
	enum svc_code code = model_config_read(gguf, &plan->config, err);
	if (!code)
		code = check_ctx(&plan->config, ctx, err);
	plan->ctx = ctx;
	if (!code) {
		plan->parts = calloc((size_t)PART_ROLE_COUNT * (plan->config.n_layers + 1),
				     sizeof *plan->parts);
		code = plan->parts
			       ? add_parts(plan, gguf, err)
			       : svc_fail_errno(err, __func__, "no memory for the model's plan");
	}
	if (code || !plan->parts) {
		plan_close(plan);
		return code;
	}
	place_parts(plan);
	*ret_plan = plan;
	return SVC_OK;
}

static enum svc_code check_part(const struct plan *plan, const struct plan_part *part,
				struct svc_err *err)
{
	struct plan_part wanted = *part;
	if (part->role >= PART_ROLE_COUNT || part->layer >= plan->config.n_layers)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"a part has the role %" PRIu32 " in layer %" PRIu32, part->role,
				part->layer);
	shape_part(plan, &wanted);
	char name[64];
	plan_tensor_name(part, name);
	if (part->rows != wanted.rows || part->cols != wanted.cols ||
	    part->is_matrix != wanted.is_matrix)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"part '%s' has a shape its model doesn't have", name);
	enum svc_code code = SVC_OK;
	if (part->is_matrix)
		code = kernels_check_matrix(name, part->type, part->rows, part->cols, err);
	if (!code && part->size_bytes != part_bytes(part))
		code = svc_fail(err, SVC_CORRUPT, __func__,
				"part '%s' has %" PRIu64 " bytes, %" PRIu64 " are needed", name,
				part->size_bytes, part_bytes(part));
	return code;
}

enum svc_code plan_check(const struct plan *plan, struct svc_err *err)
{
	unsigned arch = 1u << plan->config.arch;
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; i < plan->n_parts && !code; i++)
		code = check_part(plan, &plan->parts[i], err);
	for (uint32_t role = 0; role < PART_ROLE_COUNT && !code; role++) {
		uint32_t layers = is_per_layer(role) ? plan->config.n_layers : 1;
		for (uint32_t layer = 0; layer < layers && !code && (rules[role].must & arch);
		     layer++) {
			if (!plan_find(plan, role, layer))
				code = svc_fail(err, SVC_CORRUPT, __func__,
						"layer %" PRIu32 " lacks part %" PRIu32, layer,
						role);
		}
	}
	for (uint32_t layer = 0; layer < plan->config.n_layers && !code; layer++)
		code = check_fused(plan, layer, err);
	return code;
}

struct plan *plan_close(struct plan *plan)
{
	if (plan)
		free(plan->parts);
	free(plan);
	return NULL;
}

const struct plan_part *plan_find(const struct plan *plan, enum part_role role, uint32_t layer)
{
	for (uint32_t i = 0; i < plan->n_parts; i++) {
		if (plan->parts[i].role == role && plan->parts[i].layer == layer)
			return &plan->parts[i];
	}
	return NULL;
}
