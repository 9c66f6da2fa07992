/* tests/xrt/softnpu/buffer.h: the software NPU's memory. A buffer is a connection's: its handle and
 * its addresses mean nothing to another. The device reads and writes only its own copy of it
 * (shadow), which a sync brings over: a missing sync gives wrong results, as on hardware without
 * coherent caches. Every function wants the device's lock to be held. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

enum { BO_SHARE = 1, BO_HEAP, BO_DEV, BO_COMMAND };

struct buffer {
	bool used;
	uint32_t type;
	int owner; /* connection */
	uint64_t bytes, address;
	uint8_t *memory, *shadow; /* of a buffer in the heap: into the heap's */
	bool mapped;		  /* memory is a mapping of its own */
};

/* These answer requests: 0 or a negative errno; *ret_fd is the memory's, for the asker to map. */
int buffer_new(const struct wire_message *request, int owner, struct wire_message *answer,
	       int *ret_fd);
int buffer_wrap(const struct wire_message *request, int fd, int owner, struct wire_message *answer);
int buffer_mapped(struct buffer *b, const struct wire_message *request,
		  struct wire_message *answer);
int buffer_sync(struct buffer *b, const struct wire_message *request);
void buffer_drop(struct buffer *b);
void buffer_drop_all(int owner);

/* NULL: nobody's, or another's. */
struct buffer *buffer_of(uint64_t handle, int owner);
struct buffer *buffer_at(uint64_t address, int owner);
