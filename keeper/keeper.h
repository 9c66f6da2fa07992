/* keeper/keeper.h: creates the run and its segments, is the first to see who died, and hints. It
 * touches no bulk data, is never on the way of a token, and nothing waits for it: a new keeper
 * attaches to what is there. */
#pragma once
#include "services/service.h"

extern const struct svc_spec keeper_spec;
