#include "draw/set.h"

#include <math.h>

#include "base/fmath.h"

enum svc_code draw_set_init(uint32_t n_vocab, struct arena *arena, struct draw_set *ret_set,
			    struct svc_err *err)
{
	size_t room = ((size_t)n_vocab + DRAW_BLOCK) / DRAW_BLOCK * DRAW_BLOCK + 1;
	struct draw_set set = {
		.ids = arena_alloc(arena, room * sizeof *set.ids),
		.x = arena_alloc(arena, room * sizeof *set.x),
		.weights = arena_alloc(arena, room * sizeof *set.weights),
		.ranks = arena_alloc(arena, room * sizeof *set.ranks),
		.ranked = arena_alloc(arena, room * sizeof *set.ranked),
	};
	if (!set.ids || !set.x || !set.weights || !set.ranks || !set.ranked)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for filters over %u tokens", n_vocab);
	*ret_set = set;
	return SVC_OK;
}

void draw_set_weigh(struct draw_set *set, const struct draw_row *row, struct draw_heat heat)
{
	row->kernels->weigh(set->x, set->n, heat.max, heat.inverse_temperature, set->weights);
}

struct draw_moments draw_set_moments(const struct draw_set *set, const struct draw_row *row,
				     struct draw_heat heat)
{
	return row->kernels->moments(set->x, set->n, heat.max, heat.inverse_temperature);
}

uint64_t draw_set_mass(const struct draw_set *set)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < set->n; i++)
		sum += set->weights[i];
	return sum;
}

uint64_t draw_share(float p, uint64_t mass)
{
	uint64_t share = (uint64_t)ceil((double)p * (double)mass);
	share = share > mass ? mass : share;
	return share ? share : 1;
}

/* Moves token `from` to place `to`, at or before it. */
static void token_move(struct draw_set *set, uint32_t to, uint32_t from)
{
	set->ids[to] = set->ids[from];
	set->x[to] = set->x[from];
	set->weights[to] = set->weights[from];
}

/* Keeps the shortest prefix by rank that holds goal of the masses; NULL: each is 1. */
static void prefix_keep(struct draw_set *set, const uint64_t *masses, uint64_t goal)
{
	uint64_t last = draw_cut(set->ranks, masses, set->n, goal, set->ranked);
	uint32_t kept = 0;
	for (uint32_t i = 0; i < set->n; i++) {
		token_move(set, kept, i);
		kept += set->ranks[i] <= last;
	}
	set->n = kept;
}

static void rank_by_logit(struct draw_set *set)
{
	for (uint32_t i = 0; i < set->n; i++)
		set->ranks[i] = draw_rank_descending(set->x[i], set->ids[i]);
}

/* A logit that at least k tokens reach: the k-th highest of the lanes' maxima. */
static float top_k_bound(struct draw_set *set, const struct draw_row *row, uint32_t k)
{
	uint32_t n_lanes = row->n_blocks * DRAW_LANES;
	if (k > n_lanes)
		return -INFINITY;
	for (uint32_t i = 0; i < n_lanes; i++)
		set->ranks[i] = draw_rank_descending(row->lane_max[i], i);
	return row->lane_max[(uint32_t)draw_cut(set->ranks, NULL, n_lanes, k, set->ranked)];
}

void draw_set_take_top_k(struct draw_set *set, const struct draw_row *row, uint32_t k)
{
	set->n = draw_row_collect(row, top_k_bound(set, row, k), set->ids, set->x);
	if (set->n <= k)
		return;
	rank_by_logit(set);
	prefix_keep(set, NULL, k);
}

void draw_set_take_depth(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			 float depth)
{
	double low = (double)heat.max - (double)depth / (double)heat.inverse_temperature;
	set->n = draw_row_collect(row, (float)low, set->ids, set->x);
	draw_set_weigh(set, row, heat);
}

/* Most distributions have their nucleus near the top: look there first, and only then at the whole
 * row. */
