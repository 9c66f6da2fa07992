/* gateway/metrics.h: counts and times of this gateway, and Prometheus' text form for them. One
 * thread. */
#pragma once
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "shm/layout.h"

#define GW_BUCKETS_MAX 20u

/* Times in seconds. */
struct gw_histogram {
	uint64_t counts[GW_BUCKETS_MAX + 1];
	double sum;
};

struct gw_metrics {
	uint64_t requests[6];		  /* by endpoint, in the order of enum gw_endpoint's bits */
	uint64_t results[SVC_CODE_COUNT]; /* SVC_OK: answered */
	uint64_t prompt_tokens, answer_tokens;
	uint64_t cached_tokens; /* of the prompts' */
	uint64_t events, keep_alives, resumed;
	struct gw_histogram first_token, between_tokens, whole;
	struct gw_histogram queue, prefill, decode; /* of each choice */
};

void gw_histogram_add(struct gw_histogram *histogram, uint64_t us);

enum gw_metric_type { GW_COUNTER, GW_GAUGE };

/* Appends "# HELP", "# TYPE" and, if label is NULL, the value. */
void gw_metric_print(struct buf *out, enum gw_metric_type type, const char *name, const char *help);
/* One value; labels as "name=\"value\"" or "". */
void gw_value_print(struct buf *out, const char *name, const char *labels, uint64_t value);
void gw_histogram_print(struct buf *out, const char *name, const char *help,
			const struct gw_histogram *histogram);
/* lockstep_recovery_seconds, of all processes of the run. */
void gw_recovery_print(struct buf *out, const struct ctl_counters *counters);
void gw_metrics_print(struct buf *out, const struct gw_metrics *metrics);
