/* npu-worker/worth.h: how many drafts pay. By what steps cost here, measured as they run, and by
 * how many drafts turned out right, of late. A matter of speed alone: no byte depends on it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Steps that only generate: sums over them, older ones fading. All zero: nothing is known yet. */
struct worth_cost {
	double steps, rows, us, rows_rows, rows_us;
};

/* A step of that many rows, drafts among them, took us microseconds. */
void worth_learn(struct worth_cost *cost, uint32_t rows, double us);
/* What a step of that many rows takes, in microseconds; 0: not known. */
double worth_step_us(const struct worth_cost *cost, uint32_t rows);

/* Shares of a step's time. */
struct worth_draft {
	double acceptance; /* how often a draft is right if those before it were; 0 to 1 */
	double row;	   /* a row more in the step that verifies */
	double make;	   /* making a draft */
	double turn;	   /* a sampler's turn: nothing is computed while drafts are drawn */
	bool beside;	   /* other sequences run */
};
/* For `rows` rows without drafts, one of which belongs to the sequence that asks. make_us and
 * turn_us in microseconds. */
struct worth_draft worth_shares(const struct worth_cost *cost, uint32_t rows, double make_us,
				double turn_us);
/* The length from 0 to `most` with the most tokens in a given time; 0 unless that is noticeably
 * more than without drafts. */
uint32_t worth_length(const struct worth_draft *draft, uint32_t most);
