#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/log.h"
#include "services/slots.h"
#include "shm/block.h"
#include "shm/page.h"
#include "shm/testing.h"

#define STALL_US 1000000u

static struct shm_run run, gateway;
static struct svc *worker, *sampler, *second_sampler;

/* A service without its loop. */
static struct svc *make(enum shm_role role)
{
	struct svc *svc = calloc(1, sizeof *svc);
	struct svc_err err = {0};
	assert_non_null(svc);
	svc->run = test_join(&run, role);
	test_must(bell_open(&svc->run, &svc->bell, &err) == SVC_OK, err.msg);
	svc->stall_us = STALL_US;
	inc_watch_look(&svc->watch, &svc->run, svc_now_us());
	return svc;
}

static int set_up(void **state)
{
	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	run = test_run_make();
	gateway = test_join(&run, ROLE_GATEWAY);
	worker = make(ROLE_WORKER);
	sampler = make(ROLE_SAMPLER);
	second_sampler = make(ROLE_SAMPLER);
	return 0;
}

/* What a kill leaves: its lock is free. */
static void end(struct svc *svc)
{
	svc->bell = bell_close(svc->bell);
	test_end(&svc->run);
}

static int tear_down(void **state)
{
	(void)state;
	struct svc *all[] = {worker, sampler, second_sampler};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		end(all[i]);
		free(all[i]);
	}
	test_end(&gateway);
	test_run_remove(&run);
	return 0;
}

/* As if this observer had looked in time and seen no beat of entry for so long. */
static void hear_nothing(struct svc *svc, uint32_t entry, uint64_t silence_us)
{
	inc_watch_look(&svc->watch, &svc->run, svc_now_us());
	svc->watch.since_us[entry] = svc->watch.looked_us - silence_us;
}

static enum svc_claim own(struct svc *svc, uint32_t slot, enum slot_stage stage,
			  struct slot_state *mine, struct body **body)
{
	*body = NULL;
	return svc_slot_own(svc, slot, stage, mine, body);
}

static void a_slot_is_anyones_or_its_owners(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	assert_int_equal(own(worker, 0, STAGE_COMPUTE, &mine, &body), CLAIM_NO);
	assert_int_equal(svc_slot_look(sampler, 0, STAGE_SAMPLE), CLAIM_FRESH);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FRESH);
	assert_non_null(body);
	/* Again, for example after a hint that came twice. */
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FRESH);
	assert_int_equal(svc_slot_look(second_sampler, 0, STAGE_SAMPLE), CLAIM_NO);
	assert_int_equal(own(second_sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_NO);
	hear_nothing(second_sampler, sampler->run.me, STALL_US / 2);
	assert_int_equal(svc_slot_look(second_sampler, 0, STAGE_SAMPLE), CLAIM_NO);
}

static void a_dead_owners_slot_is_taken_as_it_is(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *before, *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &before), CLAIM_FRESH);
	end(sampler);
	assert_int_equal(own(second_sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_ORPHAN);
	assert_ptr_equal(body, before);
	assert_int_equal(atomic_load(&body->takeovers), 1);
	assert_int_equal(atomic_load(&run.ctl->counters.takeovers), 1);
}

/* A real process, killed while it owns the slot. */
static void a_killed_process_is_an_orphans_owner(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	int tell[2];
	char byte = 0;
	test_request(&gateway, 0, STAGE_SAMPLE);
	assert_int_equal(pipe(tell), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct svc *svc = make(ROLE_SAMPLER);
		test_must(own(svc, 0, STAGE_SAMPLE, &mine, &body) == CLAIM_FRESH, "own");
		test_must(write(tell[1], &byte, 1) == 1, "write");
		for (;;)
			pause();
	}
	assert_int_equal(read(tell[0], &byte, 1), 1);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_NO);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(tell[0]);
	close(tell[1]);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_ORPHAN);
}

