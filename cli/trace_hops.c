#include "cli/trace_hops.h"

#include <stdlib.h>

/* A slot's next request starts at small positions again; a token's spans lie closer than this. */
#define SAME_TOKEN_NS 2000000000ull

const char *hop_name(enum hop hop)
{
	static const char *const names[HOP_COUNT] = {
		"step", "to the sampler", "draw", "to the worker", "token", "to the client"};
	return names[hop];
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* By slot, then by time: the spans of a slot's tokens follow each other. */
static int by_slot(const void *a, const void *b)
{
	const struct trace_span *left = &((const struct traced *)a)->span,
				*right = &((const struct traced *)b)->span;
	int order = compare(left->slot, right->slot);
	return order ? order : compare(left->start_ns, right->start_ns);
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return left < right ? -1 : left > right;
}

/* The span of that kind and position soon after spans[at] in the same slot; NULL: not traced. */
static const struct trace_span *find_after(const struct traced *spans, size_t n, size_t at,
					   enum trace_kind kind, uint32_t position)
{
	const struct trace_span *from = &spans[at].span;
	for (size_t i = at + 1; i < n; i++) {
		const struct trace_span *span = &spans[i].span;
		if (span->slot != from->slot || span->start_ns - from->start_ns > SAME_TOKEN_NS)
			return NULL;
		if (span->kind == kind && span->position == position)
			return span;
	}
	return NULL;
}

static void add(struct hop_times *hop, uint64_t from_ns, uint64_t to_ns)
{
	hop->us[hop->n++] = to_ns > from_ns ? (double)(to_ns - from_ns) / 1e3 : 0;
}

static uint64_t end_of(const struct trace_span *span)
{
	return span->start_ns + span->took_ns;
}

static void follow(const struct traced *spans, size_t n, size_t at, struct hop_times *hops)
{
	const struct trace_span *step = &spans[at].span;
	uint32_t position = step->position;
	const struct trace_span *draw = find_after(spans, n, at, TRACE_DRAW, position);
	const struct trace_span *next = find_after(spans, n, at, TRACE_STEP, position + 1);
	const struct trace_span *send = find_after(spans, n, at, TRACE_SEND, position);
	add(&hops[HOP_STEP], step->start_ns, end_of(step));
	if (draw) {
		add(&hops[HOP_TO_SAMPLER], end_of(step), draw->start_ns);
		add(&hops[HOP_DRAW], draw->start_ns, end_of(draw));
	}
	if (draw && next)
		add(&hops[HOP_TO_WORKER], end_of(draw), next->start_ns);
	if (next)
		add(&hops[HOP_TOKEN], step->start_ns, next->start_ns);
	if (draw && send)
		add(&hops[HOP_TO_CLIENT], end_of(draw), end_of(send));
}

bool hops_find(struct traced *spans, size_t n, struct hop_times *ret_hops)
{
	double *memory = calloc(HOP_COUNT * (n + 1), sizeof *memory);
	if (!memory)
		return false;
	for (int hop = 0; hop < HOP_COUNT; hop++)
		ret_hops[hop] = (struct hop_times){memory + (size_t)hop * (n + 1), 0};
	if (n)
		qsort(spans, n, sizeof *spans, by_slot);
	for (size_t i = 0; i < n; i++)
		if (spans[i].span.kind == TRACE_STEP)
			follow(spans, n, i, ret_hops);
	for (int hop = 0; hop < HOP_COUNT; hop++)
		qsort(ret_hops[hop].us, ret_hops[hop].n, sizeof(double), ascending);
	return true;
}

void hops_free(struct hop_times *hops)
{
	free(hops[0].us);
	hops[0].us = NULL;
}

double hop_percentile(const struct hop_times *hop, double p)
{
	if (hop->n == 0)
		return 0;
	size_t rank = (size_t)(p * (double)(hop->n - 1) + 0.5);
	return hop->us[rank];
}
