#include "npu-worker/engine/model_file_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf.h"
#include "npu-worker/engine/region.h"

struct writer {
	const struct model_file *file;
	struct buf keys, infos, data;
	uint64_t n_keys, n_tensors, draw;
};

static void put(struct buf *buf, uint64_t value, size_t bytes)
{
	buf_append(buf, &value, bytes); /* little-endian, as the machine */
}

static void put_text(struct buf *buf, const char *text)
{
	put(buf, strlen(text), 8);
	buf_append(buf, text, strlen(text));
}

static bool is_name(const char *wanted, const char *name)
{
	return wanted && strcmp(wanted, name) == 0;
}

static void put_key(struct writer *w, const char *suffix, enum gguf_type type, uint32_t value)
{
	char key[128];
	snprintf(key, sizeof key, "%s.%s", w->file->arch, suffix);
	if (is_name(w->file->omit_key, key))
		return;
	put_text(&w->keys, key);
	put(&w->keys, type, 4);
	put(&w->keys, value, 4);
	w->n_keys++;
}

static void put_string(struct writer *w, const char *key, const char *text)
{
	put_text(&w->keys, key);
	put(&w->keys, GGUF_STRING, 4);
	put_text(&w->keys, text);
	w->n_keys++;
}

static float next_float(struct writer *w)
{
	w->draw = w->draw * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(w->draw >> 32) * 0x1p-31f;
}

static void put_float(struct buf *buf, float value)
{
	buf_append(buf, &value, sizeof value);
}

static void put_values(struct writer *w, uint32_t type, uint32_t rows, uint32_t cols)
{
	static const float middle = 0.25f;
	for (uint32_t i = 0; i < rows * cols; i++) {
		if (type == GGUF_TENSOR_F32)
			put_float(&w->data, next_float(w) * middle);
		if (type == GGUF_TENSOR_Q8_0 && i % 32 == 0)
			put(&w->data, 0x1800 + (i & 0xff), 2); /* a float16 of about 0.002 */
		if (type == GGUF_TENSOR_Q8_0)
			put(&w->data, (uint64_t)(int64_t)(next_float(w) * 127.0f), 1);
	}
}

static void enlarge(char *values, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float value;
		memcpy(&value, values + i * sizeof value, sizeof value);
		value *= 0x1p24f;
		memcpy(values + i * sizeof value, &value, sizeof value);
	}
}

static void put_tensor(struct writer *w, const char *name, uint32_t type, uint32_t rows,
		       uint32_t cols)
{
	if (is_name(w->file->omit_tensor, name))
		return;
	if (is_name(w->file->wide_tensor, name))
		cols += 32;
	put_text(&w->infos, name);
	put(&w->infos, rows ? 2 : 1, 4);
	put(&w->infos, cols, 8);
	if (rows)
		put(&w->infos, rows, 8);
	put(&w->infos, type, 4);
	put(&w->infos, w->data.len, 8);
	size_t start = w->data.len;
	put_values(w, type, rows ? rows : 1, cols);
	if (w->file->nan_token >= 0 && strcmp(name, "token_embd.weight") == 0)
		memset(w->data.ptr + start + (size_t)w->file->nan_token * cols * 4, 0xff, 4);
	if (w->file->huge_tensor && strcmp(name, w->file->huge_tensor) == 0)
		enlarge(w->data.ptr + start, (size_t)rows * cols);
	while (w->data.len % 32)
		put(&w->data, 0, 1);
	w->n_tensors++;
}

static void put_layer(struct writer *w, uint32_t layer)
{
	const struct model_file *f = w->file;
	const struct {
		const char *name;
		uint32_t rows, cols; /* rows 0: a vector */
		bool gemma;
	} tensors[] = {
		{"attn_norm", 0, f->width, false},
		{"attn_q", f->heads * f->head_dim, f->width, false},
		{"attn_k", f->kv_heads * f->head_dim, f->width, false},
		{"attn_v", f->kv_heads * f->head_dim, f->width, false},
		{"attn_output", f->width, f->heads * f->head_dim, false},
		{"ffn_norm", 0, f->width, false},
		{"ffn_gate", f->ffn, f->width, false},
		{"ffn_up", f->ffn, f->width, false},
		{"ffn_down", f->width, f->ffn, false},
		{"attn_q_norm", 0, f->head_dim, true},
		{"attn_k_norm", 0, f->head_dim, true},
		{"post_attention_norm", 0, f->width, true},
		{"post_ffw_norm", 0, f->width, true},
	};
	for (unsigned i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
		if (!tensors[i].gemma || f->gemma)
			put_tensor(w, name, tensors[i].rows ? f->type : GGUF_TENSOR_F32,
				   tensors[i].rows, tensors[i].cols);
	}
}

