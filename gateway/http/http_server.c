#include "gateway/http/http_server.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/http/http_conn.h"
#include "gateway/http/http_listen.h"

/* Connections over a limit get a proper answer, up to this many at once; more are closed at once.
 */
#define REFUSED_MAX 64u
/* Less than the second after which a client's kernel tries again. */
#define DOOR_MS		100
#define RETRY_ACCEPT_MS 100

struct gw_http_options gw_http_options_default(void)
{
	return (struct gw_http_options){
		.limits = {.line_bytes = 8192,
			   .head_bytes = 32768,
			   .n_fields = 100,
			   .body_bytes = 16u << 20},
		.bodies_bytes = 256u << 20,
		.max_connections = 1024,
		.max_connections_per_address = 512,
		.head_timeout_ms = 10000,
		.body_timeout_ms = 60000,
		.idle_timeout_ms = 75000,
		.write_timeout_ms = 30000,
		.output_bytes = 131072,
	};
}

/* A walk over at most some hundred connections, once per accept: no table is needed. */
static bool over_limit(const struct gw_http_server *server, const struct gw_http_conn *conn)
{
	unsigned same = 0;
	const struct gw_http_conn *other;
	if (server->counts.connections > server->options.max_connections)
		return true;
	TAILQ_FOREACH(other, &server->conns, link)
	same += IN6_ARE_ADDR_EQUAL(&other->address, &conn->address) ? 1 : 0;
	return same > server->options.max_connections_per_address;
}

struct gw_http_conn *gw_http_server_enter(struct gw_http_server *server, evutil_socket_t fd_take,
					  const struct sockaddr *address, bool tls)
{
	struct gw_http_conn *conn = NULL;
	if (server->counts.connections < server->options.max_connections + REFUSED_MAX)
		conn = gw_http_conn_new(server, fd_take, address, tls);
	else
		close(fd_take);
	if (!conn) {
		server->counts.refused++;
		return NULL;
	}
	conn->refused = over_limit(server, conn);
	server->counts.accepted += !conn->refused;
	server->counts.refused += conn->refused;
	return conn;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *arg)
{
	(void)listener;
	(void)len;
	struct gw_http_server *server = arg;
	(void)gw_http_server_enter(server, fd, address, server->tls != NULL);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	struct gw_http_server *server = arg;
	if (server->listener)
		evconnlistener_enable(server->listener);
}

/* Out of descriptors: the waiting connection stays readable, so accepting at once again would spin.
 */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	struct gw_http_server *server = arg;
	struct timeval delay = {.tv_usec = RETRY_ACCEPT_MS * 1000};
	log_debug("accept failed: %s", evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
	evconnlistener_disable(listener);
	evtimer_add(server->retry, &delay);
}

/* Connections that the kernel has accepted in our name would be reset. */
static void accept_rest(struct gw_http_server *server)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof address;
	int fd, listener = evconnlistener_get_fd(server->listener);
	while ((fd = accept4(listener, (struct sockaddr *)&address, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		on_accept(server->listener, fd, (struct sockaddr *)&address, (int)len, server);
		len = sizeof address;
	}
}

static void listener_free(struct gw_http_server *server)
{
	evtimer_del(server->retry);
	evtimer_del(server->door);
	if (server->listener && server->draining)
		accept_rest(server);
	if (server->listener)
		evconnlistener_free(server->listener);
	server->listener = NULL;
}

static void on_door(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	listener_free(arg);
}

enum svc_code gw_http_server_new(struct event_base *base, const struct gw_http_options *options,
				 const struct gw_http_handler *handler,
				 struct gw_http_server **ret_server, struct svc_err *err)
{
	struct gw_http_server *server = calloc(1, sizeof *server);
	if (!server)
		return svc_fail_errno(err, __func__, "HTTP server");
	TAILQ_INIT(&server->conns);
	server->base = base;
	server->options = *options;
	server->handler = *handler;
	server->retry = evtimer_new(base, on_retry, server);
	server->door = evtimer_new(base, on_door, server);
	if (!server->retry || !server->door) {
		if (server->retry)
			event_free(server->retry);
		free(server);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "HTTP server: out of memory");
	}
	*ret_server = server;
	return SVC_OK;
}

void gw_http_server_set_options(struct gw_http_server *server,
				const struct gw_http_options *options)
{
	server->options = *options;
}

void gw_http_server_set_tls(struct gw_http_server *server, const struct gw_tls *tls)
{
	server->tls = tls;
}

enum svc_code gw_http_server_listen(struct gw_http_server *server, evutil_socket_t fd_take,
				    struct svc_err *err)
{
	server->listener =
		evconnlistener_new(server->base, on_accept, server,
				   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd_take);
	if (!server->listener) {
		close(fd_take);
		return svc_fail(err, SVC_IO, __func__, "cannot watch the listening socket");
	}
	evconnlistener_set_error_cb(server->listener, on_accept_error);
	return SVC_OK;
}

/* Handshakes that have begun are left the time to end: their clients would be reset otherwise. */
static void door_close(struct gw_http_server *server)
{
	const struct timeval delay = {.tv_usec = DOOR_MS * 1000};
	if (!server->listener || evtimer_pending(server->door, NULL))
		return;
	gw_http_listen_end(evconnlistener_get_fd(server->listener));
	if (evtimer_add(server->door, &delay) != 0)
		listener_free(server);
}

/* Its client may be asking at this very moment: better that somebody reads it. */
static void idle_end(struct gw_http_conn *conn)
{
	if (gw_http_conn_pass(conn))
		gw_http_conn_leave(conn);
	else
		gw_http_conn_free(conn);
}

void gw_http_server_drain(struct gw_http_server *server, bool keep_listening)
{
	struct gw_http_conn *conn = TAILQ_FIRST(&server->conns);
	server->draining = true;
	if (!keep_listening)
		door_close(server);
	while (conn) {
		struct gw_http_conn *next = TAILQ_NEXT(conn, link);
		if (conn->state == CONN_READING && conn->served &&
		    !gw_http_parser_started(conn->parser) &&
		    evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0)
			idle_end(conn);
		conn = next;
	}
}

struct gw_http_server *gw_http_server_free(struct gw_http_server *server)
{
	if (!server)
		return NULL;
	listener_free(server);
	while (!TAILQ_EMPTY(&server->conns))
		gw_http_conn_free(TAILQ_FIRST(&server->conns));
	event_free(server->retry);
	event_free(server->door);
	free(server);
	return NULL;
}

struct gw_http_counts gw_http_server_counts(const struct gw_http_server *server)
{
	struct gw_http_counts counts = server->counts;
	counts.listening = server->listener != NULL;
	const struct gw_http_conn *conn;
	TAILQ_FOREACH(conn, &server->conns, link)
	counts.unflushed += evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0;
	return counts;
}

const struct gw_http_request *gw_http_exchange_request(const struct gw_http_exchange *exchange)
{
	return exchange->request;
}

const char *gw_http_exchange_address(const struct gw_http_exchange *exchange)
{
	const char *start = (const char *)exchange - offsetof(struct gw_http_conn, exchange);
	return ((const struct gw_http_conn *)(const void *)start)->address_text;
}

void gw_http_exchange_set_user(struct gw_http_exchange *exchange, void *user)
{
	exchange->user = user;
}

void *gw_http_exchange_user(const struct gw_http_exchange *exchange)
{
	return exchange->user;
}
