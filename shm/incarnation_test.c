#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "shm/page.h"
#include "shm/testing.h"

static struct shm_run run;

static int set_up(void **state)
{
	(void)state;
	run = test_run_make();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	test_run_remove(&run);
	return 0;
}

/* A real process, registered after the fork (a lock is inherited) and waiting to be killed. */
struct process {
	pid_t pid;
	uint32_t entry;
	uint64_t number;
};

static struct process start(enum shm_role role, void (*work)(struct shm_run *mine))
{
	int tell[2];
	struct process process = {0};
	assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
	process.pid = fork();
	assert_true(process.pid >= 0);
	if (process.pid == 0) {
		struct shm_run mine = test_join(&run, role);
		uint64_t said[2] = {mine.me, mine.number};
		if (work)
			work(&mine);
		if (write(tell[1], said, sizeof said) != sizeof said)
			_exit(1);
		for (;;)
			pause();
	}
	close(tell[1]);
	uint64_t said[2] = {0};
	assert_int_equal(read(tell[0], said, sizeof said), sizeof said);
	close(tell[0]);
	process.entry = (uint32_t)said[0];
	process.number = said[1];
	return process;
}

static void stop(const struct process *process)
{
	kill(process->pid, SIGKILL);
	waitpid(process->pid, NULL, 0);
}

static bool file_exists(const char *sub, uint64_t number, const char *suffix)
{
	char path[400];
	snprintf(path, sizeof path, "%s/%s/%lu%s", run.dir, sub, number, suffix);
	return access(path, F_OK) == 0;
}

static void only_the_end_of_a_process_is_death(void **state)
{
	(void)state;
	struct process process = start(ROLE_SAMPLER, NULL);
	assert_int_equal(inc_role(&run, process.entry), ROLE_SAMPLER);
	assert_true(inc_is_ready(&run, process.entry));
	assert_false(inc_is_dead(&run, process.entry));
	kill(process.pid, SIGSTOP);
	waitpid(process.pid, NULL, WUNTRACED);
	assert_false(inc_is_dead(&run, process.entry));
	assert_false(inc_bury(&run, process.entry));
	kill(process.pid, SIGCONT);
	assert_false(inc_is_dead(&run, process.entry));
	stop(&process);
	assert_true(inc_is_dead(&run, process.entry));
	/* Neither an empty entry nor one that doesn't exist is dead. */
	assert_false(inc_is_dead(&run, 0));
	assert_false(inc_is_dead(&run, process.entry + 1));
	assert_false(inc_is_dead(&run, INC_COUNT));
}

static void a_death_is_seen_from_another_process(void **state)
{
	(void)state;
	struct process process = start(ROLE_SAMPLER, NULL);
	stop(&process);
	pid_t observer = fork();
	if (observer == 0)
		_exit(inc_is_dead(&run, process.entry) ? 0 : 1);
	int status = 1;
	waitpid(observer, &status, 0);
	assert_int_equal(status, 0);
}

