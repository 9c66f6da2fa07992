/* draw/set.h: the tokens that a draw is between, and the filters that make them fewer. Always in
 * order of their ids, so that what is drawn doesn't depend on how a filter found its tokens.
 * Formulas: docs/sampling.md. */
#pragma once
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "draw/cut.h"
#include "draw/row.h"

struct draw_set {
	uint32_t n;
	uint32_t *ids;		    /* ascending */
	float *x;		    /* logits */
	uint64_t *weights;	    /* by draw_set_weigh */
	uint64_t *ranks;	    /* of the filter at work */
	struct draw_ranked *ranked; /* scratch of the cut */
};

enum svc_code draw_set_init(uint32_t n_vocab, struct arena *arena, struct draw_set *ret_set,
			    struct svc_err *err) SVC_CHECKED;

/* Surprise -ln p of the tokens of a distribution: its mean is the entropy. */
struct draw_surprise {
	double log_mass; /* of the likeliest token */
	double mean;
};
struct draw_surprise draw_surprise(struct draw_moments moments);

/* The k highest logits of the row; all of them if k >= the vocabulary. No weights yet. */
void draw_set_take_top_k(struct draw_set *set, const struct draw_row *row, uint32_t k);
/* All tokens whose weight can be above 0, down to `depth` below the maximum; weighed. */
void draw_set_take_depth(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			 float depth);
/* Few tokens that contain the shortest prefix with a mass of goal, by logit or by distance from the
 * mean surprise; weighed. */
void draw_set_take_mass(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			uint64_t goal);
void draw_set_take_typical(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			   struct draw_surprise surprise, uint64_t goal);

void draw_set_weigh(struct draw_set *set, const struct draw_row *row, struct draw_heat heat);
struct draw_moments draw_set_moments(const struct draw_set *set, const struct draw_row *row,
				     struct draw_heat heat);
uint64_t draw_set_mass(const struct draw_set *set);
/* The share p of a mass, rounded up; at least 1. */
uint64_t draw_share(float p, uint64_t mass);

/* Each keeps at least one token: the shortest prefix with a mass of goal, or what is at least min_p
 * times as likely as the likeliest. */
void draw_set_keep_typical(struct draw_set *set, struct draw_heat heat,
			   struct draw_surprise surprise, uint64_t goal);
void draw_set_keep_top_p(struct draw_set *set, uint64_t goal);
void draw_set_keep_min_p(struct draw_set *set, float min_p);

/* The token in whose stretch of the kept mass the 53-bit fraction falls. */
uint32_t draw_set_pick(const struct draw_set *set, uint64_t fraction);
/* The same between all tokens; draw_row_mass must have been called with this heat and returned
 * mass.
 */
uint32_t draw_set_pick_any(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			   uint64_t mass, uint64_t fraction);
