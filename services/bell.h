/* services/bell.h: "your slot has moved", for an incarnation that has to do with the slot already.
 * A ring sets the slot's bit in shared memory and, only if the other sleeps, writes a byte into its
 * FIFO: no system call while it is awake, one when it isn't. A message (services/bus.h) says the
 * same, but takes two more threads' wake-ups; it goes to who hasn't seen the slot before.
 *
 * A ring is a hint, as a message is: lost, doubled or late it costs time only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "shm/run.h"

struct bell;

/* Makes dir/bus/NUMBER.bell. The run must be registered, and SIGPIPE ignored: a FIFO's
 * reader may be dead. */
SVC_CHECKED enum svc_code bell_open(struct shm_run *run, struct bell **ret_bell,
				    struct svc_err *err);
struct bell *bell_close(struct bell *bell);

/* For entry to look at slot; it is told by the next bell_flush. Nothing for what isn't another's
 * entry, or a slot. */
void bell_ring(struct bell *bell, uint32_t entry, uint32_t slot);
void bell_flush(struct bell *bell);

/* To poll for reading: it was rung while it slept. */
int bell_fd(const struct bell *bell);
/* Takes the bytes out, so that bell_fd is quiet again. */
void bell_quiet(struct bell *bell);
/* A slot that was rung for; false when there is none left. */
bool bell_answer(struct bell *bell, uint32_t *ret_slot);
/* Before waiting for bell_fd; false: it has been rung, don't wait. */
bool bell_sleep(struct bell *bell);
/* After it: rings are found by bell_answer, without a byte. */
void bell_wake(struct bell *bell);