/* The entry it was handed to is empty, another role's, or still registering. */
static void an_owner_that_is_nobody_is_no_owner(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	for (uint32_t slot = 0; slot < 3; slot++)
		test_request(&gateway, slot, STAGE_SAMPLE);
	struct inc_entry *empty = &run.ctl->incs[40];
	const uint32_t owners[] = {40, gateway.me, 40};
	for (uint32_t slot = 0; slot < 3; slot++) {
		struct slot_state seen = slot_load(&run, slot);
		struct shm_run handing = run;
		struct slot_state next = {
			.stage = STAGE_SAMPLE, .owner = owners[slot], .body = seen.body};
		assert_int_equal(slot_pass(&handing, slot, &seen, next), SVC_OK);
	}
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_ORPHAN);
	assert_int_equal(own(sampler, 1, STAGE_SAMPLE, &mine, &body), CLAIM_ORPHAN);
	/* Registering: the number is there, its lock is held, the status is of an older one. */
	struct shm_run late = test_join(&run, ROLE_SAMPLER);
	atomic_store(&empty->status, 1u << 8 | ROLE_GATEWAY << 4 | INC_READY);
	atomic_store(&empty->number, late.number);
	assert_int_equal(svc_slot_look(sampler, 2, STAGE_SAMPLE), CLAIM_NO);
	atomic_store(&empty->number, 0);
	test_end(&late);
}

/* The entry may have become mine since: whoever saw the offer before gets nothing any more. */
static void an_offer_to_me_is_taken(void **state)
{
	(void)state;
	struct slot_state mine, theirs;
	struct body *body;
	test_request(&gateway, 0, STAGE_COMPUTE);
	assert_int_equal(own(worker, 0, STAGE_COMPUTE, &mine, &body), CLAIM_FRESH);
	assert_int_equal(svc_slot_pass(worker, 0, &mine, STAGE_SAMPLE, sampler->run.me), SVC_OK);
	struct slot_state offer = slot_load(&run, 0);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FRESH);
	assert_false(slot_take_over(&second_sampler->run, 0, offer, offer.body, &theirs));
	assert_int_equal(svc_slot_pass(sampler, 0, &mine, STAGE_COMPUTE, 0), SVC_OK);
}

