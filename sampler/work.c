#include "sampler/work.h"

#include <stdlib.h>

#include "base/fmath.h"

enum svc_code smp_work_open(uint32_t n_vocab, enum smp_isa isa, struct smp_work **ret_work,
			    struct svc_err *err)
{
	const struct smp_kernels *kernels = smp_kernels_get(isa);
	if (!kernels)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "isa",
			"this CPU lacks the instruction set asked for; leave isa at auto");
	if (n_vocab == 0 || n_vocab > SMP_VOCAB_MAX)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"a vocabulary of %u tokens: 1 to %u are supported", n_vocab,
				SMP_VOCAB_MAX);
	struct smp_work *work = calloc(1, sizeof *work);
	if (!work)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a sampling thread");
	arena_init(&work->arena, 0);
	enum svc_code code = smp_row_init(n_vocab, kernels, &work->arena, &work->row, err);
	if (code == SVC_OK)
		code = smp_set_init(n_vocab, &work->arena, &work->set, err);
	if (code != SVC_OK) {
		smp_work_free(work);
		return code;
	}
	*ret_work = work;
	return SVC_OK;
}

struct smp_work *smp_work_free(struct smp_work *work)
{
	if (work)
		arena_free(&work->arena);
	free(work);
	return NULL;
}

static float logprob(const struct smp_row *row, float x, double log_mass)
{
	double value = (double)x - (double)row->max - log_mass;
	return value > -9999.0 ? (float)value : -9999.0f;
}

/* The set's order is by id: a few entries are put in order of rank. */
static void top_sort(struct smp_set *set)
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

enum svc_code smp_score(struct smp_work *work, const float *logits, int32_t token, uint32_t n_top,
			struct body_logprob *ret_logprob, struct svc_err *err)
{
	struct smp_row *row = &work->row;
	struct smp_set *set = &work->set;
	if (token < 0 || (uint32_t)token >= row->n)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"token %d: the model's ids go from 0 to %u", token, row->n - 1);
	if (n_top > SMP_TOP_LOGPROBS_MAX)
		return svc_fail_param(err, SVC_INVALID, "top_logprobs",
				      "top_logprobs is %u: at most %u are allowed", n_top,
				      SMP_TOP_LOGPROBS_MAX);
	enum svc_code code = smp_row_load(row, logits, err);
	if (code != SVC_OK)
		return code;
	uint64_t mass = smp_row_mass(row, (struct smp_heat){row->max, 1.0f});
	double log_mass = fm_log((double)mass / SMP_UNIT);
	set->n = 0;
	if (n_top)
		smp_set_take_top_k(set, row, n_top);
	top_sort(set);
	ret_logprob->chosen =
		logprob(row, row->blocks[(uint32_t)token / SMP_BLOCK][(uint32_t)token % SMP_BLOCK],
			log_mass);
	ret_logprob->n_top = set->n;
	for (uint32_t i = 0; i < set->n; i++) {
		ret_logprob->top[i].id = (int32_t)set->ids[i];
		ret_logprob->top[i].logprob = logprob(row, set->x[i], log_mass);
	}
	return SVC_OK;
}
