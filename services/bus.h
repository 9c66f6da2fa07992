/* services/bus.h: hints between incarnations over ZeroMQ. Each process binds one PULL socket whose
 * path holds its incarnation number, so a path is never bound twice and no message can reach a
 * successor; senders connect a PUSH socket per peer. Every send is non-blocking; a hint that can't
 * be sent at once is dropped and counted. */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "proto/message.h"
#include "shm/run.h"

struct bus;

struct bus_counters {
	uint64_t sent, dropped, received, malformed, gaps, repeats;
};

/* Binds dir/bus/NUMBER. The run must be registered. */
SVC_CHECKED enum svc_code bus_open(struct shm_run *run, struct bus **ret_bus, struct svc_err *err);
struct bus *bus_close(struct bus *bus);
/* To poll for reading (edge triggered: after it fires, call bus_receive until it says false). */
int bus_fd(const struct bus *bus);
/* Connects to who has joined, forgets who has left. Cheap when nothing changed. */
void bus_refresh(struct bus *bus);
/* Fills in sender and sequence. */
void bus_send(struct bus *bus, uint32_t entry, struct msg *msg);
/* To every incarnation but this. */
void bus_broadcast(struct bus *bus, struct msg *msg);
/* false when there is nothing more. Malformed messages are counted and skipped. */
bool bus_receive(struct bus *bus, struct msg *ret_msg);
const struct bus_counters *bus_counters(const struct bus *bus);
