#include "services/deadman.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "shm/run.h"

#define LOOKS_PER_LIMIT 8u

struct deadman {
	const struct inc_entry *inc;
	uint64_t limit_us;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool leave;
};

static uint64_t now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* Until the next look; false: it is over. */
static bool wait_us(struct deadman *deadman, uint64_t us)
{
	uint64_t at = now_us() + us;
	struct timespec end = {(time_t)(at / 1000000u), (long)(at % 1000000u) * 1000};
	pthread_mutex_lock(&deadman->lock);
	while (!deadman->leave && now_us() < at)
		pthread_cond_timedwait(&deadman->wake, &deadman->lock, &end);
	bool more = !deadman->leave;
	pthread_mutex_unlock(&deadman->lock);
	return more;
}

static void *watch(void *arg)
{
	struct deadman *deadman = arg;
	uint64_t each_us = deadman->limit_us / LOOKS_PER_LIMIT, seen = 0, since = now_us(),
		 looked = since;
	while (wait_us(deadman, each_us)) {
		uint64_t now = now_us();
		uint64_t beat = atomic_load_explicit(&deadman->inc->beat, memory_order_relaxed);
		if (beat != seen || now - looked > 2 * each_us)
			since = now;
		seen = beat;
		looked = now;
		if (now - since <= deadman->limit_us)
			continue;
		log_line(LOG_LEVEL_ERROR, 0, SVC_STALE,
			 "no beat for %llu ms: what this process waits for hangs; it ends",
			 (unsigned long long)(now - since) / 1000);
		_exit(svc_code_info(SVC_STALE)->exit_status);
	}
	return NULL;
}

enum svc_code deadman_start(const struct shm_run *run, uint64_t limit_us,
			    struct deadman **ret_deadman, struct svc_err *err)
{
	struct deadman *deadman = calloc(1, sizeof *deadman);
	pthread_condattr_t monotonic;
	if (!deadman)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	deadman->inc = &run->ctl->incs[run->me];
	deadman->limit_us = limit_us;
	pthread_mutex_init(&deadman->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&deadman->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* Signals are for the loop. */
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&deadman->thread, NULL, watch, deadman);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		free(deadman);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "cannot start a thread");
	}
	*ret_deadman = deadman;
	return SVC_OK;
}

struct deadman *deadman_stop(struct deadman *deadman)
{
	if (!deadman)
		return NULL;
	pthread_mutex_lock(&deadman->lock);
	deadman->leave = true;
	pthread_cond_signal(&deadman->wake);
	pthread_mutex_unlock(&deadman->lock);
	pthread_join(deadman->thread, NULL);
	pthread_cond_destroy(&deadman->wake);
	pthread_mutex_destroy(&deadman->lock);
	free(deadman);
	return NULL;
}
