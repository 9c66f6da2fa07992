/* Pages by content: what an earlier request has computed is found in memory, then on disk, and only
 * then computed. Equal keys mean equal bytes, so this changes nothing but the time. */
#include "npu-worker/cache.h"

#include <stdlib.h>

#include "npu-worker/pool.h"
#include "npu-worker/sequence.h"

/* Pages written in one go: a few milliseconds each. */
#define WRITE_PAGES 4u
/* Left free for other workers. */
#define SPARE_PAGES 8u

static void on_beat(void *context)
{
	svc_beat(context);
}

enum svc_code cache_open(struct worker *worker, struct svc_err *err)
{
	struct svc *svc = worker->svc;
	const struct engine_info *info = engine_info(worker->engine);
	const struct store_options options = {
		.dir = opt_string(svc->options, "disk-cache"),
		.limit_bytes = (uint64_t)opt_int(svc->options, "disk-cache-mb") << 20,
		.page_bytes = svc->run.page_bytes,
		.beat = on_beat,
		.context = svc,
	};
	worker->prefix_cache = opt_bool(svc->options, "prefix-cache");
	worker->prefix_identity =
		prefix_start((const uint64_t[2]){info->identity.low, info->identity.high});
	if (!*options.dir)
		return SVC_OK;
	if (!worker->prefix_cache)
		return svc_fail_param(err, SVC_BAD_CONFIG, "disk-cache",
				      "--disk-cache needs --prefix-cache: without it nothing is "
				      "looked up");
	worker->stored = calloc(svc->run.n_pages, sizeof *worker->stored);
	if (!worker->stored)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return store_open(&options, &worker->store, err);
}

void cache_close(struct worker *worker)
{
	worker->store = store_close(worker->store);
	free(worker->stored);
	worker->stored = NULL;
}

/* A sealed page that I hold. Its seal doesn't change while I do. */
static void save(struct worker *worker, uint32_t page)
{
	struct shm_run *run = &worker->svc->run;
	const struct page_seal *seal = &run->page_seals[page];
	uint64_t generation = page_generation(run, page);
	if (!worker->store || worker->stored[page] == generation)
		return;
	const struct prefix_key key = {atomic_load(&seal->key_low), atomic_load(&seal->key_high)};
	store_save(worker->store, key, run_page(run, page));
	worker->stored[page] = generation;
}

uint32_t cache_take_page(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	uint32_t page = page_take(run, &worker->page_cursor);
	if (page != PAGE_NONE)
		return page;
	pages_collect(worker);
	while ((page = page_take(run, &worker->page_cursor)) == PAGE_NONE) {
		uint32_t oldest = prefix_oldest(run, worker->may_go);
		if (oldest == PAGE_NONE)
			return PAGE_NONE;
		save(worker, oldest);
		/* It is free now unless another worker holds it too. */
		worker->may_go[oldest] = 0;
		page_drop(run, oldest);
	}
	return page;
}

void cache_leave_spare(struct worker *worker)
{
	struct shm_run *run = &worker->svc->run;
	if (inc_find(run, ROLE_WORKER, run->me) == 0 || page_count_free(run) >= SPARE_PAGES)
		return;
	pages_collect(worker);
	/* Whether it is free then or another holds it too: the others go by the same age. */
	for (uint32_t i = 0; i < SPARE_PAGES; i++) {
		uint32_t oldest = prefix_oldest(run, worker->may_go);
		if (oldest == PAGE_NONE)
			return;
		save(worker, oldest);
		worker->may_go[oldest] = 0;
		page_drop(run, oldest);
	}
}

/* From disk into a page of mine, sealed; PAGE_NONE: not there. */
static uint32_t load(struct worker *worker, struct prefix_key key)
{
	struct shm_run *run = &worker->svc->run;
	uint32_t page = worker->store ? cache_take_page(worker) : PAGE_NONE;
	if (page == PAGE_NONE)
		return PAGE_NONE;
	if (!store_load(worker->store, key, run_page(run, page))) {
		page_drop(run, page);
		return PAGE_NONE;
	}
	prefix_seal(run, page, key);
	worker->stored[page] = page_generation(run, page);
	return page;
}

/* At least one position is left to compute, and who asks for a prompt's log-probabilities, or for
 * the mean of its hidden states, needs them all. */
void cache_share(struct worker *worker, struct sequence *sequence)
{
	struct shm_run *run = &worker->svc->run;
	const int32_t *ids =
		body_region(run, sequence->body, REGION_IDS, sequence->n_known * sizeof *ids, NULL);
	struct prefix_key key = worker->prefix_identity;
	bool all = sequence->body->params.flags & BODY_PROMPT_LOGPROBS ||
		   (pool_is_wanted(sequence) && sequence->body->params.pooling != POOLING_LAST);
	if (!ids || !worker->prefix_cache || all)
		return;
	while ((sequence->n_pages + 1) * PAGE_POSITIONS < sequence->n_known &&
	       svc_beat(worker->svc)) {
		key = prefix_next(key, ids + (size_t)sequence->n_pages * PAGE_POSITIONS);
		uint32_t page = prefix_find(run, key);
		if (page == PAGE_NONE)
			page = load(worker, key);
		if (page == PAGE_NONE)
			break;
		sequence->pages[sequence->n_pages++] = page;
		sequence_store_pages(worker, sequence);
	}
	sequence->n_kv = sequence->n_pages * PAGE_POSITIONS;
	atomic_store(&sequence->body->n_cached, sequence->n_kv);
	atomic_store_explicit(&sequence->body->n_kv, sequence->n_kv, memory_order_release);
}

void cache_seal(struct worker *worker, struct sequence *sequence, uint32_t from)
{
	struct shm_run *run = &worker->svc->run;
	const int32_t *ids =
		body_region(run, sequence->body, REGION_IDS, sequence->n_kv * sizeof *ids, NULL);
	struct prefix_key key = worker->prefix_identity;
	uint32_t first = from / PAGE_POSITIONS, end = sequence->n_kv / PAGE_POSITIONS;
	if (!ids || !worker->prefix_cache || first == end)
		return;
	for (uint32_t i = 0; i < end && i < sequence->n_pages; i++) {
		key = prefix_next(key, ids + (size_t)i * PAGE_POSITIONS);
		if (i >= first)
			prefix_seal(run, sequence->pages[i], key);
	}
}

bool cache_write_some(struct worker *worker)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t written = 0;
	if (!worker->store)
		return false;
	for (uint32_t i = 0; i < run->n_pages && written < WRITE_PAGES; i++) {
		uint32_t page = worker->store_cursor++ % run->n_pages;
		if (!page_is_mine(run, page) || !prefix_is_sealed(run, page) ||
		    worker->stored[page] == page_generation(run, page))
			continue;
		save(worker, page);
		written++;
	}
	return written > 0;
}
