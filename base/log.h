/* base/log.h: JSON lines on stderr: ts, level, svc, instance, epoch, msg, and the fields given.
 * One write(2) per line, so lines of several processes don't mix. Libraries never log above debug;
 * prompt text is never logged at info. Safe from several threads. */
#pragma once
#include <stdint.h>

#include "base/err.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_open(const char *service, uint32_t instance, uint64_t epoch, enum log_level level);
void log_set_level(enum log_level level);
enum log_level log_level(void);
/* false: no such level. */
bool log_level_parse(const char *name, enum log_level *ret_level);

/* req: the request's id for the field "req", or 0. */
void log_line(enum log_level level, uint64_t req, enum svc_code code, const char *format, ...)
	SVC_PRINTF(4, 5);

#define log_error(code, ...) log_line(LOG_LEVEL_ERROR, 0, code, __VA_ARGS__)
#define log_warn(...)	     log_line(LOG_LEVEL_WARN, 0, SVC_OK, __VA_ARGS__)
#define log_info(...)	     log_line(LOG_LEVEL_INFO, 0, SVC_OK, __VA_ARGS__)
#define log_debug(...)	     log_line(LOG_LEVEL_DEBUG, 0, SVC_OK, __VA_ARGS__)
/* An error value as one line. */
#define log_err(err) log_line(LOG_LEVEL_ERROR, 0, (err)->code, "%s", (err)->msg)
