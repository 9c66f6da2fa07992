/* verify/report.h: measurements as text and as JSON. */
#pragma once
#include <jansson.h>
#include <stdio.h>

#include "verify/compare.h"

/* A real, or null where it is NaN or infinite. New reference. */
json_t *vfy_json_real(double value);
/* All of a comparison. New reference. */
json_t *vfy_diff_json(const struct vfy_diff *diff, enum vfy_dtype dtype);
/* The same in a few lines, each behind `indent`. */
void vfy_diff_print(const struct vfy_diff *diff, enum vfy_dtype dtype, const char *indent,
		    FILE *out);
