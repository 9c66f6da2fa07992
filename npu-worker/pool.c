/* A text's vector out of its hidden states: their sum while the positions are computed, and at the
 * end their mean, at length 1. Both sums of a body hold what is a function of the text and of the
 * number of positions alone; so whoever goes on after a death goes on from one of them, or from
 * position 0, to the same bits. */
#include "npu-worker/pool.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

bool pool_is_wanted(const struct sequence *sequence)
{
	return sequence->body->kind == BODY_EMBED;
}

static bool is_mean(const struct sequence *sequence)
{
	return sequence->body->params.pooling != POOLING_LAST;
}

/* NULL: the body has no room for them, which admission gives to each. */
static struct body_sum *sum_at(const struct worker *worker, const struct sequence *sequence,
			       uint32_t index)
{
	const struct shm_run *run = &worker->svc->run;
	char *region = body_region(run, sequence->body, REGION_VECTOR,
				   body_vector_bytes(run->n_embd), NULL);
	return region ? (void *)(region + index * body_sum_bytes(run->n_embd)) : NULL;
}

static uint64_t checksum_of(const struct worker *worker, const struct sequence *sequence,
			    const double *values, uint32_t n_positions)
{
	return XXH3_64bits_withSeed(values, worker->svc->run.n_embd * sizeof *values,
				    sequence->body->generation ^ (uint64_t)n_positions << 40);
}

/* Copies the sum of the first n positions; -1: neither of the two is it. */
static int sum_read(const struct worker *worker, const struct sequence *sequence, uint32_t n,
		    double *values)
{
	for (uint32_t i = 0; i < 2; i++) {
		const struct body_sum *sum = sum_at(worker, sequence, i);
		if (!sum || sum->n_positions != n)
			continue;
		memcpy(values, sum->values, worker->svc->run.n_embd * sizeof *values);
		if (sum->checksum == checksum_of(worker, sequence, values, n))
			return (int)i;
	}
	return -1;
}

bool pool_can_go_on(struct worker *worker, const struct sequence *sequence)
{
	bool begun = is_mean(sequence) ? sequence->n_kv > 0 : sequence->n_kv == sequence->n_known;
	return !begun || sum_read(worker, sequence, sequence->n_kv, worker->pooled) >= 0;
}

bool pool_begin(struct worker *worker, const struct sequence *sequence, uint32_t index,
		struct engine_seq *step)
{
	uint32_t width = worker->svc->run.n_embd;
	bool last = sequence->n_kv + step->n_tokens == sequence->n_known;
	step->pooled = worker->pooled + (size_t)index * width;
	step->n_pooled = is_mean(sequence) ? step->n_tokens : last;
	memset(step->pooled, 0, width * sizeof *step->pooled);
	return !is_mean(sequence) || sequence->n_kv == 0 ||
	       sum_read(worker, sequence, sequence->n_kv, step->pooled) >= 0;
}

void pool_commit(struct worker *worker, const struct sequence *sequence,
		 const struct engine_seq *step)
{
	uint32_t width = worker->svc->run.n_embd, n = step->pos + step->n_tokens;
	double *before = worker->pooled + (size_t)worker->svc->run.n_slots * width;
	if (step->n_pooled == 0)
		return;
	/* The one that n_kv speaks of stays until n_kv speaks of the other. */
	uint32_t other = sum_read(worker, sequence, step->pos, before) == 0;
	struct body_sum *sum = sum_at(worker, sequence, other);
	if (!sum)
		return; /* pool_can_go_on finds it missing */
	sum->n_positions = n;
	memcpy(sum->values, step->pooled, width * sizeof *step->pooled);
	sum->checksum = checksum_of(worker, sequence, step->pooled, n);
}

enum svc_code pool_finish(struct worker *worker, const struct sequence *sequence,
			  struct svc_err *err)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t n = sequence->body->params.dimensions;
	double *values = worker->pooled + (size_t)run->n_slots * run->n_embd, square = 0;
	char *region = body_region(run, sequence->body, REGION_VECTOR,
				   body_vector_bytes(run->n_embd), NULL);
	if (!region || n == 0 || n > run->n_embd ||
	    sum_read(worker, sequence, sequence->n_kv, values) < 0)
		return svc_fail(err, SVC_CORRUPT, __func__,
				"the request's body is damaged: the sum of its hidden states");
	/* The mean's direction is the sum's: only the length is to be made 1. */
	for (uint32_t i = 0; i < n; i++)
		square += values[i] * values[i];
	double scale = square > 0 ? 1 / sqrt(square) : 0;
	float *vector = (void *)(region + 2 * body_sum_bytes(run->n_embd));
	for (uint32_t i = 0; i < n; i++)
		vector[i] = (float)(values[i] * scale);
	return SVC_OK;
}
