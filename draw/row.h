/* draw/row.h: one row of logits: read-only as the npu-worker wrote it, with changed blocks laid
 * over it. A block is copied when its first element is changed, so a few biases or penalties don't
 * cost a pass over the row. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "draw/kernels.h"

struct draw_row {
	const struct draw_kernels *kernels;
	uint32_t n, n_blocks; /* tokens; blocks, the last one padded with -Inf */
	const float **blocks; /* [n_blocks], each in the original or in `copy` */
	float *copy;	      /* [n_blocks * DRAW_BLOCK] */
	float *lane_max;      /* [n_blocks * DRAW_LANES] */
	float *block_max;     /* [n_blocks] */
	uint64_t *block_mass; /* [n_blocks], by draw_row_mass */
	float max;	      /* never -0 */
};

enum svc_code draw_row_init(uint32_t n_vocab, const struct draw_kernels *kernels,
			    struct arena *arena, struct draw_row *ret_row,
			    struct svc_err *err) SVC_CHECKED;

/* Points the row at logits[n], which must stay as they are until the row is loaded again.
 * SVC_NUMERIC: a NaN, +Inf, or nothing but -Inf. */
enum svc_code draw_row_load(struct draw_row *row, const float *logits,
			    struct svc_err *err) SVC_CHECKED;

/* The logit of a token, to be changed: never to a NaN or +Inf. draw_row_settle must follow. */
float *draw_row_at(struct draw_row *row, uint32_t id);
/* Sets the logits of all tokens to -Inf whose bit is 0: bit id % 32 of allowed[id / 32]. */
void draw_row_mask(struct draw_row *row, const uint32_t *allowed);
/* Finds the maxima again after changes. */
void draw_row_settle(struct draw_row *row);

/* The token with the highest logit, ties to the lower id. */
uint32_t draw_row_argmax(const struct draw_row *row);

/* A temperature, seen from the row's maximum. */
struct draw_heat {
	float max, inverse_temperature;
};

/* Weights of this and lower exponents round to 0: e^-31 < 2^-44. */
#define DRAW_DEPTH_MAX 31.0f

/* The sum of all weights, by block into block_mass. */
uint64_t draw_row_mass(struct draw_row *row, struct draw_heat heat);

struct draw_moments draw_row_moments(const struct draw_row *row, struct draw_heat heat);

/* Appends nothing below `low` and no -Inf: ids ascending, and their logits. Room for all tokens and
 * one more. */
uint32_t draw_row_collect(const struct draw_row *row, float low, uint32_t *ret_ids, float *ret_x);
