#include "npu-worker/device/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#define BAD(err, ...) svc_fail(err, SVC_NO_DEVICE, "manifest", __VA_ARGS__)

enum { MAX_PROGRAM_BYTES = 256 << 20 };

static bool read_u32(const json_t *object, const char *name, uint32_t high, uint32_t *ret)
{
	const json_t *value = json_object_get(object, name);
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
	    json_integer_value(value) > (json_int_t)high)
		return false;
	*ret = (uint32_t)json_integer_value(value);
	return true;
}

static bool read_text(const json_t *object, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, name));
	return text && text[0] && snprintf(out, size, "%s", text) < (int)size;
}

static bool read_rules(const json_t *rules, bool block, struct manifest_product *p)
{
	size_t i;
	const json_t *rule;
	json_array_foreach(rules, i, rule)
	{
		struct manifest_rule *r = &p->rules[p->n_rules];
		if (p->n_rules == MANIFEST_MAX_RULES)
			return false;
		r->tokens = 1;
		if (!read_u32(rule, "word", p->n_words - 1, &r->word) ||
		    !read_u32(rule, "step", UINT32_MAX, &r->step) ||
		    (block && (!read_u32(rule, "tokens", 1 << 20, &r->tokens) || !r->tokens)))
			return false;
		p->n_rules++;
	}
	return true;
}

static bool read_words(const json_t *words, struct manifest_product *p)
{
	p->n_words = (uint32_t)json_array_size(words);
	if (json_array_size(words) == 0 || json_array_size(words) > MANIFEST_MAX_WORDS)
		return false;
	for (uint32_t i = 0; i < p->n_words; i++) {
		const json_t *word = json_array_get(words, i);
		if (!json_is_integer(word) || json_integer_value(word) < 0 ||
		    json_integer_value(word) > (json_int_t)UINT32_MAX)
			return false;
		p->words[i] = (uint32_t)json_integer_value(word);
	}
	return true;
}

static bool read_product(const json_t *object, struct manifest_product *p)
{
	char type[16];
	bool known = false;
	if (!read_text(object, "type", type, sizeof type))
		return false;
	for (uint32_t t = 0; t < 64 && !known; t++) {
		const char *name = gguf_tensor_type_name(t);
		known = name && strcmp(name, type) == 0;
		p->type = t;
	}
	return known && read_u32(object, "rows", 1 << 24, &p->rows) && p->rows &&
	       read_u32(object, "cols", 1 << 24, &p->cols) && p->cols &&
	       read_words(json_object_get(object, "words"), p) &&
	       read_rules(json_object_get(object, "linear"), false, p) &&
	       read_rules(json_object_get(object, "block"), true, p) &&
	       read_u32(object, "weights", p->n_words - 1, &p->weights) &&
	       p->weights + 1 < p->n_words &&
	       read_u32(object, "output", p->n_words - 1, &p->output);
}

static enum svc_code read_products(const json_t *list, struct manifest *m, struct svc_err *err)
{
	size_t n = json_array_size(list);
	if (n == 0 || n > MANIFEST_MAX_PRODUCTS)
		return BAD(err, "products is not a list of 1 to %d", MANIFEST_MAX_PRODUCTS);
	m->products = calloc(n, sizeof *m->products);
	if (!m->products)
		return svc_fail(err, SVC_NO_MEMORY, "manifest", "out of memory");
	for (size_t i = 0; i < n; i++) {
		if (!read_product(json_array_get(list, i), &m->products[i]))
			return BAD(err,
				   "products[%zu] needs type, rows, cols, words (1 to %d), rules "
				   "within "
				   "them, and the words weights and output",
				   i, MANIFEST_MAX_WORDS);
		m->n_products++;
	}
	return SVC_OK;
}

