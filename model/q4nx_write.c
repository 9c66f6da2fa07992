/* Which tensors a model.q4nx has, their forms and order. */
#include "model/q4nx_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "model/gguf_block.h"
#include "model/hf_names.h"
#include "model/q4nx_file.h"
#include "model/q4nx_form.h"
#include "model/q4nx_make.h"

struct plan {
	const struct gguf *gguf;
	const struct hf_config *config;
	enum q4nx_policy policy;
	struct q4nx_item *items;
	size_t n;
	struct draft *draft;
	struct svc_err *err;
};

static int form_of(const struct plan *plan, uint32_t type)
{
	enum tile_form family = plan->config->arch == HF_QWEN2 ? TILE_B : TILE_A;
	switch (type) {
	case GGUF_TENSOR_Q4_0:
		return TILE_B;
	case GGUF_TENSOR_Q4_1:
	case GGUF_TENSOR_Q4_K:
		return TILE_A;
	default:
		return (int)(plan->policy == Q4NX_FINE ? TILE_Q8A : family);
	}
}

/* BF16 if every value survives it, to the bit and with what is taken off it; else F32. */
static enum safetensors_dtype vector_dtype(const struct q4nx_recipe *r)
{
	for (uint32_t i = 0; i < r->rows; i++) {
		float x;
		gguf_row_values(r->source->type,
				(const uint8_t *)r->source->data +
					r->source->size_bytes / r->rows * i,
				1, &x);
		float stored = bf16_to_f32(bf16_from_f32(x - r->subtract));
		if (fm_float_bits(stored + r->subtract) != fm_float_bits(x) &&
		    !(x == 0.0f && stored == 0.0f))
			return ST_F32;
	}
	return ST_BF16;
}

static enum svc_code add(struct plan *plan, const struct q4nx_recipe *recipe, const char *name,
			 bool is_matrix)
{
	struct q4nx_item *item = &plan->items[plan->n];
	struct q4nx_recipe *r = arena_alloc(&plan->draft->arena, sizeof *r);
	if (!r)
		return svc_fail(plan->err, SVC_NO_MEMORY, "q4nx_draft", "no memory for a tensor");
	*r = *recipe;
	uint64_t columns = q4nx_tile_columns(r->cols), strips = r->rows / TILE_ROWS;
	struct safetensors_tensor *e = &item->entry;
	snprintf(item->tensor.name, sizeof item->tensor.name, "%s", name);
	e->dtype = r->form == Q4NX_PLAIN ? r->dtype : ST_I8;
	if (r->form == Q4NX_PLAIN) {
		e->n_dims = is_matrix ? 2 : 1;
		e->dims[0] = r->rows;
		e->dims[1] = r->cols;
		item->tensor.strip_bytes =
			(uint64_t)DRAFT_STRIP_ROWS * r->cols * safetensors_dtype_bytes(r->dtype);
		e->size_bytes = (uint64_t)r->rows * r->cols * safetensors_dtype_bytes(r->dtype);
	} else {
		uint32_t bytes = tile_form_bytes((enum tile_form)r->form);
		e->n_dims = 2;
		e->dims[0] = strips * columns;
		e->dims[1] = bytes;
		e->size_bytes = strips * columns * bytes;
		item->tensor.strip_bytes = columns * bytes;
	}
	item->tensor.size_bytes = e->size_bytes;
	item->tensor.make = q4nx_make;
	item->tensor.recipe = r;
	plan->n++;
	return SVC_OK;
}

