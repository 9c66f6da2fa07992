/* gateway/http/http_server.h: HTTP/1.1 server on libevent bufferevents, one thread. Requests of a
 * connection are answered in order, one at a time; everything a client can make us hold is bounded.
 * docs/decisions/http.md says why it isn't evhttp.
 *
 * An exchange is one request and its reply. It lives from the handler's `request` until
 * gw_http_reply_end (or gw_http_reply) returns, or until `gone`; the request's spans live as long,
 * but its body only during `request`. No function here blocks. */
#pragma once
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "gateway/http/http_parse.h"

struct gw_http_options {
	struct gw_http_limits limits;
	size_t bodies_bytes; /* bodies held by all connections together */
	unsigned max_connections;
	unsigned max_connections_per_address;
	unsigned head_timeout_ms;  /* first byte to end of head */
	unsigned body_timeout_ms;  /* end of head to end of body */
	unsigned idle_timeout_ms;  /* between requests */
	unsigned write_timeout_ms; /* for a client to take output_bytes */
	size_t output_bytes; /* held for a client that reads slowly; then its producer pauses */
};
/* What the product uses unless told otherwise. */
struct gw_http_options gw_http_options_default(void);

struct gw_http_server;
struct gw_http_exchange;
struct gw_tls;

/* A request and what became of it; valid during the call. */
struct gw_http_answered {
	const struct gw_http_request *request; /* its body is gone */
	const char *address;
	struct span fields; /* of the reply's header: those of gw_http_reply_field, as text */
	int status;	    /* 499: the client went away before */
	uint64_t bytes;	    /* of the reply, given to the connection so far */
	uint64_t us;	    /* from the end of its head to the reply's end */
};

struct gw_http_handler {
	void *context;
	/* The head has been read, nothing of the body: replying here refuses the body. NULL is
	 * fine. */
	void (*head)(void *context, struct gw_http_exchange *exchange);
	/* The request is complete. To be answered now or later. */
	void (*request)(void *context, struct gw_http_exchange *exchange);
	/* The client went away (also: was dropped for not reading) before the reply's end. */
	void (*gone)(void *context, struct gw_http_exchange *exchange);
	/* There is room again after gw_http_reply_has_room said no. */
	void (*room)(void *context, struct gw_http_exchange *exchange);
	/* An idle connection is about to be closed, because this server drains. true: another
	 * process goes on with it (http_carry.h). NULL is fine. */
	bool (*pass)(void *context, struct gw_http_exchange *exchange);
	/* A framing fault is about to be answered (metrics, log). NULL is fine. */
	void (*fault)(void *context, const struct gw_http_fault *fault);
	/* An exchange has come to its end. NULL is fine. */
	void (*answered)(void *context, const struct gw_http_answered *answered);
};

/* Everything is copied, except what context points to. */
enum svc_code gw_http_server_new(struct event_base *base, const struct gw_http_options *options,
				 const struct gw_http_handler *handler,
				 struct gw_http_server **ret_server,
				 struct svc_err *err) SVC_CHECKED;
/* Other limits and times: for what begins from now on. */
void gw_http_server_set_options(struct gw_http_server *server,
				const struct gw_http_options *options);
/* Connections from now on speak TLS. Before the first one; tls must outlive the server. */
void gw_http_server_set_tls(struct gw_http_server *server, const struct gw_tls *tls);
/* Listens on fd, which it takes (see http_listen.h). */
enum svc_code gw_http_server_listen(struct gw_http_server *server, evutil_socket_t fd_take,
				    struct svc_err *err) SVC_CHECKED;
/* Closes idle connections and lets every other one end after its reply; one that has just been made
 * may still ask. Stops listening (in a moment, counts.listening: a connection that is being made
 * is taken still), or goes on so that new clients can be told to come back later; may be called
 * again. */
void gw_http_server_drain(struct gw_http_server *server, bool keep_listening);
/* Closes everything; `gone` is called for what is unanswered. NULL is fine. Returns NULL. */
struct gw_http_server *gw_http_server_free(struct gw_http_server *server);

struct gw_http_counts {
	size_t connections, exchanges, bodies_bytes;
	size_t unflushed; /* connections whose client has not taken all of a reply */
	bool listening;
	uint64_t accepted, refused, requests, faults, dropped_slow;
};
struct gw_http_counts gw_http_server_counts(const struct gw_http_server *server);

/* ---- one exchange ---- */

const struct gw_http_request *gw_http_exchange_request(const struct gw_http_exchange *exchange);
/* The client's numeric address. */
const char *gw_http_exchange_address(const struct gw_http_exchange *exchange);
/* A pointer of the handler's own. */
void gw_http_exchange_set_user(struct gw_http_exchange *exchange, void *user);
void *gw_http_exchange_user(const struct gw_http_exchange *exchange);

/* Adds a field to the reply's header; before the reply starts. The caller vouches that value has no
 * control characters. */
void gw_http_reply_field(struct gw_http_exchange *exchange, const char *name, const char *value);
/* The whole reply at once. */
void gw_http_reply(struct gw_http_exchange *exchange, int status, const char *content_type,
		   struct span body);
/* A reply in pieces: chunked, or closed at its end for an HTTP/1.0 client. */
void gw_http_reply_start(struct gw_http_exchange *exchange, int status, const char *content_type);
void gw_http_reply_write(struct gw_http_exchange *exchange, struct span bytes);
void gw_http_reply_end(struct gw_http_exchange *exchange);
bool gw_http_reply_started(const struct gw_http_exchange *exchange);
/* May more be written now? If not, `room` tells when; a producer that goes on all the same is not
 * stopped. */
bool gw_http_reply_has_room(struct gw_http_exchange *exchange);
