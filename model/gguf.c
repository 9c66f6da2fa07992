#include "model/gguf_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Multi-byte values are copied as they lie in the file. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "GGUF is little-endian, and so must be the host");

#define MAGIC		   0x46554747u /* "GGUF" */
#define MAX_KEYS	   65536u
#define MAX_TENSORS	   65536u
#define MAX_ARRAY_ELEMENTS (16u << 20)
#define MAX_STRING_BYTES   (64u << 20)
#define MAX_NAME_BYTES	   65535u
#define MIN_ALIGNMENT	   8u /* the format's own rule; a kernel may load any element type directly */
#define MAX_ALIGNMENT	   (1u << 20)
#define PRINTABLE_BYTES	   80
#define DEFAULT_ALIGNMENT  32u

/* Where the reader stands. A take_… that fails has filled err, which is never NULL here. */
struct cursor {
	struct span file;
	size_t at;
	struct svc_err *err;
};

static const struct type_info {
	const char *name;
	uint16_t block_elements, block_bytes;
} tensor_types[] = {
	[0] = {"F32", 1, 4},	     [1] = {"F16", 1, 2},	  [2] = {"Q4_0", 32, 18},
	[3] = {"Q4_1", 32, 20},	     [6] = {"Q5_0", 32, 22},	  [7] = {"Q5_1", 32, 24},
	[8] = {"Q8_0", 32, 34},	     [10] = {"Q2_K", 256, 84},	  [11] = {"Q3_K", 256, 110},
	[12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},	  [14] = {"Q6_K", 256, 210},
	[16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98},
	[19] = {"IQ1_S", 256, 50},   [20] = {"IQ4_NL", 32, 18},	  [21] = {"IQ3_S", 256, 110},
	[22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},
	[25] = {"I16", 1, 2},	     [26] = {"I32", 1, 4},	  [27] = {"I64", 1, 8},
	[28] = {"F64", 1, 8},	     [29] = {"IQ1_M", 256, 56},	  [30] = {"BF16", 1, 2},
	[34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},	  [39] = {"MXFP4", 32, 17},
};

static const struct type_info *type_info(uint32_t type)
{
	if (type >= sizeof tensor_types / sizeof *tensor_types || !tensor_types[type].name)
		return NULL;
	return &tensor_types[type];
}

const char *gguf_tensor_type_name(uint32_t type)
{
	const struct type_info *info = type_info(type);
	return info ? info->name : NULL;
}

bool gguf_tensor_type_block(uint32_t type, uint32_t *ret_elements, uint32_t *ret_bytes)
{
	const struct type_info *info = type_info(type);
	if (!info)
		return false;
	*ret_elements = info->block_elements;
	*ret_bytes = info->block_bytes;
	return true;
}

size_t gguf_scalar_bytes(uint32_t type)
{
	static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
	return type < sizeof sizes ? sizes[type] : 0;
}

/* A name out of the file, fit for an error message. */
static const char *printable(struct span name, char out[PRINTABLE_BYTES])
{
	size_t len = name.len < PRINTABLE_BYTES - 1 ? name.len : PRINTABLE_BYTES - 1;
	for (size_t i = 0; i < len; i++)
		out[i] = name.ptr[i] >= 0x20 && name.ptr[i] < 0x7F ? name.ptr[i] : '?';
	out[len] = 0;
	return out;
}

/* The code once more, so that a reader (and the analyzer) sees that it isn't SVC_OK. */
#define FAIL(cursor, code, ...) (svc_fail((cursor)->err, (code), "gguf", __VA_ARGS__), (code))
#define BAD(cursor, ...)	FAIL(cursor, SVC_BAD_MODEL, __VA_ARGS__)

/* NULL, with err filled, if the file ends before. */
static const unsigned char *take(struct cursor *c, const char *what, size_t size)
{
	size_t left = c->file.len - c->at;
	if (size > left) {
		(void)BAD(c,
			  "%s at offset %zu needs %zu bytes, but only %zu are left in the file "
			  "(truncated?)",
			  what, c->at, size, left);
		return NULL;
	}
	const char *bytes = c->file.ptr + c->at;
	c->at += size;
	return (const unsigned char *)bytes;
}

static enum svc_code take_u32(struct cursor *c, const char *what, uint32_t *ret)
{
	const unsigned char *bytes = take(c, what, sizeof *ret);
	if (!bytes)
		return SVC_BAD_MODEL;
	memcpy(ret, bytes, sizeof *ret);
	return SVC_OK;
}

