#include "npu-worker/worth.h"

/* Fifty steps weigh as much as all before them. */
static const double FADE = 0.98;
/* A step that was interrupted says little: at most so many times the mean counts. */
static const double MOST_TIMES = 2;
/* Before steps of several sizes were seen: a row more costs this share of a step. */
static const double ROW_AT_FIRST = 0.25;
/* Rows must have varied by that much (their variance) before a slope is believed. */
static const double LEAST_VARIANCE = 0.05;
/* Drafts are to bring this much, or they aren't worth their trouble; more beside other sequences,
 * which wait while drafts are drawn, and which they get out of step: batches are smaller then. */
static const double LEAST_GAIN = 1.05, LEAST_GAIN_BESIDE = 1.25;

void worth_learn(struct worth_cost *cost, uint32_t rows, double us)
{
	double usual = worth_step_us(cost, rows), r = rows;
	if (usual > 0 && us > MOST_TIMES * usual)
		us = MOST_TIMES * usual;
	cost->steps = cost->steps * FADE + 1;
	cost->rows = cost->rows * FADE + r;
	cost->us = cost->us * FADE + us;
	cost->rows_rows = cost->rows_rows * FADE + r * r;
	cost->rows_us = cost->rows_us * FADE + r * us;
}

/* The line us = *ret_base + slope * rows through what was seen; returns the slope. */
static double line(const struct worth_cost *cost, double *ret_base)
{
	double n = cost->steps, spread = n * cost->rows_rows - cost->rows * cost->rows;
	double mean_us = cost->us / n, mean_rows = cost->rows / n;
	double least = mean_us / mean_rows / 100;
	double slope = spread > LEAST_VARIANCE * n * n
			       ? (n * cost->rows_us - cost->rows * cost->us) / spread
			       : ROW_AT_FIRST * mean_us / (1 + ROW_AT_FIRST * (mean_rows - 1));
	/* A row is never free, and never dearer than a step of one. */
	slope = slope < least ? least : slope;
	slope = slope > mean_us / mean_rows ? mean_us / mean_rows : slope;
	*ret_base = mean_us - slope * mean_rows;
	return slope;
}

double worth_step_us(const struct worth_cost *cost, uint32_t rows)
{
	double base;
	if (cost->steps <= 0)
		return 0;
	double slope = line(cost, &base);
	return base + slope * rows;
}

struct worth_draft worth_shares(const struct worth_cost *cost, uint32_t rows, double make_us,
				double turn_us)
{
	double base, step = worth_step_us(cost, rows);
	if (step <= 0)
		return (struct worth_draft){.row = ROW_AT_FIRST, .beside = rows > 1};
	/* With several sequences each may have drafts: a row for all of them. */
	return (struct worth_draft){.row = line(cost, &base) * rows / step,
				    .make = make_us / step,
				    .turn = turn_us / step,
				    .beside = rows > 1};
}

uint32_t worth_length(const struct worth_draft *draft, uint32_t most)
{
	double tokens = 1, chance = 1, best = draft->beside ? LEAST_GAIN_BESIDE : LEAST_GAIN;
	uint32_t found = 0;
	for (uint32_t n = 1; n <= most; n++) {
		chance *= draft->acceptance;
		tokens += chance;
		double time = 1 + n * (draft->row + draft->make) + (tokens - 1) * draft->turn;
		if (tokens / time > best) {
			best = tokens / time;
			found = n;
		}
	}
	return found;
}
