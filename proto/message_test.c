#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/message.h"

static void a_message_survives_the_trip(void **state)
{
	(void)state;
	struct msg in = {.kind = MSG_LOOK,
			 .sender = 1ull << 60,
			 .sequence = 7,
			 .n_slots = MSG_MAX_SLOTS},
		   out;
	for (uint32_t i = 0; i < MSG_MAX_SLOTS; i++)
		in.slots[i] = 65535 - i;
	uint8_t bytes[MSG_MAX_BYTES];
	size_t len = msg_encode(&in, bytes);
	assert_true(len > 0);
	assert_true(msg_decode(bytes, len, &out));
	assert_int_equal(out.sender, in.sender);
	assert_int_equal(out.sequence, 7);
	assert_int_equal(out.n_slots, MSG_MAX_SLOTS);
	assert_memory_equal(out.slots, in.slots, sizeof in.slots);
}

static void garbage_is_refused(void **state)
{
	(void)state;
	struct msg out;
	uint8_t bytes[64];
	memset(bytes, 0xff, sizeof bytes);
	assert_false(msg_decode(bytes, sizeof bytes, &out));
	const uint8_t unknown_kind[] = {0x08, 0x63};
	assert_false(msg_decode(unknown_kind, sizeof unknown_kind, &out));
	struct msg in = {.n_slots = MSG_MAX_SLOTS + 1};
	uint8_t room[MSG_MAX_BYTES];
	assert_int_equal(msg_encode(&in, room), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_survives_the_trip),
		cmocka_unit_test(garbage_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