static enum svc_code take_u64(struct cursor *c, const char *what, uint64_t *ret)
{
	const unsigned char *bytes = take(c, what, sizeof *ret);
	if (!bytes)
		return SVC_BAD_MODEL;
	memcpy(ret, bytes, sizeof *ret);
	return SVC_OK;
}

static enum svc_code take_string(struct cursor *c, const char *what, size_t limit, struct span *ret)
{
	uint64_t len = 0;
	enum svc_code code = take_u64(c, what, &len);
	if (code != SVC_OK)
		return code;
	if (len > limit)
		return BAD(c, "%s before offset %zu has a length of %llu bytes; the limit is %zu",
			   what, c->at, (unsigned long long)len, limit);
	const unsigned char *bytes = take(c, what, (size_t)len);
	if (!bytes)
		return SVC_BAD_MODEL;
	*ret = (struct span){(const char *)bytes, (size_t)len};
	return SVC_OK;
}

static enum svc_code take_string_array(struct cursor *c, struct gguf_pair *pair)
{
	uint64_t count = pair->array.count;
	/* Each string takes at least its length field, so a forged count cannot make us allocate.
	 */
	if (count > (c->file.len - c->at) / 8)
		return BAD(c, "array of %llu strings at offset %zu is longer than the file",
			   (unsigned long long)count, c->at);
	pair->owned_strings = calloc(count ? (size_t)count : 1, sizeof(struct span));
	if (!pair->owned_strings)
		return FAIL(c, SVC_NO_MEMORY, "no memory for %llu strings",
			    (unsigned long long)count);
	pair->array.strings = pair->owned_strings;
	for (size_t i = 0; i < count; i++) {
		enum svc_code code =
			take_string(c, "string", MAX_STRING_BYTES, &pair->owned_strings[i]);
		if (code != SVC_OK) {
			svc_err_prefix(c->err, "element %zu", i);
			return code;
		}
	}
	return SVC_OK;
}

static enum svc_code take_array(struct cursor *c, struct gguf_pair *pair)
{
	uint32_t type = 0;
	uint64_t count = 0;
	enum svc_code code = take_u32(c, "array element type", &type);
	if (code == SVC_OK)
		code = take_u64(c, "array length", &count);
	if (code != SVC_OK)
		return code;
	if (type == GGUF_ARRAY)
		return BAD(c, "an array of arrays is not supported");
	if (type != GGUF_STRING && !gguf_scalar_bytes(type))
		return BAD(c, "unknown array element type %u", type);
	if (count > MAX_ARRAY_ELEMENTS)
		return BAD(c, "array of %llu elements; the limit is %u", (unsigned long long)count,
			   MAX_ARRAY_ELEMENTS);
	pair->array = (struct gguf_array){.type = (enum gguf_type)type, .count = count};
	if (type == GGUF_STRING)
		return take_string_array(c, pair);
	pair->array.data = take(c, "array", (size_t)count * gguf_scalar_bytes(type));
	return pair->array.data ? SVC_OK : SVC_BAD_MODEL;
}

static enum svc_code take_value(struct cursor *c, uint32_t type, struct gguf_pair *pair)
{
	if (type > GGUF_F64)
		return BAD(c, "unknown value type %u", type);
	pair->type = (enum gguf_type)type;
	if (type == GGUF_ARRAY)
		return take_array(c, pair);
	if (type == GGUF_STRING)
		return take_string(c, "string", MAX_STRING_BYTES, &pair->string);
	pair->value = take(c, "value", gguf_scalar_bytes(type));
	if (!pair->value)
		return SVC_BAD_MODEL;
	if (type == GGUF_BOOL && *pair->value > 1)
		return BAD(c, "a boolean of %u", *pair->value);
	return SVC_OK;
}

static enum svc_code take_pair(struct cursor *c, struct gguf_pair *pair)
{
	uint32_t type = 0;
	char key[PRINTABLE_BYTES];
	enum svc_code code = take_string(c, "key", MAX_NAME_BYTES, &pair->key);
	if (code == SVC_OK)
		code = take_u32(c, "value type", &type);
	if (code != SVC_OK)
		return code;
	if (pair->key.len == 0)
		return BAD(c, "empty key before offset %zu", c->at);
	code = take_value(c, type, pair);
	if (code != SVC_OK)
		svc_err_prefix(c->err, "key '%s'", printable(pair->key, key));
	return code;
}

