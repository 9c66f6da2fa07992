/* gateway/otlp.h: spans for a collector, as OTLP/HTTP with JSON. Optional: nothing here can hold up
 * a request. Spans wait in a queue with a limit, one connection at a time takes them away, and a
 * collector that is slow, wrong or gone costs spans, which are counted. One thread. */
#pragma once
#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/trace_context.h"

#define GW_ATTRIBUTES_MAX 12u
#define GW_OTLP_QUEUE	  2048u /* spans that wait */
#define GW_OTLP_BATCH	  256u	/* spans of one message */

/* text NULL: the number. */
struct gw_attribute {
	const char *key, *text;
	int64_t number;
};

/* Borrowed for the call that takes it. */
struct gw_span {
	unsigned char trace[GW_TRACE_ID_BYTES], id[GW_SPAN_ID_BYTES], parent[GW_SPAN_ID_BYTES];
	bool has_parent;
	bool is_server;		   /* of the request; else within it */
	const char *name;	   /* what was done */
	const char *error;	   /* why it failed; NULL: it didn't */
	uint64_t start_us, end_us; /* CLOCK_REALTIME */
	struct gw_attribute attributes[GW_ATTRIBUTES_MAX];
	uint32_t n_attributes;
};

/* Appends the span as a JSON object. */
void gw_span_print(struct buf *out, const struct gw_span *span);

struct gw_otlp;

/* url: http://HOST[:PORT][/PATH], port 4318 and path /v1/traces unless it says otherwise. The name
 * is looked up here, once. instance: of this process, for the collector. SVC_BAD_CONFIG says what
 * is wrong with it; whether somebody is there isn't asked. */
enum svc_code gw_otlp_open(struct event_base *base, const char *url, const char *instance,
			   struct gw_otlp **ret_otlp, struct svc_err *err) SVC_CHECKED;
/* What waits is lost. NULL is fine. Returns NULL. */
struct gw_otlp *gw_otlp_free(struct gw_otlp *otlp);
/* Takes a copy; when the queue is full the span is dropped. */
void gw_otlp_add(struct gw_otlp *otlp, const struct gw_span *span);
/* Sends what waits now instead of within a second; says whether all is gone. */
bool gw_otlp_flush(struct gw_otlp *otlp);

struct gw_otlp_counts {
	uint64_t sent, dropped, failures; /* spans, spans, messages that weren't taken */
};
/* NULL: zeros. */
struct gw_otlp_counts gw_otlp_counts(const struct gw_otlp *otlp);
