#include "verify/sweep.h"

#include <math.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"

struct sweeper {
	struct vfy_duel *duel;
	struct vfy_side side;	       /* A with what is substituted by now */
	struct vfy_duel_passes passes; /* B's are the same in all runs */
	uint32_t n_forced;
	struct vfy_sweep *sweep;
};

static enum svc_code run(struct sweeper *s, const struct vfy_side *side,
			 const struct vfy_match_options *match, struct vfy_divergence *ret,
			 struct svc_err *err)
{
	enum svc_code code = s->passes.n_forced == 0
				     ? vfy_duel_pass(s->duel, side, s->n_forced, &s->passes, err)
				     : vfy_duel_pass_a(s->duel, side, &s->passes, err);
	code = code ? code : vfy_duel_compare(&s->passes, match, ret, err);
	if (!code)
		s->sweep->valid &= ret->valid;
	return code;
}

/* ---- each source alone */

/* A visit function: what the source's own records show, and what is exact. */
static void measure(void *context, const struct vfy_record *record, const void *a, const void *b)
{
	struct vfy_source *source = context;
	struct vfy_array left, right;
	struct vfy_diff diff;
	vfy_exact_visit(&source->exact, record, a, b);
	if (record->checkpoint != (uint32_t)source->checkpoint ||
	    record->layer != source->exact.layer || !vfy_record_array(record, a, &left) ||
	    !vfy_record_array(record, b, &right) || vfy_compare(&left, &right, &diff, NULL))
		return;
	struct vfy_point *point = &source->point;
	point->compared++;
	point->different += diff.mismatches > 0;
	point->max_ulp = fmax(point->max_ulp, diff.ulp.value);
	point->max_abs = fmax(point->max_abs, diff.abs.value);
	point->max_rel_l2 = fmax(point->max_rel_l2, diff.relative_l2);
}

/* Only one site in one layer uses the other primitive. All that the first layer's operators read is
 * the same then on both sides, at every position; the head is the last layer's reader. */
static enum svc_code test_source(struct sweeper *s, struct vfy_source *source, struct svc_err *err)
{
	struct vfy_side side = s->side;
	bool is_head = source->checkpoint >= ENGINE_FINAL_NORM;
	uint32_t layer = is_head ? vfy_rig_info(vfy_duel_rig(s->duel))->config.n_layers : 0;
	memset(&side.variant, 0, sizeof side.variant);
	side.variant.sites[source->primitive] = 1u << source->checkpoint;
	side.variant.first_layer = side.variant.last_layer = layer;
	source->exact = (struct vfy_exact){.rig = vfy_duel_rig(s->duel),
					   .other = vfy_duel_other_rig(s->duel),
					   .checkpoint = source->checkpoint,
					   .layer = layer,
					   .same_inputs = true};
	struct vfy_match_options match = {.visit = measure, .visit_context = source};
	struct vfy_divergence d;
	enum svc_code code = run(s, &side, &match, &d, err);
	if (!code)
		code = vfy_exact_finish(&source->exact, err);
	vfy_exact_free(&source->exact);
	source->exact.rig = source->exact.other = NULL;
	if (code)
		return code;
	/* Later layers differ in consequence: only the first difference is of this source. */
	const struct vfy_place *first = &d.verdict.first;
	source->differs = first->found &&
			  first->record.checkpoint == (uint32_t)source->checkpoint &&
			  first->record.layer == layer;
	return SVC_OK;
}

static enum svc_code test_sources(struct sweeper *s, struct svc_err *err)
{
	struct vfy_sweep *sweep = s->sweep;
	struct vfy_divergence plain;
	enum svc_code code = run(s, &s->side, &(struct vfy_match_options){0}, &plain, err);
	if (code)
		return code;
	sweep->cost_none = plain.seconds_a / s->n_forced;
	sweep->cost_full = (plain.seconds_a + plain.seconds_b) / s->n_forced;
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT && !code; p++) {
		uint32_t sites = s->side.variant.sites[p];
		for (uint32_t c = 0; c < ENGINE_CHECKPOINT_COUNT && !code; c++) {
			/* A checkpoint that the model lacks was never compared. */
			if (!(sites >> c & 1) || plain.verdict.points[c].compared == 0)
				continue;
			struct vfy_source *source = &sweep->sources[sweep->n_sources++];
			source->primitive = (enum variant_primitive)p;
			source->checkpoint = (enum engine_checkpoint)c;
			code = test_source(s, source, err);
		}
	}
	return code;
}

/* ---- substitution */

/* What a run says about the record where the difference was first before. */
struct look {
	struct vfy_record at;
	struct vfy_diff diff;
};

static void look_at(void *context, const struct vfy_record *record, const void *a, const void *b)
{
	struct look *look = context;
	struct vfy_array left, right;
	if (vfy_record_order(record, &look->at) == 0 && vfy_record_array(record, a, &left) &&
	    vfy_record_array(record, b, &right) &&
	    vfy_compare(&left, &right, &look->diff, NULL) != SVC_OK)
		look->diff = (struct vfy_diff){.relative_l2 = (double)INFINITY};
}

