#include "draw/row.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum svc_code draw_row_init(uint32_t n_vocab, const struct draw_kernels *kernels,
			    struct arena *arena, struct draw_row *ret_row, struct svc_err *err)
{
	size_t n_blocks = (n_vocab + DRAW_BLOCK - 1) / DRAW_BLOCK;
	struct draw_row row = {
		.kernels = kernels,
		.n = n_vocab,
		.n_blocks = (uint32_t)n_blocks,
		.blocks = arena_alloc(arena, n_blocks * sizeof *row.blocks),
		.copy = arena_alloc(arena, n_blocks * DRAW_BLOCK * sizeof *row.copy),
		.lane_max = arena_alloc(arena, n_blocks * DRAW_LANES * sizeof *row.lane_max),
		.block_max = arena_alloc(arena, n_blocks * sizeof *row.block_max),
		.block_mass = arena_alloc(arena, n_blocks * sizeof *row.block_mass),
	};
	if (!row.blocks || !row.copy || !row.lane_max || !row.block_max || !row.block_mass)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a row of %u logits",
				n_vocab);
	*ret_row = row;
	return SVC_OK;
}

static bool block_scan(struct draw_row *row, uint32_t block)
{
	float *maxima = row->lane_max + (size_t)block * DRAW_LANES;
	bool sane = row->kernels->scan(row->blocks[block], maxima);
	float max = maxima[0];
	for (size_t lane = 1; lane < DRAW_LANES; lane++)
		max = maxima[lane] > max ? maxima[lane] : max;
	row->block_max[block] = max;
	return sane;
}

static void max_find(struct draw_row *row)
{
	float max = -INFINITY;
	for (uint32_t i = 0; i < row->n_blocks; i++)
		max = row->block_max[i] > max ? row->block_max[i] : max;
	row->max = max + 0.0f;
}

static enum svc_code insane(const struct draw_row *row, struct svc_err *err)
{
	uint32_t id = 0;
	while (id + 1 < row->n && row->blocks[id / DRAW_BLOCK][id % DRAW_BLOCK] < INFINITY)
		id++;
	return svc_fail(
		err, SVC_NUMERIC, __func__,
		"the model's logit of token %u is %s: the model file or the device is faulty", id,
		isnan(row->blocks[id / DRAW_BLOCK][id % DRAW_BLOCK]) ? "not a number" : "infinite");
}

enum svc_code draw_row_load(struct draw_row *row, const float *logits, struct svc_err *err)
{
	bool sane = true;
	for (uint32_t i = 0; i < row->n_blocks; i++) {
		const size_t first = (size_t)i * DRAW_BLOCK;
		const size_t there = row->n - first;
		row->blocks[i] = logits + first;
		if (there < DRAW_BLOCK) {
			float *copy = row->copy + first;
			memcpy(copy, logits + first, there * sizeof *copy);
			for (size_t pad = there; pad < DRAW_BLOCK; pad++)
				copy[pad] = -INFINITY;
			row->blocks[i] = copy;
		}
		sane &= block_scan(row, i);
	}
	if (!sane)
		return insane(row, err);
	max_find(row);
	if (row->max == -INFINITY)
		return svc_fail(err, SVC_NUMERIC, __func__,
				"every logit is -infinite: the model file or the device is faulty");
	return SVC_OK;
}

static float *block_own(struct draw_row *row, uint32_t block)
{
	float *own = row->copy + (size_t)block * DRAW_BLOCK;
	if (row->blocks[block] != own) {
		memcpy(own, row->blocks[block], DRAW_BLOCK * sizeof *own);
		row->blocks[block] = own;
	}
	return own;
}

float *draw_row_at(struct draw_row *row, uint32_t id)
{
	return block_own(row, id / DRAW_BLOCK) + id % DRAW_BLOCK;
}

/* Most words of a grammar's mask forbid all of their tokens or none. */
static void word_mask(float *x, uint32_t forbidden)
{
	if (forbidden == UINT32_MAX) {
		for (size_t i = 0; i < 32; i++)
			x[i] = -INFINITY;
		return;
	}
	for (; forbidden; forbidden &= forbidden - 1)
		x[__builtin_ctz(forbidden)] = -INFINITY;
}

void draw_row_mask(struct draw_row *row, const uint32_t *allowed)
{
	/* The last word's bits beyond n only touch the padding, which is -Inf already. */
	for (uint32_t id = 0; id < row->n; id += 32)
		if (allowed[id / 32] != UINT32_MAX)
			word_mask(draw_row_at(row, id), ~allowed[id / 32]);
}

void draw_row_settle(struct draw_row *row)
{
	for (uint32_t i = 0; i < row->n_blocks; i++)
		if (row->blocks[i] == row->copy + (size_t)i * DRAW_BLOCK)
			(void)block_scan(row, i);
	max_find(row);
}

uint32_t draw_row_argmax(const struct draw_row *row)
{
	uint32_t block = 0, at = 0;
	while (block + 1 < row->n_blocks && row->block_max[block] != row->max)
		block++;
	while (at + 1 < DRAW_BLOCK && row->blocks[block][at] != row->max)
		at++;
	return block * DRAW_BLOCK + at;
}

/* Nothing in this block has a weight above 0. */
static bool block_is_weightless(const struct draw_row *row, uint32_t block, struct draw_heat heat)
{
	return (row->block_max[block] - heat.max) * heat.inverse_temperature < -DRAW_DEPTH_MAX;
}

uint64_t draw_row_mass(struct draw_row *row, struct draw_heat heat)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < row->n_blocks; i++) {
		row->block_mass[i] = 0;
		if (!block_is_weightless(row, i, heat))
			row->block_mass[i] = row->kernels->mass(row->blocks[i], DRAW_BLOCK,
								heat.max, heat.inverse_temperature);
		sum += row->block_mass[i];
	}
	return sum;
}

struct draw_moments draw_row_moments(const struct draw_row *row, struct draw_heat heat)
{
	struct draw_moments sum = {0};
	for (uint32_t i = 0; i < row->n_blocks; i++) {
		struct draw_moments block = row->kernels->moments(
			row->blocks[i], DRAW_BLOCK, heat.max, heat.inverse_temperature);
		sum.mass += block.mass;
		sum.moment += block.moment;
	}
	return sum;
}

uint32_t draw_row_collect(const struct draw_row *row, float low, uint32_t *ret_ids, float *ret_x)
{
	size_t n = 0;
	low = low > -FLT_MAX ? low : -FLT_MAX;
	for (uint32_t i = 0; i < row->n_blocks; i++)
		if (row->block_max[i] >= low)
			n += row->kernels->collect(row->blocks[i], low, i * DRAW_BLOCK, ret_ids + n,
						   ret_x + n);
	return (uint32_t)n;
}
