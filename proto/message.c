#include "proto/message.h"

#include <string.h>

#include "control.pb-c.h"

size_t msg_encode(const struct msg *msg, uint8_t *out)
{
	Lockstep__Hint hint = LOCKSTEP__HINT__INIT;
	uint32_t slots[MSG_MAX_SLOTS];
	if (msg->n_slots > MSG_MAX_SLOTS)
		return 0;
	memcpy(slots, msg->slots, msg->n_slots * sizeof *slots);
	hint.kind = (Lockstep__Hint__Kind)msg->kind;
	hint.sender = msg->sender;
	hint.sequence = msg->sequence;
	hint.subject = msg->subject;
	hint.n_slots = msg->n_slots;
	hint.slots = slots;
	if (lockstep__hint__get_packed_size(&hint) > MSG_MAX_BYTES)
		return 0;
	return lockstep__hint__pack(&hint, out);
}

/* protobuf-c allocates while it unpacks: give it a fixed piece of stack, so that no message can
 * take more. */
struct bump {
	size_t used;
	_Alignas(16) uint8_t bytes[8192];
};

static void *bump_alloc(void *context, size_t size)
{
	struct bump *bump = context;
	size_t rounded = (size + 15) & ~(size_t)15;
	if (size > sizeof bump->bytes || rounded > sizeof bump->bytes - bump->used)
		return NULL;
	void *result = bump->bytes + bump->used;
	bump->used += rounded;
	return result;
}

static void bump_free(void *context, void *pointer)
{
	(void)context;
	(void)pointer;
}

bool msg_decode(const uint8_t *bytes, size_t len, struct msg *ret_msg)
{
	if (len > MSG_MAX_BYTES)
		return false;
	struct bump bump = {0};
	ProtobufCAllocator allocator = {bump_alloc, bump_free, &bump};
	Lockstep__Hint *hint = lockstep__hint__unpack(&allocator, len, bytes);
	if (!hint || (unsigned)hint->kind >= MSG_KIND_COUNT || hint->n_slots > MSG_MAX_SLOTS)
		return false;
	ret_msg->kind = (enum msg_kind)hint->kind;
	ret_msg->sender = hint->sender;
	ret_msg->sequence = hint->sequence;
	ret_msg->subject = hint->subject;
	ret_msg->n_slots = (uint32_t)hint->n_slots;
	for (size_t i = 0; i < hint->n_slots; i++)
		ret_msg->slots[i] = hint->slots[i];
	return true;
}
