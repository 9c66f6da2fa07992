/* npu-worker/kernels/pool.h: a few threads that share the work of one dispatch. The caller is one
 * of them. The threads wait in a short spin, then asleep, so an idle pool costs nothing. Which
 * thread takes which item is not fixed, and no result may depend on it. One dispatch at a time,
 * always from the thread that opened the pool; no fork while it is open. */
#pragma once
#include <stdint.h>

#include "base/err.h"

enum { POOL_MAX_THREADS = 256 };

struct pool;

/* Round to nearest, subnormals kept, no exceptions trapped (MXCSR 0x1F80), for the calling thread.
 * The pool's threads and the one that opens it have it already. */
void pool_thread_setup(void);

/* threads: 1..POOL_MAX_THREADS, including the caller (1: no thread is started). SVC_BAD_CONFIG or
 * SVC_IO. */
SVC_CHECKED enum svc_code pool_open(uint32_t threads, struct pool **ret_pool, struct svc_err *err);
/* NULL is fine. Returns NULL. Joins the threads. */
struct pool *pool_close(struct pool *pool);
uint32_t pool_threads(const struct pool *pool);
/* Thread i runs on processor cores[i] only; cores: [threads]. The caller is thread 0. SVC_IO,
 * naming the processor: it may not be used. */
SVC_CHECKED enum svc_code pool_pin(struct pool *pool, const uint32_t *cores, struct svc_err *err);

/* Items [first, last) for the thread `thread` (0..threads-1: for its own scratch memory). */
typedef void pool_work(void *context, uint32_t first, uint32_t last, uint32_t thread);
/* Calls work for all of [0, count) in runs of up to `grain` items (>= 1), and returns when all are
 * done; what the threads wrote is then visible. count 0 does nothing. */
void pool_run(struct pool *pool, pool_work *work, void *context, uint32_t count, uint32_t grain);
