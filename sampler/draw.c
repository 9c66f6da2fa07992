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

static void typical_keep(const struct body_params *num, struct smp_work *work, struct smp_heat heat,
			 bool whole_row)
{
	struct smp_moments moments = whole_row ? smp_row_moments(&work->row, heat)
					       : smp_set_moments(&work->set, &work->row, heat);
	struct smp_surprise surprise = smp_surprise(moments);
	uint64_t goal = smp_share(num->typical_p, moments.mass);
	if (whole_row)
		smp_set_take_typical(&work->set, &work->row, heat, surprise, goal);
	smp_set_keep_typical(&work->set, heat, surprise, goal);
}

static void top_p_keep(const struct body_params *num, struct smp_work *work, struct smp_heat heat,
		       bool whole_row)
{
	uint64_t goal = smp_share(num->top_p, whole_row ? smp_row_mass(&work->row, heat)
							: smp_set_mass(&work->set));
	if (whole_row)
		smp_set_take_mass(&work->set, &work->row, heat, goal);
	smp_set_keep_top_p(&work->set, goal);
}

static void min_p_keep(const struct body_params *num, struct smp_work *work, struct smp_heat heat,
		       bool whole_row)
{
	/* A weight may have been rounded up to twice its value: hence 1 > ln 2 deeper. */
	if (whole_row)
		smp_set_take_depth(&work->set, &work->row, heat,
				   fminf(1.0f - fm_logf(num->min_p), SMP_DEPTH_MAX));
	smp_set_keep_min_p(&work->set, num->min_p);
}

/* The filters, in order; only the first one that is on looks at the whole row. Returns the token.
 */
static uint32_t filtered_pick(const struct body_params *num, struct smp_work *work,
			      struct smp_heat heat, uint64_t fraction)
{
	bool whole_row = true;
	if (num->top_k && num->top_k < work->row.n) {
		smp_set_take_top_k(&work->set, &work->row, num->top_k);
		smp_set_weigh(&work->set, &work->row, heat);
		whole_row = false;
	}
	if (num->typical_p < 1.0f) {
		typical_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (num->top_p < 1.0f) {
		top_p_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (num->min_p > 0.0f) {
		min_p_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (!whole_row)
		return smp_set_pick(&work->set, fraction);
	uint64_t mass = smp_row_mass(&work->row, heat);
	return smp_set_pick_any(&work->set, &work->row, heat, mass, fraction);
}

enum svc_code smp_draw(const struct smp_seq *seq, struct smp_work *work, const float *logits,
		       const uint32_t *allowed, int32_t *ret_token, struct svc_err *err)
{
	const struct body_params *num = &seq->params.num;
	struct smp_row *row = &work->row;
	bool may_end = seq->n_made >= num->min_tokens;
	if (row->n != seq->n_vocab)
		return svc_fail(err, SVC_INTERNAL, __func__,
				"a row has %u logits, the sequence's model %u", row->n,
				seq->n_vocab);
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
