#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/guard.h"

static bool allowed(const char *host, const char *list)
{
	return gw_host_is_allowed(span_of(host), list);
}

static void loopback_needs_no_list(void **state)
{
	(void)state;
	static const char *const names[] = {"localhost",   "LOCALHOST:8080", "127.0.0.1",
					    "127.0.0.1:1", "127.1.2.3",	     "[::1]",
					    "[::1]:8080"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		assert_true(allowed(names[i], ""));
}

static void others_need_one(void **state)
{
	(void)state;
	static const char *const names[] = {"",
					    ":8080",
					    "evil.example",
					    "localhost.evil.example",
					    "evil.example:8080",
					    "127.0.0.1.evil.example",
					    "128.0.0.1",
					    "0.0.0.0",
					    "[::2]",
					    "[::1",
					    "[]",
					    "2130706433",
					    "0x7f.1"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		assert_false(allowed(names[i], ""));
		assert_false(allowed(names[i], "api.example,other.example"));
		assert_true(allowed(names[i], "x,*"));
	}
	assert_true(allowed("api.example:443", "a,API.example"));
	assert_false(allowed("api.example", "api.example.org,pi.example"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loopback_needs_no_list),
		cmocka_unit_test(others_need_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
