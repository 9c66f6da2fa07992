/* shm/incarnation.h: who lives. Every start of a process is an incarnation with a number that is
 * never used twice and a lock file that it holds until its end. The lock is an
 * open-file-description lock: the kernel drops it when the process is gone, also across pid
 * namespaces, so a free lock proves that its stores have ended. */
#pragma once
#include <inttypes.h>
#include <stdbool.h>

#include "base/err.h"
#include "shm/layout.h"
#include "shm/run.h"

/* In bulk_dir, of an incarnation's number (npu-worker with a device): removed with its other files.
 */
#define INC_ACTIVATIONS "activations-%" PRIu64

const char *inc_role_name(enum shm_role role); /* "npu-worker", ... */
/* ROLE_NONE for an unknown name. */
enum shm_role inc_role_parse(const char *name);

/* Takes a number, its lock and a free entry of the role's range; state is INC_STARTING. Sets
 * run->me and number. SVC_BUSY if all entries are taken (15 npu-workers, 48 others). Call after all
 * forks. */
SVC_CHECKED enum svc_code inc_register(struct shm_run *run, enum shm_role role, uint32_t instance,
				       struct svc_err *err);
void inc_set_state(struct shm_run *run, enum inc_state state);
/* From inside the work, at least every 100 ms. false: this incarnation was fenced; leave with exit
 * status 75. */
bool inc_beat(struct shm_run *run);
/* The process's last act: no store to shared memory comes after it. The entry is free, its files
 * removed, unless a slot or a KV page still names it: then it counts as dead, and who takes over
 * buries it. */
void inc_leave(struct shm_run *run);

/* true only with proof: the entry's number has no lock holder. An empty entry is not dead. */
bool inc_is_dead(const struct shm_run *run, uint32_t entry);
/* Frees a dead incarnation's entry once no slot is owned by it and (npu-worker) no page is held.
 * true if freed. */
bool inc_bury(struct shm_run *run, uint32_t entry);
/* Removes lock files and sockets of incarnations that have ended and stand in no entry. By a keeper
 * that starts. */
void inc_sweep_files(const struct shm_run *run);
/* A registered, ready, not fenced incarnation of role; entry 0 if none. Starts looking after
 * `after`, to spread work. */
uint32_t inc_find(const struct shm_run *run, enum shm_role role, uint32_t after);
/* Role and state of what sits in entry now; ROLE_NONE and 0 while it is empty or still registering.
 */
enum shm_role inc_role(const struct shm_run *run, uint32_t entry);
enum inc_state inc_state_of(const struct shm_run *run, uint32_t entry);
/* entry is registered and neither fenced nor draining. It may still be dead: that is found at the
 * next sweep. */
bool inc_is_ready(const struct shm_run *run, uint32_t entry);

/* One observer's view of everyone's beats. An observer that was itself late doesn't judge. */
struct inc_watch {
	uint64_t beat[INC_COUNT];
	uint64_t number[INC_COUNT];
	uint64_t since_us[INC_COUNT]; /* of the last change of the beat */
	uint64_t looked_us;
};
/* Call every ≤ 100 ms with CLOCK_MONOTONIC time. */
void inc_watch_look(struct inc_watch *watch, const struct shm_run *run, uint64_t now_us);
/* Microseconds without a beat, 0 if the observer can't tell. */
uint64_t inc_watch_silence_us(const struct inc_watch *watch, uint32_t entry, uint64_t now_us);
