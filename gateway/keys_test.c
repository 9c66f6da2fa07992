#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "gateway/keys.h"

static enum svc_code read_text(const char *text, struct gw_keys *keys, struct svc_err *err)
{
	return gw_keys_read(span_of(text), "keys", keys, err);
}

static void lines_are_read(void **state)
{
	(void)state;
	static struct gw_keys keys;
	struct svc_err err;
	assert_int_equal(
		read_text("# comment\n\n"
			  "alice  abcdefghijklmnop requests-per-minute=60 concurrent=4\r\n"
			  "\tbob sha256:"
			  "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD admin\n"
			  "alice  0123456789abcdef concurrent=4 requests-per-minute=60 burst=60",
			  &keys, &err),
		SVC_OK);
	assert_int_equal(keys.n, 3);
	const struct gw_api_key *alice = gw_keys_find(&keys, span_of("abcdefghijklmnop"));
	assert_ptr_equal(alice, &keys.keys[0]);
	assert_string_equal(alice->name, "alice");
	assert_int_equal(alice->per_minute, 60);
	assert_int_equal(alice->burst, 60);
	assert_int_equal(alice->concurrent, 4);
	assert_false(alice->admin);
	/* SHA-256 of "abc" is FIPS 180-4's own example. */
	const struct gw_api_key *bob = gw_keys_find(&keys, span_of("abc"));
	assert_ptr_equal(bob, &keys.keys[1]);
	assert_true(bob->admin);
	assert_int_equal(bob->per_minute, 0);
	assert_string_equal(gw_keys_find(&keys, span_of("0123456789abcdef"))->name, "alice");
	assert_null(gw_keys_find(&keys, span_of("abcdefghijklmno")));
	assert_null(gw_keys_find(&keys, span_of("abcdefghijklmnopq")));
	assert_null(gw_keys_find(&keys, span_of("")));
}

static void mistakes_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "no key in it"},
		{"# only\n", "no key in it"},
		{"a/b abcdefghijklmnop", "line 1: the name"},
		{"\n\nalice", "line 3: the key must"},
		{"alice tooshort", "16 to 256"},
		{"alice sha256:12", "64 hexadecimal"},
		{"alice abcdefghijklmnop fast", "and nothing else"},
		{"alice abcdefghijklmnop concurrent=0", "from 1 to"},
		{"alice abcdefghijklmnop concurrent=", "from 1 to"},
		{"alice abcdefghijklmnop concurrent=1x", "from 1 to"},
		{"alice abcdefghijklmnop concurrent=99999999999999999999", "from 1 to"},
		{"alice abcdefghijklmnop burst=2", "burst needs"},
		{"a abcdefghijklmnop\nb abcdefghijklmnop", "line 2: this key"},
		{"a abcdefghijklmnop\na bcdefghijklmnopq admin", "line 2: a has other limits"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct gw_keys keys = {.n = 77};
		struct svc_err err;
		assert_int_equal(read_text(cases[i].text, &keys, &err), SVC_BAD_CONFIG);
		assert_non_null(strstr(err.msg, cases[i].message));
		assert_null(strstr(err.msg, "abcdefghijkl"));
		assert_int_equal(keys.n, 77);
	}
}

static void there_is_a_limit(void **state)
{
	(void)state;
	static struct gw_keys keys;
	char text[GW_KEYS_MAX * 32 + 64];
	struct svc_err err;
	size_t len = 0;
	for (unsigned i = 0; i < GW_KEYS_MAX; i++)
		len += (size_t)snprintf(text + len, sizeof text - len, "n%u key-%016u\n", i, i);
	assert_int_equal(read_text(text, &keys, &err), SVC_OK);
	assert_int_equal(keys.n, GW_KEYS_MAX);
	snprintf(text + len, sizeof text - len, "more abcdefghijklmnop\n");
	assert_int_equal(read_text(text, &keys, &err), SVC_BAD_CONFIG);
	assert_non_null(strstr(err.msg, "line 129: more than 128 keys"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_read),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(there_is_a_limit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
