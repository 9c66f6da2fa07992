#include "draw/draw.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/fmath.h"
#include "draw/philox.h"

struct range {
	const char *param;
	size_t offset; /* of the float in struct body_params */
	float min, max;
};

#define RANGE(field, min, max)                                        \
	{                                                             \
#field, offsetof(struct body_params, field), min, max \
	}

static const struct range ranges[] = {
	RANGE(temperature, 0.0f, DRAW_TEMPERATURE_MAX),
	RANGE(top_p, 0.0f, 1.0f),
	RANGE(min_p, 0.0f, 1.0f),
	RANGE(typical_p, 0.0f, 1.0f),
	RANGE(repetition_penalty, DRAW_REPETITION_MIN, DRAW_REPETITION_MAX),
	RANGE(presence_penalty, -DRAW_PENALTY_MAX, DRAW_PENALTY_MAX),
	RANGE(frequency_penalty, -DRAW_PENALTY_MAX, DRAW_PENALTY_MAX),
};

enum svc_code draw_params_check(const struct body_params *params, struct svc_err *err)
{
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		const struct range *range = &ranges[i];
		float value;
		memcpy(&value, (const char *)params + range->offset, sizeof value);
		/* Written so that a NaN fails. */
		if (!(value >= range->min && value <= range->max))
			return svc_fail_param(err, SVC_INVALID, range->param,
					      "%s is %g: it must lie between %g and %g",
					      range->param, (double)value, (double)range->min,
					      (double)range->max);
	}
	return SVC_OK;
}

bool draw_is_penalized(const struct body_params *params)
{
	return params->repetition_penalty != 1.0f || params->presence_penalty != 0.0f ||
	       params->frequency_penalty != 0.0f;
}

bool draw_is_plain(const struct body_params *params)
{
	return !draw_is_penalized(params) && params->n_bias == 0;
}

static void typical_keep(const struct body_params *num, struct draw_work *work,
			 struct draw_heat heat, bool whole_row)
{
	struct draw_moments moments = whole_row ? draw_row_moments(&work->row, heat)
						: draw_set_moments(&work->set, &work->row, heat);
	struct draw_surprise surprise = draw_surprise(moments);
	uint64_t goal = draw_share(num->typical_p, moments.mass);
	if (whole_row)
		draw_set_take_typical(&work->set, &work->row, heat, surprise, goal);
	draw_set_keep_typical(&work->set, heat, surprise, goal);
}

static void top_p_keep(const struct body_params *num, struct draw_work *work, struct draw_heat heat,
		       bool whole_row)
{
	uint64_t goal = draw_share(num->top_p, whole_row ? draw_row_mass(&work->row, heat)
							 : draw_set_mass(&work->set));
	if (whole_row)
		draw_set_take_mass(&work->set, &work->row, heat, goal);
	draw_set_keep_top_p(&work->set, goal);
}

static void min_p_keep(const struct body_params *num, struct draw_work *work, struct draw_heat heat,
		       bool whole_row)
{
	/* A weight may have been rounded up to twice its value: hence 1 > ln 2 deeper. */
	if (whole_row)
		draw_set_take_depth(&work->set, &work->row, heat,
				    fminf(1.0f - fm_logf(num->min_p), DRAW_DEPTH_MAX));
	draw_set_keep_min_p(&work->set, num->min_p);
}

/* The filters, in order; only the first one that is on looks at the whole row. Returns the token.
 */
static uint32_t filtered_pick(const struct body_params *num, struct draw_work *work,
			      struct draw_heat heat, uint64_t fraction)
{
	bool whole_row = true;
	if (num->top_k && num->top_k < work->row.n) {
		draw_set_take_top_k(&work->set, &work->row, num->top_k);
		draw_set_weigh(&work->set, &work->row, heat);
		whole_row = false;
	}
	if (num->typical_p < 1.0f) {
		typical_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (num->top_p < 1.0f) {
		top_p_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (num->min_p > 0.0f) {
		min_p_keep(num, work, heat, whole_row);
		whole_row = false;
	}
	if (!whole_row)
		return draw_set_pick(&work->set, fraction);
	uint64_t mass = draw_row_mass(&work->row, heat);
	return draw_set_pick_any(&work->set, &work->row, heat, mass, fraction);
}

uint32_t draw_pick(const struct body_params *params, uint32_t n_made, struct draw_work *work)
{
	if (params->temperature < DRAW_GREEDY_BELOW)
		return draw_row_argmax(&work->row);
	struct draw_heat heat = {work->row.max, 1.0f / params->temperature};
	return filtered_pick(params, work, heat,
			     draw_fraction(params->seed, params->choice, n_made));
}
