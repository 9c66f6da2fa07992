/* lockstep verify sweep. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_pages.h"
#include "cli/verify_side.h"
#include "npu-worker/engine/hooks.h"
#include "verify/report.h"
#include "verify/sweep.h"

static const struct opt sweep_options[] = {
	{"a", OPT_STRING, "family=bat,rows=8", 0, 0, NULL, "side A, as NAME=VALUE,...: a bat"},
	{"b", OPT_STRING, "family=seq,rows=1", 0, 0, NULL, "side B, the reference: a seq"},
	{"tokens", OPT_INT, "8", 1, 4096, NULL, "forced tokens: side B's greedy choices"},
	{"html", OPT_STRING, "", 0, 0, NULL, "write a page with plots to this file, too"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static const char *const outcomes[] = {
	[VFY_MOVED] = "fully canonicalised",
	[VFY_SHRUNK] = "partial",
	[VFY_NO_MOVE] = "no effect",
};

static const char *proven(bool is)
{
	return is ? "PROVEN_BY_TEST" : "UNKNOWN";
}

/* ---- text */

static void print_sources(const struct vfy_sweep *s)
{
	printf("each source alone, on the same inputs:\n");
	printf("  %-9s %-14s %-16s %9s %9s %9s | %8s %8s %8s %10s %10s\n", "family", "site",
	       "non-equivalence", "max ULP", "max abs", "rel L2", "A nearer", "B nearer", "ties",
	       "rms err A", "rms err B");
	for (uint32_t i = 0; i < s->n_sources; i++) {
		const struct vfy_source *source = &s->sources[i];
		printf("  %-9s %-14s %-16s", variant_primitive_name(source->primitive),
		       engine_checkpoint_name(source->checkpoint), proven(source->differs));
		printf(" %9.0f %9.2g %9.2g |", source->point.max_ulp, source->point.max_abs,
		       source->point.max_rel_l2);
		const struct vfy_exact *e = &source->exact;
		if (e->decided && e->same_inputs)
			printf(" %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %10.2e %10.2e\n",
			       e->a_nearer, e->b_nearer, e->ties, e->rms_error_a, e->rms_error_b);
		else
			printf(" %8s\n", "UNKNOWN");
	}
}

static void print_substitutions(const struct vfy_sweep *s)
{
	printf("substituted at the first difference, one after the other:\n");
	for (uint32_t i = 0; i < s->n_substitutions; i++) {
		const struct vfy_substitution *t = &s->substitutions[i];
		char before[128], after[128] = "none";
		vfy_place_text(&t->before.record, before);
		if (t->after.found)
			vfy_place_text(&t->after.record, after);
		printf("  %-9s at %s: %s\n", variant_primitive_name(t->primitive), before,
		       outcomes[t->outcome]);
		printf("      mismatches %" PRIu64 " -> %" PRIu64
		       ", max abs %.3g -> %.3g, rms %.3g "
		       "-> %.3g, rel L2 %.3g -> %.3g, max ULP %.0f -> %.0f\n",
		       t->before.diff.mismatches, t->left.mismatches, t->before.diff.abs.value,
		       t->left.abs.value, t->before.diff.rms_abs, t->left.rms_abs,
		       t->before.diff.relative_l2, t->left.relative_l2, t->before.diff.ulp.value,
		       t->left.ulp.value);
		printf("      causal_contribution PROVEN_BY_TEST, complete_explanation %s; next: "
		       "%s\n",
		       proven(t->outcome == VFY_MOVED), after);
	}
}

static void print_families(const char *title, uint32_t families)
{
	printf("%s:", title);
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT; p++)
		if (families >> p & 1)
			printf(" %s (%s)", variant_primitive_name((enum variant_primitive)p),
			       variant_primitive_pair((enum variant_primitive)p));
	printf("%s\n", families ? "" : " none");
}

static void print_sweep(const struct vfy_sweep *s)
{
	char last[128] = "none";
	if (!s->valid) {
		printf("RESULT FAIL: a CONTROL or PROBE gate failed in one of the runs; nothing is "
		       "reported\n");
		return;
	}
	print_sources(s);
	print_substitutions(s);
	if (s->last.found)
		vfy_place_text(&s->last.record, last);
	printf("sources_tested: %" PRIu32 "\nsources_fully_canonicalized: %" PRIu32 "\n",
	       s->n_sources, s->fully_canonicalised);
	print_families("partial_causal_families", s->partial_families);
	printf("first_divergence: %s\n", last);
	if (!s->identical) {
		printf("RESULT: no sufficient set was found\n");
		return;
	}
	print_families("minimal set, for these tokens and this order", s->minimal_families);
	printf("milliseconds per token: none %.2f, selective repair %.2f, full replay %.2f\n",
	       1e3 * s->cost_none, 1e3 * s->cost_selective, 1e3 * s->cost_full);
	printf("RESULT: identical after substitution\n");
}

