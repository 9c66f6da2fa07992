#include "verify/report.h"

#include <inttypes.h>
#include <math.h>

json_t *vfy_json_real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count_json(uint64_t count)
{
	return json_integer((json_int_t)count);
}

static json_t *peak_json(const struct vfy_peak *peak)
{
	return json_pack("{s:o, s:o}", "value", vfy_json_real(peak->value), "index",
			 count_json(peak->index));
}

static void hex_bits(uint32_t bits, enum vfy_dtype dtype, char text[16])
{
	snprintf(text, 16, "0x%0*" PRIx32, (int)vfy_dtype_bytes(dtype) * 2, bits);
}

static json_t *first_json(const struct vfy_diff *diff, enum vfy_dtype dtype)
{
	if (diff->mismatches == 0)
		return json_null();
	char a[16], b[16];
	hex_bits(diff->first_a, dtype, a);
	hex_bits(diff->first_b, dtype, b);
	return json_pack("{s:o, s:s, s:s}", "index", count_json(diff->first), "a", a, "b", b);
}

json_t *vfy_diff_json(const struct vfy_diff *diff, enum vfy_dtype dtype)
{
	double fraction = diff->count ? (double)diff->mismatches / (double)diff->count : 0;
	json_t *object = json_pack(
		"{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "dtype", vfy_dtype_name(dtype), "count",
		count_json(diff->count), "mismatches", count_json(diff->mismatches), "fraction",
		vfy_json_real(fraction), "first", first_json(diff, dtype), "ulp",
		peak_json(&diff->ulp), "abs", peak_json(&diff->abs), "rel", peak_json(&diff->rel));
	json_object_set_new(object, "ulp_undefined", count_json(diff->ulp_undefined));
	json_object_set_new(object, "abs_undefined", count_json(diff->abs_undefined));
	json_object_set_new(object, "rms_abs", vfy_json_real(diff->rms_abs));
	json_object_set_new(object, "relative_l2", vfy_json_real(diff->relative_l2));
	json_object_set_new(object, "cosine", vfy_json_real(diff->cosine));
	json_object_set_new(object, "correlation", vfy_json_real(diff->correlation));
	json_object_set_new(object, "above", count_json(diff->above));
	json_object_set_new(object, "below", count_json(diff->below));
	json_object_set_new(object, "equal_value", count_json(diff->equal_value));
	json_object_set_new(object, "ulp_percentiles",
			    json_pack("{s:o, s:o, s:o}", "50", count_json(diff->ulp_p50), "90",
				      count_json(diff->ulp_p90), "99", count_json(diff->ulp_p99)));
	json_object_set_new(object, "abs_percentiles",
			    json_pack("{s:o, s:o, s:o}", "50", vfy_json_real(diff->abs_p50), "90",
				      vfy_json_real(diff->abs_p90), "99",
				      vfy_json_real(diff->abs_p99)));
	return object;
}

void vfy_diff_print(const struct vfy_diff *diff, enum vfy_dtype dtype, const char *indent,
		    FILE *out)
{
	fprintf(out, "%s%" PRIu64 " of %" PRIu64 " elements differ (%s)\n", indent,
		diff->mismatches, diff->count, vfy_dtype_name(dtype));
	if (diff->mismatches == 0)
		return;
	char a[16], b[16];
	hex_bits(diff->first_a, dtype, a);
	hex_bits(diff->first_b, dtype, b);
	fprintf(out, "%sfirst at %" PRIu64 ": %s and %s\n", indent, diff->first, a, b);
	fprintf(out,
		"%smax ULP %.0f at %" PRIu64 " (p50 %" PRIu64 ", p90 %" PRIu64 ", p99 %" PRIu64
		"), undefined %" PRIu64 "\n",
		indent, diff->ulp.value, diff->ulp.index, diff->ulp_p50, diff->ulp_p90,
		diff->ulp_p99, diff->ulp_undefined);
	fprintf(out,
		"%smax abs %.6g at %" PRIu64 ", max rel %.6g at %" PRIu64 ", undefined %" PRIu64
		"\n",
		indent, diff->abs.value, diff->abs.index, diff->rel.value, diff->rel.index,
		diff->abs_undefined);
	fprintf(out, "%srms %.6g, relative L2 %.6g, cosine %.12g, correlation %.12g\n", indent,
		diff->rms_abs, diff->relative_l2, diff->cosine, diff->correlation);
	fprintf(out,
		"%sabove %" PRIu64 ", below %" PRIu64 ", equal value with other bits %" PRIu64 "\n",
		indent, diff->above, diff->below, diff->equal_value);
}
