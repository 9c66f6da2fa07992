/* sampler/set.h: the tokens that a draw is between, and the filters that make them fewer. Always in
 * order of their ids, so that what is drawn doesn't depend on how a filter found its tokens.
 * Formulas: docs/sampling.md. */
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "sampler/cut.h"
#include "sampler/row.h"

struct smp_set {
	uint32_t n;
	uint32_t *ids;		   /* ascending */
	float *x;		   /* logits */
	uint64_t *weights;	   /* by smp_set_weigh */
	uint64_t *ranks;	   /* of the filter at work */
	struct smp_ranked *ranked; /* scratch of the cut */
};

enum svc_code smp_set_init(uint32_t n_vocab, struct arena *arena, struct smp_set *ret_set,
			   struct svc_err *err) SVC_CHECKED;

/* Surprise -ln p of the tokens of a distribution: its mean is the entropy. */
struct smp_surprise {
	double log_mass; /* of the likeliest token */
	double mean;
};
struct smp_surprise smp_surprise(struct smp_moments moments);

/* The k highest logits of the row; all of them if k >= the vocabulary. No weights yet. */
void smp_set_take_top_k(struct smp_set *set, const struct smp_row *row, uint32_t k);
/* All tokens whose weight can be above 0, down to `depth` below the maximum; weighed. */
void smp_set_take_depth(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
			float depth);
/* Few tokens that contain the shortest prefix with a mass of goal, by logit or by distance from the
 * mean surprise; weighed. */
void smp_set_take_mass(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
		       uint64_t goal);
void smp_set_take_typical(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
			  struct smp_surprise surprise, uint64_t goal);

void smp_set_weigh(struct smp_set *set, const struct smp_row *row, struct smp_heat heat);
struct smp_moments smp_set_moments(const struct smp_set *set, const struct smp_row *row,
				   struct smp_heat heat);
uint64_t smp_set_mass(const struct smp_set *set);
/* The share p of a mass, rounded up; at least 1. */
uint64_t smp_share(float p, uint64_t mass);

/* Each keeps at least one token: the shortest prefix with a mass of goal, or what is at least min_p
 * times as likely as the likeliest. */
void smp_set_keep_typical(struct smp_set *set, struct smp_heat heat, struct smp_surprise surprise,
			  uint64_t goal);
void smp_set_keep_top_p(struct smp_set *set, uint64_t goal);
void smp_set_keep_min_p(struct smp_set *set, float min_p);

/* The token in whose stretch of the kept mass the 53-bit fraction falls. */
uint32_t smp_set_pick(const struct smp_set *set, uint64_t fraction);
/* The same between all tokens; smp_row_mass must have been called with this heat and returned mass.
 */
uint32_t smp_set_pick_any(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
			  uint64_t mass, uint64_t fraction);
