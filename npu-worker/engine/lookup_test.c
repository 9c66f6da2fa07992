#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "npu-worker/engine/lookup.h"

static void what_followed_last_is_drafted(void **state)
{
	(void)state;
	const int32_t text[] = {1, 2, 3, 9, 1, 2, 3, 7, 8, 1, 2, 3};
	int32_t draft[8];
	/* The later of the two places counts; no more than there is, or than is asked for. */
	assert_int_equal(lookup_draft(text, 12, 2, 3, 8, draft), 5);
	assert_memory_equal(draft, ((int32_t[]){7, 8, 1, 2, 3}), 5 * sizeof *draft);
	assert_int_equal(lookup_draft(text, 12, 2, 3, 2, draft), 2);
	assert_memory_equal(draft, text + 7, 2 * sizeof *draft);
	assert_int_equal(lookup_draft(text, 12, 2, 3, 0, draft), 0);
}

static void the_longest_match_counts(void **state)
{
	(void)state;
	const int32_t text[] = {5, 1, 2, 40, 6, 1, 2, 50, 5, 1, 2};
	int32_t draft[1];
	assert_int_equal(lookup_draft(text, 11, 1, 3, 1, draft), 1);
	assert_int_equal(draft[0], 40);
	assert_int_equal(lookup_draft(text, 11, 1, 2, 1, draft), 1);
	assert_int_equal(draft[0], 50);
}

static void nothing_repeats(void **state)
{
	(void)state;
	const int32_t text[] = {1, 2, 3, 4, 5, 3};
	int32_t draft[4];
	assert_int_equal(lookup_draft(text, 6, 2, 4, 4, draft), 0); /* one token is too little */
	assert_int_equal(lookup_draft(text, 6, 1, 4, 4, draft), 3);
	assert_int_equal(lookup_draft(text, 5, 1, 4, 4, draft), 0);
	assert_int_equal(lookup_draft(text, 1, 1, 4, 4, draft), 0);
	/* It may overlap its own end. */
	const int32_t same[] = {6, 6, 6, 6};
	assert_int_equal(lookup_draft(same, 4, 2, 3, 4, draft), 1);
	assert_int_equal(draft[0], 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_followed_last_is_drafted),
		cmocka_unit_test(the_longest_match_counts),
		cmocka_unit_test(nothing_repeats),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