static enum svc_code check_source(const struct plan *plan, const struct q4nx_recipe *r,
				  bool is_matrix)
{
	const struct gguf_tensor *t = r->source;
	bool is_float = t->type == GGUF_TENSOR_F32 || t->type == GGUF_TENSOR_F16 ||
			t->type == GGUF_TENSOR_BF16;
	uint64_t rows = is_matrix ? t->dims[1] : t->dims[0], cols = is_matrix ? t->dims[0] : 1;
	if (t->n_dims != (is_matrix ? 2u : 1u) || rows != r->rows || cols != r->cols)
		return svc_fail(plan->err, SVC_BAD_MODEL, "q4nx_draft",
				"tensor %.*s doesn't have the shape that the metadata implies",
				(int)t->name.len, t->name.ptr);
	if (!is_float && (!is_matrix || !gguf_block_is_known(t->type)))
		return svc_fail(plan->err, SVC_UNSUPPORTED, "q4nx_draft",
				"tensor %.*s has type %s, which cannot be converted",
				(int)t->name.len, t->name.ptr, gguf_tensor_type_name(t->type));
	if (is_matrix && (r->rows % TILE_ROWS || r->cols % GGUF_GROUP))
		return svc_fail(plan->err, SVC_UNSUPPORTED, "q4nx_draft",
				"tensor %.*s is %" PRIu32 " x %" PRIu32
				"; Q4NX's tiles need rows and columns in multiples of 32",
				(int)t->name.len, t->name.ptr, r->rows, r->cols);
	return SVC_OK;
}

/* The embedding: floats to look rows up in, and tiles as the head if it is tied. */
static enum svc_code add_embedding(struct plan *plan, struct q4nx_recipe r, const char *name)
{
	const struct hf_config *c = plan->config;
	r.form = Q4NX_PLAIN;
	r.dtype = ST_BF16;
	r.multiply = c->arch == HF_GEMMA3 ? (float)sqrt((double)c->hidden) : 1.0f;
	enum svc_code code = add(plan, &r, name, true);
	if (code != SVC_OK || !c->tied)
		return code;
	r.multiply = 1.0f;
	r.form = form_of(plan, r.source->type);
	return add(plan, &r, "lm_head.weight", true);
}

static enum svc_code add_tensor(struct plan *plan, const struct gguf_tensor *source)
{
	const struct hf_config *c = plan->config;
	char name[HF_NAME_BYTES];
	uint32_t layer = 0;
	const struct hf_tensor *what = hf_find(c, source->name, true, &layer);
	if (!what)
		return svc_fail(plan->err, SVC_UNSUPPORTED, "q4nx_draft",
				"tensor '%.*s' has no place in a Q4NX file of a %s model",
				(int)(source->name.len < 100 ? source->name.len : 100),
				source->name.ptr, hf_arch_name(c->arch));
	hf_name(what, layer, name);
	struct q4nx_recipe r = {.source = source,
				.form = Q4NX_PLAIN,
				.rows = hf_width(c, what->is_matrix ? what->rows : what->cols),
				.cols = what->is_matrix ? hf_width(c, what->cols) : 1,
				.multiply = 1.0f};
	if (c->arch == HF_LLAMA && (what->pairs_q || what->pairs_k))
		r.heads = what->pairs_q ? c->heads : c->kv_heads;
	enum svc_code code = check_source(plan, &r, what->is_matrix);
	if (code != SVC_OK)
		return code;
	if (strcmp(what->gguf, "token_embd.weight") == 0)
		return add_embedding(plan, r, name);
	if (what->is_matrix) {
		r.form = form_of(plan, source->type);
	} else {
		r.subtract = c->arch == HF_GEMMA3 && what->is_norm ? 1.0f : 0.0f;
		r.dtype = vector_dtype(&r);
	}
	return add(plan, &r, name, what->is_matrix);
}

enum svc_code q4nx_draft(const struct gguf *gguf, const struct hf_config *config,
			 enum q4nx_policy policy, struct draft *ret_draft, struct svc_err *err)
{
	struct draft draft = {.n = 0};
	size_t count = gguf_tensor_count(gguf);
	struct plan plan = {
		.gguf = gguf, .config = config, .policy = policy, .draft = &draft, .err = err};
	arena_init(&draft.arena, 0);
	if (config->arch == HF_PHI3)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"phi3 models cannot be converted to Q4NX: the order of their query "
				"rows there is not known for sure");
	plan.items = calloc(count + 1, sizeof *plan.items); /* a tied head is one more */
	if (!plan.items)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %zu tensors", count);
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < count && code == SVC_OK; i++)
		code = add_tensor(&plan, gguf_tensor_at(gguf, i));
	if (code == SVC_OK)
		code = q4nx_arrange(plan.items, plan.n, &draft, err);
	free(plan.items);
	if (code == SVC_OK)
		*ret_draft = draft;
	else
		draft_free(&draft);
	return code;
}
