#include "shm/trace.h"

#include <time.h>

#define KIND_SHIFT 56
#define SLOT_SHIFT 32
#define SLOT_ALL   0xffffffu

uint64_t trace_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void trace_ask(struct shm_run *run, uint64_t until_ns)
{
	atomic_store_explicit(&run->ctl->counters.trace_until_ns, until_ns, memory_order_relaxed);
}

uint64_t trace_begin(const struct shm_run *run)
{
	uint64_t until =
		atomic_load_explicit(&run->ctl->counters.trace_until_ns, memory_order_relaxed);
	if (until == 0)
		return 0;
	uint64_t now = trace_now_ns();
	return now < until ? now : 0;
}

void trace_put_span(struct shm_run *run, const struct trace_span *span)
{
	struct trace_ring *ring = &run->trace_rings[run->me];
	uint64_t at = atomic_load_explicit(&ring->next, memory_order_relaxed);
	struct trace_record *record = &ring->records[at % TRACE_RING_RECORDS];
	uint64_t where = (uint64_t)span->kind << KIND_SHIFT |
			 (uint64_t)(span->slot & SLOT_ALL) << SLOT_SHIFT | span->position;
	/* Nobody's while it changes. The stores in between may not pass it, so it is a swap. */
	atomic_exchange(&record->number, 0);
	atomic_store_explicit(&record->start_ns, span->start_ns, memory_order_relaxed);
	atomic_store_explicit(&record->took_ns, span->took_ns, memory_order_relaxed);
	atomic_store_explicit(&record->where, where, memory_order_relaxed);
	atomic_store_explicit(&record->number, at + 1, memory_order_release);
	atomic_store_explicit(&ring->next, at + 1, memory_order_release);
}

void trace_put(struct shm_run *run, enum trace_kind kind, uint32_t slot, uint32_t position,
	       uint64_t start_ns)
{
	if (start_ns == 0)
		return;
	const struct trace_span span = {start_ns, trace_now_ns() - start_ns, kind, slot, position};
	trace_put_span(run, &span);
}

/* false: it was overwritten meanwhile. */
static bool read_one(const struct trace_record *record, uint64_t number, struct trace_span *ret)
{
	if (atomic_load_explicit(&record->number, memory_order_acquire) != number)
		return false;
	/* Acquire: the second look at the number comes after them. */
	uint64_t start_ns = atomic_load_explicit(&record->start_ns, memory_order_acquire);
	uint64_t took_ns = atomic_load_explicit(&record->took_ns, memory_order_acquire);
	uint64_t where = atomic_load_explicit(&record->where, memory_order_acquire);
	if (atomic_load_explicit(&record->number, memory_order_relaxed) != number)
		return false;
	uint64_t kind = where >> KIND_SHIFT;
	*ret = (struct trace_span){start_ns, took_ns,
				   kind < TRACE_KIND_COUNT ? (enum trace_kind)kind : TRACE_NONE,
				   (uint32_t)(where >> SLOT_SHIFT) & SLOT_ALL, (uint32_t)where};
	return true;
}

uint64_t trace_end_of(const struct shm_run *run, uint32_t entry)
{
	return atomic_load_explicit(&run->trace_rings[entry].next, memory_order_acquire);
}

uint32_t trace_read(const struct shm_run *run, uint32_t entry, uint64_t *cursor,
		    struct trace_span *ret_spans, uint32_t max, uint64_t *lost)
{
	const struct trace_ring *ring = &run->trace_rings[entry];
	uint64_t end = trace_end_of(run, entry), at = *cursor;
	uint32_t n = 0;
	if (at > end) /* damaged, or another run's */
		at = end;
	if (end - at > TRACE_RING_RECORDS) {
		*lost += end - at - TRACE_RING_RECORDS;
		at = end - TRACE_RING_RECORDS;
	}
	for (; at < end && n < max; at++) {
		if (read_one(&ring->records[at % TRACE_RING_RECORDS], at + 1, &ret_spans[n]))
			n++;
		else
			++*lost;
	}
	*cursor = at;
	return n;
}
