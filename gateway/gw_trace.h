/* gateway/gw_trace.h: how long what took, as spans and histograms. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

enum svc_code gw_trace_open(struct gateway *gateway, struct svc_err *err) SVC_CHECKED;
/* The request of the exchange begins. */
struct gw_trace gw_trace_begin(const struct gateway *gateway, struct gw_http_exchange *exchange);
/* The call ends; its slots are still its own. */
void gw_trace_end(struct gateway *gateway, const struct gw_call *call, enum svc_code result);
/* A request that never became a call. */
void gw_trace_refused(struct gateway *gateway, struct gw_http_exchange *exchange,
		      enum svc_code result);