static void a_frozen_owner_is_fenced(void **state)
{
	(void)state;
	struct slot_state frozen, mine;
	struct body *before, *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	test_request(&gateway, 1, STAGE_SAMPLE);
	own(sampler, 0, STAGE_SAMPLE, &frozen, &before);
	own(sampler, 1, STAGE_SAMPLE, &mine, &body);
	hear_nothing(second_sampler, sampler->run.me, STALL_US + 1);
	assert_int_equal(svc_slot_look(second_sampler, 0, STAGE_SAMPLE), CLAIM_FENCED);
	assert_int_equal(own(second_sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FENCED);
	assert_ptr_not_equal(body, before);
	assert_int_equal(atomic_load(&run.ctl->counters.stalls), 1);
	/* From now on it is known: its other slots need no more waiting. */
	inc_watch_look(&second_sampler->watch, &run, svc_now_us());
	inc_beat(&sampler->run);
	inc_watch_look(&second_sampler->watch, &run, svc_now_us());
	assert_int_equal(svc_slot_look(second_sampler, 1, STAGE_SAMPLE), CLAIM_FENCED);
	/* It wakes: passing on fails, and it leaves with "try again". */
	assert_int_equal(svc_slot_pass(sampler, 0, &frozen, STAGE_COMPUTE, 0), SVC_STALE);
	assert_true(sampler->leaving);
	assert_int_equal(sampler->leave_code, SVC_STALE);
	assert_int_equal(svc_code_info(sampler->leave_code)->exit_status, 75);
}

/* The one that takes over gets twice the time, until the request gets on. */
static void a_fence_without_progress_doubles_the_limit(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	own(sampler, 0, STAGE_SAMPLE, &mine, &body);
	hear_nothing(second_sampler, sampler->run.me, STALL_US + 1);
	assert_int_equal(own(second_sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FENCED);
	struct svc *third = make(ROLE_SAMPLER);
	hear_nothing(third, second_sampler->run.me, STALL_US + 1);
	assert_int_equal(svc_slot_look(third, 0, STAGE_SAMPLE), CLAIM_NO);
	hear_nothing(third, second_sampler->run.me, 2 * STALL_US + 1);
	assert_int_equal(svc_slot_look(third, 0, STAGE_SAMPLE), CLAIM_FENCED);
	atomic_fetch_add(&body->n_tokens, 1);
	hear_nothing(third, second_sampler->run.me, STALL_US + 1);
	assert_int_equal(svc_slot_look(third, 0, STAGE_SAMPLE), CLAIM_FENCED);
	end(third);
	free(third);
}

/* A request that isn't admitted yet is waited for: its gateway's line and blocks are its own. */
static void a_gateway_that_fills_is_not_fenced(void **state)
{
	(void)state;
	struct slot_state mine;
	struct svc *other = make(ROLE_GATEWAY);
	assert_true(slot_begin(&gateway, 0, &mine));
	hear_nothing(other, gateway.me, 10 * STALL_US);
	assert_int_equal(svc_slot_look(other, 0, STAGE_FILL), CLAIM_NO);
	atomic_store(&run.ctl->incs[gateway.me].fenced, gateway.number);
	assert_int_equal(svc_slot_look(other, 0, STAGE_FILL), CLAIM_NO);
	test_end(&gateway);
	assert_int_equal(svc_slot_look(other, 0, STAGE_FILL), CLAIM_ORPHAN);
	end(other);
	free(other);
}

/* Nobody judges by an owner that it saw before: a slot that went on is not fenced by mistake. */
static void an_observer_that_was_late_does_not_judge(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	own(sampler, 0, STAGE_SAMPLE, &mine, &body);
	hear_nothing(second_sampler, sampler->run.me, 5 * STALL_US);
	second_sampler->watch.looked_us -= STALL_US;
	assert_int_equal(svc_slot_look(second_sampler, 0, STAGE_SAMPLE), CLAIM_NO);
}

static void let_die_in(uint32_t slot)
{
	struct slot_state mine;
	struct body *body;
	struct svc *victim = make(ROLE_SAMPLER);
	enum svc_claim claim = own(victim, slot, STAGE_SAMPLE, &mine, &body);
	assert_int_not_equal(claim, CLAIM_NO);
	end(victim);
	free(victim);
}

/* Five owners died on it, one after the other, and it got nowhere. */
static void a_request_that_kills_is_given_up(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	struct svc_err failure;
	struct body *first = test_request(&gateway, 0, STAGE_SAMPLE);
	for (int i = 0; i < 5; i++)
		let_die_in(0);
	assert_int_equal(atomic_load(&first->deaths), 4);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_NO);
	assert_int_equal(slot_load(&run, 0).stage, STAGE_DONE);
	assert_true(body_failure(first, &failure));
	assert_int_equal(failure.code, SVC_WORKER_CRASHED);
}

static void deaths_with_progress_between_do_not_count(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	struct body *first = test_request(&gateway, 0, STAGE_SAMPLE);
	for (uint32_t i = 0; i < 6; i++) {
		let_die_in(0);
		atomic_fetch_add(&first->n_tokens, 1);
	}
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_ORPHAN);
	assert_int_equal(atomic_load(&body->deaths), 1);
	assert_int_equal(atomic_load(&body->takeovers), 6);
}

