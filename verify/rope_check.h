/* verify/rope_check.h: a model's position tables against another implementation's. */
#pragma once
#include "verify/compare.h"
#include "verify/npz.h"
#include "verify/rig.h"

/* A reference is an .npz file: positions int32 [n], ctx int32 (the context that the tables are
 * for), and of the ordinary table cos, sin float32 [n, pairs], inv_freq float32 [pairs], scale
 * float32 (what cosines and sines are multiplied with); of windowed layers that have their own, the
 * same with "_local" behind the name.
 *
 * A table may also be one that is kept in bf16, as devices do: its values are then bf16 that stand
 * in the file as the same float32; ours are rounded to bf16, to nearest even, and distances are in
 * bf16's units. */
enum { VFY_ROPE_TABLES = 2 };

struct vfy_rope_table {
	const char *name; /* "rope", "rope_local"; NULL: the reference has none */
	uint32_t pairs;
	uint64_t elements, identical, one_ulp; /* the rest are further apart */
	uint64_t undefined;		       /* NaN on a side */
	double max_ulp, max_abs;
	uint32_t max_position, max_element; /* element: 0 .. pairs - 1 cosines, then sines */
	/* The definition, evaluated in long double from the reference's inverse frequencies: how
	 * many elements are its value, rounded once (and then to bf16), on either side; and how
	 * many of its values lie within 1/1024 ulp of the middle between two numbers of the table's
	 * type, in all and of the elements that differ. */
	uint64_t ours_as_defined, reference_as_defined, near_ties, near_ties_differ;
};

struct vfy_rope_result {
	uint32_t ctx, positions;
	struct vfy_rope_table tables[VFY_ROPE_TABLES];
};
/* config->ctx is the reference's. dtype: VFY_F32 or VFY_BF16, what the tables are kept in.
 * SVC_CORRUPT names an array; SVC_CONFLICT: other shapes. */
SVC_CHECKED enum svc_code vfy_rope_check(const struct vfy_config *config, const char *reference,
					 enum vfy_dtype dtype, struct vfy_rope_result *ret_result,
					 struct svc_err *err);
