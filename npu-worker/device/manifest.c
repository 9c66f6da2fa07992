#include "npu-worker/device/manifest_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

enum { MAX_PROGRAM_BYTES = 256 << 20 };

static enum svc_code read_products(const json_t *list, struct manifest *m, struct svc_err *err)
{
	size_t n = json_array_size(list);
	if (n == 0 || n > MANIFEST_MAX_PRODUCTS)
		return BAD(err, "products is not a list of 1 to %d", MANIFEST_MAX_PRODUCTS);
	m->products = calloc(n, sizeof *m->products);
	if (!m->products)
		return svc_fail(err, SVC_NO_MEMORY, "manifest", "out of memory");
	for (size_t i = 0; i < n; i++) {
		if (!manifest_read_product(json_array_get(list, i), &m->products[i]))
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
	if (!manifest_u32(root, "format", UINT32_MAX, &format) || format != 1)
		return BAD(err, "format is %u; 1 is supported", format);
	if (!manifest_text(root, "program", program, sizeof program) || strchr(program, '/'))
		return BAD(err, "program is not the name of a file in the folder");
	if (snprintf(m->program, sizeof m->program, "%s/%s", folder, program) >=
	    (int)sizeof m->program)
		return BAD(err, "the folder's path is too long");
	if (!manifest_text(root, "kernel", m->kernel, sizeof m->kernel) ||
	    !manifest_text(root, "family", m->family, sizeof m->family))
		return BAD(err, "kernel and family must be names");
	if (!manifest_u32(root, "max_tokens", 4096, &m->max_tokens) || !m->max_tokens)
		return BAD(err, "max_tokens is not from 1 to 4096");
	const json_t *products = json_object_get(root, "products");
	enum svc_code code = manifest_read_layers(root, m, err);
	if (code != SVC_OK || (!products && m->n_layers))
		return code;
	return read_products(products, m, err);
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
	if (manifest_text(root, "xxh3", wanted, sizeof wanted) && strcmp(found, wanted) == 0)
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
	if (manifest) {
		free(manifest->products);
		free(manifest->layers);
		free(manifest->head);
	}
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
	for (uint32_t i = 0; i < manifest->n_layers && at < size; i++) {
		char shape[200];
		manifest_describe(&manifest->layers[i].shape, shape, sizeof shape);
		int n = snprintf(text + at, size - at, "%slayers of %s", at ? ", " : "", shape);
		at += n > 0 ? (size_t)n : 0;
	}
}

const struct manifest_layer *manifest_find_layer(const struct manifest *manifest,
						 const struct manifest_shape *shape)
{
	for (uint32_t i = 0; i < manifest->n_layers; i++)
		if (memcmp(&manifest->layers[i].shape, shape, sizeof *shape) == 0)
			return &manifest->layers[i];
	return NULL;
}