static enum svc_code take_dims(struct cursor *c, const char *name, struct gguf_tensor *tensor,
			       uint64_t *ret_elements)
{
	enum svc_code code = take_u32(c, "dimension count", &tensor->n_dims);
	if (code != SVC_OK)
		return code;
	if (tensor->n_dims < 1 || tensor->n_dims > 4)
		return BAD(c, "tensor '%s': %u dimensions; 1 to 4 are possible", name,
			   tensor->n_dims);
	uint64_t elements = 1;
	for (uint32_t i = 0; i < 4; i++) {
		tensor->dims[i] = 1;
		if (i >= tensor->n_dims)
			continue;
		code = take_u64(c, "dimension", &tensor->dims[i]);
		if (code != SVC_OK)
			return code;
		if (tensor->dims[i] == 0)
			return BAD(c, "tensor '%s': dimension %u is zero", name, i);
		if (__builtin_mul_overflow(elements, tensor->dims[i], &elements) ||
		    elements > INT64_MAX)
			return BAD(c, "tensor '%s': the product of its dimensions overflows", name);
	}
	*ret_elements = elements;
	return SVC_OK;
}

static enum svc_code take_tensor(struct cursor *c, struct gguf_tensor *tensor, uint64_t *ret_offset)
{
	char name[PRINTABLE_BYTES];
	uint64_t elements = 0;
	enum svc_code code = take_string(c, "tensor name", MAX_NAME_BYTES, &tensor->name);
	if (code != SVC_OK)
		return code;
	printable(tensor->name, name);
	if (tensor->name.len == 0)
		return BAD(c, "empty tensor name before offset %zu", c->at);
	code = take_dims(c, name, tensor, &elements);
	if (code == SVC_OK)
		code = take_u32(c, "tensor type", &tensor->type);
	if (code == SVC_OK)
		code = take_u64(c, "tensor offset", ret_offset);
	if (code != SVC_OK)
		return code;
	const struct type_info *type = type_info(tensor->type);
	if (!type)
		return FAIL(c, SVC_UNSUPPORTED, "tensor '%s': unknown type number %u", name,
			    tensor->type);
	if (tensor->dims[0] % type->block_elements)
		return BAD(
			c,
			"tensor '%s': first dimension %llu is not a multiple of %s's block of %u",
			name, (unsigned long long)tensor->dims[0], type->name,
			type->block_elements);
	if (__builtin_mul_overflow(elements / type->block_elements, type->block_bytes,
				   &tensor->size_bytes))
		return BAD(c, "tensor '%s': its size overflows", name);
	return SVC_OK;
}

/* Tensor offsets count from the first aligned byte after the directory. */
static enum svc_code resolve_tensors(struct cursor *c, struct gguf *gguf, uint64_t alignment)
{
	uint64_t start = (c->at + alignment - 1) & ~(alignment - 1);
	for (size_t i = 0; i < gguf->n_tensors; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];
		char name[PRINTABLE_BYTES];
		uint64_t offset = gguf->offsets[i], end;
		if (offset & (alignment - 1))
			return BAD(c, "tensor '%s': offset %llu is not aligned to %llu bytes",
				   printable(tensor->name, name), (unsigned long long)offset,
				   (unsigned long long)alignment);
		if (__builtin_add_overflow(offset, start, &offset) ||
		    __builtin_add_overflow(offset, tensor->size_bytes, &end) || end > c->file.len)
			return BAD(c,
				   "tensor '%s': %llu bytes at data offset %llu end behind the "
				   "file's %zu bytes (truncated?)",
				   printable(tensor->name, name),
				   (unsigned long long)tensor->size_bytes,
				   (unsigned long long)gguf->offsets[i], c->file.len);
		tensor->data = c->file.ptr + offset;
	}
	return SVC_OK;
}

static int tensor_order(const void *a, const void *b)
{
	return gguf_name_order((*(const struct gguf_tensor *const *)a)->name,
			       (*(const struct gguf_tensor *const *)b)->name);
}

