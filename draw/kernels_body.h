/* draw/kernels_body.h: the kernels' one source. Plain loops without a branch inside, which the
 * compiler turns into vectors of whatever width the including file's flags allow; DRAW_KERNELS
 * names the table. */
#include <math.h>

#include "base/fmath.h"
#include "draw/kernels.h"

static bool block_scan(const float *block, float *ret_maxima)
{
	float maxima[DRAW_LANES];
	uint32_t insane[DRAW_LANES] = {0};
	memcpy(maxima, block, sizeof maxima);
	for (size_t at = 0; at < DRAW_BLOCK; at += DRAW_LANES)
		for (size_t lane = 0; lane < DRAW_LANES; lane++) {
			float x = block[at + lane];
			maxima[lane] = x > maxima[lane] ? x : maxima[lane];
			insane[lane] |= (uint32_t) !(x < INFINITY); /* true for a NaN, too */
		}
	memcpy(ret_maxima, maxima, sizeof maxima);
	uint32_t any = 0;
	for (size_t lane = 0; lane < DRAW_LANES; lane++)
		any |= insane[lane];
	return !any;
}

/* Adding 1.5 * 2^52 leaves the nearest integer in the low bits of the double: a conversion every
 * vector unit has. */
FM_INLINE int64_t fixed_point(float x)
{
	double shifted = (double)x * DRAW_UNIT + 0x1.8p52;
	int64_t bits;
	memcpy(&bits, &shifted, sizeof bits);
	return bits - 0x4338000000000000;
}

/* A logit relative to the maximum, in units of the temperature. The bound changes no weight; it
 * keeps 0 * Inf out. */
FM_INLINE float scaled(float x, float max, float inverse_temperature)
{
	float depth = (x - max) * inverse_temperature;
	return depth > -104.0f ? depth : -104.0f;
}

static void row_weigh(const float *x, size_t n, float max, float inverse_temperature,
		      uint64_t *ret_weights)
{
	for (size_t i = 0; i < n; i++)
		ret_weights[i] =
			(uint64_t)fixed_point(fm_expf(scaled(x[i], max, inverse_temperature)));
}

static uint64_t row_mass(const float *x, size_t n, float max, float inverse_temperature)
{
	int64_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += fixed_point(fm_expf(scaled(x[i], max, inverse_temperature)));
	return (uint64_t)sum;
}

static struct draw_moments row_moments(const float *x, size_t n, float max,
				       float inverse_temperature)
{
	int64_t mass = 0, moment = 0;
	for (size_t i = 0; i < n; i++) {
		float depth = scaled(x[i], max, inverse_temperature);
		float weight = fm_expf(depth);
		mass += fixed_point(weight);
		moment += fixed_point(weight * depth);
	}
	return (struct draw_moments){(uint64_t)mass, moment};
}

static size_t block_collect(const float *block, float low, uint32_t first_id, uint32_t *ret_ids,
			    float *ret_x)
{
	size_t n = 0;
	for (size_t at = 0; at < DRAW_BLOCK; at += DRAW_LANES) {
		uint32_t any = 0;
		for (size_t lane = 0; lane < DRAW_LANES; lane++)
			any |= block[at + lane] >= low;
		if (!any)
			continue;
		for (size_t lane = 0; lane < DRAW_LANES; lane++) {
			ret_ids[n] = first_id + (uint32_t)(at + lane);
			ret_x[n] = block[at + lane];
			n += block[at + lane] >= low;
		}
	}
	return n;
}

const struct draw_kernels DRAW_KERNELS = {
	.name = DRAW_KERNELS_NAME,
	.scan = block_scan,
	.weigh = row_weigh,
	.mass = row_mass,
	.moments = row_moments,
	.collect = block_collect,
};
