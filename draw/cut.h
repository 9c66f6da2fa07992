/* draw/cut.h: where to cut a ranking: the shortest prefix, in order of rank, that holds a given
 * mass. One routine serves top_k (every mass is 1), top_p and typical_p. It never sorts: it looks
 * at eight bits of the rank at a time and only goes on with the items that share the cut's bits, so
 * it is linear whatever the items are. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct draw_ranked {
	uint64_t rank, mass;
};

/* The rank of the last item of the prefix; UINT64_MAX when all items together hold less than goal
 * (goal > 0). ranks[n]: lower comes first, no two are equal. masses[n]: their sum is below 2^64;
 * NULL: each is 1. scratch: room for n items. */
uint64_t draw_cut(const uint64_t *ranks, const uint64_t *masses, size_t n, uint64_t goal,
		  struct draw_ranked *scratch);

/* Rank by descending value, ties by lower id. -0 and +0 are equal. Not for NaN. */
static inline uint64_t draw_rank_descending(float value, uint32_t id)
{
	uint32_t bits;
	value += 0.0f;
	memcpy(&bits, &value, sizeof bits);
	uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
	return (uint64_t)~ascending << 32 | id;
}

/* Rank by ascending value >= 0, ties by lower id. */
static inline uint64_t draw_rank_ascending(float value, uint32_t id)
{
	uint32_t bits;
	value += 0.0f;
	memcpy(&bits, &value, sizeof bits);
	return (uint64_t)bits << 32 | id;
}
