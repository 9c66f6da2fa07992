/* cli/cli.h: the `lockstep` command. Each command is a function of its own argument vector and
 * returns the exit status (0 done, 64 usage, 69 .. 78 as services have them). */
#pragma once
#include "base/err.h"
#include "services/option.h"
#include "shm/incarnation.h"

struct cli_command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

int cli_status(int argc, char **argv);
int cli_health(int argc, char **argv);
int cli_generate(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_model(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_trace(int argc, char **argv);
int cli_reload(int argc, char **argv);
int cli_restart(int argc, char **argv);
int cli_verify(int argc, char **argv);

/* Parses a command's options; prints help or the error. true: go on; else *ret_status is the exit
 * status. */
bool cli_options(const struct opt_source *source, int argc, char **argv, struct opt_set **ret_set,
		 int *ret_status);
/* Prints "lockstep: message" and returns the code's exit status. */
int cli_fail(const struct svc_err *err);
/* The run directory: the option, or the default of this user. */
void cli_run_dir(const struct opt_set *options, char *dir, size_t size);
/* The role that the command's first word names; ROLE_NONE if there is none and it isn't needed. */
SVC_CHECKED enum svc_code cli_role(const struct opt_set *options, bool needed,
				   enum shm_role *ret_role, struct svc_err *err);
/* Calls visit for the run in dir or, if dir is that of several (deploy/up --model NAME=FILE), for
 * each of those below it; ends with the first that fails. SVC_NO_WORKER: nothing runs there. */
typedef enum svc_code cli_visitor(const char *dir, void *context, struct svc_err *err);
enum svc_code cli_each_run(const char *dir, cli_visitor *visit, void *context,
			   struct svc_err *err) SVC_CHECKED;
