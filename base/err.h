/* base/err.h: the one error type. A function that can fail returns enum svc_code and fills a struct
 * svc_err once, where the cause is known; callers may prefix it. One table (err.c) maps a code to
 * its HTTP status, its process exit status, its name in logs, metrics and API error bodies, and
 * whether a retry can help. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum svc_code {
	SVC_OK = 0,
	SVC_INVALID,	  /* the client's request is wrong: a field's type, range or combination */
	SVC_TOO_LONG,	  /* prompt + answer exceed the context */
	SVC_TOO_LARGE,	  /* a body, header or file over its limit */
	SVC_NOT_FOUND,	  /* unknown path, model or id */
	SVC_METHOD,	  /* the path exists, the method doesn't */
	SVC_UNAUTHORIZED, /* missing or wrong API key */
	SVC_FORBIDDEN,	  /* Host or Origin refused */
	SVC_CONFLICT,	  /* the same Idempotency-Key with another body */
	SVC_GONE,	  /* stream_lost: an id of a run that is no more */
	SVC_BUSY,	  /* queue or pool full: later */
	SVC_RATE,	  /* this key's rate or concurrency limit */
	SVC_DRAINING,	  /* this instance is leaving: another, or later */
	SVC_NO_WORKER,	  /* no living instance of a stage */
	SVC_CANCELLED,	  /* the client went away */
	SVC_STALE,	  /* a handle of an earlier request; fenced */
	SVC_WORKER_CRASHED, /* this request kills whoever works on it */
	SVC_NUMERIC,	    /* NaN or infinite logits */
	SVC_CORRUPT,	    /* a segment, page or file fails its check */
	SVC_UNSUPPORTED,    /* a model or template feature that isn't implemented, by name */
	SVC_BAD_MODEL,	    /* a model file that is malformed */
	SVC_BAD_CONFIG,	    /* an option is wrong */
	SVC_USAGE,	    /* the command line is wrong */
	SVC_NO_MEMORY,	    /* memory, tmpfs or memlock limit */
	SVC_NO_DEVICE,	    /* no usable NPU where one was asked for */
	SVC_DEVICE,	    /* the NPU failed: reset, abort, hang */
	SVC_IO,		    /* the system said no: sys_errno */
	SVC_TIMEOUT,
	SVC_INTERNAL, /* our own bug */
	SVC_CODE_COUNT
};

struct svc_err {
	enum svc_code code;
	int sys_errno;	   /* 0 unless the system refused */
	const char *where; /* static: function or field family */
	char param[64];	   /* API field or option at fault, "" if none */
	char msg[512];	   /* for people: names the field or file, the limit and the remedy */
};

#define SVC_CHECKED	 __attribute__((warn_unused_result))
#define SVC_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* Fills *err (NULL is fine) and returns code, so that: return svc_fail(err, SVC_INVALID, __func__,
 * "..."); */
enum svc_code svc_fail(struct svc_err *err, enum svc_code code, const char *where,
		       const char *format, ...) SVC_PRINTF(4, 5);

/* As svc_fail, naming the field at fault. */
enum svc_code svc_fail_param(struct svc_err *err, enum svc_code code, const char *param,
			     const char *format, ...) SVC_PRINTF(4, 5);

/* As svc_fail_param with SVC_TOO_LONG: n_tokens of what ("prompt", "input"), and n_answer that may
 * follow, don't fit ctx. In the words by which client libraries, which read texts rather than
 * codes, know a full context and shorten their history. */
enum svc_code svc_fail_too_long(struct svc_err *err, const char *param, const char *what,
				size_t n_tokens, size_t n_answer, size_t ctx);

/* As svc_fail with SVC_IO (SVC_NO_MEMORY for ENOMEM and ENOSPC); appends strerror(errno). */
enum svc_code svc_fail_errno(struct svc_err *err, const char *where, const char *format, ...)
	SVC_PRINTF(3, 4);

/* Puts "prefix: " before an existing message. */
void svc_err_prefix(struct svc_err *err, const char *format, ...) SVC_PRINTF(2, 3);

struct svc_code_info {
	const char *name; /* snake_case: log field, metric label and OpenAI error `code` */
	const char *type; /* OpenAI error `type` */
	int http_status;
	int exit_status; /* sysexits: 64 usage, 69 device missing, 75 try again, 78 bad
			    configuration */
	bool retryable;
};
const struct svc_code_info *svc_code_info(enum svc_code code);
