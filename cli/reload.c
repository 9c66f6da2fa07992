/* lockstep reload [ROLE]: every process reads its configuration again (SIGHUP) and says what became
 * of each option that has changed. */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "services/reload.h"
#include "shm/incarnation.h"

#define REPORT_BYTES 65536u

static const struct opt reload_options[] = {
	{"run-dir", OPT_STRING, "", 0, 0, NULL, "directory of the run, or of several"},
	{"timeout-s", OPT_INT, "10", 1, 600, NULL, "a process must answer within this time (s)"},
	{0},
};

/* One process that is asked. */
struct asked {
	const char *role;
	uint32_t instance;
	uint64_t number;
	char path[320]; /* of its report */
};

static bool report_read(const struct asked *asked, char *text)
{
	static const char head[] = "number ";
	char *end;
	int fd = open(asked->path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, REPORT_BYTES - 1);
	if (fd >= 0)
		close(fd);
	if (len < 0)
		return false;
	text[len] = 0;
	if (strncmp(text, head, sizeof head - 1) != 0 ||
	    strtoull(text + sizeof head - 1, &end, 10) != asked->number || *end != '\n')
		return false;
	memmove(text, end + 1, strlen(end + 1) + 1);
	return true;
}

/* false: something was refused, or failed. */
static bool report_print(const struct asked *asked, char *text)
{
	bool good = true;
	if (!*text)
		printf("%s %u: nothing has changed\n", asked->role, asked->instance);
	for (char *rest = NULL, *line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		printf("%s %u: %s\n", asked->role, asked->instance, line);
		good = good && strncmp(line, "applied ", 8) == 0;
	}
	return good;
}

static enum svc_code ask(const struct shm_run *run, uint32_t entry, struct asked *ret_asked,
			 struct svc_err *err)
{
	int32_t pid = run->ctl->incs[entry].pid;
	*ret_asked = (struct asked){.role = inc_role_name(inc_role(run, entry)),
				    .instance = run->ctl->incs[entry].instance,
				    .number = atomic_load(&run->ctl->incs[entry].number)};
	snprintf(ret_asked->path, sizeof ret_asked->path, "%s/" SVC_RELOAD_FOLDER "/%s-%u",
		 run->dir, ret_asked->role, ret_asked->instance);
	unlink(ret_asked->path);
	if (pid <= 1)
		return svc_fail(err, SVC_CORRUPT, __func__, "%s %u has no usable pid",
				ret_asked->role, ret_asked->instance);
	if (kill(pid, SIGHUP) != 0)
		return svc_fail_errno(err, __func__,
				      "cannot signal pid %d (in a container? use docker compose "
				      "kill --signal HUP)",
				      pid);
	return SVC_OK;
}

static enum svc_code answer(const struct asked *asked, int64_t timeout_s, bool *ret_good,
			    struct svc_err *err)
{
	char *text = malloc(REPORT_BYTES);
	if (!text)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (int64_t i = 0; i < timeout_s * 50; i++) {
		if (report_read(asked, text)) {
			*ret_good = report_print(asked, text) && *ret_good;
			free(text);
			return SVC_OK;
		}
		usleep(20000);
	}
	free(text);
	return svc_fail(err, SVC_TIMEOUT, __func__,
			"%s %u has not answered within %" PRId64 " s; see its log", asked->role,
			asked->instance, timeout_s);
}

/* What is asked for, and whether all was taken. */
struct reloading {
	enum shm_role role; /* ROLE_NONE: all */
	int64_t timeout_s;
	bool good;
};

static bool is_wanted(enum shm_role wanted, enum shm_role role)
{
	return role != ROLE_NONE && (wanted == ROLE_NONE || role == wanted);
}

static enum svc_code reload_run(const char *dir, void *context, struct svc_err *err)
{
	struct asked asked[INC_COUNT];
	struct reloading *reloading = context;
	uint32_t n = 0;
	struct shm_run run;
	enum svc_code code = run_attach(dir, dir, ROLE_KEEPER, &run, err);
	if (code != SVC_OK)
		return code;
	for (uint32_t i = 1; i < INC_COUNT && code == SVC_OK; i++)
		if (is_wanted(reloading->role, inc_role(&run, i)) && inc_is_ready(&run, i) &&
		    !inc_is_dead(&run, i))
			code = ask(&run, i, &asked[n++], err);
	for (uint32_t i = 0; i < n && code == SVC_OK; i++)
		code = answer(&asked[i], reloading->timeout_s, &reloading->good, err);
	run_detach(&run);
	return code;
}

int cli_reload(int argc, char **argv)
{
	const struct opt_source source = {"lockstep reload [ROLE]",
					  "every process reads its configuration again",
					  {reload_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	char dir[256];
	struct reloading reloading = {.good = true};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	cli_run_dir(options, dir, sizeof dir);
	reloading.timeout_s = opt_int(options, "timeout-s");
	enum svc_code code = cli_role(options, false, &reloading.role, &err);
	if (code == SVC_OK)
		code = cli_each_run(dir, reload_run, &reloading, &err);
	opt_free(options);
	if (code != SVC_OK)
		return cli_fail(&err);
	return reloading.good ? 0 : 78;
}
