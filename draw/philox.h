/* draw/philox.h: the random number of one draw, as a function of where the draw stands: no state
 * that could be lost, shared or advanced. Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3", SC11), from the Random123 library. */
#pragma once
#include <stdint.h>

#include <Random123/philox.h>

/* 53 bits of Philox(key: seed; counter: position, choice, 0, 0). position: tokens of the answer
 * before the one drawn. */
static inline uint64_t draw_fraction(uint64_t seed, uint32_t choice, uint32_t position)
{
	philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
	philox4x32_ctr_t counter = {{position, choice, 0, 0}};
	philox4x32_ctr_t random = philox4x32_R(10, counter, key);
	return ((uint64_t)random.v[1] << 32 | random.v[0]) >> 11;
}