/* What a process starts must not hold its lock. */
static void a_lock_is_not_handed_to_programs(void **state)
{
	(void)state;
	struct shm_run mine = test_join(&run, ROLE_GATEWAY);
	assert_true(fcntl(mine.lock_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(mine.lock_fd, F_GETFD) >= 0);
	test_end(&mine);
}

static void a_number_is_never_used_twice(void **state)
{
	(void)state;
	uint64_t last = 0;
	for (int i = 0; i < 5; i++) {
		struct process process = start(ROLE_WORKER, NULL);
		assert_true(process.number > last);
		last = process.number;
		stop(&process);
		assert_true(inc_bury(&run, process.entry));
		assert_int_equal(atomic_load(&run.ctl->incs[process.entry].number), 0);
		assert_false(inc_bury(&run, process.entry));
	}
}

static void own_a_slot(struct shm_run *mine)
{
	struct slot_state state;
	test_must(slot_begin(mine, 3, &state), "slot_begin");
}

static void hold_a_page(struct shm_run *mine)
{
	uint32_t cursor = 0;
	test_must(page_take(mine, &cursor) != PAGE_NONE, "page_take");
}

/* The entry would name another process, while a slot or a page still means the dead one. */
static void nobody_is_buried_while_something_names_it(void **state)
{
	(void)state;
	struct process owner = start(ROLE_GATEWAY, own_a_slot),
		       holder = start(ROLE_WORKER, hold_a_page);
	stop(&owner);
	stop(&holder);
	assert_false(inc_bury(&run, owner.entry));
	assert_false(inc_bury(&run, holder.entry));
	struct shm_run heir = test_join(&run, ROLE_GATEWAY);
	struct slot_state seen = slot_load(&run, 3), mine;
	assert_int_equal(seen.owner, owner.entry);
	assert_true(slot_take_over(&heir, 3, seen, seen.body, &mine));
	page_drop_all(&heir, holder.entry, holder.number);
	assert_true(inc_bury(&run, owner.entry));
	assert_true(inc_bury(&run, holder.entry));
	test_end(&heir);
}

static void a_burial_removes_the_files(void **state)
{
	(void)state;
	char path[400], activations[400];
	struct process process = start(ROLE_WORKER, NULL);
	snprintf(path, sizeof path, "%s/bus/%lu", run.dir, process.number);
	snprintf(activations, sizeof activations, "%s/" INC_ACTIVATIONS, run.bulk_dir,
		 process.number);
	close(open(path, O_CREAT | O_RDWR, 0600));
	close(open(activations, O_CREAT | O_RDWR, 0600));
	assert_true(file_exists("inc", process.number, ".lock"));
	stop(&process);
	assert_true(inc_bury(&run, process.entry));
	assert_false(file_exists("inc", process.number, ".lock"));
	assert_false(file_exists("bus", process.number, ""));
	assert_int_not_equal(access(activations, F_OK), 0);
}

static void who_leaves_frees_its_entry_unless_it_is_named(void **state)
{
	(void)state;
	struct shm_run idle = test_join(&run, ROLE_GATEWAY), busy = test_join(&run, ROLE_GATEWAY);
	uint32_t idle_entry = idle.me, busy_entry = busy.me;
	uint64_t idle_number = idle.number, busy_number = busy.number;
	own_a_slot(&busy);
	inc_leave(&idle);
	inc_leave(&busy);
	inc_leave(&busy);
	assert_int_equal(atomic_load(&run.ctl->incs[idle_entry].number), 0);
	assert_false(file_exists("inc", idle_number, ".lock"));
	assert_int_equal(atomic_load(&run.ctl->incs[busy_entry].number), busy_number);
	assert_true(inc_is_dead(&run, busy_entry));
}

/* A process that has its number and its lock, but no entry yet, is not swept away; one that ended
 * there is. */
static void a_sweep_spares_who_is_registering(void **state)
{
	(void)state;
	char path[400], activations[400];
	struct process process = start(ROLE_WORKER, NULL);
	snprintf(path, sizeof path, "%s/bus/%lu", run.dir, process.number);
	snprintf(activations, sizeof activations, "%s/" INC_ACTIVATIONS, run.bulk_dir,
		 process.number);
	close(open(path, O_CREAT | O_RDWR, 0600));
	close(open(activations, O_CREAT | O_RDWR, 0600));
	atomic_store(&run.ctl->incs[process.entry].number, 0);
	inc_sweep_files(&run);
	assert_true(file_exists("inc", process.number, ".lock"));
	assert_true(file_exists("bus", process.number, ""));
	assert_int_equal(access(activations, F_OK), 0);
	stop(&process);
	inc_sweep_files(&run);
	assert_false(file_exists("inc", process.number, ".lock"));
	assert_false(file_exists("bus", process.number, ""));
	assert_int_not_equal(access(activations, F_OK), 0);
	/* The dead in the table are buried, not swept: others must still see that they died. */
	process = start(ROLE_SAMPLER, NULL);
	stop(&process);
	inc_sweep_files(&run);
	assert_true(file_exists("inc", process.number, ".lock"));
	assert_true(inc_is_dead(&run, process.entry));
}

static void a_used_number_is_passed_over(void **state)
{
	(void)state;
	char path[400];
	uint64_t next = atomic_load(&run.ctl->counters.next_incarnation);
	snprintf(path, sizeof path, "%s/inc/%lu.lock", run.dir, next);
	close(open(path, O_CREAT | O_RDWR, 0600));
	struct shm_run mine = test_join(&run, ROLE_GATEWAY);
	assert_true(mine.number == next + 1);
	test_end(&mine);
}

static void workers_and_others_have_their_own_entries(void **state)
{
	(void)state;
	struct svc_err err;
	struct shm_run workers[INC_WORKER_END], others;
	for (uint32_t i = INC_WORKER_FIRST; i < INC_WORKER_END; i++) {
		workers[i] = test_join(&run, ROLE_WORKER);
		assert_int_equal(workers[i].me, i);
	}
	struct shm_run one_more = run;
	uint64_t number = atomic_load(&run.ctl->counters.next_incarnation);
	assert_int_equal(inc_register(&one_more, ROLE_WORKER, 0, &err), SVC_BUSY);
	assert_false(file_exists("inc", number, ".lock"));
	assert_int_equal(one_more.me, 0);
	others = test_join(&run, ROLE_TOKENIZER);
	assert_int_equal(others.me, INC_WORKER_END);
	/* A dead one makes place without anybody's help. */
	test_end(&workers[4]);
	assert_int_equal(inc_register(&one_more, ROLE_WORKER, 0, &err), SVC_OK);
	assert_int_equal(one_more.me, 4);
	for (uint32_t i = INC_WORKER_FIRST; i < INC_WORKER_END; i++)
		if (i != 4)
			test_end(&workers[i]);
	test_end(&one_more);
	test_end(&others);
}

/* An entry's status says nothing about who comes after. */
static void an_entry_that_is_registering_has_no_role(void **state)
{
	(void)state;
	struct shm_run first = test_join(&run, ROLE_SAMPLER);
	uint32_t entry = first.me;
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, 0), entry);
	inc_leave(&first);
	assert_int_equal(inc_role(&run, entry), ROLE_NONE);
	atomic_store(&run.ctl->incs[entry].number, 12345);
	assert_int_equal(inc_role(&run, entry), ROLE_NONE);
	assert_int_equal(inc_state_of(&run, entry), 0);
	assert_false(inc_is_ready(&run, entry));
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, 0), 0);
}

