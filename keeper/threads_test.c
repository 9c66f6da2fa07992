#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "keeper/threads.h"

#define TRIES 5000

static void *spin(void *unused)
{
	(void)unused;
	for (volatile int i = 0;; i++)
		;
	return NULL;
}

static void *rest(void *unused)
{
	(void)unused;
	for (;;)
		pause();
	return NULL;
}

/* A child whose second thread and then whose first do this. */
static pid_t child_of(void *(*second)(void *), void *(*first)(void *))
{
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, second, NULL) == 0)
			first(NULL);
		_exit(1);
	}
	assert_true(pid > 0);
	return pid;
}

/* It takes a moment until a child has come to what it does. */
static void assert_becomes(pid_t pid, bool runs)
{
	for (int i = 0; i < TRIES && threads_any_is(pid, 'R') != runs; i++)
		usleep(1000);
	usleep(20000);
	assert_int_equal(threads_any_is(pid, 'R'), runs);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(threads_any_is(pid, 'R'));
}

static void who_runs_is_told_from_who_rests(void **state)
{
	(void)state;
	pid_t pid = child_of(rest, rest);
	assert_becomes(pid, false);
	end(pid);
	pid = child_of(rest, spin);
	assert_becomes(pid, true);
	end(pid);
}

static void any_thread_counts(void **state)
{
	(void)state;
	pid_t pid = child_of(spin, rest);
	assert_becomes(pid, true);
	end(pid);
}

static void who_is_stopped_does_not_run(void **state)
{
	(void)state;
	pid_t pid = child_of(spin, spin);
	assert_becomes(pid, true);
	assert_false(threads_any_is(pid, 'T'));
	kill(pid, SIGSTOP);
	assert_becomes(pid, false);
	assert_true(threads_any_is(pid, 'T'));
	kill(pid, SIGCONT);
	assert_becomes(pid, true);
	assert_false(threads_any_is(pid, 'T'));
	end(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_runs_is_told_from_who_rests),
		cmocka_unit_test(any_thread_counts),
		cmocka_unit_test(who_is_stopped_does_not_run),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
