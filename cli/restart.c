/* lockstep restart ROLE: one instance after the other is asked to leave (SIGTERM: it hands its work
 * on first) and must be back, started again by its supervisor, before the next one goes. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "shm/incarnation.h"

static const struct opt restart_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL, "directory of the run"},
	{"timeout-s", OPT_INT, "60", 1, 3600, NULL,
	 "an instance must be back within this many seconds"},
	{0},
};

/* The ready incarnation of an instance that isn't `old`; 0 if there is none. */
static uint64_t find_successor(const struct shm_run *run, enum shm_role role, uint32_t instance,
			       uint64_t old)
{
	for (uint32_t i = 1; i < INC_COUNT; i++) {
		uint64_t number = atomic_load(&run->ctl->incs[i].number);
		if (number && number != old && inc_role(run, i) == role &&
		    run->ctl->incs[i].instance == instance && inc_is_ready(run, i) &&
		    !inc_is_dead(run, i))
			return number;
	}
	return 0;
}

static enum svc_code restart_one(const struct shm_run *run, uint32_t entry, int64_t timeout_s,
				 struct svc_err *err)
{
	enum shm_role role = inc_role(run, entry);
	uint32_t instance = run->ctl->incs[entry].instance;
	uint64_t old = atomic_load(&run->ctl->incs[entry].number);
	int32_t pid = run->ctl->incs[entry].pid;
	if (pid <= 1)
		return svc_fail(err, SVC_CORRUPT, __func__, "%s %u has no usable pid",
				inc_role_name(role), instance);
	printf("%s %u (pid %d): leaving …", inc_role_name(role), instance, pid);
	fflush(stdout);
	if (kill(pid, SIGTERM) != 0)
		return svc_fail_errno(
			err, __func__,
			"cannot signal pid %d (in a container? use docker compose restart)", pid);
	for (int64_t i = 0; i < timeout_s * 50; i++) {
		if (find_successor(run, role, instance, old)) {
			printf(" back\n");
			return SVC_OK;
		}
		usleep(20000);
	}
	return svc_fail(err, SVC_TIMEOUT, __func__,
			"%s %u was not back within %" PRId64 " s; see its log", inc_role_name(role),
			instance, timeout_s);
}

int cli_restart(int argc, char **argv)
{
	const struct opt_source source = {"lockstep restart ROLE",
					  "restarts a role's instances one by one",
					  {restart_options},
					  true};
	struct opt_set *options = NULL;
	struct shm_run run;
	struct svc_err err = {0};
	char dir[256];
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	int64_t timeout_s = opt_int(options, "timeout-s");
	cli_run_dir(options, dir, sizeof dir);
	enum shm_role role;
	enum svc_code code = cli_role(options, true, &role, &err);
	opt_free(options);
	if (code == SVC_OK)
		code = run_attach(dir, dir, ROLE_KEEPER, &run, &err);
	if (code != SVC_OK)
		return cli_fail(&err);
	/* The list first: successors may take other entries while we go. */
	uint32_t entries[INC_COUNT], n = 0;
	for (uint32_t i = 1; i < INC_COUNT; i++)
		if (inc_role(&run, i) == role && inc_is_ready(&run, i) && !inc_is_dead(&run, i))
			entries[n++] = i;
	if (n == 0)
		code = svc_fail(&err, SVC_NO_WORKER, __func__, "no %s is running",
				inc_role_name(role));
	for (uint32_t i = 0; i < n && code == SVC_OK; i++)
		code = restart_one(&run, entries[i], timeout_s, &err);
	run_detach(&run);
	if (code != SVC_OK) {
		printf("\n");
		return cli_fail(&err);
	}
	return 0;
}
