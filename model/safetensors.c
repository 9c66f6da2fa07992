#include "model/safetensors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/tile.h"

#define MAX_HEADER_BYTES (100u << 20)
#define MAX_TENSORS	 65536u

struct safetensors {
	struct span file;
	json_t *header; /* names live here */
	struct safetensors_tensor *tensors;
	const struct safetensors_tensor **by_name;
	size_t n;
};

static const struct {
	const char *name;
	uint32_t bytes;
} dtypes[ST_DTYPE_COUNT] = {
	[ST_Q4NX] = {"Q4NX", 0}, [ST_BOOL] = {"BOOL", 1}, [ST_U8] = {"U8", 1},
	[ST_I8] = {"I8", 1},	 [ST_I16] = {"I16", 2},	  [ST_U16] = {"U16", 2},
	[ST_F16] = {"F16", 2},	 [ST_BF16] = {"BF16", 2}, [ST_I32] = {"I32", 4},
	[ST_U32] = {"U32", 4},	 [ST_F32] = {"F32", 4},	  [ST_F64] = {"F64", 8},
	[ST_I64] = {"I64", 8},	 [ST_U64] = {"U64", 8},
};

#define BAD(err, ...) svc_fail(err, SVC_BAD_MODEL, "safetensors", __VA_ARGS__)

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
	return dtype < ST_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

uint32_t safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
	return dtype < ST_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

static bool read_count(const json_t *value, uint64_t *ret)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(value);
	return true;
}

static enum svc_code read_shape(const json_t *shape, struct safetensors_tensor *t,
				uint64_t *ret_elements, struct svc_err *err)
{
	uint64_t elements = 1;
	if (!json_is_array(shape) || json_array_size(shape) > ST_MAX_DIMS)
		return BAD(err, "shape is not an array of at most %d numbers", ST_MAX_DIMS);
	t->n_dims = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < t->n_dims; i++) {
		if (!read_count(json_array_get(shape, i), &t->dims[i]))
			return BAD(err, "shape[%u] is not a whole number from 0", i);
		if (__builtin_mul_overflow(elements, t->dims[i], &elements))
			return BAD(err, "the product of its shape overflows");
	}
	*ret_elements = elements;
	return SVC_OK;
}

static enum svc_code read_dtype(const json_t *dtype, struct safetensors_tensor *t,
				struct svc_err *err)
{
	const char *name = json_string_value(dtype);
	for (uint32_t i = 0; name && i < ST_DTYPE_COUNT; i++) {
		if (strcmp(name, dtypes[i].name) == 0) {
			t->dtype = (enum safetensors_dtype)i;
			return SVC_OK;
		}
	}
	return svc_fail(err, SVC_UNSUPPORTED, "safetensors", "dtype '%.40s' is not known",
			name ? name : "");
}

/* Bytes that the shape implies. A Q4NX tensor's logical [N, K] lies in tiles of 32 x 256. */
static enum svc_code size_of(const struct safetensors_tensor *t, uint64_t elements,
			     uint64_t *ret_bytes, struct svc_err *err)
{
	if (t->dtype != ST_Q4NX) {
		if (__builtin_mul_overflow(elements, dtypes[t->dtype].bytes, ret_bytes))
			return BAD(err, "its size overflows");
		return SVC_OK;
	}
	if (t->n_dims != 2 || t->dims[0] % TILE_ROWS || t->dims[1] % TILE_COLS)
		return BAD(err, "a Q4NX tensor's shape must be [multiple of %d, multiple of %d]",
			   TILE_ROWS, TILE_COLS);
	*ret_bytes = elements / (TILE_ROWS * TILE_COLS) * TILE_Q4_BYTES;
	return SVC_OK;
}

