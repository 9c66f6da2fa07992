/* cli/client.h: requests to a gateway, streamed (libcurl). */
#pragma once
#include <jansson.h>
#include <signal.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"

struct client_call {
	const char *url;     /* http://127.0.0.1:8080 */
	const char *path;    /* /v1/chat/completions */
	const char *api_key; /* "" if none */
	const char *body;    /* JSON; NULL: GET */
	/* Each server-sent event's JSON; return false to stop. NULL: the answer is collected. */
	bool (*on_event)(void *context, const json_t *event);
	void *context;
	/* Not 0 (set by a signal's handler): the rest isn't wanted any more. NULL: all is. */
	const volatile sig_atomic_t *stop;
	struct buf answer; /* what came that was no event stream; caller frees */
	long http_status;  /* out */
};

/* SVC_IO if the gateway can't be reached (names the address and the remedy); the server's own
 * message and code for an error answer. */
SVC_CHECKED enum svc_code client_call(struct client_call *call, struct svc_err *err);
