/* sampler/score.c: log-probabilities. */
#include "base/fmath.h"
#include "sampler/sampler.h"

static float logprob(const struct draw_row *row, float x, double log_mass)
{
	double value = (double)x - (double)row->max - log_mass;
	return value > -9999.0 ? (float)value : -9999.0f;
}

/* The set's order is by id: a few entries are put in order of rank. */
static void top_sort(struct draw_set *set)
{
	for (uint32_t i = 1; i < set->n; i++) {
		float x = set->x[i];
		uint32_t id = set->ids[i], at = i;
		for (; at > 0 && set->x[at - 1] < x; at--) {
			set->x[at] = set->x[at - 1];
			set->ids[at] = set->ids[at - 1];
		}
		set->x[at] = x;
		set->ids[at] = id;
	}
}

enum svc_code smp_score(struct draw_work *work, const float *logits, int32_t token, uint32_t n_top,
			struct body_logprob *ret_logprob, struct svc_err *err)
{
	struct draw_row *row = &work->row;
	struct draw_set *set = &work->set;
	if (token < 0 || (uint32_t)token >= row->n)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"token %d: the model's ids go from 0 to %u", token, row->n - 1);
	if (n_top > SMP_TOP_LOGPROBS_MAX)
		return svc_fail_param(err, SVC_INVALID, "top_logprobs",
				      "top_logprobs is %u: at most %u are allowed", n_top,
				      SMP_TOP_LOGPROBS_MAX);
	enum svc_code code = draw_row_load(row, logits, err);
	if (code != SVC_OK)
		return code;
	uint64_t mass = draw_row_mass(row, (struct draw_heat){row->max, 1.0f});
	double log_mass = fm_log((double)mass / DRAW_UNIT);
	set->n = 0;
	if (n_top)
		draw_set_take_top_k(set, row, n_top);
	top_sort(set);
	ret_logprob->chosen = logprob(
		row, row->blocks[(uint32_t)token / DRAW_BLOCK][(uint32_t)token % DRAW_BLOCK],
		log_mass);
	ret_logprob->n_top = set->n;
	for (uint32_t i = 0; i < set->n; i++) {
		ret_logprob->top[i].id = (int32_t)set->ids[i];
		ret_logprob->top[i].logprob = logprob(row, set->x[i], log_mass);
	}
	return SVC_OK;
}