static void a_damaged_body_ends_its_request_alone(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	struct body *first = test_request(&gateway, 0, STAGE_SAMPLE);
	test_request(&gateway, 1, STAGE_SAMPLE);
	first->magic = 1;
	log_set_level(LOG_LEVEL_ERROR);
	assert_int_equal(own(sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_NO);
	assert_int_equal(slot_load(&run, 0).stage, STAGE_DONE);
	assert_int_equal(own(sampler, 1, STAGE_SAMPLE, &mine, &body), CLAIM_FRESH);
	assert_false(sampler->leaving);
}

/* To the one it came from if that can take it, else to anyone. */
static void a_slot_is_passed_to_who_can_take_it(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	const struct {
		uint32_t owner, passed_to;
	} rows[] = {{worker->run.me, worker->run.me},
		    {0, 0},
		    {63, 0},
		    {INC_COUNT + 5, 0},
		    /* Of the stage's role by then no more. */
		    {second_sampler->run.me, 0}};
	for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		test_request(&gateway, i, STAGE_SAMPLE);
		own(sampler, i, STAGE_SAMPLE, &mine, &body);
		assert_int_equal(svc_slot_pass(sampler, i, &mine, STAGE_COMPUTE, rows[i].owner),
				 SVC_OK);
		assert_int_equal(slot_load(&run, i).owner, rows[i].passed_to);
		assert_int_equal(slot_load(&run, i).stage, STAGE_COMPUTE);
	}
	/* The owner's bell was rung; any of the role gets a message. */
	uint32_t rung;
	assert_true(bell_answer(worker->bell, &rung));
	assert_int_equal(rung, 0);
	assert_false(bell_answer(worker->bell, &rung));
	assert_int_equal(sampler->hints[worker->run.me].n_slots, 4);
	inc_set_state(&worker->run, INC_DRAINING);
	test_request(&gateway, 6, STAGE_SAMPLE);
	own(sampler, 6, STAGE_SAMPLE, &mine, &body);
	assert_int_equal(svc_slot_pass(sampler, 6, &mine, STAGE_COMPUTE, worker->run.me), SVC_OK);
	assert_int_equal(slot_load(&run, 6).owner, 0);
}

static void what_is_held_goes_by_way_of_reclaim(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	struct svc_err err = {.code = SVC_CANCELLED, .msg = "the client went away"};
	for (uint32_t slot = 0; slot < 3; slot++) {
		test_request(&gateway, slot, STAGE_SAMPLE);
		own(sampler, slot, STAGE_SAMPLE, &mine, &body);
		atomic_store(&body->worker, worker->run.me);
		if (slot == 0)
			atomic_store(&body->n_pages, 1);
		if (slot == 1)
			atomic_store(&body->row, 1);
		svc_slot_fail(sampler, slot, &mine, body, &err);
		assert_int_equal(atomic_load(&body->fail_code), SVC_CANCELLED);
	}
	assert_int_equal(slot_load(&run, 0).stage, STAGE_RECLAIM);
	assert_int_equal(slot_load(&run, 0).owner, worker->run.me);
	assert_int_equal(slot_load(&run, 1).stage, STAGE_RECLAIM);
	assert_int_equal(slot_load(&run, 2).stage, STAGE_DONE);
}

static void blocks_of_the_frozen_come_back_with_their_end(void **state)
{
	(void)state;
	struct slot_state mine;
	struct body *body;
	test_request(&gateway, 0, STAGE_SAMPLE);
	own(sampler, 0, STAGE_SAMPLE, &mine, &body);
	hear_nothing(second_sampler, sampler->run.me, STALL_US + 1);
	assert_int_equal(own(second_sampler, 0, STAGE_SAMPLE, &mine, &body), CLAIM_FENCED);
	svc_quarantine_sweep(second_sampler);
	assert_int_equal(body_count_used(&run), 2);
	end(sampler);
	svc_quarantine_sweep(second_sampler);
	assert_int_equal(body_count_used(&run), 1);
	assert_ptr_equal(body_get(&run, slot_load(&run, 0).body, 0), body);
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(a_slot_is_anyones_or_its_owners),
		IN_RUN(a_dead_owners_slot_is_taken_as_it_is),
		IN_RUN(a_killed_process_is_an_orphans_owner),
		IN_RUN(an_owner_that_is_nobody_is_no_owner),
		IN_RUN(an_offer_to_me_is_taken),
		IN_RUN(a_frozen_owner_is_fenced),
		IN_RUN(a_fence_without_progress_doubles_the_limit),
		IN_RUN(a_gateway_that_fills_is_not_fenced),
		IN_RUN(an_observer_that_was_late_does_not_judge),
		IN_RUN(a_request_that_kills_is_given_up),
		IN_RUN(deaths_with_progress_between_do_not_count),
		IN_RUN(a_damaged_body_ends_its_request_alone),
		IN_RUN(a_slot_is_passed_to_who_can_take_it),
		IN_RUN(what_is_held_goes_by_way_of_reclaim),
		IN_RUN(blocks_of_the_frozen_come_back_with_their_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
