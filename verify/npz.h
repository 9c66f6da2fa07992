/* verify/npz.h: reads the arrays of an .npz file, as numpy.savez writes it: a zip archive of
 * members NAME.npy that are stored, not compressed. Every offset, length and shape is checked
 * against the file before it is used. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum npz_type { NPZ_F32, NPZ_F64, NPZ_I32, NPZ_U32, NPZ_TEXT };
enum { NPZ_MAX_DIMS = 4, NPZ_MAX_ARRAYS = 64, NPZ_NAME = 64 };

/* Row-major, C order, little-endian. A text is an array of UTF-32 characters without dimensions:
 * count is its length. */
struct npz_array {
	char name[NPZ_NAME]; /* without ".npy" */
	enum npz_type type;
	uint32_t n_dims;
	uint64_t dims[NPZ_MAX_DIMS], count;
	void *data; /* [count], aligned; the npz's */
};

struct npz {
	uint32_t n;
	struct npz_array arrays[NPZ_MAX_ARRAYS];
};

/* SVC_CORRUPT names the file, the member and what is wrong; SVC_UNSUPPORTED a compressed member or
 * a type that isn't in enum npz_type. */
SVC_CHECKED enum svc_code npz_open(const char *path, struct npz **ret_npz, struct svc_err *err);
/* The same over bytes in memory, which are only read during the call. */
SVC_CHECKED enum svc_code npz_parse(const uint8_t *bytes, size_t size, struct npz **ret_npz,
				    struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct npz *npz_close(struct npz *npz);
/* A member's checksum, as zip has it. */
uint32_t npz_crc32(const uint8_t *bytes, size_t n);
/* NULL if there is none. */
const struct npz_array *npz_find(const struct npz *npz, const char *name);
