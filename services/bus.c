#include "services/bus.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/fault.h"

/* A peer that doesn't read for this many hints looks at all its slots anyway. */
#define HIGH_WATER 64

struct peer {
	uint64_t number; /* 0: no socket */
	void *push;
	uint64_t sent_sequence;
	uint64_t seen_number, seen_sequence;
};

struct bus {
	struct shm_run *run;
	void *context, *pull;
	int fd;
	uint64_t seen_epoch;
	char path[300];
	struct peer peers[INC_COUNT];
	struct bus_counters counters;
};

static enum svc_code bind_pull(struct bus *bus, struct svc_err *err)
{
	char endpoint[320];
	int high_water = 1024, linger = 0;
	size_t size = sizeof bus->fd;
	snprintf(bus->path, sizeof bus->path, "%s/bus/%" PRIu64, bus->run->dir, bus->run->number);
	snprintf(endpoint, sizeof endpoint, "ipc://%s", bus->path);
	bus->pull = zmq_socket(bus->context, ZMQ_PULL);
	if (!bus->pull)
		return svc_fail_errno(err, __func__, "cannot create the bus socket");
	zmq_setsockopt(bus->pull, ZMQ_RCVHWM, &high_water, sizeof high_water);
	zmq_setsockopt(bus->pull, ZMQ_LINGER, &linger, sizeof linger);
	if (zmq_bind(bus->pull, endpoint) != 0)
		return svc_fail(err, SVC_IO, __func__,
				"cannot bind %s: %s (paths of sockets are at most 107 bytes)",
				endpoint, zmq_strerror(errno));
	if (zmq_getsockopt(bus->pull, ZMQ_FD, &bus->fd, &size) != 0)
		return svc_fail(err, SVC_IO, __func__, "ZMQ_FD: %s", zmq_strerror(errno));
	return SVC_OK;
}

enum svc_code bus_open(struct shm_run *run, struct bus **ret_bus, struct svc_err *err)
{
	struct bus *bus = calloc(1, sizeof *bus);
	if (!bus)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	bus->run = run;
	bus->context = zmq_ctx_new();
	enum svc_code code =
		bus->context ? bind_pull(bus, err) : svc_fail_errno(err, __func__, "zmq_ctx_new");
	if (code != SVC_OK) {
		bus_close(bus);
		return code;
	}
	*ret_bus = bus;
	return SVC_OK;
}

static void forget(struct peer *peer)
{
	if (peer->push)
		zmq_close(peer->push);
	peer->push = NULL;
	peer->number = 0;
}

struct bus *bus_close(struct bus *bus)
{
	if (!bus)
		return NULL;
	for (uint32_t i = 0; i < INC_COUNT; i++)
		forget(&bus->peers[i]);
	if (bus->pull)
		zmq_close(bus->pull);
	if (bus->context)
		zmq_ctx_term(bus->context);
	if (bus->path[0])
		unlink(bus->path);
	free(bus);
	return NULL;
}

int bus_fd(const struct bus *bus)
{
	return bus->fd;
}

static void join(struct bus *bus, struct peer *peer, uint64_t number)
{
	char endpoint[320];
	int high_water = HIGH_WATER, linger = 0, immediate = 1, retry_ms = 10;
	forget(peer);
	peer->push = zmq_socket(bus->context, ZMQ_PUSH);
	if (!peer->push)
		return;
	zmq_setsockopt(peer->push, ZMQ_SNDHWM, &high_water, sizeof high_water);
	zmq_setsockopt(peer->push, ZMQ_LINGER, &linger, sizeof linger);
	/* Queue only for a peer that is really there. */
	zmq_setsockopt(peer->push, ZMQ_IMMEDIATE, &immediate, sizeof immediate);
	zmq_setsockopt(peer->push, ZMQ_RECONNECT_IVL, &retry_ms, sizeof retry_ms);
	snprintf(endpoint, sizeof endpoint, "ipc://%s/bus/%" PRIu64, bus->run->dir, number);
	if (zmq_connect(peer->push, endpoint) != 0) {
		forget(peer);
		return;
	}
	peer->number = number;
	peer->sent_sequence = 0;
}

