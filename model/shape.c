#include "model/shape.h"

#include <stdio.h>
#include <string.h>

#include "model/folder.h"
#include "model/open.h"

#define POSITIONS 64u

static enum svc_code read_count(const struct gguf *gguf, const char *arch, const char *suffix,
				uint32_t *ret, struct svc_err *err)
{
	char key[96];
	uint64_t value = 0;
	snprintf(key, sizeof key, "%s.%s", arch, suffix);
	if (!gguf_u64(gguf, key, &value) || value == 0 || value > 1u << 20)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"%s is missing or out of range (1 to 1048576)", key);
	*ret = (uint32_t)value;
	return SVC_OK;
}

static enum svc_code read_head_dim(const struct gguf *gguf, struct model_shape *shape,
				   struct svc_err *err)
{
	char key[96];
	uint64_t value = 0;
	uint32_t heads = 1;
	snprintf(key, sizeof key, "%s.attention.key_length", shape->arch);
	if (gguf_u64(gguf, key, &value) && value > 0 && value <= 4096) {
		shape->head_dim = (uint32_t)value;
		return SVC_OK;
	}
	enum svc_code code = read_count(gguf, shape->arch, "attention.head_count", &heads, err);
	if (code == SVC_OK)
		shape->head_dim = shape->n_embd / heads;
	return code;
}

static enum svc_code read_vocab(const struct gguf *gguf, struct model_shape *shape,
				struct svc_err *err)
{
	struct gguf_array tokens;
	const struct gguf_tensor *embedding = gguf_tensor_find(gguf, "token_embd.weight");
	/* Rows of the embedding count: some models pad it beyond the tokenizer's list. */
	if (embedding && embedding->n_dims == 2 && embedding->dims[1] <= 1u << 20)
		shape->n_vocab = (uint32_t)embedding->dims[1];
	else if (gguf_array(gguf, "tokenizer.ggml.tokens", &tokens) && tokens.count <= 1u << 20)
		shape->n_vocab = (uint32_t)tokens.count;
	if (shape->n_vocab == 0)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"neither token_embd.weight nor tokenizer.ggml.tokens is there");
	return SVC_OK;
}

/* A file's name without its ending, or a folder's name: what people call the model by. */
static void read_name(const char *path, struct model_shape *shape)
{
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	const char *base = memrchr(path, '/', length);
	base = base && length > 1 ? base + 1 : path;
	const char *end = folder_is(path) ? NULL : strrchr(base, '.');
	int len = (int)(end && end > base ? end - base : path + (long)length - base);
	snprintf(shape->name, sizeof shape->name, "%.*s", len, base);
}

static enum svc_code read_all(const struct gguf *gguf, struct model_shape *shape,
			      struct svc_err *err)
{
	struct span arch;
	if (!gguf_string(gguf, "general.architecture", &arch) || arch.len == 0 ||
	    arch.len >= sizeof shape->arch)
		return svc_fail(err, SVC_BAD_MODEL, __func__, "general.architecture is missing");
	snprintf(shape->arch, sizeof shape->arch, "%.*s", (int)arch.len, arch.ptr);
	enum svc_code code = read_count(gguf, shape->arch, "block_count", &shape->n_layer, err);
	if (code == SVC_OK)
		code = read_count(gguf, shape->arch, "context_length", &shape->ctx_train, err);
	if (code == SVC_OK)
		code = read_count(gguf, shape->arch, "embedding_length", &shape->n_embd, err);
	if (code == SVC_OK)
		code = read_head_dim(gguf, shape, err);
	if (code == SVC_OK && read_count(gguf, shape->arch, "attention.head_count_kv",
					 &shape->n_kv_head, err) != SVC_OK)
		code = read_count(gguf, shape->arch, "attention.head_count", &shape->n_kv_head,
				  err);
	if (code == SVC_OK)
		code = read_vocab(gguf, shape, err);
	return code;
}

enum svc_code model_shape_read(const char *path, struct model_shape *ret_shape, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	struct model_shape shape = {0};
	enum svc_code code = model_open_head(path, &gguf, shape.hash, err);
	if (code != SVC_OK)
		return code;
	code = read_all(gguf, &shape, err);
	if (code == SVC_OK) {
		read_name(path, &shape);
		shape.file_bytes = gguf_bytes(gguf).len;
		*ret_shape = shape;
	} else {
		svc_err_prefix(err, "%s", path);
	}
	gguf_close(gguf);
	return code;
}

uint64_t model_page_bytes(const struct model_shape *shape, uint32_t element_bytes,
			  uint32_t vector_bytes)
{
	uint64_t value_dim = (shape->head_dim + 15ull) / 16 * 16;
	uint64_t position = (shape->head_dim + value_dim) * element_bytes + 2ull * vector_bytes;
	return POSITIONS * position * shape->n_layer * shape->n_kv_head;
}