static void put_metadata(struct writer *w)
{
	const struct model_file *f = w->file;
	put_string(w, "general.architecture", f->arch);
	put_key(w, "block_count", GGUF_U32, f->layers);
	put_key(w, "embedding_length", GGUF_U32, f->width);
	put_key(w, "feed_forward_length", GGUF_U32, f->ffn);
	put_key(w, "context_length", GGUF_U32, f->ctx);
	put_key(w, "attention.head_count", GGUF_U32, f->heads);
	put_key(w, "attention.head_count_kv", GGUF_U32, f->kv_heads);
	put_key(w, "attention.key_length", GGUF_U32, f->head_dim);
	put_key(w, "attention.layer_norm_rms_epsilon", GGUF_F32, 0x358637bd); /* 1e-6 */
	if (f->gemma)
		put_key(w, "attention.sliding_window", GGUF_U32, 70);
	if (f->extra_key)
		put_key(w, f->extra_key, GGUF_U32, f->extra_value);
	if (f->text_key) {
		char key[128];
		snprintf(key, sizeof key, "%s.%s", f->arch, f->text_key);
		put_string(w, key, f->text);
	}
}

struct model_file model_file_default(void)
{
	return (struct model_file){.arch = "llama",
				   .layers = 2,
				   .width = 64,
				   .ffn = 96,
				   .heads = 4,
				   .kv_heads = 2,
				   .head_dim = 16,
				   .vocab = 70,
				   .ctx = 256,
				   .type = GGUF_TENSOR_Q8_0,
				   .nan_token = -1};
}

void model_file_write(const struct model_file *file, char *path)
{
	struct writer w = {.file = file, .draw = 42};
	put_metadata(&w);
	put_tensor(&w, "token_embd.weight", file->type, file->vocab, file->width);
	put_tensor(&w, "output_norm.weight", GGUF_TENSOR_F32, 0, file->width);
	if (file->untied)
		put_tensor(&w, "output.weight", file->type, file->vocab, file->width);
	if (file->extra_tensor)
		put_tensor(&w, file->extra_tensor, GGUF_TENSOR_F32, 0, 1);
	for (uint32_t layer = 0; layer < file->layers; layer++)
		put_layer(&w, layer);
	struct buf whole = {0};
	put(&whole, 0x46554747, 4); /* "GGUF" */
	put(&whole, 3, 4);
	put(&whole, w.n_tensors, 8);
	put(&whole, w.n_keys, 8);
	buf_append(&whole, w.keys.ptr, w.keys.len);
	buf_append(&whole, w.infos.ptr, w.infos.len);
	while (whole.len % 32)
		put(&whole, 0, 1);
	buf_append(&whole, w.data.ptr, w.data.len);
	memcpy(path, "/tmp/lockstep-model-XXXXXX", sizeof "/tmp/lockstep-model-XXXXXX");
	int fd = mkstemp(path);
	if (fd < 0 || whole.failed || write(fd, whole.ptr, whole.len) != (ssize_t)whole.len)
		abort();
	close(fd);
	buf_free(&whole);
	buf_free(&w.keys);
	buf_free(&w.infos);
	buf_free(&w.data);
}

void *model_file_pack(const struct model_file *file, size_t *ret_bytes)
{
	char path[32];
	struct svc_err err;
	struct gguf *gguf = NULL;
	struct plan *plan = NULL;
	model_file_write(file, path);
	if (gguf_open(path, &gguf, &err) || plan_open(gguf, file->ctx, &plan, &err) || !plan) {
		fprintf(stderr, "%s\n", err.msg);
		abort();
	}
	struct region_job job = {.gguf = gguf, .plan = plan, .model = region_model_hash(gguf)};
	job.region = aligned_alloc(64, plan->total_bytes);
	if (!job.region)
		abort();
	memset(job.region, 0xee, plan->total_bytes);
	*ret_bytes = plan->total_bytes;
	if (region_pack(&job, NULL, &err) != SVC_OK)
		abort();
	plan_close(plan);
	gguf_close(gguf);
	unlink(path);
	return job.region;
}
