#include "shm/incarnation.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shm/page.h"
#include "shm/slot.h"

/* An observer that didn't look for this long says nothing about others. */
#define LATE_US 300000u

static const char *const role_names[ROLE_COUNT] = {"none",	 "gateway", "tokenizer",
						   "npu-worker", "sampler", "keeper"};

const char *inc_role_name(enum shm_role role)
{
	return role_names[(unsigned)role < ROLE_COUNT ? role : ROLE_NONE];
}

enum shm_role inc_role_parse(const char *name)
{
	for (int i = 1; i < ROLE_COUNT; i++)
		if (strcmp(name, role_names[i]) == 0)
			return (enum shm_role)i;
	return ROLE_NONE;
}

static void lock_path(const struct shm_run *run, uint64_t number, char *path, size_t size)
{
	snprintf(path, size, "%s/inc/%" PRIu64 ".lock", run->dir, number);
}

static void remove_bus_files(const struct shm_run *run, uint64_t number)
{
	static const char *const endings[] = {"", ".bell"};
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		char path[320];
		snprintf(path, sizeof path, "%s/bus/%" PRIu64 "%s", run->dir, number, endings[i]);
		unlink(path);
	}
}

static bool try_lock(int fd)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* SVC_BUSY: the number is another's (of an earlier run that is not quite gone), or inc_sweep_files
 * found the file before it was locked and removed it. */
static enum svc_code take_lock(struct shm_run *run, uint64_t number, struct svc_err *err)
{
	char path[320];
	struct stat st;
	lock_path(run, number, path, sizeof path);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 && errno == EEXIST)
		return SVC_BUSY;
	if (fd < 0)
		return svc_fail_errno(err, __func__, "cannot create %s", path);
	enum svc_code code = SVC_BUSY;
	if (!try_lock(fd)) {
		if (errno != EAGAIN && errno != EACCES)
			code = svc_fail_errno(err, __func__, "cannot lock %s", path);
	} else if (fstat(fd, &st) == 0 && st.st_nlink != 0) {
		run->lock_fd = fd;
		run->number = number;
		return SVC_OK;
	}
	close(fd);
	return code;
}

static void drop_lock(struct shm_run *run)
{
	close(run->lock_fd);
	run->lock_fd = -1;
	run->me = 0;
	run->number = 0;
}

static void remove_files(const struct shm_run *run, uint64_t number)
{
	char path[320];
	remove_bus_files(run, number);
	snprintf(path, sizeof path, "%s/" INC_ACTIVATIONS, run->bulk_dir, number);
	unlink(path);
	lock_path(run, number, path, sizeof path);
	unlink(path);
}

static void free_entry(struct shm_run *run, uint32_t index, uint64_t number)
{
	/* The files go first: once the number is gone nobody would know them. */
	remove_files(run, number);
	atomic_compare_exchange_strong(&run->ctl->incs[index].number, &number, 0);
}

static bool owns_a_slot(const struct shm_run *run, uint32_t entry)
{
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		struct slot_state state = slot_load(run, slot);
		if (state.stage != STAGE_FREE && state.owner == entry)
			return true;
	}
	return false;
}

static bool is_named(const struct shm_run *run, uint32_t entry)
{
	return owns_a_slot(run, entry) || page_is_holder(run, entry);
}

static void set_status(struct shm_run *run, enum shm_role role, enum inc_state state)
{
	atomic_store(&run->ctl->incs[run->me].status,
		     run->number << 8 | (uint64_t)role << 4 | (uint64_t)state);
}

static bool claim_entry(struct shm_run *run, enum shm_role role)
{
	uint32_t first = role == ROLE_WORKER ? INC_WORKER_FIRST : INC_WORKER_END;
	uint32_t end = role == ROLE_WORKER ? INC_WORKER_END : INC_COUNT;
	/* Second round: what dead processes left and nobody needs any more. */
	for (int round = 0; round < 2; round++)
		for (uint32_t i = first; i < end; i++) {
			uint64_t nobody = 0;
			if (round == 1)
				inc_bury(run, i);
			if (atomic_compare_exchange_strong(&run->ctl->incs[i].number, &nobody,
							   run->number)) {
				run->me = i;
				return true;
			}
		}
	return false;
}

