/* proto/message.h: one control message to bytes and back (protobuf-c underneath). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MSG_MAX_SLOTS 256u
#define MSG_MAX_BYTES 2048u

enum msg_kind { MSG_LOOK, MSG_HELLO, MSG_DIED, MSG_LOG_LEVEL, MSG_KIND_COUNT };

struct msg {
	enum msg_kind kind;
	uint64_t sender, sequence, subject;
	uint32_t n_slots;
	uint32_t slots[MSG_MAX_SLOTS];
};

/* Bytes written to out (MSG_MAX_BYTES); 0 if the message has too many slots. */
size_t msg_encode(const struct msg *msg, uint8_t *out);
/* false for anything that isn't a well-formed message within the limits. Allocates nothing outside
 * the stack. */
bool msg_decode(const uint8_t *bytes, size_t len, struct msg *ret_msg);
