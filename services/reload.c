#include "services/reload.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"

/* Every process has these. */
static const char *const common_live[] = {"log-level", "drain-s", NULL};

/* One reload while it goes on. */
struct reload {
	const struct svc *svc;
	struct buf report;
};

static bool has(const char *const *names, const char *name)
{
	for (; names && *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

static bool is_live(void *context, const char *name)
{
	const struct reload *reload = context;
	return has(common_live, name) || has(reload->svc->spec->live, name);
}

static void change_note(void *context, const struct opt_change *change)
{
	struct reload *reload = context;
	buf_print(&reload->report, "%s %s: %s -> %s\n", change->taken ? "applied" : "refused",
		  change->name, *change->before ? change->before : "(empty)",
		  *change->after ? change->after : "(empty)");
	if (change->taken)
		log_info("--%s is now \"%s\", was \"%s\"", change->name, change->after,
			 change->before);
	else
		log_warn("--%s stays \"%s\": it can't become \"%s\" while this process runs",
			 change->name, change->before, change->after);
}

static void level_set(const struct svc *svc)
{
	enum log_level level;
	if (log_level_parse(opt_string(svc->options, "log-level"), &level))
		log_set_level(level);
}

/* Renamed into place, so that who waits for it finds all of it. */
static void report_write(const struct svc *svc, const struct buf *report)
{
	char folder[sizeof svc->run.dir + 16], path[sizeof folder + 64], new[sizeof path + 8];
	int len = snprintf(folder, sizeof folder, "%s/" SVC_RELOAD_FOLDER, svc->run.dir);
	snprintf(path, sizeof path, "%s/%s-%u", folder, inc_role_name(svc->spec->role),
		 svc->run.ctl->incs[svc->run.me].instance);
	snprintf(new, sizeof new, "%s.new", path);
	(void)len;
	mkdir(folder, 0700);
	int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool whole = fd >= 0 && !report->failed &&
		     write(fd, report->ptr, report->len) == (ssize_t)report->len;
	if (fd >= 0)
		close(fd);
	if (!whole || rename(new, path) != 0)
		log_warn("cannot write %s", path);
}

/* The role may still find that a value is of no use: then all are given back. */
static enum svc_code take(struct reload *reload, struct svc *svc, struct opt_set *fresh,
			  struct svc_err *err)
{
	const struct opt_exchange to = {is_live, change_note, reload},
				  back = {is_live, NULL, reload};
	size_t before = reload->report.len;
	opt_exchange(svc->options, fresh, &to);
	enum svc_code code = svc->spec->reload ? svc->spec->reload(svc, err) : SVC_OK;
	level_set(svc);
	if (code == SVC_OK)
		return code;
	opt_exchange(svc->options, fresh, &back);
	level_set(svc);
	reload->report.len = before;
	return code;
}

void svc_reload(struct svc *svc)
{
	struct reload reload = {.svc = svc};
	struct opt_set *fresh = NULL;
	enum opt_action action;
	struct svc_err err = {0};
	log_info("reading the configuration again");
	buf_print(&reload.report, "number %" PRIu64 "\n", svc->run.number);
	enum svc_code code = opt_parse(svc->source, svc->argc, svc->argv, &fresh, &action, &err);
	if (code == SVC_OK)
		code = take(&reload, svc, fresh, &err);
	if (code != SVC_OK) {
		log_warn("the configuration stays as it was: %s", err.msg);
		buf_print(&reload.report, "failed %s\n", err.msg);
	}
	report_write(svc, &reload.report);
	buf_free(&reload.report);
	opt_free(fresh);
}
