/* gateway/http/http_conn.h: what http_server.c, http_conn.c and http_reply.c share. Internal to
 * them.
 *
 * A connection reads one request, waits until it is answered, then reads the next: so pipelined
 * requests are answered in order and a client can't make us hold more than one. */
#pragma once
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <sys/queue.h>

#include "gateway/http/http_server.h"

#define GW_HTTP_READ_AHEAD_BYTES \
	65536u /* pipelined bytes taken from the kernel while a reply is made */

enum gw_http_conn_state {
	CONN_READING,	/* a request, or waiting for one */
	CONN_ANSWERING, /* the handler has the exchange */
	CONN_FLUSHING,	/* nothing more is read; closes when the output is written */
	CONN_LINGERING, /* the write side is closed; what the client still sends is thrown away for
			 * a moment, because closing with unread input would destroy the reply on
			 * its way */
	CONN_LEFT,	/* another process goes on with it (http_carry.h) */
};

struct gw_http_exchange {
	const struct gw_http_request *request;
	struct buf fields;	 /* of the reply's header */
	struct timeval began;	 /* the event loop's time */
	uint64_t written_before; /* bytes of the connection's earlier replies */
	int status;
	void *user;
	bool started, ended, chunked, no_body;
	bool close_after;
	bool wants_room; /* has_room said no */
	bool broken;	 /* bytes of the reply were lost for want of memory */
};

struct gw_http_conn {
	TAILQ_ENTRY(gw_http_conn) link;
	struct gw_http_server *server;
	struct bufferevent *bev;
	struct gw_http_parser *parser;
	struct event *timer;
	struct event *again; /* made active where no socket event would tell that there is something
				to do */
	struct event *closed; /* tells of the client's end while reading is paused */
	enum gw_http_conn_state state;
	struct gw_http_exchange exchange;
	struct in6_addr address; /* IPv4 as ::ffff:a.b.c.d */
	char address_text[INET6_ADDRSTRLEN];
	size_t held_bytes;	/* of its body, as counted in the server's sum */
	uint64_t written_bytes; /* given to the output so far */
	uint64_t taken_bytes;	/* of them taken by the client when the write timer was set */
	unsigned hops;		/* servers that its first request has come through */
	bool encrypted;		/* what is written is not what goes into the socket */
	bool served;		/* it has had an answer */
	bool write_timer;	/* the timer runs for the output */
	bool client_ended;	/* nothing more will come from it */
	bool refused;		/* over a connection limit: the first request is answered 503 */
};

TAILQ_HEAD(gw_http_conns, gw_http_conn);

struct gw_http_server {
	struct event_base *base;
	struct gw_http_options options;
	struct gw_http_handler handler;
	struct evconnlistener *listener;
	struct event *retry; /* accepting again after running out of descriptors */
	/* Pending: it takes no new connections, but those that are being made. */
	struct event *door;
	struct gw_http_conns conns;
	struct gw_http_counts counts;
	bool draining;
	const struct gw_tls *tls; /* NULL: plain HTTP */
};

/* With TLS or without; NULL if out of memory: fd is closed then. */
struct gw_http_conn *gw_http_conn_new(struct gw_http_server *server, evutil_socket_t fd_take,
				      const struct sockaddr *address, bool tls);
/* A new connection is counted, and refused if it is one too many. NULL: fd is closed. */
struct gw_http_conn *gw_http_server_enter(struct gw_http_server *server, evutil_socket_t fd_take,
					  const struct sockaddr *address, bool tls);
/* Unlinks, closes and frees; calls `gone` if the handler has the exchange. */
void gw_http_conn_free(struct gw_http_conn *conn);
struct gw_http_conn *gw_http_conn_of(struct gw_http_exchange *exchange);
/* The exchange has been answered: on to the next request, or to the end. */
void gw_http_conn_answered(struct gw_http_conn *conn);
/* An idle one of a server that drains: does another process go on with it? Then leave or free it.
 */
bool gw_http_conn_pass(struct gw_http_conn *conn);
/* Nothing is read or written here from now on; it is freed by the event loop. */
void gw_http_conn_leave(struct gw_http_conn *conn);
/* Output was added: watch that the client takes it. */
void gw_http_conn_watch_output(struct gw_http_conn *conn);

/* Writes a whole reply for a fault, and closes afterwards. */
void gw_http_reply_fault(struct gw_http_exchange *exchange, const struct gw_http_fault *fault);