static enum svc_code index_pairs(struct cursor *c, struct gguf *gguf)
{
	char name[PRINTABLE_BYTES];
	for (size_t i = 0; i < gguf->n_pairs; i++)
		gguf->pairs_by_name[i] = &gguf->pairs[i];
	qsort(gguf->pairs_by_name, gguf->n_pairs, sizeof *gguf->pairs_by_name, gguf_pair_order);
	for (size_t i = 1; i < gguf->n_pairs; i++)
		if (span_equal(gguf->pairs_by_name[i - 1]->key, gguf->pairs_by_name[i]->key))
			return BAD(c, "key '%s' occurs twice",
				   printable(gguf->pairs_by_name[i]->key, name));
	return SVC_OK;
}

static enum svc_code index_tensors(struct cursor *c, struct gguf *gguf)
{
	char name[PRINTABLE_BYTES];
	for (size_t i = 0; i < gguf->n_tensors; i++)
		gguf->tensors_by_name[i] = &gguf->tensors[i];
	qsort(gguf->tensors_by_name, gguf->n_tensors, sizeof *gguf->tensors_by_name, tensor_order);
	for (size_t i = 1; i < gguf->n_tensors; i++)
		if (span_equal(gguf->tensors_by_name[i - 1]->name, gguf->tensors_by_name[i]->name))
			return BAD(c, "tensor '%s' occurs twice",
				   printable(gguf->tensors_by_name[i]->name, name));
	return SVC_OK;
}

static enum svc_code take_header(struct cursor *c, struct gguf *gguf)
{
	uint32_t magic = 0, version = 0;
	uint64_t n_tensors = 0, n_pairs = 0;
	enum svc_code code = take_u32(c, "magic", &magic);
	if (code == SVC_OK && magic != MAGIC)
		return BAD(c, "the file does not begin with GGUF: it is not a GGUF file");
	if (code == SVC_OK)
		code = take_u32(c, "version", &version);
	if (code == SVC_OK && version != 2 && version != 3)
		return FAIL(c, SVC_UNSUPPORTED, "GGUF version %u%s; 2 and 3 are supported", version,
			    version && !(version & 0xFFFF) ? " (a big-endian file)" : "");
	if (code == SVC_OK)
		code = take_u64(c, "tensor count", &n_tensors);
	if (code == SVC_OK)
		code = take_u64(c, "key count", &n_pairs);
	if (code != SVC_OK)
		return code;
	if (n_tensors > MAX_TENSORS || n_pairs > MAX_KEYS)
		return BAD(c, "%llu tensors and %llu keys; the limits are %u and %u",
			   (unsigned long long)n_tensors, (unsigned long long)n_pairs, MAX_TENSORS,
			   MAX_KEYS);
	gguf->n_tensors = (size_t)n_tensors;
	gguf->n_pairs = (size_t)n_pairs;
	gguf->pairs = calloc(gguf->n_pairs + 1, sizeof *gguf->pairs);
	gguf->pairs_by_name = calloc(gguf->n_pairs + 1, sizeof(struct gguf_pair *));
	gguf->tensors = calloc(gguf->n_tensors + 1, sizeof *gguf->tensors);
	gguf->tensors_by_name = calloc(gguf->n_tensors + 1, sizeof(struct gguf_tensor *));
	gguf->offsets = calloc(gguf->n_tensors + 1, sizeof *gguf->offsets);
	if (!gguf->pairs || !gguf->pairs_by_name || !gguf->tensors || !gguf->tensors_by_name ||
	    !gguf->offsets)
		return FAIL(c, SVC_NO_MEMORY, "no memory for the directory");
	return SVC_OK;
}

static enum svc_code find_alignment(struct cursor *c, const struct gguf *gguf, uint64_t *ret)
{
	gguf_u64(gguf, "general.alignment", ret);
	if (*ret < MIN_ALIGNMENT || *ret > MAX_ALIGNMENT || (*ret & (*ret - 1)))
		return BAD(c, "general.alignment is %llu; it must be a power of two from %u to %u",
			   (unsigned long long)*ret, MIN_ALIGNMENT, MAX_ALIGNMENT);
	return SVC_OK;
}

static enum svc_code parse(struct gguf *gguf, struct svc_err *err)
{
	struct cursor c = {.file = gguf->file, .err = err};
	uint64_t alignment = DEFAULT_ALIGNMENT;
	enum svc_code code = take_header(&c, gguf);
	size_t pairs_start = c.at;
	for (size_t i = 0; code == SVC_OK && i < gguf->n_pairs; i++)
		code = take_pair(&c, &gguf->pairs[i]);
	gguf->pairs_bytes = (struct span){c.file.ptr + pairs_start, c.at - pairs_start};
	if (code == SVC_OK)
		code = index_pairs(&c, gguf);
	if (code == SVC_OK)
		code = find_alignment(&c, gguf, &alignment);
	gguf->alignment = (uint32_t)alignment;
	for (size_t i = 0; code == SVC_OK && i < gguf->n_tensors; i++)
		code = take_tensor(&c, &gguf->tensors[i], &gguf->offsets[i]);
	if (code == SVC_OK)
		code = index_tensors(&c, gguf);
	if (code == SVC_OK)
		code = resolve_tensors(&c, gguf, alignment);
	return code;
}

