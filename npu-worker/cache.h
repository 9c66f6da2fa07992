/* npu-worker/cache.h: pages that an earlier request left: in memory, on disk. */
#pragma once
#include "npu-worker/worker_private.h"

/* By the options; after the engine, whose pages' identity it needs. */
SVC_CHECKED enum svc_code cache_open(struct worker *worker, struct svc_err *err);
void cache_close(struct worker *worker);
/* Starts a sequence behind the pages that an earlier request has computed, in memory or on disk. */
void cache_share(struct worker *worker, struct sequence *sequence);
/* Makes the pages that were completed since position `from` findable. After the step's commit. */
void cache_seal(struct worker *worker, struct sequence *sequence, uint32_t from);
/* At a tick: what only the cache wants doesn't stand in another worker's way. A page is free when
 * its last holder lets go, and one that has nothing to do takes none itself. */
void cache_leave_spare(struct worker *worker);
/* A page for me: a free one, else the sealed one that nobody refers to and that was used longest
 * ago, which goes to disk. PAGE_NONE: all are in use. */
uint32_t cache_take_page(struct worker *worker);
/* Writes a few pages that are only in memory to disk; when nothing runs. false: all are there. */
bool cache_write_some(struct worker *worker);
