/* shm/trace.h: where a token's time goes. While somebody traces, every process writes its spans of
 * work into a ring of its own in the control segment; a reader follows the rings. Off, it costs one
 * load. Nothing depends on a record: what a reader is too slow for is overwritten and counted as
 * lost. */
#pragma once
#include <stdbool.h>

#include "shm/layout.h"
#include "shm/run.h"

struct trace_span {
	uint64_t start_ns, took_ns; /* CLOCK_MONOTONIC */
	enum trace_kind kind;
	uint32_t slot, position; /* of the token that comes out, from the prompt's beginning */
};

uint64_t trace_now_ns(void);
/* Until then (CLOCK_MONOTONIC) every process writes its spans; 0 ends it. */
void trace_ask(struct shm_run *run, uint64_t until_ns);
/* The time if somebody traces, else 0: the start of a span that trace_put then ends. */
uint64_t trace_begin(const struct shm_run *run);
/* A span of this incarnation, from start_ns (0: not traced) to now. One thread of each. */
void trace_put(struct shm_run *run, enum trace_kind kind, uint32_t slot, uint32_t position,
	       uint64_t start_ns);
/* The same for a span that took took_ns. */
void trace_put_span(struct shm_run *run, const struct trace_span *span);
/* Spans of one incarnation's entry from *cursor on (the first time: trace_end_of), at most max;
 * moves *cursor and adds what was overwritten before it was read to *lost. */
uint32_t trace_read(const struct shm_run *run, uint32_t entry, uint64_t *cursor,
		    struct trace_span *ret_spans, uint32_t max, uint64_t *lost);
uint64_t trace_end_of(const struct shm_run *run, uint32_t entry);
