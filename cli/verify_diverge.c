/* lockstep verify diverge, ladder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_pages.h"
#include "cli/verify_side.h"
#include "verify/capture.h"
#include "verify/report.h"

static const struct opt diverge_options[] = {
	{"a", OPT_STRING, "family=bat,rows=8", 0, 0, NULL,
	 "side A, as NAME=VALUE,...: family, isa, model, threads, neighbours, rows, device, "
	 "kernels"},
	{"b", OPT_STRING, "family=seq,rows=1", 0, 0, NULL, "side B, the reference, likewise"},
	{"tokens", OPT_INT, "8", 1, 4096, NULL, "forced tokens: side B's greedy choices"},
	{"fault", OPT_STRING, "", 0, 0, NULL,
	 "seed one in side A: KIND:NAME=VALUE,...; kinds operator, order, rope, weight, kv, "
	 "unsteady, probe"},
	{"layers", OPT_STRING, "all", 0, 0, NULL, "compare only the first N layers; or all"},
	{"rel", OPT_REAL, "0", 0, 1e9, NULL,
	 "name the first record whose relative L2 exceeds this, too; 0: don't"},
	{"scores", OPT_BOOL, "false", 0, 0, NULL, "compare attention's scores, too"},
	{"reference", OPT_STRING, "", 0, 0, NULL,
	 "another implementation's capture instead of sides and prompt: --family and the like "
	 "say how its tokens run here"},
	{"html", OPT_STRING, "", 0, 0, NULL, "write a page with plots to this file, too"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

/* ---- printing */

static void print_gate(const char *name, const struct vfy_gate *gate)
{
	printf("%s: %" PRIu32 "/%" PRIu32 " positions identical: %s\n", name, gate->identical,
	       gate->positions, vfy_gate_holds(gate) ? "PASS" : "FAIL");
}

static void print_trace(const struct vfy_verdict *v)
{
	printf("from there on:\n  %8s %5s %-15s %4s %10s %12s %12s\n", "position", "layer",
	       "checkpoint", "part", "differ", "max ULP", "rel L2");
	for (uint32_t i = 0; i < v->n_trace; i++) {
		const struct vfy_place *place = &v->trace[i];
		printf("  %8" PRIu32 " %5" PRIu32 " %-15s %4" PRIu32, place->record.position,
		       place->record.layer, vfy_checkpoint_name(place->record.checkpoint),
		       place->record.part);
		if (place->is_numbers)
			printf(" %10" PRIu64 " %12.0f %12.4g", place->diff.mismatches,
			       place->diff.ulp.value, place->diff.relative_l2);
		printf("\n");
	}
}

static void print_divergence(const struct vfy_divergence *d)
{
	if (d->on_npu)
		printf("A on %s, B on %s; compared are records of level %s\n", d->where_a,
		       d->where_b, vfy_level_name(d->level));
	print_gate("CONTROL A0_vs_A1", &d->control_a);
	print_gate("PROBE   A0_vs_A2", &d->probe_a);
	print_gate("CONTROL B0_vs_B1", &d->control_b);
	print_gate("PROBE   B0_vs_B2", &d->probe_b);
	if (!d->valid) {
		printf("RESULT FAIL: a side differs from itself; no divergence is reported\n");
		return;
	}
	vfy_verdict_print(&d->verdict, "A vs B", stdout);
	if (d->verdict.n_trace)
		print_trace(&d->verdict);
	if (d->rest.found)
		printf("KV at rest differs: position %" PRIu32 " (page %" PRIu32 "), layer %" PRIu32
		       ", part %" PRIu32 ", element %" PRIu32 "\n",
		       d->rest.position, d->rest.position / ENGINE_PAGE_TOKENS, d->rest.layer,
		       d->rest.part, d->rest.element);
	printf("RESULT %s\n", verify_is_same(d) ? "IDENTICAL" : "DIFFERENT");
}

bool verify_is_same(const struct vfy_divergence *d)
{
	return d->valid && vfy_verdict_is_identical(&d->verdict) && !d->rest.found;
}

static json_t *gate_json(const struct vfy_gate *gate)
{
	return json_pack("{s:b, s:I, s:I}", "pass", vfy_gate_holds(gate), "positions",
			 (json_int_t)gate->positions, "identical", (json_int_t)gate->identical);
}

json_t *verify_divergence_json(const struct vfy_divergence *d)
{
	json_t *rest = d->rest.found ? json_pack("{s:I, s:I, s:I, s:I}", "position",
						 (json_int_t)d->rest.position, "layer",
						 (json_int_t)d->rest.layer, "part",
						 (json_int_t)d->rest.part, "element",
						 (json_int_t)d->rest.element)
				     : json_null();
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "a", d->where_a, "b",
			 d->where_b, "level", vfy_level_name(d->level), "CONTROL A0_vs_A1",
			 gate_json(&d->control_a), "PROBE A0_vs_A2", gate_json(&d->probe_a),
			 "CONTROL B0_vs_B1", gate_json(&d->control_b), "PROBE B0_vs_B2",
			 gate_json(&d->probe_b), "result",
			 !d->valid	     ? "FAIL"
			 : verify_is_same(d) ? "IDENTICAL"
					     : "DIFFERENT",
			 "verdict", d->valid ? vfy_verdict_json(&d->verdict) : json_null(),
			 "kv_at_rest", rest);
}

