/* sampler/draw.c: from a row of logits to a token: the chain of docs/sampling.md, in its order. */
#include <float.h>
#include <math.h>

#include "base/fmath.h"
#include "sampler/philox.h"
#include "sampler/seq.h"
#include "sampler/work.h"

static void biases_apply(const struct smp_params *params, struct smp_row *row)
{
	for (uint32_t i = 0; i < params->num.n_bias; i++)
		*smp_row_at(row, (uint32_t)params->biases[i].id) += params->biases[i].value;
}

static float penalized(float x, const struct smp_count *count, const struct body_params *num)
{
	if (count->seen)
		x = x > 0 ? x / num->repetition_penalty : x * num->repetition_penalty;
	if (count->made)
		x -= num->frequency_penalty * (float)count->made + num->presence_penalty;
	return x < FLT_MAX ? x : FLT_MAX;
}

static void penalties_apply(const struct smp_seq *seq, struct smp_row *row)
{
	for (uint32_t i = 0; i < seq->counts.n; i++) {
		const struct smp_count *count = &seq->counts.items[i];
		float *x = smp_row_at(row, (uint32_t)count->id);
		*x = penalized(*x, count, &seq->params.num);
	}
}

static void ends_forbid(const struct smp_seq *seq, struct smp_row *row)
{
	for (uint32_t i = 0; i < seq->n_ends; i++)
		*smp_row_at(row, (uint32_t)seq->ends[i]) = -INFINITY;
}

static enum svc_code row_prepare(const struct smp_seq *seq, struct smp_row *row,
				 const float *logits, const uint32_t *allowed, bool may_end,
				 struct svc_err *err)
{
	enum svc_code code = smp_row_load(row, logits, err);
	if (code != SVC_OK)
		return code;
	biases_apply(&seq->params, row);
	penalties_apply(seq, row);
	if (!may_end)
		ends_forbid(seq, row);
	if (allowed)
		smp_row_mask(row, allowed);
	smp_row_settle(row);
	return SVC_OK;
}

/* The filters, in order; the first one decides which tokens are looked at. Returns the token. */
static uint32_t filtered_pick(const struct body_params *num, struct smp_work *work,
			      struct smp_heat heat, uint64_t fraction)
{
	struct smp_row *row = &work->row;
	struct smp_set *set = &work->set;
	bool top_k = num->top_k && num->top_k < row->n;
	bool typical = num->typical_p < 1.0f, top_p = num->top_p < 1.0f;
	uint64_t goal = 0; /* of top_p */
	if (!top_k && !typical && !top_p && num->min_p <= 0.0f) {
		uint64_t mass = smp_row_mass(row, heat);
		return smp_set_pick_any(set, row, heat, mass, fraction);
	}
	if (top_k) {
		smp_set_take_top_k(set, row, num->top_k);
		smp_set_weigh(set, row, heat);
	} else if (typical) {
		smp_set_take_depth(set, row, heat, SMP_DEPTH_MAX);
	} else if (top_p) {
		goal = smp_share(num->top_p, smp_row_mass(row, heat));
		smp_set_take_mass(set, row, heat, goal);
	} else {
		/* A weight may have been rounded up to twice its value: 1 > ln 2 deeper than exact
		 * ones go. */
		smp_set_take_depth(set, row, heat,
				   fminf(1.0f - fm_logf(num->min_p), SMP_DEPTH_MAX));
	}
	if (typical)
		smp_set_keep_typical(set, heat, num->typical_p);
	if (top_p)
		smp_set_keep_top_p(set, goal ? goal : smp_share(num->top_p, smp_set_mass(set)));
	if (num->min_p > 0.0f)
		smp_set_keep_min_p(set, num->min_p);
	return smp_set_pick(set, fraction);
}

enum svc_code smp_draw(const struct smp_seq *seq, struct smp_work *work, const float *logits,
		       const uint32_t *allowed, int32_t *ret_token, struct svc_err *err)
{
	const struct body_params *num = &seq->params.num;
	struct smp_row *row = &work->row;
	bool may_end = seq->n_made >= num->min_tokens;
	if (row->n != seq->vocab->n_tokens)
		return svc_fail(err, SVC_INTERNAL, __func__,
				"%u logits for a vocabulary of %u tokens", row->n,
				seq->vocab->n_tokens);
	enum svc_code code = row_prepare(seq, row, logits, allowed, may_end, err);
	/* A grammar that only allows the end outranks min_tokens. */
	if (code == SVC_OK && row->max == -INFINITY && !may_end)
		code = row_prepare(seq, row, logits, allowed, true, err);
	if (code != SVC_OK)
		return code;
	if (row->max == -INFINITY)
		return svc_fail(err, SVC_NUMERIC, __func__,
				"no token is left that bias, penalties and grammar allow");
	if (num->temperature < SMP_GREEDY_BELOW) {
		*ret_token = (int32_t)smp_row_argmax(row);
		return SVC_OK;
	}
	struct smp_heat heat = {row->max, 1.0f / num->temperature};
	uint64_t fraction = smp_fraction(num->seed, num->choice, seq->n_made);
	*ret_token = (int32_t)filtered_pick(num, work, heat, fraction);
	return SVC_OK;
}
