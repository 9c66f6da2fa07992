/* Which tensors the GGUF file of a folder has, their types and places: folder_plan. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/folder_private.h"

#define BAD(err, ...) svc_fail(err, SVC_BAD_MODEL, "folder_plan", __VA_ARGS__)

enum { EXTRA_TENSORS = 2 };

uint32_t folder_type_of(int form, enum safetensors_dtype dtype, bool is_matrix)
{
	static const uint32_t types[TILE_FORM_COUNT] = {
		[TILE_A] = GGUF_TENSOR_Q4_1,   [TILE_B] = GGUF_TENSOR_Q4_0,
		[TILE_C] = GGUF_TENSOR_Q5_0,   [TILE_D] = GGUF_TENSOR_Q4_0,
		[TILE_Q8A] = GGUF_TENSOR_Q8_0, [TILE_Q8B] = GGUF_TENSOR_Q8_0,
		[TILE_Q4K] = GGUF_TENSOR_Q4_1,
	};
	if (form != FOLDER_PLAIN)
		return types[form];
	if (!is_matrix || dtype == ST_F32)
		return GGUF_TENSOR_F32;
	return dtype == ST_F16 ? GGUF_TENSOR_F16 : GGUF_TENSOR_BF16;
}

const struct safetensors_tensor *folder_find(const struct folder *folder, struct span name)
{
	for (uint32_t i = 0; i < folder->n_files; i++) {
		const struct safetensors_tensor *found = safetensors_find(folder->files[i], name);
		if (found)
			return found;
	}
	return NULL;
}

static void count_form(struct folder *folder, const char *name, const struct folder_recipe *r)
{
	struct folder_form *form = folder->forms;
	while (form < folder->forms + folder->n_forms && strcmp(form->name, name) != 0)
		form++;
	if (form == folder->forms + FOLDER_MAX_FORMS)
		return;
	if (form == folder->forms + folder->n_forms)
		*(&folder->forms[folder->n_forms++]) = (struct folder_form){.name = name};
	form->tensors++;
	form->bytes += r->source->size_bytes;
	if (r->form != FOLDER_PLAIN)
		form->tiles += r->source->size_bytes / tile_form_bytes((enum tile_form)r->form);
}

static enum svc_code check_plain(const struct safetensors_tensor *t, bool is_matrix, uint32_t rows,
				 uint32_t cols, struct svc_err *err)
{
	if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
		return svc_fail(err, SVC_UNSUPPORTED, "folder_plan",
				"%.*s has dtype %s; F32, F16 or BF16 is needed", (int)t->name.len,
				t->name.ptr, safetensors_dtype_name(t->dtype));
	bool right = is_matrix ? t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == cols
			       : t->n_dims == 1 && t->dims[0] == rows;
	if (right)
		return SVC_OK;
	return BAD(err,
		   "%.*s has the shape [%" PRIu64 "%s%.0" PRIu64 "]; config.json's is [%" PRIu32
		   ", %" PRIu32 "]",
		   (int)t->name.len, t->name.ptr, t->n_dims ? t->dims[0] : 0,
		   t->n_dims > 1 ? ", " : "", t->n_dims > 1 ? t->dims[1] : 0, rows, cols);
}

/* Tiles or floats? */
static enum svc_code find_form(const struct folder *folder, struct folder_recipe *r,
			       struct svc_err *err)
{
	const struct safetensors_tensor *t = r->source;
	bool tiles = t->dtype == ST_I8 || t->dtype == ST_Q4NX;
	if (!r->what->is_matrix || folder->kind != FOLDER_Q4NX || !tiles) {
		r->form = FOLDER_PLAIN;
		return check_plain(t, r->what->is_matrix, r->rows, r->cols, err);
	}
	enum tile_form form = TILE_A;
	enum svc_code code = q4nx_form_find(t, r->rows, r->cols, &folder->hints, &form, err);
	r->form = (int)form;
	if (code == SVC_OK && r->cols % 32)
		code = BAD(err, "%.*s: %" PRIu32 " columns are not a multiple of 32",
			   (int)t->name.len, t->name.ptr, r->cols);
	return code;
}

