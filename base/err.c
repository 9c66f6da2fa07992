#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REQUEST "invalid_request_error"
#define SERVER	"server_error"

static const struct svc_code_info code_table[SVC_CODE_COUNT] = {
	[SVC_OK] = {"ok", "", 200, 0, false},
	[SVC_INVALID] = {"invalid_value", REQUEST, 400, 64, false},
	[SVC_TOO_LONG] = {"context_length_exceeded", REQUEST, 400, 64, false},
	[SVC_TOO_LARGE] = {"request_too_large", REQUEST, 413, 64, false},
	[SVC_NOT_FOUND] = {"not_found", REQUEST, 404, 64, false},
	[SVC_METHOD] = {"method_not_allowed", REQUEST, 405, 64, false},
	[SVC_UNAUTHORIZED] = {"invalid_api_key", "authentication_error", 401, 64, false},
	[SVC_FORBIDDEN] = {"forbidden", "permission_error", 403, 64, false},
	[SVC_CONFLICT] = {"idempotency_key_reused", REQUEST, 422, 64, false},
	[SVC_GONE] = {"stream_lost", REQUEST, 410, 64, false},
	[SVC_BUSY] = {"queue_full", "rate_limit_error", 429, 75, true},
	[SVC_RATE] = {"rate_limit_exceeded", "rate_limit_error", 429, 75, true},
	[SVC_DRAINING] = {"draining", SERVER, 503, 75, true},
	[SVC_NO_WORKER] = {"no_worker", SERVER, 503, 75, true},
	[SVC_CANCELLED] = {"cancelled", REQUEST, 499, 75, false},
	[SVC_STALE] = {"stale", SERVER, 409, 75, true},
	[SVC_WORKER_CRASHED] = {"worker_crashed", SERVER, 500, 70, false},
	[SVC_NUMERIC] = {"numeric_error", SERVER, 500, 70, false},
	[SVC_CORRUPT] = {"corrupt", SERVER, 500, 70, false},
	[SVC_UNSUPPORTED] = {"unsupported", REQUEST, 400, 78, false},
	[SVC_BAD_MODEL] = {"bad_model", SERVER, 500, 78, false},
	[SVC_BAD_CONFIG] = {"bad_configuration", SERVER, 500, 78, false},
	[SVC_USAGE] = {"usage", REQUEST, 400, 64, false},
	[SVC_NO_MEMORY] = {"no_memory", SERVER, 503, 78, false},
	[SVC_NO_DEVICE] = {"no_device", SERVER, 503, 69, false},
	[SVC_DEVICE] = {"device_error", SERVER, 500, 70, true},
	[SVC_IO] = {"io_error", SERVER, 500, 74, false},
	[SVC_TIMEOUT] = {"timeout", SERVER, 504, 75, true},
	[SVC_INTERNAL] = {"internal_error", SERVER, 500, 70, false},
};

const struct svc_code_info *svc_code_info(enum svc_code code)
{
	/* A code may come out of shared memory: anything unknown is our own bug, not a crash. */
	if ((unsigned)code >= SVC_CODE_COUNT)
		code = SVC_INTERNAL;
	return &code_table[code];
}

static void fill(struct svc_err *err, enum svc_code code, int sys_errno, const char *where,
		 const char *param)
{
	err->code = code;
	err->sys_errno = sys_errno;
	err->where = where;
	snprintf(err->param, sizeof err->param, "%s", param);
}

enum svc_code svc_fail(struct svc_err *err, enum svc_code code, const char *where,
		       const char *format, ...)
{
	if (!err)
		return code;
	fill(err, code, 0, where, "");
	va_list args;
	va_start(args, format);
	vsnprintf(err->msg, sizeof err->msg, format, args);
	va_end(args);
	return code;
}

enum svc_code svc_fail_param(struct svc_err *err, enum svc_code code, const char *param,
			     const char *format, ...)
{
	if (!err)
		return code;
	fill(err, code, 0, "param", param);
	va_list args;
	va_start(args, format);
	vsnprintf(err->msg, sizeof err->msg, format, args);
	va_end(args);
	return code;
}

enum svc_code svc_fail_too_long(struct svc_err *err, const char *param, const char *what,
				size_t n_tokens, size_t n_answer, size_t ctx)
{
	if (n_answer > 1 && n_tokens < ctx)
		return svc_fail_param(err, SVC_TOO_LONG, param,
				      "input length and `max_tokens` exceed context limit: %zu + "
				      "%zu > %zu; this model's maximum context length is %zu "
				      "tokens. Lower max_tokens or shorten the %s",
				      n_tokens, n_answer, ctx, ctx, what);
	return svc_fail_param(err, SVC_TOO_LONG, param,
			      "%s is too long: %zu tokens > %zu maximum%s; this model's maximum "
			      "context length is %zu tokens. Shorten the %s: nothing is cut "
			      "silently",
			      what, n_tokens, n_answer ? ctx - 1 : ctx,
			      n_answer ? " (one is for the answer)" : "", ctx, what);
}

enum svc_code svc_fail_errno(struct svc_err *err, const char *where, const char *format, ...)
{
	int cause = errno;
	enum svc_code code = cause == ENOMEM || cause == ENOSPC ? SVC_NO_MEMORY : SVC_IO;
	if (!err)
		return code;
	fill(err, code, cause, where, "");
	va_list args;
	va_start(args, format);
	vsnprintf(err->msg, sizeof err->msg, format, args);
	va_end(args);
	size_t used = strlen(err->msg);
	snprintf(err->msg + used, sizeof err->msg - used, ": %s", strerror(cause));
	return code;
}

void svc_err_prefix(struct svc_err *err, const char *format, ...)
{
	char old[sizeof err->msg];
	memcpy(old, err->msg, sizeof old);
	old[sizeof old - 1] = 0;
	va_list args;
	va_start(args, format);
	vsnprintf(err->msg, sizeof err->msg, format, args);
	va_end(args);
	size_t used = strlen(err->msg);
	snprintf(err->msg + used, sizeof err->msg - used, ": %.*s", (int)(sizeof err->msg - used),
		 old);
}