enum svc_code inc_register(struct shm_run *run, enum shm_role role, uint32_t instance,
			   struct svc_err *err)
{
	enum svc_code code;
	do
		code = take_lock(run, atomic_fetch_add(&run->ctl->counters.next_incarnation, 1),
				 err);
	while (code == SVC_BUSY);
	if (code != SVC_OK)
		return code;
	if (!claim_entry(run, role)) {
		remove_files(run, run->number);
		drop_lock(run);
		return svc_fail(
			err, SVC_BUSY, __func__, "%s: too many instances of %s (at most %u)",
			run->dir, inc_role_name(role),
			role == ROLE_WORKER ? INC_WORKER_END - 1 : INC_COUNT - INC_WORKER_END);
	}
	struct inc_entry *entry = &run->ctl->incs[run->me];
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	entry->instance = instance;
	entry->pid = (int32_t)getpid();
	entry->started_us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
	entry->family_hash = run->ctl->config.family_hash;
	atomic_store(&entry->npu_pause_us, 0);
	atomic_store(&entry->beat, 1);
	for (size_t i = 0; i < sizeof entry->gauge / sizeof *entry->gauge; i++)
		atomic_store(&entry->gauge[i], 0);
	atomic_store(&entry->asleep, 0);
	set_status(run, role, INC_STARTING);
	uint32_t counted = instance < CTL_INSTANCES ? instance : CTL_INSTANCES - 1;
	atomic_fetch_add(&run->ctl->counters.starts[role][counted], 1);
	atomic_fetch_add(&run->ctl->counters.epoch, 1);
	return SVC_OK;
}

void inc_set_state(struct shm_run *run, enum inc_state state)
{
	set_status(run, inc_role(run, run->me), state);
}

/* The low byte of status, or 0 if it is of an earlier incarnation in the same entry. */
static uint32_t status_of(const struct shm_run *run, uint32_t entry)
{
	if (entry == 0 || entry >= INC_COUNT)
		return 0;
	uint64_t number = atomic_load(&run->ctl->incs[entry].number);
	uint64_t status = atomic_load(&run->ctl->incs[entry].status);
	return number && status >> 8 == number ? (uint32_t)(status & 0xff) : 0;
}

enum shm_role inc_role(const struct shm_run *run, uint32_t entry)
{
	uint32_t role = status_of(run, entry) >> 4;
	return role < ROLE_COUNT ? (enum shm_role)role : ROLE_NONE;
}

enum inc_state inc_state_of(const struct shm_run *run, uint32_t entry)
{
	return (enum inc_state)(status_of(run, entry) & 0xf);
}

