#include "verify/rope_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/f16.h"

struct tables {
	const struct npz *npz;
	const int32_t *positions;
	uint32_t n, pairs;
	enum vfy_dtype dtype;
	const float *sides[2]; /* cosines, sines: [n][pairs] */
	const float *inv_freq; /* [pairs] */
	float scale;
};

static const struct npz_array *find(const struct npz *npz, const char *name, const char *suffix,
				    enum npz_type type, uint32_t n_dims)
{
	char whole[NPZ_NAME];
	snprintf(whole, sizeof whole, "%s%s", name, suffix);
	const struct npz_array *a = npz_find(npz, whole);
	return a && a->type == type && a->n_dims == n_dims ? a : NULL;
}

static enum svc_code bad_array(struct svc_err *err, const char *name, const char *suffix,
			       const char *wanted)
{
	(void)!svc_fail(err, SVC_CORRUPT, "reference", "array %s%s must be %s", name, suffix,
			wanted);
	return SVC_CORRUPT;
}

/* bf16 widened to float32 has nothing in its lower half. */
static enum svc_code check_bf16(const struct npz_array *a, struct svc_err *err)
{
	const float *values = a->data;
	for (uint64_t i = 0; i < a->count; i++)
		if (fm_float_bits(values[i]) & 0xffffu)
			return svc_fail(err, SVC_CORRUPT, "reference",
					"array %s has %.9g at row %" PRIu64 ", column %" PRIu64
					", which is no bf16: round the table, or compare it as f32",
					a->name, (double)values[i], i / a->dims[1], i % a->dims[1]);
	return SVC_OK;
}

static enum svc_code read_tables(const struct npz *npz, const char *suffix, struct tables *t,
				 struct svc_err *err)
{
	enum vfy_dtype dtype = t->dtype;
	const struct npz_array *positions = find(npz, "positions", "", NPZ_I32, 1);
	const struct npz_array *inv_freq = find(npz, "inv_freq", suffix, NPZ_F32, 1);
	const struct npz_array *scale = find(npz, "scale", suffix, NPZ_F32, 0);
	static const char *const names[] = {"cos", "sin"};
	if (!positions || positions->count == 0 || positions->count > INT32_MAX)
		return bad_array(err, "positions", "", "int32 [n]");
	if (!inv_freq || inv_freq->count == 0 || inv_freq->count > INT32_MAX || !scale)
		return bad_array(err, "inv_freq", suffix,
				 "float32 [pairs], and scale a float32 without dimensions");
	*t = (struct tables){.npz = npz,
			     .positions = positions->data,
			     .n = (uint32_t)positions->count,
			     .pairs = (uint32_t)inv_freq->count,
			     .dtype = dtype,
			     .inv_freq = inv_freq->data,
			     .scale = *(const float *)scale->data};
	for (int i = 0; i < 2; i++) {
		const struct npz_array *a = find(npz, names[i], suffix, NPZ_F32, 2);
		if (!a || a->dims[0] != t->n || a->dims[1] != t->pairs)
			return bad_array(err, names[i], suffix, "float32 [positions, pairs]");
		enum svc_code code = dtype == VFY_BF16 ? check_bf16(a, err) : SVC_OK;
		if (code)
			return code;
		t->sides[i] = a->data;
	}
	return SVC_OK;
}

static uint32_t bits_in(enum vfy_dtype dtype, float value)
{
	return dtype == VFY_BF16 ? bf16_from_f32(value) : fm_float_bits(value);
}

static float value_of(enum vfy_dtype dtype, uint32_t bits)
{
	return dtype == VFY_BF16 ? bf16_to_f32((uint16_t)bits) : fm_bits_float(bits);
}

/* The value lies next to the middle of two numbers of the type, of which `nearest` is one. */
static bool is_near_tie(enum vfy_dtype dtype, long double value, float nearest)
{
	float size = fabsf(nearest), next = value_of(dtype, bits_in(dtype, size) + 1);
	long double ulp = (long double)next - (long double)size;
	return fabsl(value - (long double)nearest) > ulp * (0.5L - 1.0L / 1024);
}

/* The bits of a cosine or sine: rounded to float32 once, times the factor; of a table in bf16 that
 * is rounded to nearest even. A tie is one of the last rounding of the exact value. */
static uint32_t define(const struct tables *t, long double exact, bool *ret_tie)
{
	float once = (float)exact, scaled = once * t->scale;
	uint32_t bits = bits_in(t->dtype, scaled);
	*ret_tie = t->dtype == VFY_BF16 ? is_near_tie(VFY_BF16, exact * (long double)t->scale,
						      value_of(VFY_BF16, bits))
					: is_near_tie(VFY_F32, exact, once);
	return bits;
}