static enum vfy_outcome outcome_of(const struct vfy_place *before, const struct vfy_place *after,
				   const struct vfy_diff *left)
{
	if (!after->found || vfy_record_order(&after->record, &before->record) > 0)
		return VFY_MOVED;
	bool smaller = left->mismatches < before->diff.mismatches ||
		       left->relative_l2 < before->diff.relative_l2;
	bool larger = left->mismatches > before->diff.mismatches ||
		      left->relative_l2 > before->diff.relative_l2;
	return smaller && !larger ? VFY_SHRUNK : VFY_NO_MOVE;
}

/* One primitive at one site gives way. */
static enum svc_code try_one(struct sweeper *s, struct vfy_substitution *try, struct svc_err *err)
{
	struct vfy_side side = s->side;
	struct look look = {.at = try->before.record};
	struct vfy_match_options match = {.visit = look_at, .visit_context = &look};
	struct vfy_divergence d;
	side.variant.sites[try->primitive] &= ~(1u << try->checkpoint);
	enum svc_code code = run(s, &side, &match, &d, err);
	if (code)
		return code;
	try->after = d.verdict.first;
	try->left = look.diff;
	try->outcome = outcome_of(&try->before, &try->after, &look.diff);
	return SVC_OK;
}

/* Tries the primitives that can stand at the first difference. The first that moves it is kept;
 * else the one after which least is left. *ret_place becomes the first difference after it. false
 * in *ret_moved: none did anything. */
static enum svc_code substitute(struct sweeper *s, struct vfy_place *place, bool *ret_moved,
				struct svc_err *err)
{
	struct vfy_substitution best = {.outcome = VFY_NO_MOVE};
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT && best.outcome != VFY_MOVED; p++) {
		if (!(s->side.variant.sites[p] >> place->record.checkpoint & 1))
			continue;
		struct vfy_substitution try = {
			.primitive = (enum variant_primitive)p,
			.checkpoint = (enum engine_checkpoint)place->record.checkpoint,
			.before = *place};
		enum svc_code code = try_one(s, &try, err);
		if (code)
			return code;
		bool better = try.outcome < best.outcome ||
			      (try.outcome == best.outcome && try.outcome == VFY_SHRUNK &&
			       try.left.relative_l2 < best.left.relative_l2);
		if (better)
			best = try;
	}
	*ret_moved = best.outcome != VFY_NO_MOVE && s->sweep->n_substitutions < VFY_MAX_SOURCES;
	if (!*ret_moved)
		return SVC_OK;
	s->sweep->substitutions[s->sweep->n_substitutions++] = best;
	s->sweep->fully_canonicalised += best.outcome == VFY_MOVED;
	if (best.outcome == VFY_SHRUNK)
		s->sweep->partial_families |= 1u << best.primitive;
	s->side.variant.sites[best.primitive] &= ~(1u << best.checkpoint);
	*place = best.after;
	return SVC_OK;
}

static enum svc_code sweep_forward(struct sweeper *s, struct svc_err *err)
{
	struct vfy_divergence d;
	bool moved = true;
	enum svc_code code = run(s, &s->side, &(struct vfy_match_options){0}, &d, err);
	struct vfy_place place = d.verdict.first;
	while (!code && place.found && moved)
		code = substitute(s, &place, &moved, err);
	s->sweep->identical = !place.found;
	s->sweep->last = place;
	return code;
}

/* ---- reverse ablation */

/* Everything is substituted to begin with; a family that can be given back without a difference is
 * given back for good, so that redundant ones don't hide one another. */
static enum svc_code ablate(struct sweeper *s, const struct variant *whole, struct svc_err *err)
{
	struct vfy_divergence d;
	struct vfy_side side = s->side;
	enum svc_code code = SVC_OK;
	memset(side.variant.sites, 0, sizeof side.variant.sites);
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT && !code; p++) {
		side.variant.sites[p] = whole->sites[p];
		code = run(s, &side, &(struct vfy_match_options){0}, &d, err);
		if (code || vfy_verdict_is_identical(&d.verdict))
			continue;
		side.variant.sites[p] = 0;
		s->sweep->minimal_families |= 1u << p;
	}
	if (!code)
		code = run(s, &side, &(struct vfy_match_options){0}, &d, err);
	if (!code)
		s->sweep->cost_selective = d.seconds_a / s->n_forced;
	return code;
}

enum svc_code vfy_sweep_run(struct vfy_duel *duel, struct vfy_sweep *ret_sweep, struct svc_err *err)
{
	const struct vfy_duel_options *options = vfy_duel_options(duel);
	struct vfy_sweep sweep = {.valid = true};
	struct sweeper s = {
		.duel = duel, .side = options->a, .n_forced = options->n_forced, .sweep = &sweep};
	if (!options->a.is_bat || options->b.is_bat ||
	    strcmp(options->b.config.family, "f32-v1") != 0)
		return svc_fail_param(err, SVC_USAGE, "a",
				      "a sweep needs family=bat on side --a and family=seq on --b: "
				      "only there primitives can be substituted");
	enum svc_code code = test_sources(&s, err);
	code = code ? code : sweep_forward(&s, err);
	if (!code && sweep.identical)
		code = ablate(&s, &options->a.variant, err);
	vfy_duel_passes_free(&s.passes);
	if (!code)
		*ret_sweep = sweep;
	return code;
}