static enum svc_code read_tensor(const json_t *entry, struct span data,
				 struct safetensors_tensor *t, struct svc_err *err)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t elements = 0, wanted = 0, begin = 0, end = 0;
	if (!json_is_object(entry))
		return BAD(err, "its entry is not an object");
	enum svc_code code = read_dtype(json_object_get(entry, "dtype"), t, err);
	if (code == SVC_OK)
		code = read_shape(json_object_get(entry, "shape"), t, &elements, err);
	if (code == SVC_OK)
		code = size_of(t, elements, &wanted, err);
	if (code != SVC_OK)
		return code;
	if (json_array_size(offsets) != 2 || !read_count(json_array_get(offsets, 0), &begin) ||
	    !read_count(json_array_get(offsets, 1), &end))
		return BAD(err, "data_offsets are not two whole numbers from 0");
	if (begin > end || end > data.len)
		return BAD(err,
			   "data_offsets [%" PRIu64 ", %" PRIu64
			   "] are not within the file's %zu bytes of data (truncated?)",
			   begin, end, data.len);
	if (end - begin != wanted)
		return BAD(err,
			   "data_offsets span %" PRIu64 " bytes; its shape and dtype need %" PRIu64,
			   end - begin, wanted);
	t->data = data.ptr + begin;
	t->size_bytes = wanted;
	return SVC_OK;
}

static enum svc_code read_tensors(struct safetensors *file, struct span data, struct svc_err *err)
{
	const char *key;
	json_t *entry;
	json_object_foreach(file->header, key, entry)
	{
		if (strcmp(key, "__metadata__") == 0)
			continue;
		struct safetensors_tensor *t = &file->tensors[file->n];
		t->name = span_of(key);
		enum svc_code code = read_tensor(entry, data, t, err);
		if (code != SVC_OK) {
			svc_err_prefix(err, "tensor '%.80s'", key);
			return code;
		}
		file->n++;
	}
	return SVC_OK;
}

static int name_order(struct span a, struct span b)
{
	int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int data_order(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;
	if (x->data != y->data)
		return (const char *)x->data < (const char *)y->data ? -1 : 1;
	if (x->size_bytes != y->size_bytes) /* an empty one lies before the one it shares a byte
					       with */
		return x->size_bytes < y->size_bytes ? -1 : 1;
	return name_order(x->name, y->name);
}

static int by_name_order(const void *a, const void *b)
{
	return name_order((*(const struct safetensors_tensor *const *)a)->name,
			  (*(const struct safetensors_tensor *const *)b)->name);
}

int safetensors_file_order(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
	if (a->dtype != b->dtype)
		return a->dtype > b->dtype ? -1 : 1;
	return name_order(a->name, b->name);
}

static enum svc_code index_tensors(struct safetensors *file, struct svc_err *err)
{
	qsort(file->tensors, file->n, sizeof *file->tensors, data_order);
	for (size_t i = 0; i < file->n; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];
		file->by_name[i] = t;
		if (i > 0 && (const char *)t[-1].data + t[-1].size_bytes > (const char *)t->data)
			return BAD(err, "tensors '%.80s' and '%.80s' overlap", t[-1].name.ptr,
				   t->name.ptr);
	}
	qsort(file->by_name, file->n, sizeof *file->by_name, by_name_order);
	return SVC_OK;
}

static enum svc_code parse(struct safetensors *file, struct svc_err *err)
{
	uint64_t length = 0;
	json_error_t where;
	memcpy(&length, file->file.ptr, sizeof length);
	size_t rest = file->file.len - sizeof length;
	if (length > rest || length > MAX_HEADER_BYTES)
		return BAD(err,
			   "the header's length is %" PRIu64
			   "; the file has %zu bytes and the limit is %u: not a safetensors file, "
			   "or truncated",
			   length, rest, MAX_HEADER_BYTES);
	const char *text = file->file.ptr + sizeof length;
	file->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &where);
	if (!file->header)
		return BAD(err, "the header is not JSON, or has a name twice: %.100s (byte %d)",
			   where.text, where.position);
	if (!json_is_object(file->header))
		return BAD(err, "the header is not an object");
	size_t room = json_object_size(file->header);
	if (room > MAX_TENSORS)
		return BAD(err, "%zu tensors; the limit is %u", room, MAX_TENSORS);
	file->tensors = calloc(room + 1, sizeof *file->tensors);
	file->by_name = calloc(room + 1, sizeof(struct safetensors_tensor *));
	if (!file->tensors || !file->by_name)
		return svc_fail(err, SVC_NO_MEMORY, "safetensors", "no memory for the directory");
	const struct span data = {text + length, rest - (size_t)length};
	enum svc_code code = read_tensors(file, data, err);
	return code == SVC_OK ? index_tensors(file, err) : code;
}

