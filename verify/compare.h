/* verify/compare.h: two runs of floating-point numbers compared element by element, as
 * docs/verification.md defines it. Sums are in double, in index order; nothing is estimated, and an
 * element for which a measure is undefined is left out of it and counted. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum vfy_dtype { VFY_F32, VFY_BF16, VFY_F16, VFY_DTYPE_COUNT };
/* "f32", "bf16", "f16". */
const char *vfy_dtype_name(enum vfy_dtype dtype);
bool vfy_dtype_parse(const char *name, enum vfy_dtype *ret_dtype);
size_t vfy_dtype_bytes(enum vfy_dtype dtype);

enum { VFY_MAX_DIMS = 4 };
/* A borrowed array, row-major. data needs no alignment. */
struct vfy_array {
	enum vfy_dtype dtype;
	uint32_t n_dims;
	uint64_t dims[VFY_MAX_DIMS];
	const void *data;
};
uint64_t vfy_array_count(const struct vfy_array *array);

/* The bits of element i as stored, and its value; bf16 and f16 widen exactly. */
uint32_t vfy_bits_at(const struct vfy_array *array, uint64_t i);
float vfy_value_at(const struct vfy_array *array, uint64_t i);

/* Steps between two numbers of a type along its number line; (+0, -0) is one step. false:
 * undefined, as exactly one is NaN or both are with other bits. */
bool vfy_ulp_distance(enum vfy_dtype dtype, uint32_t a, uint32_t b, uint64_t *ret_distance);

/* The largest value of a measure and where; index is 0 if count is. */
struct vfy_peak {
	double value;
	uint64_t index;
};

/* b is the reference. A measure that is undefined as a whole is NaN. */
struct vfy_diff {
	uint64_t count;
	uint64_t mismatches;	   /* elements whose bits differ */
	uint64_t first;		   /* index of the first of them; count if there is none */
	uint32_t first_a, first_b; /* its bits */
	struct vfy_peak ulp, abs, rel;
	uint64_t ulp_undefined; /* elements; see vfy_ulp_distance */
	uint64_t abs_undefined; /* elements: a NaN, or an infinity against something else */
	double rms_abs, relative_l2, cosine, correlation;
	uint64_t above, below;		    /* elements with a > b, a < b */
	uint64_t equal_value;		    /* the same value with other bits */
	uint64_t ulp_p50, ulp_p90, ulp_p99; /* of the defined distances, by nearest rank */
	double abs_p50, abs_p90, abs_p99;
};

/* SVC_INVALID names what differs: dtype, number of dimensions, a dimension. SVC_NO_MEMORY. */
SVC_CHECKED enum svc_code vfy_compare(const struct vfy_array *a, const struct vfy_array *b,
				      struct vfy_diff *ret_diff, struct svc_err *err);

/* The index of the percentile p (0 < p <= 100) in an ascending list of n > 0 by nearest rank. */
size_t vfy_nearest_rank(size_t n, unsigned p);