/* What stands between a checkpoint's numbers and GGUF's. */
static void find_change(const struct folder *folder, struct folder_recipe *r)
{
	const struct hf_config *c = &folder->config;
	bool gemma = c->arch == HF_GEMMA3;
	r->add = gemma && r->what->is_norm ? 1.0f : 0.0f;
	r->divide = 1.0f;
	if (c->arch == HF_LLAMA && r->what->pairs_q)
		r->heads = c->heads;
	if (c->arch == HF_LLAMA && r->what->pairs_k)
		r->heads = c->kv_heads;
	r->type =
		folder_type_of(r->form, r->source ? r->source->dtype : ST_F32, r->what->is_matrix);
	/* Gemma's Q4NX files hold the embedding times its scale. */
	if (gemma && folder->kind == FOLDER_Q4NX && r->form == FOLDER_PLAIN &&
	    strcmp(r->what->gguf, "token_embd.weight") == 0) {
		r->divide = (float)sqrt((double)c->hidden);
		r->type = r->source->dtype == ST_F32 ? GGUF_TENSOR_F32 : GGUF_TENSOR_F16;
	}
}

static enum svc_code add(struct folder *folder, const struct folder_recipe *recipe, uint32_t layer,
			 struct svc_err *err)
{
	struct folder_recipe *r = arena_alloc(&folder->draft.arena, sizeof *r);
	struct draft_tensor *out = &folder->draft.tensors[folder->draft.n];
	struct gguf_tensor *head = &folder->tensors[folder->draft.n];
	uint32_t elements = 1, bytes = 4;
	if (!r)
		return svc_fail(err, SVC_NO_MEMORY, "folder_plan", "no memory for a tensor");
	*r = *recipe;
	hf_gguf_name(r->what, layer, out->name);
	gguf_tensor_type_block(r->type, &elements, &bytes);
	uint64_t row_bytes = (uint64_t)r->cols / elements * bytes;
	out->size_bytes = r->rows * row_bytes;
	out->strip_bytes = DRAFT_STRIP_ROWS * row_bytes;
	out->make = folder_make;
	out->recipe = r;
	*head = (struct gguf_tensor){
		.name = span_of(out->name),
		.type = r->type,
		.n_dims = r->what->is_matrix ? 2 : 1,
		.dims = {r->what->is_matrix ? r->cols : r->rows, r->rows, 1, 1},
		.size_bytes = out->size_bytes};
	folder->draft.n++;
	return SVC_OK;
}

static enum svc_code plan_tensor(struct folder *folder, const struct hf_tensor *what,
				 uint32_t layer, struct svc_err *err)
{
	char name[HF_NAME_BYTES];
	const struct hf_config *c = &folder->config;
	struct folder_recipe r = {.what = what};
	bool head = strcmp(what->gguf, "output.weight") == 0;
	hf_name(what, layer, name);
	r.source = folder_find(folder, span_of(name));
	/* A checkpoint's tied head is its embedding, whatever else the file may hold. */
	if (head && c->tied && folder->kind == FOLDER_SAFETENSORS)
		return SVC_OK;
	if (!r.source && head && !c->tied)
		return BAD(err, "%s is missing, and tie_word_embeddings is false", name);
	/* config.json's rope_scaling says it exactly. */
	if (!r.source ||
	    (strcmp(what->gguf, "rope_freqs.weight") == 0 && strcmp(c->rope.type, "default") != 0))
		return SVC_OK;
	r.rows = what->is_matrix ? hf_width(c, what->rows) : hf_width(c, what->cols);
	r.cols = what->is_matrix ? hf_width(c, what->cols) : 1;
	enum svc_code code = find_form(folder, &r, err);
	if (code != SVC_OK)
		return code;
	find_change(folder, &r);
	count_form(folder,
		   r.form == FOLDER_PLAIN ? safetensors_dtype_name(r.source->dtype)
					  : tile_form_name((enum tile_form)r.form),
		   &r);
	return add(folder, &r, layer, err);
}

