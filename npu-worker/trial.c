#include "npu-worker/trial.h"

/* A turn; its first steps fill or empty the pipeline and aren't measured. */
#define TURN   16u
#define SETTLE 4u
/* Turns are compared with their neighbours alone: machines have slow and fast minutes. So many
 * pairs at first, then one between rests. */
#define PAIRS_AT_FIRST 4u
#define REST	       512u
/* Behind a pair that was interrupted, which counts for nothing: so that where something comes in
 * every few steps, most of them go the better way nevertheless. */
#define REST_SHORT 16u
/* One comparison says no more than this, or its inverse: the machine stood still, perhaps. */
#define MOST_RATIO 1.5

static bool is_resting(const struct trial *trial)
{
	return trial->step >= 2 * TURN;
}

bool trial_way(const struct trial *trial)
{
	if (is_resting(trial))
		return trial->ratio < 1;
	/* Who goes first changes, so that a drift hits both. */
	return (trial->step < TURN) == (trial->n_pairs % 2 == 0);
}

static void end_pair(struct trial *trial)
{
	double sample = trial->us[1] / trial->us[0];
	sample = sample > MOST_RATIO	   ? MOST_RATIO
		 : sample < 1 / MOST_RATIO ? 1 / MOST_RATIO
					   : sample;
	trial->n_pairs++;
	/* The mean of the first ones, then of some of late. */
	trial->ratio += (sample - trial->ratio) /
			(trial->n_pairs < PAIRS_AT_FIRST ? trial->n_pairs : PAIRS_AT_FIRST);
	if (trial->n_pairs < PAIRS_AT_FIRST)
		trial->step = 0;
}

void trial_step(struct trial *trial, uint64_t now_us, uint64_t n_tokens)
{
	bool way = trial_way(trial), resting = is_resting(trial);
	trial->step++;
	if (resting) {
		if (trial->step == 2 * TURN + REST)
			trial->step = 0;
		return;
	}
	if (trial->step % TURN == SETTLE) {
		trial->start_us = now_us;
		trial->start_tokens = n_tokens;
	}
	if (trial->step % TURN != 0)
		return;
	if (n_tokens <= trial->start_tokens || now_us <= trial->start_us) {
		trial->step -= TURN;
		return;
	}
	trial->us[way] =
		(double)(now_us - trial->start_us) / (double)(n_tokens - trial->start_tokens);
	if (is_resting(trial))
		end_pair(trial);
}

void trial_interrupt(struct trial *trial)
{
	if (!is_resting(trial))
		trial->step = 2 * TURN + REST - REST_SHORT;
}