static enum svc_code read_fields(const json_t *root, const char *folder, struct manifest *m,
				 struct svc_err *err)
{
	char program[256];
	uint32_t format = 0;
	if (!read_u32(root, "format", UINT32_MAX, &format) || format != 1)
		return BAD(err, "format is %u; 1 is supported", format);
	if (!read_text(root, "program", program, sizeof program) || strchr(program, '/'))
		return BAD(err, "program is not the name of a file in the folder");
	if (snprintf(m->program, sizeof m->program, "%s/%s", folder, program) >=
	    (int)sizeof m->program)
		return BAD(err, "the folder's path is too long");
	if (!read_text(root, "kernel", m->kernel, sizeof m->kernel) ||
	    !read_text(root, "family", m->family, sizeof m->family))
		return BAD(err, "kernel and family must be names");
	if (!read_u32(root, "max_tokens", 4096, &m->max_tokens) || !m->max_tokens)
		return BAD(err, "max_tokens is not from 1 to 4096");
	return read_products(json_object_get(root, "products"), m, err);
}

static enum svc_code check_program(const json_t *root, const struct manifest *m,
				   struct svc_err *err)
{
	char found[17] = "", wanted[17] = "";
	FILE *file = fopen(m->program, "rbe");
	if (!file)
		return BAD(err, "program %s cannot be opened", m->program);
	long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	char *bytes = size > 0 && size <= MAX_PROGRAM_BYTES ? malloc((size_t)size) : NULL;
	rewind(file);
	if (bytes && fread(bytes, 1, (size_t)size, file) == (size_t)size)
		snprintf(found, sizeof found, "%016" PRIx64,
			 (uint64_t)XXH3_64bits(bytes, (size_t)size));
	free(bytes);
	fclose(file);
	if (read_text(root, "xxh3", wanted, sizeof wanted) && strcmp(found, wanted) == 0)
		return SVC_OK;
	return BAD(err, "program %s has XXH3 %s, the manifest says %s: they don't belong together",
		   m->program, found, wanted);
}

enum svc_code manifest_read(const json_t *root, const char *folder, struct manifest **ret_manifest,
			    struct svc_err *err)
{
	struct manifest *m = calloc(1, sizeof *m);
	if (!m)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = read_fields(root, folder, m, err);
	if (code == SVC_OK)
		*ret_manifest = m;
	else
		manifest_close(m);
	return code;
}

enum svc_code manifest_open(const char *folder, struct manifest **ret_manifest, struct svc_err *err)
{
	char path[4200];
	json_error_t where;
	struct manifest *m = NULL;
	snprintf(path, sizeof path, "%s/manifest.json", folder);
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return BAD(err, "no NPU kernels: %s: %.100s", path, where.text);
	enum svc_code code = manifest_read(root, folder, &m, err);
	if (code == SVC_OK)
		code = check_program(root, m, err);
	json_decref(root);
	if (code != SVC_OK) {
		svc_err_prefix(err, "%s", path);
		manifest_close(m);
		return code;
	}
	*ret_manifest = m;
	return SVC_OK;
}

struct manifest *manifest_close(struct manifest *manifest)
{
	if (manifest)
		free(manifest->products);
	free(manifest);
	return NULL;
}

const struct manifest_product *manifest_find(const struct manifest *manifest,
					     const struct kernels_matrix *matrix)
{
	for (uint32_t i = 0; i < manifest->n_products; i++) {
		const struct manifest_product *p = &manifest->products[i];
		if (p->type == matrix->type && p->rows == matrix->rows && p->cols == matrix->cols)
			return p;
	}
	return NULL;
}

void manifest_list(const struct manifest *manifest, char *text, size_t size)
{
	size_t at = 0;
	text[0] = 0;
	for (uint32_t i = 0; i < manifest->n_products && at < size; i++) {
		const struct manifest_product *p = &manifest->products[i];
		int n = snprintf(text + at, size - at, "%s%s %ux%u", i ? ", " : "",
				 gguf_tensor_type_name(p->type), p->rows, p->cols);
		at += n > 0 ? (size_t)n : 0;
	}
}

void manifest_stream(const struct manifest_product *product, uint32_t tokens,
		     uint64_t weights_offset, uint32_t output_offset, uint32_t *ret_words)
{
	memcpy(ret_words, product->words, product->n_words * sizeof *ret_words);
	for (uint32_t i = 0; i < product->n_rules; i++) {
		const struct manifest_rule *r = &product->rules[i];
		ret_words[r->word] += (tokens - 1) / r->tokens * r->step;
	}
	ret_words[product->weights] = (uint32_t)weights_offset;
	ret_words[product->weights + 1] = (uint32_t)(weights_offset >> 32);
	ret_words[product->output] = output_offset;
}
