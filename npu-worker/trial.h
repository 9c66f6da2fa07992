/* npu-worker/trial.h: does computing ahead pay here? Both ways are tried in turn as it runs, and
 * the faster one is taken: what a core's sharing with the samplers costs depends on the machine,
 * its system and its other work. A matter of speed alone: no byte depends on it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is known yet. */
struct trial {
	double ratio;	   /* time per token ahead, over that without; of late */
	double us[2];	   /* per token of the two turns being compared; [1]: ahead */
	uint32_t n_pairs;  /* compared so far */
	uint32_t step;	   /* of this pair of turns and the rest behind it */
	uint64_t start_us; /* of what is measured of this turn */
	uint64_t start_tokens;
};

/* The way to go now: ahead? */
bool trial_way(const struct trial *trial);
/* A step is over at now_us, in which nothing but generation took part; n_tokens: all tokens
 * generated so far. */
void trial_step(struct trial *trial, uint64_t now_us, uint64_t n_tokens);
/* There was something else: a prompt, drafts, a pause. The pair of turns is given up. */
void trial_interrupt(struct trial *trial);
