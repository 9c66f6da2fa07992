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

/* Well-formed, with a field that we don't know and that makes it long. */
static size_t make_long(uint8_t *bytes, size_t total)
{
	struct msg in = {.kind = MSG_HELLO, .sender = 5};
	size_t len = msg_encode(&in, bytes), rest = total - len - 3;
	bytes[len] = 15 << 3 | 2;
	bytes[len + 1] = (uint8_t)(rest & 0x7f) | 0x80;
	bytes[len + 2] = (uint8_t)(rest >> 7);
	memset(bytes + len + 3, 'x', rest);
	return total;
}

static void a_message_has_its_limit(void **state)
{
	(void)state;
	struct msg out;
	uint8_t bytes[MSG_MAX_BYTES + 1];
	assert_true(msg_decode(bytes, make_long(bytes, MSG_MAX_BYTES), &out));
	assert_int_equal(out.sender, 5);
	assert_false(msg_decode(bytes, make_long(bytes, MSG_MAX_BYTES + 1), &out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_survives_the_trip),
		cmocka_unit_test(garbage_is_refused),
		cmocka_unit_test(a_message_has_its_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