/* ---- JSON */

static json_t *source_json(const struct vfy_source *source)
{
	const struct vfy_exact *e = &source->exact;
	json_t *nearer =
		e->decided && e->same_inputs
			? json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "elements",
				    (json_int_t)e->elements, "differ", (json_int_t)e->differ,
				    "a_nearer", (json_int_t)e->a_nearer, "b_nearer",
				    (json_int_t)e->b_nearer, "ties", (json_int_t)e->ties,
				    "rms_error_a", vfy_json_real(e->rms_error_a), "rms_error_b",
				    vfy_json_real(e->rms_error_b))
			: json_string("UNKNOWN");
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "family",
			 variant_primitive_name(source->primitive), "site",
			 engine_checkpoint_name(source->checkpoint), "arithmetic_non_equivalence",
			 proven(source->differs), "max_ulp", vfy_json_real(source->point.max_ulp),
			 "max_abs", vfy_json_real(source->point.max_abs), "max_relative_l2",
			 vfy_json_real(source->point.max_rel_l2), "adjudication", nearer);
}

static json_t *place_text_json(const struct vfy_place *place)
{
	char text[128];
	if (!place->found)
		return json_null();
	vfy_place_text(&place->record, text);
	return json_string(text);
}

static json_t *substitution_json(const struct vfy_substitution *t)
{
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "family",
		variant_primitive_name(t->primitive), "site", engine_checkpoint_name(t->checkpoint),
		"outcome", outcomes[t->outcome], "causal_contribution", "PROVEN_BY_TEST",
		"complete_explanation", proven(t->outcome == VFY_MOVED), "at",
		place_text_json(&t->before), "next", place_text_json(&t->after), "before",
		vfy_diff_json(&t->before.diff, VFY_F32), "after", vfy_diff_json(&t->left, VFY_F32));
}

static json_t *families_json(uint32_t families)
{
	json_t *list = json_array();
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT; p++)
		if (families >> p & 1)
			json_array_append_new(list, json_string(variant_primitive_name(
							    (enum variant_primitive)p)));
	return list;
}

static json_t *sweep_json(const struct vfy_sweep *s)
{
	if (!s->valid)
		return json_pack("{s:s}", "result", "FAIL");
	json_t *sources = json_array(), *substitutions = json_array();
	for (uint32_t i = 0; i < s->n_sources; i++)
		json_array_append_new(sources, source_json(&s->sources[i]));
	for (uint32_t i = 0; i < s->n_substitutions; i++)
		json_array_append_new(substitutions, substitution_json(&s->substitutions[i]));
	return json_pack("{s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:{s:o, s:o, s:o}}", "result",
			 s->identical ? "IDENTICAL_AFTER_SUBSTITUTION" : "NO_SUFFICIENT_SET",
			 "sources", sources, "substitutions", substitutions, "sources_tested",
			 (json_int_t)s->n_sources, "sources_fully_canonicalized",
			 (json_int_t)s->fully_canonicalised, "partial_causal_families",
			 families_json(s->partial_families), "first_divergence",
			 place_text_json(&s->last), "minimal_set",
			 s->identical ? families_json(s->minimal_families) : json_null(),
			 "seconds_per_token", "none", vfy_json_real(s->cost_none), "selective",
			 s->identical ? vfy_json_real(s->cost_selective) : json_null(),
			 "full_replay", vfy_json_real(s->cost_full));
}

static enum svc_code show(const struct opt_set *options, const struct vfy_sweep *sweep,
			  struct svc_err *err)
{
	const char *html = opt_string(options, "html");
	json_t *json = sweep_json(sweep);
	enum svc_code code = *html ? verify_page_sweep(html, json, sweep, err) : SVC_OK;
	if (opt_bool(options, "json"))
		verify_print_json(json_incref(json));
	else
		print_sweep(sweep);
	json_decref(json);
	return code;
}

int verify_sweep(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify sweep",
		"which arithmetic makes two configurations differ, by substitution",
		{verify_engine_options, verify_prompt_options, sweep_options},
		false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct verify_sides sides = {0};
	struct vfy_duel *duel = NULL;
	struct vfy_sweep sweep = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = verify_read_sides(options, false, &sides, &err);
	code = code ? code : vfy_duel_open(&sides.duel, &duel, &err);
	code = code ? code : vfy_sweep_run(duel, &sweep, &err);
	code = code ? code : show(options, &sweep, &err);
	vfy_duel_close(duel);
	verify_free_sides(&sides);
	opt_free(options);
	return code				? cli_fail(&err)
	       : sweep.valid && sweep.identical ? VERIFY_SAME
						: VERIFY_DIFFERENT;
}