bool inc_beat(struct shm_run *run)
{
	struct inc_entry *entry = &run->ctl->incs[run->me];
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	atomic_fetch_add_explicit(&entry->beat, 1, memory_order_relaxed);
	atomic_store_explicit(&entry->beat_us,
			      (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u,
			      memory_order_relaxed);
	return atomic_load_explicit(&entry->fenced, memory_order_acquire) != run->number;
}

void inc_leave(struct shm_run *run)
{
	if (!run->me)
		return;
	if (!is_named(run, run->me))
		free_entry(run, run->me, run->number);
	drop_lock(run);
}

/* Has nobody the lock of this number? */
static bool is_unlocked(const struct shm_run *run, uint32_t entry, uint64_t number)
{
	char path[320];
	lock_path(run, number, path, sizeof path);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		/* Buried by another in this moment, or a damaged table: only a number that is still
		 * there and a file that is certainly absent count. */
		return errno == ENOENT && atomic_load(&run->ctl->incs[entry].number) == number;
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	bool is_free = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
	close(fd);
	return is_free;
}

bool inc_is_dead(const struct shm_run *run, uint32_t entry)
{
	if (entry == 0 || entry >= INC_COUNT)
		return false;
	uint64_t number = atomic_load(&run->ctl->incs[entry].number);
	if (number == 0 || number == run->number || !is_unlocked(run, entry, number))
		return false;
	/* What it stored before its end is to be seen by what we do next. */
	atomic_load_explicit(&run->ctl->incs[entry].beat, memory_order_acquire);
	return true;
}

bool inc_bury(struct shm_run *run, uint32_t entry)
{
	uint64_t number = atomic_load(&run->ctl->incs[entry].number);
	if (!inc_is_dead(run, entry) || is_named(run, entry))
		return false;
	free_entry(run, entry, number);
	return true;
}

/* With the lock taken, nobody can be registering under this number: inc_register would find its
 * file locked, or gone. */
static void sweep_lock(const struct shm_run *run, uint64_t number)
{
	char path[320];
	bool known = false;
	lock_path(run, number, path, sizeof path);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	if (try_lock(fd)) {
		for (uint32_t i = 1; i < INC_COUNT; i++)
			known |= atomic_load(&run->ctl->incs[i].number) == number;
		if (!known)
			remove_files(run, number);
	}
	close(fd);
}

/* A process makes its lock before its socket and its bell. */
static void sweep_bus(const struct shm_run *run, uint64_t number)
{
	char path[320];
	lock_path(run, number, path, sizeof path);
	if (access(path, F_OK) != 0 && errno == ENOENT)
		remove_bus_files(run, number);
}

static void for_each_number(const struct shm_run *run, const char *sub,
			    void (*visit)(const struct shm_run *run, uint64_t number))
{
	char path[320];
	snprintf(path, sizeof path, "%s/%s", run->dir, sub);
	DIR *dir = opendir(path);
	if (!dir)
		return;
	for (struct dirent *item; (item = readdir(dir));) {
		uint64_t number = strtoull(item->d_name, NULL, 10);
		if (number)
			visit(run, number);
	}
	closedir(dir);
}

void inc_sweep_files(const struct shm_run *run)
{
	for_each_number(run, "inc", sweep_lock);
	for_each_number(run, "bus", sweep_bus);
}

bool inc_is_ready(const struct shm_run *run, uint32_t entry)
{
	if (entry == 0 || entry >= INC_COUNT)
		return false;
	const struct inc_entry *inc = &run->ctl->incs[entry];
	return inc_state_of(run, entry) == INC_READY &&
	       atomic_load(&inc->fenced) != atomic_load(&inc->number);
}

uint32_t inc_find(const struct shm_run *run, enum shm_role role, uint32_t after)
{
	for (uint32_t i = 1; i <= INC_COUNT; i++) {
		uint32_t entry = (after + i) % INC_COUNT;
		if (inc_role(run, entry) == role && inc_is_ready(run, entry))
			return entry;
	}
	return 0;
}

void inc_watch_look(struct inc_watch *watch, const struct shm_run *run, uint64_t now_us)
{
	bool late = watch->looked_us == 0 || now_us - watch->looked_us > LATE_US;
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		uint64_t number = atomic_load(&run->ctl->incs[i].number);
		uint64_t beat = atomic_load_explicit(&run->ctl->incs[i].beat, memory_order_relaxed);
		if (late || number != watch->number[i] || beat != watch->beat[i])
			watch->since_us[i] = now_us;
		watch->number[i] = number;
		watch->beat[i] = beat;
	}
	watch->looked_us = now_us;
}

uint64_t inc_watch_silence_us(const struct inc_watch *watch, uint32_t entry, uint64_t now_us)
{
	if (watch->number[entry] == 0 || now_us - watch->looked_us > LATE_US)
		return 0;
	return now_us - watch->since_us[entry];
}
