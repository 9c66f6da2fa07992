/* sampler/row.h: one row of logits: read-only as the npu-worker wrote it, with changed blocks laid
 * over it. A block is copied when its first element is changed, so a few biases or penalties don't
 * cost a pass over the row. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "sampler/kernels.h"

struct smp_row {
	const struct smp_kernels *kernels;
	uint32_t n, n_blocks; /* tokens; blocks, the last one padded with -Inf */
	const float **blocks; /* [n_blocks], each in the original or in `copy` */
	float *copy;	      /* [n_blocks * SMP_BLOCK] */
	float *lane_max;      /* [n_blocks * SMP_LANES] */
	float *block_max;     /* [n_blocks] */
	uint64_t *block_mass; /* [n_blocks], by smp_row_mass */
	float max;	      /* never -0 */
};

enum svc_code smp_row_init(uint32_t n_vocab, const struct smp_kernels *kernels, struct arena *arena,
			   struct smp_row *ret_row, struct svc_err *err) SVC_CHECKED;

/* Points the row at logits[n], which must stay as they are until the row is loaded again.
 * SVC_NUMERIC: a NaN, +Inf, or nothing but -Inf. */
enum svc_code smp_row_load(struct smp_row *row, const float *logits,
			   struct svc_err *err) SVC_CHECKED;

/* The logit of a token, to be changed: never to a NaN or +Inf. smp_row_settle must follow. */
float *smp_row_at(struct smp_row *row, uint32_t id);
/* Sets the logits of all tokens to -Inf whose bit is 0: bit id % 32 of allowed[id / 32]. */
void smp_row_mask(struct smp_row *row, const uint32_t *allowed);
/* Finds the maxima again after changes. */
void smp_row_settle(struct smp_row *row);

/* The token with the highest logit, ties to the lower id. */
uint32_t smp_row_argmax(const struct smp_row *row);

/* A temperature, seen from the row's maximum. */
struct smp_heat {
	float max, inverse_temperature;
};

/* Weights of this and lower exponents round to 0: e^-31 < 2^-44. */
#define SMP_DEPTH_MAX 31.0f

/* The sum of all weights, by block into block_mass. */
uint64_t smp_row_mass(struct smp_row *row, struct smp_heat heat);

struct smp_moments smp_row_moments(const struct smp_row *row, struct smp_heat heat);

/* Appends nothing below `low` and no -Inf: ids ascending, and their logits. Room for all tokens and
 * one more. */
uint32_t smp_row_collect(const struct smp_row *row, float low, uint32_t *ret_ids, float *ret_x);
