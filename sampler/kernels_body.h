/* sampler/kernels_body.h: the kernels' one source. Plain loops without a branch inside, which the
 * compiler turns into vectors of whatever width the including file's flags allow; SMP_KERNELS names
 * the table. */
#include <math.h>

#include "base/fmath.h"
#include "sampler/kernels.h"

static bool block_scan(const float *block, float *ret_maxima)
{
	float maxima[SMP_LANES];
	uint32_t insane[SMP_LANES] = {0};
	memcpy(maxima, block, sizeof maxima);
	for (size_t at = 0; at < SMP_BLOCK; at += SMP_LANES)
		for (size_t lane = 0; lane < SMP_LANES; lane++) {
			float x = block[at + lane];
			maxima[lane] = x > maxima[lane] ? x : maxima[lane];
			insane[lane] |= (uint32_t) !(x < INFINITY); /* true for a NaN, too */
		}
	memcpy(ret_maxima, maxima, sizeof maxima);
	uint32_t any = 0;
	for (size_t lane = 0; lane < SMP_LANES; lane++)
		any |= insane[lane];
	return !any;
}

/* Adding 1.5 * 2^52 leaves the nearest integer in the low bits of the double: a conversion every
 * vector unit has. */
FM_INLINE uint64_t weight(float x, float max, float inverse_temperature)
{
	double shifted = (double)fm_expf((x - max) * inverse_temperature) * SMP_UNIT + 0x1.8p52;
	uint64_t bits;
	memcpy(&bits, &shifted, sizeof bits);
	return bits - 0x4338000000000000u;
}

static void row_weigh(const float *x, size_t n, float max, float inverse_temperature,
		      uint64_t *ret_weights)
{
	for (size_t i = 0; i < n; i++)
		ret_weights[i] = weight(x[i], max, inverse_temperature);
}

static uint64_t block_mass(const float *block, float max, float inverse_temperature)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < SMP_BLOCK; i++)
		sum += weight(block[i], max, inverse_temperature);
	return sum;
}

static size_t block_collect(const float *block, float low, uint32_t first_id, uint32_t *ret_ids,
			    float *ret_x)
{
	size_t n = 0;
	for (size_t at = 0; at < SMP_BLOCK; at += SMP_LANES) {
		uint32_t any = 0;
		for (size_t lane = 0; lane < SMP_LANES; lane++)
			any |= block[at + lane] >= low;
		if (!any)
			continue;
		for (size_t lane = 0; lane < SMP_LANES; lane++) {
			ret_ids[n] = first_id + (uint32_t)(at + lane);
			ret_x[n] = block[at + lane];
			n += block[at + lane] >= low;
		}
	}
	return n;
}

const struct smp_kernels SMP_KERNELS = {
	.name = SMP_KERNELS_NAME,
	.scan = block_scan,
	.weigh = row_weigh,
	.mass = block_mass,
	.collect = block_collect,
};