/* ---- the two verbs */

struct duel_job {
	struct verify_sides sides;
	struct vfy_match_options match;
};

static enum svc_code read_job(const struct opt_set *options, struct duel_job *job,
			      struct svc_err *err)
{
	job->match.rel = opt_real(options, "rel");
	job->sides.duel.scores = opt_bool(options, "scores");
	enum svc_code code =
		verify_read_depth(opt_string(options, "layers"), &job->match.depth, err);
	return code ? code : verify_read_sides(options, true, &job->sides, err);
}

/* ---- diverge */

/* --html: a grid collects what is compared. */
static enum svc_code begin_page(const struct opt_set *options, struct vfy_match_options *match,
				struct svc_err *err)
{
	if (!*opt_string(options, "html"))
		return SVC_OK;
	match->visit_context = verify_grid_new();
	if (!match->visit_context)
		return svc_fail_errno(err, __func__, "no memory for the page");
	match->visit = verify_grid_visit;
	return SVC_OK;
}

/* Prints, writes the page, and takes json. */
static enum svc_code finish(const struct opt_set *options, json_t *json,
			    const struct vfy_match_options *match, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	if (match->visit_context)
		code = verify_page_divergence(opt_string(options, "html"), json,
					      match->visit_context, err);
	if (opt_bool(options, "json"))
		verify_print_json(json);
	else
		json_decref(json);
	return code;
}

static void print_from_reference(const struct vfy_replay_result *r, bool valid)
{
	printf("A: the capture; B: %s on %s\n", r->config.family, r->where);
	print_gate("CONTROL B0_vs_B1", &r->control);
	print_gate("PROBE   B0_vs_B2", &r->probe);
	if (!valid) {
		printf("RESULT FAIL: this side differs from itself; no divergence is reported\n");
		return;
	}
	vfy_verdict_print(&r->verdict, "A vs B", stdout);
	printf("RESULT %s\n", vfy_verdict_is_identical(&r->verdict) ? "IDENTICAL" : "DIFFERENT");
}

static json_t *from_reference_json(const struct vfy_replay_result *r, bool valid)
{
	return json_pack("{s:o, s:o, s:s, s:o}", "CONTROL B0_vs_B1", gate_json(&r->control),
			 "PROBE B0_vs_B2", gate_json(&r->probe), "result",
			 !valid					 ? "FAIL"
			 : vfy_verdict_is_identical(&r->verdict) ? "IDENTICAL"
								 : "DIFFERENT",
			 "verdict", valid ? vfy_verdict_json(&r->verdict) : json_null());
}

static int diverge_from_reference(const struct opt_set *options)
{
	struct svc_err err = {0};
	struct vfy_replay_job job = {
		.folder = opt_string(options, "reference"), .answer_chunk = 1, .gates = true};
	struct vfy_replay_result result = {0};
	job.match.rel = opt_real(options, "rel");
	enum svc_code code =
		verify_read_depth(opt_string(options, "layers"), &job.match.depth, &err);
	code = code ? code : verify_read_config(options, &job.config, &err);
	code = code ? code : begin_page(options, &job.match, &err);
	code = code ? code : vfy_replay(&job, &result, &err);
	bool valid = vfy_gate_holds(&result.control) && vfy_gate_holds(&result.probe);
	if (!code && !opt_bool(options, "json"))
		print_from_reference(&result, valid);
	code = code ? code : finish(options, from_reference_json(&result, valid), &job.match, &err);
	free(job.match.visit_context);
	if (code)
		return cli_fail(&err);
	return valid && vfy_verdict_is_identical(&result.verdict) ? VERIFY_SAME : VERIFY_DIFFERENT;
}

int verify_diverge(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify diverge",
		"where do two configurations, from one state and on the same tokens, differ first?",
		{verify_engine_options, verify_prompt_options, diverge_options},
		false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct duel_job job = {0};
	struct vfy_duel *duel = NULL;
	struct vfy_divergence d = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	if (*opt_string(options, "reference")) {
		status = diverge_from_reference(options);
		opt_free(options);
		return status;
	}
	enum svc_code code = read_job(options, &job, &err);
	code = code ? code : begin_page(options, &job.match, &err);
	code = code ? code : vfy_duel_open(&job.sides.duel, &duel, &err);
	code = code ? code
		    : vfy_duel_run(duel, NULL, job.sides.duel.n_forced, &job.match, &d, &err);
	if (!code && !opt_bool(options, "json"))
		print_divergence(&d);
	code = code ? code : finish(options, verify_divergence_json(&d), &job.match, &err);
	free(job.match.visit_context);
	vfy_duel_close(duel);
	verify_free_sides(&job.sides);
	opt_free(options);
	return code ? cli_fail(&err) : verify_is_same(&d) ? VERIFY_SAME : VERIFY_DIFFERENT;
}