static void only_the_ready_are_found(void **state)
{
	(void)state;
	struct shm_run first = test_join(&run, ROLE_SAMPLER),
		       second = test_join(&run, ROLE_SAMPLER);
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, 0), first.me);
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, first.me), second.me);
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, second.me), first.me);
	assert_int_equal(inc_find(&run, ROLE_WORKER, 0), 0);
	inc_set_state(&first, INC_DRAINING);
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, 0), second.me);
	atomic_store(&run.ctl->incs[second.me].fenced, second.number);
	assert_int_equal(inc_find(&run, ROLE_SAMPLER, 0), 0);
	assert_false(inc_beat(&second));
	assert_true(inc_beat(&first));
	/* Fenced is the incarnation, not the entry. */
	uint32_t entry = second.me;
	inc_leave(&second);
	struct shm_run third = test_join(&run, ROLE_SAMPLER);
	assert_int_equal(third.me, entry);
	assert_true(inc_beat(&third));
	test_end(&first);
	test_end(&third);
}

static void silence_is_measured_by_who_looked_in_time(void **state)
{
	(void)state;
	struct inc_watch watch = {0};
	struct shm_run mine = test_join(&run, ROLE_SAMPLER);
	uint64_t now = 1000000;
	inc_watch_look(&watch, &run, now);
	for (int i = 0; i < 15; i++)
		inc_watch_look(&watch, &run, now += 100000);
	assert_int_equal(inc_watch_silence_us(&watch, mine.me, now), 1500000);
	assert_int_equal(inc_watch_silence_us(&watch, mine.me + 1, now), 0);
	/* The observer itself slept: it can't tell. */
	assert_int_equal(inc_watch_silence_us(&watch, mine.me, now + 400000), 0);
	inc_watch_look(&watch, &run, now += 400000);
	assert_int_equal(inc_watch_silence_us(&watch, mine.me, now), 0);
	inc_watch_look(&watch, &run, now += 100000);
	assert_int_equal(inc_watch_silence_us(&watch, mine.me, now), 100000);
	inc_beat(&mine);
	inc_watch_look(&watch, &run, now += 100000);
	assert_int_equal(inc_watch_silence_us(&watch, mine.me, now), 0);
	test_end(&mine);
}

static void roles_have_names(void **state)
{
	(void)state;
	for (int role = 1; role < ROLE_COUNT; role++)
		assert_int_equal(inc_role_parse(inc_role_name((enum shm_role)role)), role);
	assert_int_equal(inc_role_parse("nobody"), ROLE_NONE);
	assert_string_equal(inc_role_name(ROLE_COUNT), "none");
}

#define IN_RUN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RUN(only_the_end_of_a_process_is_death),
		IN_RUN(a_death_is_seen_from_another_process),
		IN_RUN(a_lock_is_not_handed_to_programs),
		IN_RUN(a_number_is_never_used_twice),
		IN_RUN(nobody_is_buried_while_something_names_it),
		IN_RUN(a_burial_removes_the_files),
		IN_RUN(who_leaves_frees_its_entry_unless_it_is_named),
		IN_RUN(a_sweep_spares_who_is_registering),
		IN_RUN(a_used_number_is_passed_over),
		IN_RUN(workers_and_others_have_their_own_entries),
		IN_RUN(an_entry_that_is_registering_has_no_role),
		IN_RUN(only_the_ready_are_found),
		IN_RUN(silence_is_measured_by_who_looked_in_time),
		cmocka_unit_test(roles_have_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
