/* services/service.h: the life cycle, once for every process. main() is an option table and a
 * struct svc_spec.
 *
 *   options -> attach to the run (waits for the keeper) -> register -> start() -> ready -> loop ->
 * drain() -> stop()
 *
 * The loop: messages, rings and timers on libevent; look() for every slot that one names and, at
 * least every 20 ms while slots are active (else 100 ms), for every slot whose stage is this
 * role's; work() whenever there is something to compute. Everything runs on one thread; a callback
 * that takes longer than 100 ms calls svc_beat() in between. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "services/bell.h"
#include "services/bus.h"
#include "services/option.h"
#include "shm/incarnation.h"
#include "shm/run.h"
#include "shm/slot.h"

struct event_base;
struct svc;

struct svc_spec {
	enum shm_role role;
	const char *summary;	   /* for --help */
	const struct opt *options; /* beside the common ones; ends with a NULL name */
	/* Keeper only: creates the run instead of waiting for it. */
	enum svc_code (*create)(struct svc *svc, struct svc_err *err);
	/* Before readiness: load, bind, map. */
	enum svc_code (*start)(struct svc *svc, struct svc_err *err);
	/* The slot's stage belongs to this role (it may belong to another instance): see
	 * services/slots.h. */
	void (*look)(struct svc *svc, uint32_t slot);
	/* After every sweep. */
	void (*tick)(struct svc *svc);
	/* Computes for at most ~100 ms; false: nothing to do until the next message or tick. */
	bool (*work)(struct svc *svc);
	/* SIGTERM came: called at every tick until it says true (nothing is left here) or the
	 * deadline has passed. */
	bool (*drain)(struct svc *svc);
	void (*stop)(struct svc *svc);
	/* Options that may change while it runs, beside the common ones; ends with NULL. After a
	 * change, reload() takes them from svc->options: it checks all first, and what it refuses
	 * stays as it was. See services/reload.h. */
	const char *const *live;
	enum svc_code (*reload)(struct svc *svc, struct svc_err *err);
};

struct svc {
	const struct svc_spec *spec;
	const struct opt_source *source; /* of the options, to read them again */
	int argc;
	char **argv;
	struct opt_set *options;
	struct shm_run run;
	struct event_base *base;
	struct bus *bus;
	struct bell *bell;
	struct inc_watch watch;
	bool draining;
	bool leaving;		  /* the loop ends after this round */
	enum svc_code leave_code; /* why: SVC_OK, SVC_STALE (fenced), ... */
	uint32_t active;	  /* slots of any running stage at the last sweep */
	uint64_t stall_us;
	void *role_state;	     /* the role's own */
	struct svc_loop *loop;	     /* private to service.c */
	struct msg hints[INC_COUNT]; /* collected by svc_hint_role, sent by svc_hint_flush */
};

/* Runs the process; returns its exit status. */
int svc_main(const struct svc_spec *spec, int argc, char **argv);

/* CLOCK_MONOTONIC. */
uint64_t svc_now_us(void);
/* Between two pieces of work: beats, and leaves the loop (exit status 75) if this incarnation was
 * fenced: then it returns false and the caller must return at once without writing anything. */
bool svc_beat(struct svc *svc);
/* Ends the loop; the code's exit status becomes the process's. */
void svc_leave(struct svc *svc, enum svc_code code);

/* "Look at this slot": a ring for the incarnation that has to do with it (0: nobody), a message for
 * any ready one of a role; sent by svc_hint_flush, which the loop calls after every look, work and
 * tick. */
void svc_hint(struct svc *svc, uint32_t entry, uint32_t slot);
void svc_hint_role(struct svc *svc, enum shm_role role, uint32_t slot);
void svc_hint_flush(struct svc *svc);
