#include "gateway/http/http_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/http/http_tls.h"

#define LINGER_MS 2000u
#define SEND_BUFFER_BYTES \
	65536 /* the kernel's part of what a client that doesn't read makes us hold */

static const struct gw_http_fault too_slow = {
	408, "request_timeout", "the request did not arrive completely within the time allowed"};
static const struct gw_http_fault too_many = {
	503, "too_many_connections",
	"too many connections, in all or from this address (options --max-connections, "
	"--max-connections-per-address)"};
static const struct gw_http_fault bodies_full = {
	503, "server_busy", "too many request bodies are being read at this moment"};

struct gw_http_conn *gw_http_conn_of(struct gw_http_exchange *exchange)
{
	return (struct gw_http_conn *)((char *)exchange - offsetof(struct gw_http_conn, exchange));
}

static void timer_set(struct gw_http_conn *conn, unsigned ms)
{
	struct timeval delay = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
	evtimer_add(conn->timer, &delay);
	conn->write_timer = false;
}

static size_t output_pending(const struct gw_http_conn *conn)
{
	return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

static bool unanswered(const struct gw_http_conn *conn)
{
	return conn->state == CONN_ANSWERING && !conn->exchange.ended;
}

static void answered_note(struct gw_http_conn *conn, int status)
{
	const struct gw_http_handler *handler = &conn->server->handler;
	struct timeval now, spent;
	if (!handler->answered || !conn->exchange.request)
		return;
	event_base_gettimeofday_cached(conn->server->base, &now);
	timersub(&now, &conn->exchange.began, &spent);
	const struct gw_http_answered answered = {
		.request = conn->exchange.request,
		.address = conn->address_text,
		.fields = {conn->exchange.fields.ptr, conn->exchange.fields.len},
		.status = status,
		.bytes = conn->written_bytes - conn->exchange.written_before,
		.us = (uint64_t)spent.tv_sec * 1000000u + (uint64_t)spent.tv_usec,
	};
	handler->answered(handler->context, &answered);
}

void gw_http_conn_free(struct gw_http_conn *conn)
{
	struct gw_http_server *server = conn->server;
	if (unanswered(conn)) {
		answered_note(conn, 499);
		server->counts.exchanges--;
		server->handler.gone(server->handler.context, &conn->exchange);
	}
	TAILQ_REMOVE(&server->conns, conn, link);
	server->counts.connections--;
	server->counts.bodies_bytes -= conn->held_bytes;
	event_free(conn->timer);
	event_free(conn->closed);
	event_free(conn->again);
	bufferevent_free(conn->bev);
	conn->parser = gw_http_parser_free(conn->parser);
	buf_free(&conn->exchange.fields);
	free(conn);
}

void gw_http_conn_watch_output(struct gw_http_conn *conn)
{
	const struct gw_http_exchange *exchange = &conn->exchange;
	bool must_drain =
		conn->state == CONN_FLUSHING ||
		(conn->state == CONN_ANSWERING && (exchange->ended || exchange->wants_room));
	if (!must_drain || output_pending(conn) == 0) {
		if (conn->write_timer)
			evtimer_del(conn->timer);
		conn->write_timer = false;
	} else if (!conn->write_timer) {
		timer_set(conn, conn->server->options.write_timeout_ms);
		conn->write_timer = true;
		conn->taken_bytes = conn->written_bytes - output_pending(conn);
	}
}

/* A client that takes its share in time gets as much time again. */
static void write_timer_ended(struct gw_http_conn *conn)
{
	uint64_t taken = conn->written_bytes - output_pending(conn);
	conn->write_timer = false;
	if (taken - conn->taken_bytes >= conn->server->options.output_bytes / 2) {
		gw_http_conn_watch_output(conn);
		return;
	}
	conn->server->counts.dropped_slow++;
	gw_http_conn_free(conn);
}

/* The output is written: say so to the client and wait for its own end, but not for long. */
static void linger(struct gw_http_conn *conn)
{
	gw_tls_shut(conn->bev);
	shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
	conn->state = CONN_LINGERING;
	bufferevent_enable(conn->bev, EV_READ);
	timer_set(conn, LINGER_MS);
}

static void flush_then_close(struct gw_http_conn *conn)
{
	conn->state = CONN_FLUSHING;
	evtimer_del(conn->timer);
	conn->write_timer = false;
	gw_http_conn_watch_output(conn);
	event_active(conn->again, EV_TIMEOUT, 0);
}

static void held_forget(struct gw_http_conn *conn)
{
	conn->server->counts.bodies_bytes -= conn->held_bytes;
	conn->held_bytes = 0;
}

/* Only because the server drains is it to end: the client wasn't told, and may ask again. */
static bool may_go_on(const struct gw_http_conn *conn)
{
	return conn->server->draining && conn->server->handler.pass &&
	       !conn->exchange.close_after && !conn->exchange.broken;
}

bool gw_http_conn_pass(struct gw_http_conn *conn)
{
	const struct gw_http_handler *handler = &conn->server->handler;
	return handler->pass && handler->pass(handler->context, &conn->exchange);
}

void gw_http_conn_leave(struct gw_http_conn *conn)
{
	bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
	event_del(conn->closed);
	evtimer_del(conn->timer);
	conn->state = CONN_LEFT;
	event_active(conn->again, EV_TIMEOUT, 0);
}

static void request_forget(struct gw_http_conn *conn)
{
	gw_http_parser_next(conn->parser);
	held_forget(conn);
}

static void read_next(struct gw_http_conn *conn)
{
	if (conn->server->draining) {
		flush_then_close(conn);
		return;
	}
	request_forget(conn);
	conn->state = CONN_READING;
	conn->hops = 0;
	event_del(conn->closed);
	evtimer_del(conn->timer);
	timer_set(conn, conn->server->options.idle_timeout_ms);
	/* A pipelined request may be here already, and no socket event would tell. */
	event_active(conn->again, EV_TIMEOUT, 0);
}

void gw_http_conn_answered(struct gw_http_conn *conn)
{
	conn->served = true;
	answered_note(conn, conn->exchange.status);
	if (conn->state == CONN_ANSWERING)
		conn->server->counts.exchanges--;
	if (conn->exchange.broken) {
		struct evbuffer *output = bufferevent_get_output(conn->bev);
		evbuffer_drain(output, evbuffer_get_length(output));
		conn->client_ended = true;
	}
	if (conn->exchange.close_after || conn->exchange.broken)
		flush_then_close(conn);
	else if (output_pending(conn) >= conn->server->options.output_bytes)
		gw_http_conn_watch_output(conn); /* the next request waits for the client to read */
	else
		read_next(conn);
}

static void exchange_begin(struct gw_http_conn *conn)
{
	struct buf fields = conn->exchange.fields;
	buf_clear(&fields);
	conn->exchange = (struct gw_http_exchange){
		.request = gw_http_parser_request(conn->parser),
		.fields = fields,
		.written_before = conn->written_bytes,
	};
	event_base_gettimeofday_cached(conn->server->base, &conn->exchange.began);
}

static void refuse(struct gw_http_conn *conn, const struct gw_http_fault *fault)
{
	struct gw_http_server *server = conn->server;
	server->counts.faults++;
	if (server->handler.fault)
		server->handler.fault(server->handler.context, fault);
	exchange_begin(conn);
	gw_http_reply_fault(&conn->exchange, fault);
	request_forget(conn);
}

/* What is answered here is refused: its body, if there is one, is not read. */
static void head_done(struct gw_http_conn *conn)
{
	struct gw_http_server *server = conn->server;
	timer_set(conn, server->options.body_timeout_ms);
	if (conn->refused) {
		refuse(conn, &too_many);
		return;
	}
	exchange_begin(conn);
	conn->exchange.close_after = conn->exchange.request->has_body;
	if (server->handler.head)
		server->handler.head(server->handler.context, &conn->exchange);
	if (conn->exchange.ended)
		return;
	if (conn->exchange.request->expects_continue) {
		static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
		bufferevent_write(conn->bev, go_on, sizeof go_on - 1);
		conn->written_bytes += sizeof go_on - 1;
	}
}

static void request_done(struct gw_http_conn *conn)
{
	struct gw_http_server *server = conn->server;
	evtimer_del(conn->timer);
	conn->state = CONN_ANSWERING;
	conn->exchange.close_after = false;
	server->counts.requests++;
	server->counts.exchanges++;
	server->handler.request(server->handler.context, &conn->exchange);
	/* An answer may take long, and nobody needs the question for it. */
	gw_http_parser_drop_body(conn->parser);
	held_forget(conn);
}

/* Who makes the sum too large is refused, not who comes next. */
static bool body_fits(struct gw_http_conn *conn)
{
	struct gw_http_server *server = conn->server;
	size_t held = gw_http_parser_held(conn->parser);
	bool grew = held > conn->held_bytes;
	server->counts.bodies_bytes += held - conn->held_bytes;
	conn->held_bytes = held;
	return !grew || server->counts.bodies_bytes <= server->options.bodies_bytes;
}

/* Returns what the parser said about the first run of bytes of the input. */
static enum gw_http_event feed(struct gw_http_conn *conn, struct evbuffer *input)
{
	size_t len = evbuffer_get_contiguous_space(input), used = 0;
	const unsigned char *bytes = len ? evbuffer_pullup(input, (ev_ssize_t)len) : NULL;
	bool started = gw_http_parser_started(conn->parser);
	struct span span = bytes ? (struct span){(const char *)bytes, len} : span_of("");
	enum gw_http_event event = gw_http_parser_feed(conn->parser, span, &used);
	evbuffer_drain(input, used);
	if (!started && gw_http_parser_started(conn->parser))
		timer_set(conn, conn->server->options.head_timeout_ms);
	return event;
}

static void read_request(struct gw_http_conn *conn)
{
	struct evbuffer *input = bufferevent_get_input(conn->bev);
	enum gw_http_event event = GW_HTTP_MORE;
	/* After a head without body the parser has more to say without more bytes. */
	while (conn->state == CONN_READING &&
	       (evbuffer_get_length(input) > 0 || event == GW_HTTP_HEAD)) {
		event = feed(conn, input);
		if (event == GW_HTTP_FAULT)
			refuse(conn, gw_http_parser_fault(conn->parser));
		else if (!body_fits(conn))
			refuse(conn, &bodies_full);
		else if (event == GW_HTTP_HEAD)
			head_done(conn);
		else if (event == GW_HTTP_DONE)
			request_done(conn);
		if (event == GW_HTTP_DONE || event == GW_HTTP_FAULT)
			break;
	}
}

static void on_read(struct bufferevent *bev, void *arg)
{
	struct gw_http_conn *conn = arg;
	struct evbuffer *input = bufferevent_get_input(bev);
	switch (conn->state) {
	case CONN_READING:
		read_request(conn);
		break;
	case CONN_ANSWERING:
		if (evbuffer_get_length(input) >= GW_HTTP_READ_AHEAD_BYTES)
			event_add(conn->closed, NULL);
		break;
	case CONN_FLUSHING:
		if (may_go_on(conn))
			break;
		/* fall through */
	case CONN_LINGERING:
		evbuffer_drain(input, evbuffer_get_length(input));
		break;
	case CONN_LEFT:
		break;
	}
}

/* The output has fallen to half of its limit, or to nothing. */
static void on_write(struct bufferevent *bev, void *arg)
{
	(void)bev;
	struct gw_http_conn *conn = arg;
	if (conn->state == CONN_FLUSHING && output_pending(conn) == 0) {
		if (conn->client_ended)
			gw_http_conn_free(conn);
		else if (may_go_on(conn) && gw_http_conn_pass(conn))
			gw_http_conn_leave(conn);
		else
			linger(conn);
	} else if (conn->state == CONN_ANSWERING && conn->exchange.ended) {
		read_next(conn);
	} else if (conn->state == CONN_ANSWERING && conn->exchange.wants_room) {
		conn->exchange.wants_room = false;
		gw_http_conn_watch_output(conn);
		conn->server->handler.room(conn->server->handler.context, &conn->exchange);
	}
}

/* The client has closed its side, or all of the connection: which of both can't be known before
 * something is written. Whoever waits for an answer keeps his side open, so both count as gone. */
static void client_ended(struct gw_http_conn *conn)
{
	conn->client_ended = true;
	if (unanswered(conn) || conn->state == CONN_LINGERING || output_pending(conn) == 0)
		gw_http_conn_free(conn);
	else if (conn->state != CONN_FLUSHING)
		flush_then_close(conn);
}

/* The kernel may be first to see that a client takes nothing (TCP_USER_TIMEOUT). */
static void count_if_slow(struct gw_http_conn *conn, int error)
{
	if (error == ETIMEDOUT && (conn->state == CONN_ANSWERING || conn->state == CONN_FLUSHING))
		conn->server->counts.dropped_slow++;
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	struct gw_http_conn *conn = arg;
	if (what & BEV_EVENT_ERROR) {
		count_if_slow(conn, EVUTIL_SOCKET_ERROR());
		gw_http_conn_free(conn);
	} else if (what & BEV_EVENT_EOF) {
		client_ended(conn);
	} else if (what & BEV_EVENT_CONNECTED && conn->state == CONN_READING &&
		   !gw_http_parser_started(conn->parser)) {
		timer_set(conn, conn->server->options.idle_timeout_ms);
	}
}

static void on_closed(evutil_socket_t fd, short what, void *arg)
{
	int error = 0;
	socklen_t size = sizeof error;
	(void)what;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0)
		count_if_slow(arg, error);
	client_ended(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	struct gw_http_conn *conn = arg;
	switch (conn->state) {
	case CONN_READING:
		if (gw_http_parser_started(conn->parser))
			refuse(conn, &too_slow);
		else
			gw_http_conn_free(conn);
		break;
	case CONN_ANSWERING:
	case CONN_FLUSHING:
		write_timer_ended(conn);
		break;
	case CONN_LINGERING:
	case CONN_LEFT:
		gw_http_conn_free(conn);
		break;
	}
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	struct gw_http_conn *conn = arg;
	if (conn->state == CONN_READING)
		read_request(conn);
	else if (conn->state == CONN_FLUSHING)
		on_write(conn->bev, conn);
	else if (conn->state == CONN_LEFT)
		gw_http_conn_free(conn);
}

static void address_read(struct gw_http_conn *conn, const struct sockaddr *address)
{
	if (address->sa_family == AF_INET6) {
		conn->address = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	} else if (address->sa_family == AF_INET) {
		conn->address.s6_addr[10] = conn->address.s6_addr[11] = 0xFF;
		memcpy(&conn->address.s6_addr[12],
		       &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
	}
	if (IN6_IS_ADDR_V4MAPPED(&conn->address))
		inet_ntop(AF_INET, &conn->address.s6_addr[12], conn->address_text,
			  sizeof conn->address_text);
	else
		inet_ntop(AF_INET6, &conn->address, conn->address_text, sizeof conn->address_text);
}

/* A client that vanished without a word is found in about a minute, also while nothing is sent. */
static void socket_tune(evutil_socket_t fd, unsigned write_timeout_ms)
{
	int on = 1, idle_s = 30, interval_s = 10, probes = 3, buffer = SEND_BUFFER_BYTES;
	unsigned user_ms = 2 * write_timeout_ms;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
}

static void half_made_free(struct gw_http_conn *conn, evutil_socket_t fd)
{
	if (conn && conn->bev)
		bufferevent_free(conn->bev);
	else
		close(fd);
	if (!conn)
		return;
	if (conn->timer)
		event_free(conn->timer);
	if (conn->closed)
		event_free(conn->closed);
	if (conn->again)
		event_free(conn->again);
	conn->parser = gw_http_parser_free(conn->parser);
	free(conn);
}

struct gw_http_conn *gw_http_conn_new(struct gw_http_server *server, evutil_socket_t fd_take,
				      const struct sockaddr *address, bool tls)
{
	struct gw_http_conn *conn = calloc(1, sizeof *conn);
	if (conn) {
		conn->server = server;
		conn->parser = gw_http_parser_new(&server->options.limits);
		conn->timer = evtimer_new(server->base, on_timer, conn);
		conn->again = event_new(server->base, -1, 0, on_again, conn);
		conn->closed = event_new(server->base, fd_take, EV_CLOSED, on_closed, conn);
		conn->bev =
			tls ? gw_tls_accept(server->tls, server->base, fd_take)
			    : bufferevent_socket_new(server->base, fd_take, BEV_OPT_CLOSE_ON_FREE);
	}
	if (!conn || !conn->parser || !conn->timer || !conn->closed || !conn->again || !conn->bev) {
		half_made_free(conn, fd_take);
		return NULL;
	}
	conn->encrypted = tls;
	address_read(conn, address);
	socket_tune(fd_take, server->options.write_timeout_ms);
	bufferevent_setcb(conn->bev, on_read, on_write, on_event, conn);
	bufferevent_setwatermark(conn->bev, EV_READ, 0, GW_HTTP_READ_AHEAD_BYTES);
	bufferevent_setwatermark(conn->bev, EV_WRITE, server->options.output_bytes / 2, 0);
	bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
	TAILQ_INSERT_TAIL(&server->conns, conn, link);
	server->counts.connections++;
	/* TLS' handshake has the time of a head. */
	timer_set(conn, tls ? server->options.head_timeout_ms : server->options.idle_timeout_ms);
	return conn;
}
