/* npu-worker/pace.h: how many prompt positions share a step, by what steps take here, measured as
 * they run. A matter of speed alone: a position's KV and logits don't depend on how its prompt is
 * cut. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* All zero: nothing is known yet. */
struct pace {
	double decode_us;     /* a step that only generates */
	double row_us;	      /* a prompt position more */
	uint32_t smooth_left; /* steps for running streams before the next long one */
	bool is_long;	      /* the step that was asked for last is one */
};

struct pace_question {
	bool busy;	  /* streams are running: each step is a gap between their tokens */
	uint32_t waiting; /* prompt positions that could be computed now */
	uint32_t most_alone, most_busy;
};

/* Positions for the next step, of all prompts together; 1 or more. */
uint32_t pace_rows(struct pace *pace, const struct pace_question *question);
/* The step is over, whatever was in it; busy: as asked before it. */
void pace_step_over(struct pace *pace, bool busy);
/* A step of n_decode generated and n_prompt prompt positions, and nothing else, took us
 * microseconds. */
void pace_learn(struct pace *pace, uint32_t n_decode, uint32_t n_prompt, double us);
