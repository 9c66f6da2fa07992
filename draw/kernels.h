/* draw/kernels.h: the loops over a whole row of logits, in blocks of 1,024. One source
 * (kernels_body.h) compiled for each instruction set; what they compute is exact or free of order,
 * so all of them give the same bits. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRAW_BLOCK 1024u
#define DRAW_LANES 32u /* lane l of a block: its elements l, l + 32, l + 64, ... */

/* Weights are integers in units of 2^-42 of the likeliest token's, so their sums are exact in any
 * order. */
#define DRAW_UNIT 0x1p42

enum draw_isa { DRAW_ISA_AUTO, DRAW_ISA_SCALAR, DRAW_ISA_AVX2, DRAW_ISA_AVX512 };

struct draw_moments {
	uint64_t mass;	/* of the weights */
	int64_t moment; /* of round(2^42 exp(d) d) */
};

struct draw_kernels {
	const char *name;
	/* Each lane's maximum. Returns false if the block holds a NaN or +Inf; the maxima are then
	 * undefined. */
	bool (*scan)(const float *block, float *ret_maxima);
	/* weights[i] = round(2^42 exp(d)), d = (x[i] - max) inverse_temperature, in float32 but for
	 * the rounding. */
	void (*weigh)(const float *x, size_t n, float max, float inverse_temperature,
		      uint64_t *ret_weights);
	/* The sum of the weights. */
	uint64_t (*mass)(const float *x, size_t n, float max, float inverse_temperature);
	struct draw_moments (*moments)(const float *x, size_t n, float max,
				       float inverse_temperature);
	/* Appends the places of the elements >= low, and the elements, in order. Room for one more
	 * than they are. */
	size_t (*collect)(const float *block, float low, uint32_t first_id, uint32_t *ret_ids,
			  float *ret_x);
};

/* The kernels of an instruction set; AUTO: the best that this CPU has. NULL: this CPU doesn't have
 * it. */
const struct draw_kernels *draw_kernels_get(enum draw_isa isa);
/* "auto", "scalar", "avx2", "avx512", and "amx", which is the same here: draws have no products;
 * false: no such name. */
bool draw_isa_parse(const char *name, enum draw_isa *ret_isa);

extern const struct draw_kernels draw_kernels_scalar, draw_kernels_avx2, draw_kernels_avx512;