static const float depths[] = {3, 6, 9, 11, 13, DRAW_DEPTH_MAX};
#define N_DEPTHS (sizeof depths / sizeof *depths)

void draw_set_take_mass(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			uint64_t goal)
{
	for (size_t i = 0; i < N_DEPTHS; i++) {
		draw_set_take_depth(set, row, heat, depths[i]);
		if (draw_set_mass(set) >= goal)
			return;
	}
}

void draw_set_keep_top_p(struct draw_set *set, uint64_t goal)
{
	rank_by_logit(set);
	prefix_keep(set, set->weights, goal);
}

struct draw_surprise draw_surprise(struct draw_moments moments)
{
	double log_mass = fm_log((double)moments.mass / DRAW_UNIT);
	return (struct draw_surprise){log_mass,
				      log_mass - (double)moments.moment / (double)moments.mass};
}

/* -ln p of a token is ln(mass / 2^42) - scaled logit. */
static float distance(float x, struct draw_heat heat, struct draw_surprise surprise)
{
	double own = surprise.log_mass - (double)((x - heat.max) * heat.inverse_temperature);
	return (float)fabs(own - surprise.mean);
}

void draw_set_take_typical(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			   struct draw_surprise surprise, uint64_t goal)
{
	for (size_t i = 0; i < N_DEPTHS; i++) {
		/* All tokens within this distance of the mean surprise; rounding doesn't reach a
		 * tenth. */
		float depth = (float)(surprise.mean - surprise.log_mass) + depths[i] + 0.1f;
		draw_set_take_depth(set, row, heat, fminf(depth, DRAW_DEPTH_MAX));
		uint64_t within = 0;
		for (uint32_t at = 0; at < set->n; at++)
			if (distance(set->x[at], heat, surprise) <= depths[i])
				within += set->weights[at];
		if (within >= goal)
			return;
	}
}

void draw_set_keep_typical(struct draw_set *set, struct draw_heat heat,
			   struct draw_surprise surprise, uint64_t goal)
{
	for (uint32_t i = 0; i < set->n; i++)
		set->ranks[i] =
			draw_rank_ascending(distance(set->x[i], heat, surprise), set->ids[i]);
	prefix_keep(set, set->weights, goal);
}

void draw_set_keep_min_p(struct draw_set *set, float min_p)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < set->n; i++)
		most = set->weights[i] > most ? set->weights[i] : most;
	double least = (double)min_p * (double)most;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < set->n; i++) {
		token_move(set, kept, i);
		kept += (double)set->weights[i] >= least;
	}
	set->n = kept;
}

static uint64_t place(uint64_t mass, uint64_t fraction)
{
	return (uint64_t)((unsigned __int128)mass * fraction >> 53);
}

/* The first token whose weight, added to those before it, passes `at`. */
static uint32_t weights_walk(const struct draw_set *set, uint64_t at)
{
	uint32_t i = 0;
	while (i + 1 < set->n && at >= set->weights[i])
		at -= set->weights[i++];
	return set->ids[i];
}

uint32_t draw_set_pick(const struct draw_set *set, uint64_t fraction)
{
	return weights_walk(set, place(draw_set_mass(set), fraction));
}

uint32_t draw_set_pick_any(struct draw_set *set, const struct draw_row *row, struct draw_heat heat,
			   uint64_t mass, uint64_t fraction)
{
	uint64_t at = place(mass, fraction);
	uint32_t block = 0;
	while (block + 1 < row->n_blocks && at >= row->block_mass[block])
		at -= row->block_mass[block++];
	uint32_t first = block * DRAW_BLOCK;
	set->n = row->n - first < DRAW_BLOCK ? row->n - first : DRAW_BLOCK;
	for (uint32_t i = 0; i < set->n; i++) {
		set->ids[i] = first + i;
		set->x[i] = row->blocks[block][i];
	}
	draw_set_weigh(set, row, heat);
	return weights_walk(set, at);
}
