#include "services/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

#define WORD_SLOTS 64u

struct peer {
	uint64_t number; /* whose FIFO fd is; 0: nobody's */
	int fd;
	bool rung; /* since the last flush */
};

struct bell {
	struct shm_run *run;
	int fd;
	char path[300];
	struct peer peers[INC_COUNT];
	uint64_t *taken; /* rung, not answered yet */
};

static void bell_path(const struct shm_run *run, uint64_t number, char *path, size_t size)
{
	snprintf(path, size, "%s/bus/%" PRIu64 ".bell", run->dir, number);
}

static uint32_t n_words(const struct shm_run *run)
{
	return (run->n_table + WORD_SLOTS - 1) / WORD_SLOTS;
}

/* Bits of an entry: uint64[n_words]. */
static _Atomic uint64_t *bits_of(const struct shm_run *run, uint32_t entry)
{
	return run->bells[(size_t)entry * run->bell_lines].rung;
}

enum svc_code bell_open(struct shm_run *run, struct bell **ret_bell, struct svc_err *err)
{
	struct bell *bell = calloc(1, sizeof *bell);
	if (!bell)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	bell->run = run;
	bell->fd = -1;
	for (uint32_t i = 0; i < INC_COUNT; i++)
		bell->peers[i].fd = -1;
	bell->taken = calloc(n_words(run), sizeof *bell->taken);
	bell_path(run, run->number, bell->path, sizeof bell->path);
	/* For writing too: without a writer a FIFO is at its end, and readable for ever. */
	if (bell->taken && mkfifo(bell->path, 0600) == 0)
		bell->fd = open(bell->path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (bell->fd < 0) {
		enum svc_code code = svc_fail_errno(err, __func__, "cannot make %s", bell->path);
		bell_close(bell);
		return code;
	}
	*ret_bell = bell;
	return SVC_OK;
}

static void forget(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
	peer->number = 0;
}

struct bell *bell_close(struct bell *bell)
{
	if (!bell)
		return NULL;
	for (uint32_t i = 0; i < INC_COUNT; i++)
		forget(&bell->peers[i]);
	if (bell->fd >= 0) {
		close(bell->fd);
		unlink(bell->path);
	}
	free(bell->taken);
	free(bell);
	return NULL;
}

/* Only who has opened its bell ever sleeps: the FIFO is there, unless its process has ended. */
static bool find_peer(struct bell *bell, uint32_t entry)
{
	struct peer *peer = &bell->peers[entry];
	uint64_t number = atomic_load(&bell->run->ctl->incs[entry].number);
	char path[300];
	if (peer->fd >= 0 && peer->number == number)
		return true;
	forget(peer);
	if (number == 0)
		return false;
	bell_path(bell->run, number, path, sizeof path);
	peer->fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	peer->number = number;
	return peer->fd >= 0;
}

/* A full FIFO has rung, too. */
static void send_byte(struct bell *bell, uint32_t entry)
{
	static const char byte = 1;
	if (find_peer(bell, entry) && write(bell->peers[entry].fd, &byte, 1) < 0 && errno == EPIPE)
		forget(&bell->peers[entry]);
}

static void set(struct bell *bell, uint32_t entry, uint32_t slot)
{
	atomic_fetch_or(&bits_of(bell->run, entry)[slot / WORD_SLOTS], 1ull << (slot % WORD_SLOTS));
	bell->peers[entry].rung = true;
}

#ifdef LOCKSTEP_FAULTS
/* As for messages: it is lost, comes twice, or late, after the next one. */
static bool disturb(struct bell *bell, uint32_t entry, uint32_t slot)
{
	static uint32_t late[INC_COUNT];
	static bool is_held[INC_COUNT];
	if (fault_hit("bell.ring", "lose"))
		return true;
	if (fault_hit("bell.ring", "twice")) {
		set(bell, entry, slot);
		send_byte(bell, entry);
	}
	if (is_held[entry]) {
		is_held[entry] = false;
		set(bell, entry, slot);
		set(bell, entry, late[entry]);
		return true;
	}
	is_held[entry] = fault_hit("bell.ring", "late");
	late[entry] = slot;
	return is_held[entry];
}
#else
#define disturb(bell, entry, slot) (false)
#endif

void bell_ring(struct bell *bell, uint32_t entry, uint32_t slot)
{
	if (entry == 0 || entry >= INC_COUNT || entry == bell->run->me ||
	    slot >= bell->run->n_table)
		return;
	if (!disturb(bell, entry, slot))
		set(bell, entry, slot);
}

void bell_flush(struct bell *bell)
{
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		if (!bell->peers[i].rung)
			continue;
		bell->peers[i].rung = false;
		/* Its bit is set: either it sees that before it sleeps, or we see that it sleeps.
		 */
		if (atomic_load(&bell->run->ctl->incs[i].asleep) &&
		    atomic_exchange(&bell->run->ctl->incs[i].asleep, 0))
			send_byte(bell, i);
	}
}

int bell_fd(const struct bell *bell)
{
	return bell->fd;
}

void bell_quiet(struct bell *bell)
{
	char bytes[64];
	while (read(bell->fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes)
		;
}

bool bell_answer(struct bell *bell, uint32_t *ret_slot)
{
	_Atomic uint64_t *bits = bits_of(bell->run, bell->run->me);
	for (uint32_t i = 0; i < n_words(bell->run); i++) {
		uint64_t *taken = &bell->taken[i];
		if (!*taken && atomic_load(&bits[i]))
			*taken = atomic_exchange(&bits[i], 0);
		while (*taken) {
			*ret_slot = i * WORD_SLOTS + (uint32_t)__builtin_ctzll(*taken);
			*taken &= *taken - 1;
			/* Only a damaged word says more. */
			if (*ret_slot < bell->run->n_table)
				return true;
		}
	}
	return false;
}

bool bell_sleep(struct bell *bell)
{
	const struct shm_run *run = bell->run;
	const _Atomic uint64_t *bits = bits_of(run, run->me);
	uint64_t rung = 0;
	atomic_store(&run->ctl->incs[run->me].asleep, 1);
	for (uint32_t i = 0; i < n_words(run); i++)
		rung |= bell->taken[i] | atomic_load(&bits[i]);
	if (rung)
		bell_wake(bell);
	return rung == 0;
}

void bell_wake(struct bell *bell)
{
	atomic_store(&bell->run->ctl->incs[bell->run->me].asleep, 0);
}
