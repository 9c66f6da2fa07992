#include "sampler/cut.h"

#define DIGIT_BITS 8
#define DIGITS	   (1u << DIGIT_BITS)

/* Lowest bit of the topmost digit in which the ranks differ. */
static unsigned first_shift(const struct smp_ranked *items, size_t n)
{
	uint64_t differing = 0;
	for (size_t i = 1; i < n; i++)
		differing |= items[i].rank ^ items[0].rank;
	unsigned top = differing ? 64u - (unsigned)__builtin_clzll(differing) : DIGIT_BITS;
	return top > DIGIT_BITS ? top - DIGIT_BITS : 0;
}

uint64_t smp_cut(struct smp_ranked *items, size_t n, uint64_t goal)
{
	unsigned shift = first_shift(items, n);
	while (n) {
		uint64_t masses[DIGITS] = {0};
		for (size_t i = 0; i < n; i++)
			masses[items[i].rank >> shift & (DIGITS - 1)] += items[i].mass;
		unsigned digit = 0;
		for (; digit < DIGITS && masses[digit] < goal; digit++)
			goal -= masses[digit];
		size_t kept = 0;
		for (size_t i = 0; i < n; i++)
			if ((items[i].rank >> shift & (DIGITS - 1)) == digit)
				items[kept++] = items[i];
		n = kept;
		if (n == 1)
			return items[0].rank;
		shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0;
	}
	return UINT64_MAX;
}
