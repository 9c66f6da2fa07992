/* model/gguf.h: reads a GGUF file (versions 2 and 3) through a read-only mapping. Every count,
 * length, offset and element type is checked against the file before it is used, so a struct gguf
 * that was opened is safe to walk. Used by the tokenizer (metadata) and the npu-worker (metadata
 * and tensors). Immutable after gguf_open. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

enum gguf_type { /* metadata value types, as numbered in the file */
		 GGUF_U8,
		 GGUF_I8,
		 GGUF_U16,
		 GGUF_I16,
		 GGUF_U32,
		 GGUF_I32,
		 GGUF_F32,
		 GGUF_BOOL,
		 GGUF_STRING,
		 GGUF_ARRAY,
		 GGUF_U64,
		 GGUF_I64,
		 GGUF_F64
};

enum gguf_tensor_type { /* ggml's numbers; types that aren't listed are refused by name where they
			   are used */
			GGUF_TENSOR_F32 = 0,
			GGUF_TENSOR_F16 = 1,
			GGUF_TENSOR_Q4_0 = 2,
			GGUF_TENSOR_Q4_1 = 3,
			GGUF_TENSOR_Q5_0 = 6,
			GGUF_TENSOR_Q5_1 = 7,
			GGUF_TENSOR_Q8_0 = 8,
			GGUF_TENSOR_Q4_K = 12,
			GGUF_TENSOR_Q5_K = 13,
			GGUF_TENSOR_Q6_K = 14,
			GGUF_TENSOR_BF16 = 30
};

struct gguf_tensor {
	struct span name;
	uint32_t type;	  /* enum gguf_tensor_type */
	uint32_t n_dims;  /* 1..4 */
	uint64_t dims[4]; /* dims[0] is the contiguous one (K of a matrix, columns); unused ones are
			     1 */
	const void *data; /* into the mapping */
	uint64_t size_bytes;
};

struct gguf;

/* Maps and checks the whole directory of the file. SVC_BAD_MODEL names the field and the offset. A
 * file without tensors (vocabulary only) is fine. Limits: 65,536 keys, 65,536 tensors, 4 dims, 16 M
 * array elements, strings up to 64 MiB, alignment a power of two from 8 bytes to 1 MiB (so tensor
 * data is at least 8-byte aligned), names unique, tensor types known and whole blocks per row. */
SVC_CHECKED enum svc_code gguf_open(const char *path, struct gguf **ret_gguf, struct svc_err *err);
/* NULL is fine. Returns NULL. Spans and tensor data die with it. */
struct gguf *gguf_close(struct gguf *gguf);

/* The same over size bytes of memory at a page boundary that mmap gave, which it takes over: they
 * are unmapped by gguf_close, or at once if it fails. name: for messages. */
SVC_CHECKED enum svc_code gguf_open_take(void *bytes, size_t size, const char *name,
					 struct gguf **ret_gguf, struct svc_err *err);

/* The whole mapping, for hashing and madvise. */
struct span gguf_bytes(const struct gguf *gguf);

size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index);
/* NULL if there is none. */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name);
/* "Q4_K", or NULL for an unknown number. */
const char *gguf_tensor_type_name(uint32_t type);
/* Elements per block and bytes per block; false for an unknown type. */
bool gguf_tensor_type_block(uint32_t type, uint32_t *ret_elements, uint32_t *ret_bytes);

/* Metadata. false if the key is absent or of another kind; *ret is then unchanged. Integers of
 * every width are converted when the value fits; gguf_f64 takes floats and integers. */
bool gguf_u64(const struct gguf *gguf, const char *key, uint64_t *ret);
bool gguf_i64(const struct gguf *gguf, const char *key, int64_t *ret);
bool gguf_f64(const struct gguf *gguf, const char *key, double *ret);
bool gguf_bool(const struct gguf *gguf, const char *key, bool *ret);
bool gguf_string(const struct gguf *gguf, const char *key, struct span *ret);

struct gguf_array {
	enum gguf_type type; /* of the elements; arrays of arrays are refused at open */
	uint64_t count;
	const void *data;	    /* packed little-endian elements, unaligned; NULL for strings */
	const struct span *strings; /* only for GGUF_STRING */
};
bool gguf_array(const struct gguf *gguf, const char *key, struct gguf_array *ret);
/* Element index as a number; false if not numeric or out of range. */
bool gguf_array_i64(const struct gguf_array *array, uint64_t index, int64_t *ret);
bool gguf_array_f64(const struct gguf_array *array, uint64_t index, double *ret);

/* Every pair of key and value as it lies in the file, and how many they are. */
struct span gguf_pairs(const struct gguf *gguf, uint64_t *ret_count);
/* Where tensors' data may begin: general.alignment, or 32. */
uint32_t gguf_alignment(const struct gguf *gguf);

/* Walks every key, for `lockstep model inspect`. false past the end. */
bool gguf_key_at(const struct gguf *gguf, size_t index, struct span *ret_key,
		 enum gguf_type *ret_type);
