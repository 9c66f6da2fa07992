/* keeper/keeper_plan.h: from options and the model's shape to the sizes of a run. */
#pragma once
#include "services/option.h"
#include "shm/run.h"

extern const struct opt keeper_options[];

/* Strings of *ret_plan live in static storage or in the options. Fails with the option's name, its
 * limit and what to change. */
SVC_CHECKED enum svc_code keeper_plan_make(const struct opt_set *options, struct run_plan *ret_plan,
					   struct svc_err *err);
