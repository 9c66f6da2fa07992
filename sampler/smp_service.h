/* sampler/smp_service.h: the sampler process: takes slots in STAGE_SAMPLE, adds one token, its
 * bytes and its log-probabilities to the body, passes on. */
#pragma once
#include "services/service.h"

extern const struct svc_spec sampler_spec;
