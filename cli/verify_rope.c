/* lockstep verify rope: position tables against a reference's. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/verify.h"
#include "cli/verify_side.h"
#include "verify/report.h"
#include "verify/rope_check.h"

static const struct opt rope_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file, or folder"},
	{"table", OPT_CHOICE, "f32", 0, 0, "f32|bf16",
	 "what the reference's table is kept in; ours is rounded to it"},
	{"max-ulp", OPT_INT, "1", 0, 1 << 30, NULL, "largest distance that passes, in ULP"},
	{"max-abs", OPT_REAL, "0", 0, 2, NULL,
	 "or as a number: sines near 0 have small units, and a frequency may differ in its last "
	 "bit"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static bool passes(const struct opt_set *options, const struct vfy_rope_result *r)
{
	bool good = true;
	for (int i = 0; i < VFY_ROPE_TABLES; i++)
		good &= r->tables[i].undefined == 0 &&
			(r->tables[i].max_ulp <= (double)opt_int(options, "max-ulp") ||
			 r->tables[i].max_abs <= opt_real(options, "max-abs"));
	return good;
}

static void print_table(const struct vfy_rope_table *t, enum vfy_dtype dtype)
{
	printf("%s%s: %" PRIu32 " pairs, %" PRIu64 "/%" PRIu64 " identical, %" PRIu64
	       " by 1 ULP, %" PRIu64 " by more",
	       t->name, dtype == VFY_BF16 ? " in bf16" : "", t->pairs, t->identical, t->elements,
	       t->one_ulp, t->elements - t->identical - t->one_ulp);
	if (t->undefined)
		printf("; %" PRIu64 " undefined", t->undefined);
	if (t->max_ulp > 0)
		printf("; max abs %.3g, max %.0f ULP: position %" PRIu32 ", %s of pair %" PRIu32,
		       t->max_abs, t->max_ulp, t->max_position,
		       t->max_element < t->pairs ? "cosine" : "sine", t->max_element % t->pairs);
	printf("\n  as defined from the reference's inverse frequencies: ours %" PRIu64
	       ", the reference %" PRIu64 "; near-ties of the rounding %" PRIu64 ", %" PRIu64
	       " of them differ\n",
	       t->ours_as_defined, t->reference_as_defined, t->near_ties, t->near_ties_differ);
}

static json_t *result_json(const struct vfy_rope_result *r, enum vfy_dtype dtype, bool good)
{
	json_t *root =
		json_pack("{s:b, s:s, s:I, s:I}", "pass", good, "table", vfy_dtype_name(dtype),
			  "ctx", (json_int_t)r->ctx, "positions", (json_int_t)r->positions);
	for (int i = 0; i < VFY_ROPE_TABLES; i++) {
		const struct vfy_rope_table *t = &r->tables[i];
		if (!t->name)
			continue;
		json_object_set_new(
			root, t->name,
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I}",
				  "pairs", (json_int_t)t->pairs, "elements",
				  (json_int_t)t->elements, "identical", (json_int_t)t->identical,
				  "one_ulp", (json_int_t)t->one_ulp, "undefined",
				  (json_int_t)t->undefined, "max_ulp", vfy_json_real(t->max_ulp),
				  "max_position", (json_int_t)t->max_position, "max_element",
				  (json_int_t)t->max_element, "ours_as_defined",
				  (json_int_t)t->ours_as_defined, "reference_as_defined",
				  (json_int_t)t->reference_as_defined, "near_ties",
				  (json_int_t)t->near_ties, "near_ties_differ",
				  (json_int_t)t->near_ties_differ));
	}
	return root;
}

int verify_rope(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify rope REFERENCE.npz",
					  "position tables against another implementation's",
					  {rope_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_rope_result result = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	const struct vfy_config config = {.model = opt_string(options, "model"),
					  .family = "f32-v1",
					  .isa = "auto",
					  .threads = 1,
					  .chunk = 1};
	const char *path = opt_positional(options, 0);
	enum vfy_dtype dtype = VFY_F32;
	(void)vfy_dtype_parse(opt_string(options, "table"), &dtype);
	enum svc_code code =
		path && *config.model
			? vfy_rope_check(&config, path, dtype, &result, &err)
			: svc_fail(&err, SVC_USAGE, __func__,
				   "usage: lockstep verify rope REFERENCE.npz --model FILE");
	bool good = !code && passes(options, &result);
	if (!code && opt_bool(options, "json")) {
		verify_print_json(result_json(&result, dtype, good));
	} else if (!code) {
		printf("%" PRIu32 " positions of a context of %" PRIu32 "\n", result.positions,
		       result.ctx);
		for (int i = 0; i < VFY_ROPE_TABLES; i++)
			if (result.tables[i].name)
				print_table(&result.tables[i], dtype);
		printf("RESULT %s\n", good ? "PASS" : "FAIL");
	}
	opt_free(options);
	return code ? cli_fail(&err) : good ? VERIFY_SAME : VERIFY_DIFFERENT;
}
