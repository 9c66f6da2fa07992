#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "gateway/gw_account.h"
#include "shm/testing.h"

#define SECOND_US 1000000u

static enum svc_code take(struct shm_run *run, const struct gw_who *who, uint64_t now_us)
{
	struct svc_err err;
	uint64_t wait_us = 0;
	enum svc_code code = gw_account_take(run, who, now_us, &wait_us, &err);
	assert_true(code == SVC_OK || (wait_us > 0 && wait_us <= 60 * SECOND_US));
	return code;
}

static void a_bucket_empties_and_refills(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	const struct gw_api_key key = {.per_minute = 60, .burst = 5};
	const struct gw_who who = {gw_account_of(&run, "alice"), &key};
	uint64_t now = 1000 * SECOND_US;
	for (int i = 0; i < 5; i++)
		assert_int_equal(take(&run, &who, now), SVC_OK);
	assert_int_equal(take(&run, &who, now), SVC_RATE);
	/* One a second comes back. */
	assert_int_equal(take(&run, &who, now + SECOND_US - 1), SVC_RATE);
	assert_int_equal(take(&run, &who, now + SECOND_US), SVC_OK);
	assert_int_equal(take(&run, &who, now + SECOND_US), SVC_RATE);
	/* After any time it is full, and no fuller. */
	now += 1000 * SECOND_US;
	for (int i = 0; i < 5; i++)
		assert_int_equal(take(&run, &who, now), SVC_OK);
	assert_int_equal(take(&run, &who, now), SVC_RATE);
	test_run_remove(&run);
}

static void accounts_do_not_share_a_bucket(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	const struct gw_api_key key = {.per_minute = 1, .burst = 1}, free_key = {.burst = 1};
	char name[16];
	for (unsigned i = 0; i < CTL_ACCOUNTS; i++) {
		snprintf(name, sizeof name, "n%u", i);
		const struct gw_who who = {gw_account_of(&run, name), &key};
		assert_int_equal(take(&run, &who, 1), SVC_OK);
	}
	const struct gw_who first = {gw_account_of(&run, "n0"), &key};
	const struct gw_who more = {gw_account_of(&run, "one more"), &key};
	const struct gw_who without = {gw_account_of(&run, "no limit"), &free_key}, nobody = {0};
	struct svc_err err;
	uint64_t wait_us;
	assert_int_equal(take(&run, &first, 1), SVC_RATE);
	assert_int_equal(gw_account_take(&run, &more, 1, &wait_us, &err), SVC_BUSY);
	assert_int_equal(take(&run, &without, 1), SVC_OK);
	assert_int_equal(take(&run, &nobody, 1), SVC_OK);
	test_run_remove(&run);
}

/* A bucket that was filled under other limits, or by something damaged, empties in its own time. */
static void what_cannot_be_is_cut(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	const struct gw_api_key key = {.per_minute = 60, .burst = 2};
	const struct gw_who who = {gw_account_of(&run, "alice"), &key};
	assert_int_equal(take(&run, &who, 1), SVC_OK);
	atomic_store(&run.ctl->accounts[who.account % CTL_ACCOUNTS].full_us, UINT64_MAX / 2);
	assert_int_equal(take(&run, &who, 1), SVC_RATE);
	test_run_remove(&run);
}

struct taker {
	struct shm_run *run;
	const struct gw_who *who;
	unsigned n;
};

static void *takes(void *arg)
{
	struct taker *taker = arg;
	struct svc_err err;
	uint64_t wait_us;
	for (int i = 0; i < 2000; i++)
		taker->n += gw_account_take(taker->run, taker->who, 5, &wait_us, &err) == SVC_OK;
	return NULL;
}

static void gateways_share_one_bucket(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	const struct gw_api_key key = {.per_minute = 1000, .burst = 1000};
	const struct gw_who who = {gw_account_of(&run, "alice"), &key};
	struct taker takers[4];
	pthread_t threads[4];
	unsigned sum = 0;
	for (int i = 0; i < 4; i++) {
		takers[i] = (struct taker){&run, &who, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, takes, &takers[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		sum += takers[i].n;
	}
	assert_int_equal(sum, 1000);
	test_run_remove(&run);
}

static void running_requests_are_counted(void **state)
{
	(void)state;
	struct shm_run run = test_run_make();
	struct shm_run gateway = test_join(&run, ROLE_GATEWAY);
	const struct gw_api_key key = {.concurrent = 2, .burst = 1};
	const struct gw_who who = {gw_account_of(&run, "alice"), &key};
	static const enum slot_stage stages[] = {STAGE_TOKENIZE, STAGE_DONE, STAGE_COMPUTE,
						 STAGE_SAMPLE};
	static const enum svc_code codes[] = {SVC_OK, SVC_OK, SVC_OK, SVC_RATE};
	struct svc_err err;
	for (uint32_t i = 0; i < 4; i++) {
		test_request(&gateway, i, stages[i]);
		atomic_store(&run.slots[i].account, who.account);
		assert_int_equal(gw_account_check(&run, &who, &err), codes[i]);
	}
	/* Further choices of a request are no further requests. */
	run.slots[3].choice = 1;
	assert_int_equal(gw_account_check(&run, &who, &err), SVC_OK);
	atomic_store(&run.slots[3].account, who.account + 2);
	run.slots[3].choice = 0;
	assert_int_equal(gw_account_check(&run, &who, &err), SVC_OK);
	test_end(&gateway);
	test_run_remove(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_empties_and_refills),
		cmocka_unit_test(accounts_do_not_share_a_bucket),
		cmocka_unit_test(what_cannot_be_is_cut),
		cmocka_unit_test(gateways_share_one_bucket),
		cmocka_unit_test(running_requests_are_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
