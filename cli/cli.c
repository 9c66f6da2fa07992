#include "cli/cli.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cli_options(const struct opt_source *source, int argc, char **argv, struct opt_set **ret_set,
		 int *ret_status)
{
	struct svc_err err = {0};
	enum opt_action action = OPT_RUN;
	enum svc_code code = opt_parse(source, argc, argv, ret_set, &action, &err);
	*ret_status = 0;
	if (code != SVC_OK) {
		*ret_status = cli_fail(&err);
		return false;
	}
	if (action == OPT_RUN)
		return true;
	if (action == OPT_HELP)
		opt_print_help(source, stdout);
	else if (action == OPT_PRINT_CONFIG)
		opt_print_config(*ret_set, stdout);
	else if (action == OPT_VERSION)
		printf("lockstep %s\n", LOCKSTEP_VERSION);
	*ret_set = opt_free(*ret_set);
	return false;
}

enum svc_code cli_role(const struct opt_set *options, bool needed, enum shm_role *ret_role,
		       struct svc_err *err)
{
	const char *name = opt_positional(options, 0);
	*ret_role = name ? inc_role_parse(name) : ROLE_NONE;
	if (*ret_role != ROLE_NONE || (!name && !needed))
		return SVC_OK;
	return svc_fail(err, SVC_USAGE, __func__,
			"%s%.64s%s gateway, tokenizer, npu-worker, sampler or keeper",
			name ? "\"" : "", name ? name : "which role?",
			name ? "\" is no role:" : "");
}

int cli_fail(const struct svc_err *err)
{
	fprintf(stderr, "lockstep: %s\n", err->msg);
	return svc_code_info(err->code)->exit_status;
}

void cli_run_dir(const struct opt_set *options, char *dir, size_t size)
{
	const char *given = opt_string(options, "run-dir");
	if (*given)
		snprintf(dir, size, "%s", given);
	else
		snprintf(dir, size, "/dev/shm/lockstep-%u", (unsigned)geteuid());
}

enum svc_code cli_each_run(const char *dir, cli_visitor *visit, void *context, struct svc_err *err)
{
	char pattern[512];
	glob_t found = {0};
	snprintf(pattern, sizeof pattern, "%s/control", dir);
	if (access(pattern, F_OK) == 0)
		return visit(dir, context, err);
	snprintf(pattern, sizeof pattern, "%s/*/control", dir);
	enum svc_code code = SVC_OK;
	if (glob(pattern, 0, NULL, &found) != 0)
		code = svc_fail(err, SVC_NO_WORKER, __func__,
				"nothing runs in %s (deploy/up starts it)", dir);
	for (size_t i = 0; code == SVC_OK && i < found.gl_pathc; i++) {
		*strrchr(found.gl_pathv[i], '/') = 0;
		code = visit(found.gl_pathv[i], context, err);
	}
	globfree(&found);
	return code;
}
