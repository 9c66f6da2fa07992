/* model/safetensors.h: reads a safetensors file through a read-only mapping, and makes the header
 * of one. Every length, shape and offset is checked against the file. Two deviations of Q4NX files
 * are accepted: the dtype "Q4NX" (tiles; the shape is the logical one) and gaps between tensors. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"

enum safetensors_dtype { /* in the order in which the reference writer sorts them, from the last */
			 ST_Q4NX,
			 ST_BOOL,
			 ST_U8,
			 ST_I8,
			 ST_I16,
			 ST_U16,
			 ST_F16,
			 ST_BF16,
			 ST_I32,
			 ST_U32,
			 ST_F32,
			 ST_F64,
			 ST_I64,
			 ST_U64,
			 ST_DTYPE_COUNT
};

enum { ST_MAX_DIMS = 8 };

struct safetensors_tensor {
	struct span name;
	enum safetensors_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[ST_MAX_DIMS]; /* dims[n_dims - 1] is the contiguous one */
	const void *data;	    /* into the mapping; may be unaligned */
	uint64_t size_bytes;
};

struct safetensors;

const char *safetensors_dtype_name(enum safetensors_dtype dtype);
/* 0 for ST_Q4NX. */
uint32_t safetensors_dtype_bytes(enum safetensors_dtype dtype);

/* Maps and checks the whole directory. SVC_BAD_MODEL names tensor and field: a header longer than
 * the file or 100 MB, duplicate names, an unknown dtype, more than 8 dimensions, a size that isn't
 * the shape's, tensors that overlap or leave the file; 65,536 tensors at most. */
SVC_CHECKED enum svc_code safetensors_open(const char *path, struct safetensors **ret_file,
					   struct svc_err *err);
/* NULL is fine. Returns NULL. Spans and data die with it. */
struct safetensors *safetensors_close(struct safetensors *file);

size_t safetensors_count(const struct safetensors *file);
/* In the order of their data. NULL past the end. */
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index);
/* NULL if there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, struct span name);

/* The order of the reference writer, for qsort: dtype from the last of the enum to the first, then
 * name, byte by byte. */
int safetensors_file_order(const struct safetensors_tensor *a, const struct safetensors_tensor *b);
/* Appends the length field and the header of a file with these tensors, already in that order, data
 * without gaps behind it. data is not looked at. */
void safetensors_header(const struct safetensors_tensor *tensors, size_t n, struct buf *out);