/* config.json's own lists are the tensors that GGUF has for them. */
static enum svc_code plan_factors(struct folder *folder, struct svc_err *err)
{
	const struct hf_config *c = &folder->config;
	size_t n;
	const struct hf_tensor *all = hf_tensors(&n);
	enum svc_code code = SVC_OK;
	if (strcmp(c->rope.type, "longrope") != 0 || !c->rope.n_factors)
		return SVC_OK;
	for (size_t i = 0; i < n && code == SVC_OK; i++) {
		bool is_long = strcmp(all[i].gguf, "rope_factors_long.weight") == 0;
		bool is_short = strcmp(all[i].gguf, "rope_factors_short.weight") == 0;
		struct folder_recipe r = {.what = &all[i],
					  .values = is_long ? c->rope.long_factor
							    : c->rope.short_factor,
					  .form = FOLDER_PLAIN,
					  .type = GGUF_TENSOR_F32,
					  .rows = c->rope.n_factors,
					  .cols = 1,
					  .divide = 1.0f};
		if ((is_long || is_short) && !folder_find(folder, span_of(all[i].hf)))
			code = add(folder, &r, 0, err);
	}
	return code;
}

static enum svc_code check_unused(const struct folder *folder, struct svc_err *err)
{
	for (uint32_t f = 0; f < folder->n_files; f++) {
		for (size_t i = 0; i < safetensors_count(folder->files[f]); i++) {
			const struct safetensors_tensor *t = safetensors_at(folder->files[f], i);
			uint32_t layer;
			if (!hf_find(&folder->config, t->name, false, &layer))
				return svc_fail(err, SVC_UNSUPPORTED, "folder_plan",
						"tensor '%.*s' has no place in a %s model of %u "
						"layers as this program knows it",
						(int)(t->name.len < 100 ? t->name.len : 100),
						t->name.ptr, hf_arch_name(folder->config.arch),
						folder->config.n_layers);
		}
	}
	return SVC_OK;
}

static enum svc_code place(struct folder *folder, struct svc_err *err)
{
	struct draft *draft = &folder->draft;
	struct gguf_writer writer = {.n_pairs = 0};
	const char *slash = strrchr(folder->path, '/');
	uint64_t *offsets = calloc(draft->n + 1, sizeof *offsets);
	if (!offsets)
		return svc_fail(err, SVC_NO_MEMORY, "folder_plan", "no memory for the directory");
	if (folder->metadata)
		gguf_put_all(&writer, folder->metadata);
	else
		hf_config_to_gguf(&folder->config, slash ? slash + 1 : folder->path, &writer);
	uint64_t data = gguf_write_head(&writer, folder->tensors, draft->n,
					folder->metadata ? gguf_alignment(folder->metadata) : 32,
					offsets, &draft->head);
	for (size_t i = 0; i < draft->n; i++)
		draft->tensors[i].offset = draft->head.len + offsets[i];
	draft->total_bytes = draft->head.len + data;
	gguf_writer_free(&writer);
	free(offsets);
	return draft->head.failed
		       ? svc_fail(err, SVC_NO_MEMORY, "folder_plan", "no memory for the metadata")
		       : SVC_OK;
}

enum svc_code folder_plan(struct folder *folder, struct svc_err *err)
{
	size_t n;
	const struct hf_tensor *all = hf_tensors(&n);
	size_t room = n * ((size_t)folder->config.n_layers + 1) + EXTRA_TENSORS;
	folder->draft.tensors = calloc(room, sizeof *folder->draft.tensors);
	folder->tensors = calloc(room, sizeof *folder->tensors);
	if (!folder->draft.tensors || !folder->tensors)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %zu tensors", room);
	enum svc_code code = check_unused(folder, err);
	for (size_t i = 0; i < n && code == SVC_OK; i++)
		if (!all[i].per_layer && all[i].archs & 1u << folder->config.arch)
			code = plan_tensor(folder, &all[i], 0, err);
	if (code == SVC_OK)
		code = plan_factors(folder, err);
	for (uint32_t layer = 0; layer < folder->config.n_layers; layer++)
		for (size_t i = 0; i < n && code == SVC_OK; i++)
			if (all[i].per_layer && all[i].archs & 1u << folder->config.arch)
				code = plan_tensor(folder, &all[i], layer, err);
	return code == SVC_OK ? place(folder, err) : code;
}
