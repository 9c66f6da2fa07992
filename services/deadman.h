/* services/deadman.h: a process whose work hangs (a device that doesn't answer, an endless loop)
 * ends itself. Others would find it frozen anyway and fence it; but its end is a proof: what it
 * owned is taken over without a copy, nothing stays in quarantine, and its supervisor starts it
 * again at once. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct shm_run;
struct deadman;

/* Watches the beats of run->me from a thread. Without one for limit_us the process ends by _exit
 * with the status of SVC_STALE; a thread that was itself not scheduled for long doesn't judge. */
enum svc_code deadman_start(const struct shm_run *run, uint64_t limit_us,
			    struct deadman **ret_deadman, struct svc_err *err);

/* Ends the watch; NULL is fine. Returns NULL. */
struct deadman *deadman_stop(struct deadman *deadman);