static void print_rung(const struct verify_rung *rung)
{
	char place[128] = "", depth[16] = "all";
	if (rung->depth)
		snprintf(depth, sizeof depth, "%" PRIu32, rung->depth);
	if (rung->d.verdict.first.found)
		vfy_place_text(&rung->d.verdict.first.record, place);
	printf("  %7" PRIu32 " %6s   %s%s%s\n", rung->n, depth,
	       !rung->d.valid		  ? "FAIL"
	       : verify_is_same(&rung->d) ? "identical"
					  : "DIFFERENT",
	       *place ? " " : "", place);
}

static json_t *rung_json(const struct verify_rung *rung)
{
	return json_pack("{s:I, s:I, s:o}", "tokens", (json_int_t)rung->n, "depth",
			 (json_int_t)rung->depth, "divergence", verify_divergence_json(&rung->d));
}

enum { DEPTHS = 4, MAX_CONTEXTS = 14 }; /* 1, 2, 4, ... 4096, and one that is no power of 2 */
struct ladder {
	bool prints; /* each rung as it is reached */
	uint32_t n;
	struct verify_rung rungs[DEPTHS * MAX_CONTEXTS];
};

/* One context in depth 1, 2, 3 and all: the same passes, compared up to there. */
static enum svc_code climb_depths(const struct vfy_duel_passes *passes, uint32_t n,
				  const struct duel_job *job, struct ladder *ladder,
				  struct svc_err *err)
{
	static const uint32_t depths[DEPTHS] = {1, 2, 3, 0};
	for (unsigned i = 0; i < DEPTHS; i++) {
		struct vfy_match_options match = job->match;
		struct verify_rung *rung = &ladder->rungs[ladder->n];
		*rung = (struct verify_rung){.n = n, .depth = depths[i]};
		match.depth = depths[i];
		enum svc_code code = vfy_duel_compare(passes, &match, &rung->d, err);
		if (code)
			return code;
		ladder->n++;
		if (ladder->prints)
			print_rung(rung);
	}
	return SVC_OK;
}

/* Context 1, 2, 4, ... n; on to the end, so that what differs only further out is seen, too. */
static enum svc_code climb(struct vfy_duel *duel, const struct duel_job *job, struct ladder *ladder,
			   struct svc_err *err)
{
	uint32_t most = job->sides.duel.n_forced;
	for (uint32_t n = 1;; n = 2 * n < most ? 2 * n : most) {
		struct vfy_duel_passes passes;
		enum svc_code code = vfy_duel_pass(duel, NULL, n, &passes, err);
		code = code ? code : climb_depths(&passes, n, job, ladder, err);
		vfy_duel_passes_free(&passes);
		if (code || n == most)
			return code;
	}
}

static bool is_same_everywhere(const struct ladder *ladder)
{
	bool same = true;
	for (uint32_t i = 0; i < ladder->n; i++)
		same &= verify_is_same(&ladder->rungs[i].d);
	return same;
}

static enum svc_code show_ladder(const struct opt_set *options, const struct ladder *ladder,
				 struct svc_err *err)
{
	const char *html = opt_string(options, "html");
	json_t *list = ladder->prints ? NULL : json_array();
	for (uint32_t i = 0; i < ladder->n && list; i++)
		json_array_append_new(list, rung_json(&ladder->rungs[i]));
	if (list)
		verify_print_json(list);
	return *html ? verify_page_ladder(html, ladder->rungs, ladder->n, err) : SVC_OK;
}

static enum svc_code run_ladder(const struct opt_set *options, struct ladder *ladder,
				struct svc_err *err)
{
	struct duel_job job = {0};
	struct vfy_duel *duel = NULL;
	if (*opt_string(options, "reference"))
		return svc_fail_param(err, SVC_USAGE, "reference",
				      "--reference is for lockstep verify diverge");
	enum svc_code code = read_job(options, &job, err);
	code = code ? code : vfy_duel_open(&job.sides.duel, &duel, err);
	ladder->prints = !opt_bool(options, "json");
	if (!code && ladder->prints)
		printf("  %7s %6s\n", "tokens", "layers");
	code = code ? code : climb(duel, &job, ladder, err);
	code = code ? code : show_ladder(options, ladder, err);
	vfy_duel_close(duel);
	verify_free_sides(&job.sides);
	return code;
}

int verify_ladder(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify ladder",
		"diverge with 1, 2, 4, ... tokens and 1, 2, 3 and all layers",
		{verify_engine_options, verify_prompt_options, diverge_options},
		false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	struct ladder *ladder = calloc(1, sizeof *ladder);
	enum svc_code code = ladder ? run_ladder(options, ladder, &err)
				    : svc_fail_errno(&err, __func__, "no memory for the ladder");
	bool same = ladder && is_same_everywhere(ladder);
	free(ladder);
	opt_free(options);
	return code ? cli_fail(&err) : same ? VERIFY_SAME : VERIFY_DIFFERENT;
}
