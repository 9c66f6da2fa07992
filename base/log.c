#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

static struct {
	char service[32];
	uint32_t instance;
	uint64_t epoch;
	atomic_int level;
} log_state = {.service = "lockstep", .level = LOG_LEVEL_INFO};

static const char *const level_names[] = {"error", "warn", "info", "debug"};

void log_open(const char *service, uint32_t instance, uint64_t epoch, enum log_level level)
{
	snprintf(log_state.service, sizeof log_state.service, "%s", service);
	log_state.instance = instance;
	log_state.epoch = epoch;
	atomic_store(&log_state.level, (int)level);
}

void log_set_level(enum log_level level)
{
	atomic_store(&log_state.level, (int)level);
}

enum log_level log_level(void)
{
	return (enum log_level)atomic_load(&log_state.level);
}

bool log_level_parse(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
		if (strcmp(name, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return true;
		}
	return false;
}

static void print_time(struct buf *line)
{
	struct timespec now;
	struct tm utc;
	char text[32];
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
	buf_print(line, "{\"ts\":\"%s.%03ldZ\"", text, now.tv_nsec / 1000000);
}

void log_line(enum log_level level, uint64_t req, enum svc_code code, const char *format, ...)
{
	if ((int)level > atomic_load(&log_state.level))
		return;
	char msg[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(msg, sizeof msg, format, args);
	va_end(args);

	struct buf line = {0};
	print_time(&line);
	buf_print(&line,
		  ",\"level\":\"%s\",\"svc\":\"%s\",\"instance\":%" PRIu32 ",\"epoch\":%" PRIu64,
		  level_names[level], log_state.service, log_state.instance, log_state.epoch);
	if (req)
		buf_print(&line, ",\"req\":\"%016" PRIx64 "\"", req);
	if (code != SVC_OK)
		buf_print(&line, ",\"code\":\"%s\"", svc_code_info(code)->name);
	buf_print(&line, ",\"msg\":");
	buf_json_string(&line, span_of(msg));
	buf_print(&line, "}\n");
	/* A full disk or a closed pipe must not stop a stream: a log line may be lost. */
	if (!line.failed && write(STDERR_FILENO, line.ptr, line.len) < 0)
		(void)0;
	buf_free(&line);
}