static enum svc_code map_file(const char *path, struct span *ret_file, struct svc_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat stat;
	enum svc_code code = SVC_OK;
	if (fd < 0)
		return svc_fail_errno(err, "safetensors", "cannot open");
	if (fstat(fd, &stat) < 0)
		code = svc_fail_errno(err, "safetensors", "cannot stat");
	else if (!S_ISREG(stat.st_mode) || stat.st_size < 10)
		code = BAD(err, "not a regular file, or shorter than 10 bytes: not a safetensors "
				"file");
	if (code == SVC_OK) {
		void *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (bytes == MAP_FAILED)
			code = svc_fail_errno(err, "safetensors", "cannot map %lld bytes",
					      (long long)stat.st_size);
		else
			*ret_file = (struct span){bytes, (size_t)stat.st_size};
	}
	close(fd);
	return code;
}

enum svc_code safetensors_open(const char *path, struct safetensors **ret_file, struct svc_err *err)
{
	struct svc_err unread = {0};
	struct safetensors *file = calloc(1, sizeof *file);
	err = err ? err : &unread;
	if (!file)
		return svc_fail(err, SVC_NO_MEMORY, "safetensors", "%s: no memory", path);
	enum svc_code code = map_file(path, &file->file, err);
	if (code == SVC_OK && file->file.ptr)
		code = parse(file, err);
	if (code != SVC_OK) {
		svc_err_prefix(err, "%s", path);
		safetensors_close(file);
		return code;
	}
	*ret_file = file;
	return SVC_OK;
}

struct safetensors *safetensors_close(struct safetensors *file)
{
	if (!file)
		return NULL;
	json_decref(file->header);
	free(file->tensors);
	free(file->by_name);
	if (file->file.ptr)
		munmap((void *)(uintptr_t)file->file.ptr, file->file.len);
	free(file);
	return NULL;
}

size_t safetensors_count(const struct safetensors *file)
{
	return file->n;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index)
{
	return index < file->n ? &file->tensors[index] : NULL;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file, struct span name)
{
	const struct safetensors_tensor wanted = {.name = name}, *key = &wanted;
	const struct safetensors_tensor *const *found =
		bsearch(&key, file->by_name, file->n, sizeof *file->by_name, by_name_order);
	return found ? *found : NULL;
}

void safetensors_header(const struct safetensors_tensor *tensors, size_t n, struct buf *out)
{
	size_t start = out->len;
	uint64_t length = 0, offset = 0;
	buf_append(out, &length, sizeof length);
	buf_print(out, "{");
	for (size_t i = 0; i < n; i++) {
		const struct safetensors_tensor *t = &tensors[i];
		buf_print(out, "%s", i ? "," : "");
		buf_json_string(out, t->name);
		buf_print(out, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(t->dtype));
		for (uint32_t d = 0; d < t->n_dims; d++)
			buf_print(out, "%s%" PRIu64, d ? "," : "", t->dims[d]);
		buf_print(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
			  offset + t->size_bytes);
		offset += t->size_bytes;
	}
	buf_print(out, "}");
	while ((out->len - start) % 8)
		buf_print(out, " ");
	if (out->failed)
		return;
	length = out->len - start - sizeof length;
	memcpy(out->ptr + start, &length, sizeof length);
}
