#include "draw/cut.h"

#define BITS_MAX   11
#define DIGITS_MAX (1u << BITS_MAX)

/* Some bits of a rank. */
struct digit {
	unsigned shift, bits;
};

static unsigned digit_of(uint64_t rank, struct digit digit)
{
	return (unsigned)(rank >> digit.shift) & ((1u << digit.bits) - 1);
}

/* The next digit ends at bit `top`. Few items don't pay for many sums. */
static struct digit digit_below(unsigned top, size_t n)
{
	unsigned bits = n < 4096 ? 6 : BITS_MAX;
	return (struct digit){top > bits ? top - bits : 0, bits};
}

/* The topmost bit in which the ranks differ, plus one. */
static unsigned top_find(const uint64_t *ranks, size_t n)
{
	uint64_t differing = 1;
	for (size_t i = 1; i < n; i++)
		differing |= ranks[i] ^ ranks[0];
	return 64u - (unsigned)__builtin_clzll(differing);
}

/* The digit's value in which the prefix ends, one too many if it doesn't. Takes what stands before
 * it off the goal. */
static unsigned value_find(const uint64_t *sums, struct digit digit, uint64_t *goal)
{
	unsigned value = 0;
	for (; value < 1u << digit.bits && sums[value] < *goal; value++)
		*goal -= sums[value];
	return value;
}

/* The first round reads the arrays and leaves the items in whose digit the prefix ends; the next
 * ones narrow them. */
static size_t first_round(const uint64_t *ranks, const uint64_t *masses, size_t n,
			  struct digit digit, uint64_t *goal, struct draw_ranked *ret_items)
{
	uint64_t sums[DIGITS_MAX];
	memset(sums, 0, sizeof *sums << digit.bits);
	for (size_t i = 0; i < n; i++)
		sums[digit_of(ranks[i], digit)] += masses ? masses[i] : 1;
	unsigned value = value_find(sums, digit, goal);
	size_t kept = 0;
	for (size_t i = 0; i < n;
	     i++) { /* without a branch that would be guessed wrong half of the time */
		ret_items[kept] = (struct draw_ranked){ranks[i], masses ? masses[i] : 1};
		kept += digit_of(ranks[i], digit) == value;
	}
	return kept;
}

static size_t next_round(struct draw_ranked *items, size_t n, struct digit digit, uint64_t *goal)
{
	uint64_t sums[DIGITS_MAX];
	memset(sums, 0, sizeof *sums << digit.bits);
	for (size_t i = 0; i < n; i++)
		sums[digit_of(items[i].rank, digit)] += items[i].mass;
	unsigned value = value_find(sums, digit, goal);
	size_t kept = 0;
	for (size_t i = 0; i < n; i++) {
		items[kept] = items[i];
		kept += digit_of(items[i].rank, digit) == value;
	}
	return kept;
}

uint64_t draw_cut(const uint64_t *ranks, const uint64_t *masses, size_t n, uint64_t goal,
		  struct draw_ranked *scratch)
{
	struct digit digit = digit_below(n ? top_find(ranks, n) : 0, n);
	n = first_round(ranks, masses, n, digit, &goal, scratch);
	while (n > 1) {
		digit = digit_below(digit.shift, n);
		n = next_round(scratch, n, digit, &goal);
	}
	return n ? scratch[0].rank : UINT64_MAX;
}
