/* sampler/draw.c: what comes before the draw itself (draw/draw.h) in the chain of docs/sampling.md.
 */
#include <float.h>
#include <math.h>

#include "draw/draw.h"
#include "sampler/seq.h"

static void biases_apply(const struct smp_params *params, struct draw_row *row)
{
	for (uint32_t i = 0; i < params->num.n_bias; i++)
		*draw_row_at(row, (uint32_t)params->biases[i].id) += params->biases[i].value;
}

static float penalized(float x, const struct smp_count *count, const struct body_params *num)
{
	if (count->seen)
		x = x > 0 ? x / num->repetition_penalty : x * num->repetition_penalty;
	if (count->made)
		x -= num->frequency_penalty * (float)count->made + num->presence_penalty;
	return x < FLT_MAX ? x : FLT_MAX;
}

static void penalties_apply(const struct smp_seq *seq, struct draw_row *row)
{
	for (uint32_t i = 0; i < seq->counts.n; i++) {
		const struct smp_count *count = &seq->counts.items[i];
		float *x = draw_row_at(row, (uint32_t)count->id);
		*x = penalized(*x, count, &seq->params.num);
	}
}

static void ends_forbid(const struct smp_seq *seq, struct draw_row *row)
{
	for (uint32_t i = 0; i < seq->n_ends; i++)
		*draw_row_at(row, (uint32_t)seq->ends[i]) = -INFINITY;
}

static enum svc_code row_prepare(const struct smp_seq *seq, struct draw_row *row,
				 const float *logits, const uint32_t *allowed, bool may_end,
				 struct svc_err *err)
{
	enum svc_code code = draw_row_load(row, logits, err);
	if (code != SVC_OK)
		return code;
	biases_apply(&seq->params, row);
	penalties_apply(seq, row);
	if (!may_end)
		ends_forbid(seq, row);
	if (allowed)
		draw_row_mask(row, allowed);
	draw_row_settle(row);
	return SVC_OK;
}

enum svc_code smp_draw(const struct smp_seq *seq, struct draw_work *work, const float *logits,
		       const uint32_t *allowed, int32_t *ret_token, struct svc_err *err)
{
	const struct body_params *num = &seq->params.num;
	struct draw_row *row = &work->row;
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
	*ret_token = (int32_t)draw_pick(num, seq->n_made, work);
	return SVC_OK;
}