void bus_refresh(struct bus *bus)
{
	uint64_t epoch = atomic_load(&bus->run->ctl->counters.epoch);
	if (epoch == bus->seen_epoch)
		return;
	bus->seen_epoch = epoch;
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		uint64_t number = atomic_load(&bus->run->ctl->incs[i].number);
		struct peer *peer = &bus->peers[i];
		if (i == bus->run->me || number == peer->number)
			continue;
		if (number)
			join(bus, peer, number);
		else
			forget(peer);
	}
}

static void deliver(struct bus *bus, uint32_t entry, struct msg *msg)
{
	struct peer *peer = &bus->peers[entry];
	uint64_t number = atomic_load(&bus->run->ctl->incs[entry].number);
	if (peer->number != number) {
		bus->seen_epoch = 0;
		bus_refresh(bus);
	}
	uint8_t bytes[MSG_MAX_BYTES];
	msg->sender = bus->run->number;
	msg->sequence = peer->sent_sequence + 1;
	size_t len = msg_encode(msg, bytes);
	if (!peer->push || len == 0 || zmq_send(peer->push, bytes, len, ZMQ_DONTWAIT) < 0) {
		bus->counters.dropped++;
		return;
	}
	peer->sent_sequence++;
	bus->counters.sent++;
}

#ifdef LOCKSTEP_FAULTS
/* What a bad transport does to a hint: it is lost, comes twice, or comes late, after the next one.
 */
static bool disturb(struct bus *bus, uint32_t entry, struct msg *msg)
{
	static struct msg late[INC_COUNT];
	static bool is_held[INC_COUNT];
	if (fault_hit("bus.send", "lose")) {
		bus->peers[entry].sent_sequence++;
		return true;
	}
	if (fault_hit("bus.send", "twice"))
		deliver(bus, entry, msg);
	if (is_held[entry]) {
		is_held[entry] = false;
		deliver(bus, entry, msg);
		deliver(bus, entry, &late[entry]);
		return true;
	}
	is_held[entry] = fault_hit("bus.send", "late");
	late[entry] = *msg;
	return is_held[entry];
}
#else
#define disturb(bus, entry, msg) (false)
#endif

void bus_send(struct bus *bus, uint32_t entry, struct msg *msg)
{
	if (entry == 0 || entry >= INC_COUNT || entry == bus->run->me)
		return;
	if (!disturb(bus, entry, msg))
		deliver(bus, entry, msg);
}

void bus_broadcast(struct bus *bus, struct msg *msg)
{
	for (uint32_t i = 1; i < INC_COUNT; i++)
		if (i != bus->run->me && atomic_load(&bus->run->ctl->incs[i].number))
			bus_send(bus, i, msg);
}

/* A gap or a repeat costs nothing (the sweep finds every slot) but is worth a counter. */
static void check_sequence(struct bus *bus, const struct msg *msg)
{
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		struct peer *peer = &bus->peers[i];
		if (atomic_load(&bus->run->ctl->incs[i].number) != msg->sender)
			continue;
		if (peer->seen_number != msg->sender) {
			peer->seen_number = msg->sender;
			peer->seen_sequence = 0;
		}
		if (msg->sequence > peer->seen_sequence + 1)
			bus->counters.gaps++;
		else if (msg->sequence <= peer->seen_sequence)
			bus->counters.repeats++;
		if (msg->sequence > peer->seen_sequence)
			peer->seen_sequence = msg->sequence;
		return;
	}
}

bool bus_receive(struct bus *bus, struct msg *ret_msg)
{
	uint8_t bytes[MSG_MAX_BYTES];
	for (;;) {
		int len = zmq_recv(bus->pull, bytes, sizeof bytes, ZMQ_DONTWAIT);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return false;
		/* zmq_recv cuts what doesn't fit but returns the whole length, which is then
		 * refused. */
		if (msg_decode(bytes, (size_t)len, ret_msg)) {
			bus->counters.received++;
			check_sequence(bus, ret_msg);
			return true;
		}
		bus->counters.malformed++;
	}
}

const struct bus_counters *bus_counters(const struct bus *bus)
{
	return &bus->counters;
}
