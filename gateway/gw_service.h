/* gateway/gw_service.h: the gateway process. */
#pragma once
#include "services/service.h"

extern const struct svc_spec gateway_spec;