static enum svc_code map_file(const char *path, struct span *ret_file, struct svc_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return svc_fail_errno(err, "gguf", "cannot open");
	struct stat stat;
	enum svc_code code = SVC_OK;
	if (fstat(fd, &stat) < 0)
		code = svc_fail_errno(err, "gguf", "cannot stat");
	else if (!S_ISREG(stat.st_mode))
		code = svc_fail(err, SVC_BAD_MODEL, "gguf", "not a regular file");
	else if (stat.st_size < 24)
		code = svc_fail(err, SVC_BAD_MODEL, "gguf", "only %lld bytes: not a GGUF file",
				(long long)stat.st_size);
	if (code == SVC_OK) {
		void *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (bytes == MAP_FAILED)
			code = svc_fail_errno(err, "gguf", "cannot map %lld bytes",
					      (long long)stat.st_size);
		else
			*ret_file = (struct span){bytes, (size_t)stat.st_size};
	}
	close(fd);
	return code;
}

/* Takes file over. */
static enum svc_code open_span(struct span file, const char *name, struct gguf **ret_gguf,
			       struct svc_err *err)
{
	struct gguf *gguf = calloc(1, sizeof *gguf);
	enum svc_code code = SVC_OK;
	if (!gguf) {
		munmap((void *)(uintptr_t)file.ptr, file.len);
		return svc_fail(err, SVC_NO_MEMORY, "gguf", "%s: no memory", name);
	}
	gguf->file = file;
	code = parse(gguf, err);
	if (code != SVC_OK) {
		svc_err_prefix(err, "%s", name);
		gguf_close(gguf);
		return code;
	}
	free(gguf->offsets);
	gguf->offsets = NULL;
	*ret_gguf = gguf;
	return SVC_OK;
}

enum svc_code gguf_open(const char *path, struct gguf **ret_gguf, struct svc_err *err)
{
	struct svc_err unread = {0};
	struct span file = {0};
	err = err ? err : &unread;
	enum svc_code code = map_file(path, &file, err);
	if (code != SVC_OK) {
		svc_err_prefix(err, "%s", path);
		return code;
	}
	return open_span(file, path, ret_gguf, err);
}

enum svc_code gguf_open_take(void *bytes, size_t size, const char *name, struct gguf **ret_gguf,
			     struct svc_err *err)
{
	struct svc_err unread = {0};
	return open_span((struct span){bytes, size}, name, ret_gguf, err ? err : &unread);
}

struct gguf *gguf_close(struct gguf *gguf)
{
	if (!gguf)
		return NULL;
	for (size_t i = 0; gguf->pairs && i < gguf->n_pairs; i++)
		free(gguf->pairs[i].owned_strings);
	free(gguf->pairs);
	free(gguf->pairs_by_name);
	free(gguf->tensors);
	free(gguf->tensors_by_name);
	free(gguf->offsets);
	if (gguf->file.ptr)
		munmap((void *)(uintptr_t)gguf->file.ptr, gguf->file.len);
	free(gguf);
	return NULL;
}

struct span gguf_bytes(const struct gguf *gguf)
{
	return gguf->file;
}

struct span gguf_pairs(const struct gguf *gguf, uint64_t *ret_count)
{
	*ret_count = gguf->n_pairs;
	return gguf->pairs_bytes;
}

uint32_t gguf_alignment(const struct gguf *gguf)
{
	return gguf->alignment;
}

size_t gguf_tensor_count(const struct gguf *gguf)
{
	return gguf->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index)
{
	return index < gguf->n_tensors ? &gguf->tensors[index] : NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name)
{
	const struct gguf_tensor wanted = {.name = span_of(name)}, *key = &wanted;
	const struct gguf_tensor *const *found =
		bsearch(&key, gguf->tensors_by_name, gguf->n_tensors, sizeof *gguf->tensors_by_name,
			tensor_order);
	return found ? *found : NULL;
}
