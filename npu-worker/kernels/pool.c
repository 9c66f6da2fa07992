#include "npu-worker/kernels/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>

enum {
	SPIN_TURNS =
		800, /* 20 to 40 us of pauses: longer than the gaps between a step's dispatches */
	LINE = 64,
	/* The state word: threads at work in this round (9 bits), whether more may join, the
	 * round's number. A thread that is late misses the round, so nobody waits for one that
	 * sleeps or has lost its core; one that is so late that the number came round again only
	 * misses one more. */
	ACTIVE = 0x1ff,
	OPEN = 0x200,
	ROUND_STEP = 0x400,
};

struct pool_thread {
	struct pool *pool;
	pthread_t handle;
	uint32_t index;
};

struct pool {
	/* Written while nobody is active and the round is closed; read by threads that joined. */
	pool_work *work;
	void *context;
	uint32_t count, grain;
	uint32_t thread_count; /* started, without the opener */
	_Alignas(LINE) _Atomic uint32_t state;
	_Alignas(LINE) _Atomic uint32_t sleepers; /* on state; the opener too */
	_Atomic bool stop;
	/* The next item that nobody has taken; 64 bits, as every thread overshoots. */
	_Alignas(LINE) _Atomic uint64_t next;
	_Alignas(LINE) struct pool_thread threads[];
};

void pool_thread_setup(void)
{
	_mm_setcsr(0x1f80);
}

static void wake_sleepers(struct pool *pool)
{
	if (atomic_load(&pool->sleepers))
		syscall(SYS_futex, &pool->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the state is no longer `seen`. `sleepers` is raised before the kernel looks at the
 * state, and whoever changes the state looks at `sleepers` after that, both sequentially
 * consistent: one of them sees the other. */
static void wait_for_change(struct pool *pool, uint32_t seen, int *spins)
{
	if (++*spins < SPIN_TURNS) {
		_mm_pause();
		return;
	}
	atomic_fetch_add(&pool->sleepers, 1);
	syscall(SYS_futex, &pool->state, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
	atomic_fetch_sub(&pool->sleepers, 1);
}

static void take_items(struct pool *pool, uint32_t thread)
{
	uint64_t count = pool->count, grain = pool->grain;
	for (;;) {
		uint64_t first =
			atomic_fetch_add_explicit(&pool->next, grain, memory_order_relaxed);
		if (first >= count)
			return;
		uint64_t last = first + grain < count ? first + grain : count;
		pool->work(pool->context, (uint32_t)first, (uint32_t)last, thread);
	}
}

/* Waits for an open round other than *round and joins it. false: the pool closes. */
static bool join_round(struct pool *pool, uint32_t *round)
{
	for (int spins = 0;;) {
		uint32_t state = atomic_load_explicit(&pool->state, memory_order_acquire);
		if (atomic_load(&pool->stop))
			return false;
		if (!(state & OPEN) || state / ROUND_STEP == *round) {
			wait_for_change(pool, state, &spins);
		} else if (atomic_compare_exchange_weak(&pool->state, &state, state + 1)) {
			*round = state / ROUND_STEP;
			return true;
		}
	}
}

static void *thread_main(void *context)
{
	struct pool_thread *self = context;
	struct pool *pool = self->pool;
	pool_thread_setup();
	for (uint32_t round = 0; join_round(pool, &round);) {
		take_items(pool, self->index);
		uint32_t before = atomic_fetch_sub(&pool->state, 1);
		if ((before & (OPEN | ACTIVE)) == 1)
			wake_sleepers(pool);
	}
	return NULL;
}

void pool_run(struct pool *pool, pool_work *work, void *context, uint32_t count, uint32_t grain)
{
	if (count <= grain || pool->thread_count == 0) {
		if (count > 0)
			work(context, 0, count, 0);
		return;
	}
	pool->work = work;
	pool->context = context;
	pool->count = count;
	pool->grain = grain;
	atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
	atomic_fetch_add(&pool->state, ROUND_STEP + OPEN);
	wake_sleepers(pool);
	take_items(pool, 0);
	uint32_t state = atomic_fetch_and(&pool->state, ~(uint32_t)OPEN) & ~(uint32_t)OPEN;
	for (int spins = 0; state & ACTIVE;) {
		wait_for_change(pool, state, &spins);
		state = atomic_load_explicit(&pool->state, memory_order_acquire);
	}
}

uint32_t pool_threads(const struct pool *pool)
{
	return pool->thread_count + 1;
}

/* Signals are for the thread that opens the pool: the new one starts with all of them blocked. */
static int start_thread(struct pool *pool, uint32_t index)
{
	struct pool_thread *thread = &pool->threads[index - 1];
	*thread = (struct pool_thread){.pool = pool, .index = index};
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread->handle, NULL, thread_main, thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return error;
	char name[16];
	snprintf(name, sizeof name, "kernels-%u", index);
	pthread_setname_np(thread->handle, name);
	pool->thread_count = index;
	return 0;
}

enum svc_code pool_open(uint32_t threads, struct pool **ret_pool, struct svc_err *err)
{
	if (threads < 1 || threads > POOL_MAX_THREADS)
		return svc_fail_param(err, SVC_BAD_CONFIG, "threads",
				      "threads: %u; must be 1 to %d", threads, POOL_MAX_THREADS);
	size_t size = sizeof(struct pool) + (threads - 1) * sizeof(struct pool_thread);
	struct pool *pool = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
	if (!pool)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a pool of %u threads",
				threads);
	memset(pool, 0, size);
	pool_thread_setup();
	for (uint32_t i = 1; i < threads; i++) {
		int error = start_thread(pool, i);
		if (error) {
			pool_close(pool);
			errno = error;
			return svc_fail_errno(err, __func__, "cannot start thread %u of %u", i + 1,
					      threads);
		}
	}
	*ret_pool = pool;
	return SVC_OK;
}

enum svc_code pool_pin(struct pool *pool, const uint32_t *cores, struct svc_err *err)
{
	for (uint32_t i = 0; i < pool_threads(pool); i++) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(cores[i], &set);
		pthread_t thread = i ? pool->threads[i - 1].handle : pthread_self();
		errno = pthread_setaffinity_np(thread, sizeof set, &set);
		if (errno)
			return svc_fail_errno(err, __func__, "thread %u cannot run on processor %u",
					      i, cores[i]);
	}
	return SVC_OK;
}

struct pool *pool_close(struct pool *pool)
{
	if (!pool)
		return NULL;
	atomic_store(&pool->stop, true);
	atomic_fetch_add(&pool->state, ROUND_STEP);
	wake_sleepers(pool);
	for (uint32_t i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i].handle, NULL);
	free(pool);
	return NULL;
}
