/* cli/trace_hops.h: from spans of single processes to what a token's way consists of. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/trace.h"

struct traced {
	struct trace_span span;
	uint32_t entry; /* whose */
};

enum hop {
	HOP_STEP,	/* the npu-worker computes the logits */
	HOP_TO_SAMPLER, /* until the sampler begins */
	HOP_DRAW,	/* the sampler's turn */
	HOP_TO_WORKER,	/* until the next step begins; 0 if it had begun already */
	HOP_TOKEN,	/* from step to step: the time between two tokens */
	HOP_TO_CLIENT,	/* from the draw's end until the event is written, beside the loop */
	HOP_COUNT
};
const char *hop_name(enum hop hop);

struct hop_times {
	double *us; /* [n], ascending */
	size_t n;
};

/* Sorts the spans by slot, position and kind, and joins those of one token. ret_hops[HOP_COUNT];
 * false: no memory. Give back with hops_free. */
bool hops_find(struct traced *spans, size_t n, struct hop_times *ret_hops);
void hops_free(struct hop_times *hops);
/* p 0..1, nearest rank; 0 if there is none. */
double hop_percentile(const struct hop_times *hop, double p);
