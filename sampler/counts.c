#include "sampler/counts.h"

#include <assert.h>

enum svc_code smp_counts_init(uint32_t max_tokens, uint32_t n_vocab, uint32_t window,
			      struct arena *arena, struct smp_counts *ret_counts,
			      struct svc_err *err)
{
	struct smp_counts counts = {.limit = max_tokens < n_vocab ? max_tokens : n_vocab,
				    .table_bits = 4};
	while ((size_t)1 << counts.table_bits < (size_t)2 * counts.limit)
		counts.table_bits++;
	counts.items = arena_alloc(arena, counts.limit * sizeof *counts.items);
	counts.table = arena_alloc(arena, ((size_t)1 << counts.table_bits) * sizeof *counts.table);
	bool ok = counts.items && counts.table;
	if (window && window < max_tokens) {
		counts.window = window;
		counts.ring = arena_alloc(arena, window * sizeof *counts.ring);
		ok = ok && counts.ring;
	}
	if (!ok)
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for the token counts of %u positions", max_tokens);
	*ret_counts = counts;
	return SVC_OK;
}

static struct smp_count *count_of(struct smp_counts *counts, int32_t id)
{
	uint32_t mask = ((uint32_t)1 << counts->table_bits) - 1;
	uint32_t at = ((uint32_t)id * 0x9E3779B1u) >> (32 - counts->table_bits);
	for (; counts->table[at]; at = (at + 1) & mask)
		if (counts->items[counts->table[at] - 1].id == id)
			return &counts->items[counts->table[at] - 1];
	assert(counts->n < counts->limit);
	struct smp_count *item = &counts->items[counts->n++];
	*item = (struct smp_count){.id = id};
	counts->table[at] = counts->n;
	return item;
}

void smp_counts_add(struct smp_counts *counts, int32_t id, bool made)
{
	struct smp_count *item = count_of(counts, id);
	item->seen++;
	item->made += made;
	if (!counts->ring)
		return;
	if (counts->n_ring == counts->window)
		count_of(counts, counts->ring[counts->ring_at])->seen--;
	else
		counts->n_ring++;
	counts->ring[counts->ring_at] = id;
	counts->ring_at = counts->ring_at + 1 == counts->window ? 0 : counts->ring_at + 1;
}