static void compare_element(const struct tables *t, uint32_t row, uint32_t element, float ours,
			    struct vfy_rope_table *table)
{
	uint32_t pair = element % t->pairs;
	bool is_sine = element >= t->pairs, tie;
	float theirs = t->sides[is_sine][(size_t)row * t->pairs + pair];
	float angle = t->inv_freq[pair] * (float)t->positions[row];
	long double exact = is_sine ? sinl((long double)angle) : cosl((long double)angle);
	uint32_t defined = define(t, exact, &tie), mine = bits_in(t->dtype, ours),
		 other = bits_in(t->dtype, theirs);
	uint64_t ulp = 0;
	bool has_distance = vfy_ulp_distance(t->dtype, mine, other, &ulp), same = mine == other;
	table->elements++;
	table->identical += same;
	table->one_ulp += has_distance && ulp == 1;
	table->undefined += !has_distance;
	table->ours_as_defined += mine == defined;
	table->reference_as_defined += other == defined;
	table->max_abs =
		fmax(table->max_abs, fabs((double)value_of(t->dtype, mine) - (double)theirs));
	table->near_ties += tie;
	table->near_ties_differ += tie && !same;
	if (has_distance && (double)ulp > table->max_ulp) {
		table->max_ulp = (double)ulp;
		table->max_position = (uint32_t)t->positions[row];
		table->max_element = element;
	}
}

static enum svc_code compare_table(const struct vfy_rig *rig, uint32_t layer,
				   const struct tables *t, struct vfy_rope_table *table,
				   struct svc_err *err)
{
	table->pairs = t->pairs;
	for (uint32_t row = 0; row < t->n; row++) {
		uint32_t pairs, ctx = vfy_rig_info(rig)->ctx;
		if (t->positions[row] < 0 || (uint32_t)t->positions[row] >= ctx)
			return svc_fail(err, SVC_CONFLICT, "reference",
					"position %" PRId32 " isn't within the context of %" PRIu32,
					t->positions[row], ctx);
		const float *ours = vfy_rig_rope(rig, layer, (uint32_t)t->positions[row], &pairs);
		if (pairs != t->pairs)
			return svc_fail(err, SVC_CONFLICT, "reference",
					"the reference rotates %" PRIu32 " pairs, the model's "
					"layer %" PRIu32 " %" PRIu32,
					t->pairs, layer, pairs);
		for (uint32_t i = 0; i < 2 * pairs; i++)
			compare_element(t, row, i, ours[i], table);
	}
	return SVC_OK;
}

/* The first layer with the table: of windowed ones, or of the others. */
static bool find_layer(const struct vfy_rig *rig, bool windowed, uint32_t *ret_layer)
{
	const struct model_config *c = &vfy_rig_info(rig)->config;
	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		if (!!c->windowed[layer] == windowed) {
			*ret_layer = layer;
			return true;
		}
	}
	return false;
}

static enum svc_code compare_all(const struct vfy_config *config, const struct npz *npz,
				 enum vfy_dtype dtype, struct vfy_rope_result *result,
				 struct svc_err *err)
{
	static const char *const suffixes[VFY_ROPE_TABLES] = {"", "_local"};
	static const char *const names[VFY_ROPE_TABLES] = {"rope", "rope_local"};
	struct vfy_rig *rig = NULL;
	struct vfy_config sized = *config;
	sized.ctx = result->ctx;
	enum svc_code code = vfy_rig_open(&sized, &rig, err);
	for (int i = 0; i < VFY_ROPE_TABLES && !code; i++) {
		struct tables tables = {.dtype = dtype};
		uint32_t layer = 0;
		if (i == 1 && !find(npz, "inv_freq", suffixes[i], NPZ_F32, 1))
			continue;
		code = read_tables(npz, suffixes[i], &tables, err);
		/* A model whose layers all have a window may still have the ordinary table. */
		if (!code && !find_layer(rig, i == 1, &layer) && i == 1)
			code = svc_fail(err, SVC_CONFLICT, "reference",
					"the reference has a table of windowed layers, the model "
					"has none");
		result->tables[i].name = names[i];
		result->positions = code ? 0 : tables.n;
		code = code ? code : compare_table(rig, layer, &tables, &result->tables[i], err);
	}
	vfy_rig_close(rig);
	return code;
}

enum svc_code vfy_rope_check(const struct vfy_config *config, const char *reference,
			     enum vfy_dtype dtype, struct vfy_rope_result *ret_result,
			     struct svc_err *err)
{
	struct npz *npz = NULL;
	struct vfy_rope_result result = {0};
	enum svc_code code = npz_open(reference, &npz, err);
	if (code)
		return code;
	const struct npz_array *ctx = find(npz, "ctx", "", NPZ_I32, 0);
	if (!ctx || *(const int32_t *)ctx->data < 1)
		code = bad_array(err, "ctx", "", "an int32 above 0, without dimensions");
	if (!code) {
		result.ctx = (uint32_t) * (const int32_t *)ctx->data;
		code = compare_all(config, npz, dtype, &result, err);
	}
	npz_close(npz);
	if (code)
		svc_err_prefix(err, "%s", reference);
	else
		*ret_result = result;
	return code;
}
