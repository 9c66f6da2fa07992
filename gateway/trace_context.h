/* gateway/trace_context.h: the trace that a request is part of, as its client says (W3C Trace
 * Context, field traceparent). Pure. */
#pragma once
#include <stdbool.h>

#include "base/span.h"

#define GW_TRACE_ID_BYTES 16u
#define GW_SPAN_ID_BYTES  8u

struct gw_trace_context {
	unsigned char trace[GW_TRACE_ID_BYTES], parent[GW_SPAN_ID_BYTES];
	bool sampled; /* the client keeps its own spans of this trace */
};

/* version-trace-parent-flags in lower case hexadecimal. False for what is no such field: then the
 * request begins a trace of its own. */
bool gw_traceparent_read(struct span text, struct gw_trace_context *ret_context);
