#include "sampler/set.h"

#include <math.h>

#include "base/fmath.h"

enum svc_code smp_set_init(uint32_t n_vocab, struct arena *arena, struct smp_set *ret_set,
			   struct svc_err *err)
{
	size_t room = ((size_t)n_vocab + SMP_BLOCK) / SMP_BLOCK * SMP_BLOCK + 1;
	struct smp_set set = {
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

void smp_set_weigh(struct smp_set *set, const struct smp_row *row, struct smp_heat heat)
{
	row->kernels->weigh(set->x, set->n, heat.max, heat.inverse_temperature, set->weights);
}

uint64_t smp_set_mass(const struct smp_set *set)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < set->n; i++)
		sum += set->weights[i];
	return sum;
}

uint64_t smp_share(float p, uint64_t mass)
{
	uint64_t share = (uint64_t)ceil((double)p * (double)mass);
	share = share > mass ? mass : share;
	return share ? share : 1;
}

/* Keeps the tokens whose rank is not behind `last`. */
static void ranks_keep(struct smp_set *set, uint64_t last)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < set->n; i++) {
		set->ids[kept] = set->ids[i];
		set->x[kept] = set->x[i];
		set->weights[kept] = set->weights[i];
		kept += set->ranks[i] <= last;
	}
	set->n = kept;
}

static void mass_keep(struct smp_set *set, uint64_t goal)
{
	for (uint32_t i = 0; i < set->n; i++)
		set->ranked[i] = (struct smp_ranked){set->ranks[i], set->weights[i]};
	ranks_keep(set, smp_cut(set->ranked, set->n, goal));
}

static void rank_by_logit(struct smp_set *set)
{
	for (uint32_t i = 0; i < set->n; i++)
		set->ranks[i] = smp_rank_descending(set->x[i], set->ids[i]);
}

/* A logit that at least k tokens reach: the k-th highest of the lanes' maxima. */
static float top_k_bound(struct smp_set *set, const struct smp_row *row, uint32_t k)
{
	uint32_t n_lanes = row->n_blocks * SMP_LANES;
	if (k > n_lanes)
		return -INFINITY;
	for (uint32_t i = 0; i < n_lanes; i++)
		set->ranked[i] = (struct smp_ranked){smp_rank_descending(row->lane_max[i], i), 1};
	uint64_t last = smp_cut(set->ranked, n_lanes, k);
	return row->lane_max[(uint32_t)last];
}

void smp_set_take_top_k(struct smp_set *set, const struct smp_row *row, uint32_t k)
{
	set->n = smp_row_collect(row, top_k_bound(set, row, k), set->ids, set->x);
	if (set->n <= k)
		return;
	rank_by_logit(set);
	for (uint32_t i = 0; i < set->n; i++)
		set->ranked[i] = (struct smp_ranked){set->ranks[i], 1};
	ranks_keep(set, smp_cut(set->ranked, set->n, k));
}

void smp_set_take_depth(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
			float depth)
{
	double low = (double)heat.max - (double)depth / (double)heat.inverse_temperature;
	set->n = smp_row_collect(row, (float)low, set->ids, set->x);
	smp_set_weigh(set, row, heat);
}

void smp_set_take_mass(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
		       uint64_t goal)
{
	/* Most distributions have their nucleus near the top: look there first, and only then at
	 * the whole row. */
	static const float depths[] = {3, 7, 12, SMP_DEPTH_MAX};
	for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
		smp_set_take_depth(set, row, heat, depths[i]);
		if (smp_set_mass(set) >= goal)
			return;
	}
}

/* Surprise of a token with logit x in a set: -ln(weight / mass) = ln(mass / 2^42) - scaled logit.
 */
static double surprise(float x, struct smp_heat heat, double log_mass)
{
	return log_mass - (double)((x - heat.max) * heat.inverse_temperature);
}

void smp_set_keep_typical(struct smp_set *set, struct smp_heat heat, float p)
{
	uint64_t mass = smp_set_mass(set);
	double log_mass = fm_log((double)mass / SMP_UNIT);
	double sum = 0;
	for (uint32_t i = 0; i < set->n; i++)
		if (set->weights[i])
			sum += (double)set->weights[i] * surprise(set->x[i], heat, log_mass);
	double entropy = sum / (double)mass;
	for (uint32_t i = 0; i < set->n; i++) {
		float distance = (float)fabs(surprise(set->x[i], heat, log_mass) - entropy);
		set->ranks[i] = smp_rank_ascending(distance, set->ids[i]);
	}
	mass_keep(set, smp_share(p, mass));
}

void smp_set_keep_top_p(struct smp_set *set, uint64_t goal)
{
	rank_by_logit(set);
	mass_keep(set, goal);
}

void smp_set_keep_min_p(struct smp_set *set, float min_p)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < set->n; i++)
		most = set->weights[i] > most ? set->weights[i] : most;
	double least = (double)min_p * (double)most;
	uint32_t kept = 0;
	for (uint32_t i = 0; i < set->n; i++) {
		set->ids[kept] = set->ids[i];
		set->x[kept] = set->x[i];
		set->weights[kept] = set->weights[i];
		kept += (double)set->weights[i] >= least;
	}
	set->n = kept;
}

static uint64_t place(uint64_t mass, uint64_t fraction)
{
	return (uint64_t)((unsigned __int128)mass * fraction >> 53);
}

/* The first token whose weight, added to those before it, passes `at`. */
static uint32_t weights_walk(const struct smp_set *set, uint64_t at)
{
	uint32_t i = 0;
	while (i + 1 < set->n && at >= set->weights[i])
		at -= set->weights[i++];
	return set->ids[i];
}

uint32_t smp_set_pick(const struct smp_set *set, uint64_t fraction)
{
	return weights_walk(set, place(smp_set_mass(set), fraction));
}

uint32_t smp_set_pick_any(struct smp_set *set, const struct smp_row *row, struct smp_heat heat,
			  uint64_t mass, uint64_t fraction)
{
	uint64_t at = place(mass, fraction);
	uint32_t block = 0;
	while (block + 1 < row->n_blocks && at >= row->block_mass[block])
		at -= row->block_mass[block++];
	uint32_t first = block * SMP_BLOCK;
	set->n = row->n - first < SMP_BLOCK ? row->n - first : SMP_BLOCK;
	for (uint32_t i = 0; i < set->n; i++) {
		set->ids[i] = first + i;
		set->x[i] = row->blocks[block][i];
	}
	smp_set_weigh(set, row, heat);
	return weights_walk(set, at);
}
