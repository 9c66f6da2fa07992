/* tests/xrt/softnpu/wire.h: what the stand-in for the kernel driver (driver.c, inside the process
 * that uses the NPU) and the software NPU (softnpu.c, a process of its own) say to each other, over
 * a socket of type SOCK_SEQPACKET: one request, one answer. Memory travels as a descriptor beside
 * the message. */
#pragma once
#include <stdint.h>

enum wire_op {
	WIRE_BO_NEW, /* a: type, b: bytes -> a: handle, b: device address; descriptor: its memory */
	WIRE_BO_WRAP, /* a: offset in the file, b: bytes, c: address in the process; descriptor: the
			 file of the mapping -> a: handle */
	WIRE_BO_MAPPED,		/* a: handle, b: address in the process */
	WIRE_BO_FREE,		/* a: handle */
	WIRE_SYNC,		/* a: handle, b: offset, c: bytes, d: 0 to the device, 1 from it */
	WIRE_CONTEXT_NEW,	/* -> a: handle */
	WIRE_CONTEXT_CONFIGURE, /* a: handle, b: handle of the buffer that holds its program */
	WIRE_CONTEXT_FREE,	/* a: handle */
	WIRE_EXECUTE, /* a: handle of the command, b: of the context -> a: sequence number */
	WIRE_LOOK,    /* is it there? */
	WIRE_DONE,    /* a: sequence number -> a: 1 if it ended */
};

struct wire_message {
	uint32_t op;
	int32_t status; /* of an answer: 0 or a negative errno */
	uint64_t a, b, c, d;
};
