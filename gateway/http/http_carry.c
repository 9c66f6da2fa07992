#include "gateway/http/http_carry.h"

#include <event2/buffer.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/http/http_conn.h"

/* The path was decoded: what would be read otherwise is encoded again. */
static void path_print(struct buf *out, struct span path)
{
	for (size_t i = 0; i < path.len; i++) {
		unsigned char c = (unsigned char)path.ptr[i];
		if (c <= 0x20 || c >= 0x7F || strchr("%?#", c))
			buf_print(out, "%%%02X", c);
		else
			buf_append(out, &path.ptr[i], 1);
	}
}

/* The body was put together already, and waiting for it is over. */
static bool is_of_framing(struct span name)
{
	static const char *const names[] = {"content-length", "transfer-encoding", "trailer",
					    "expect"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (gw_http_same(name, names[i]))
			return true;
	return false;
}

void gw_http_request_print(struct buf *out, const struct gw_http_request *request)
{
	buf_span(out, request->method);
	buf_append(out, " ", 1);
	path_print(out, request->path);
	if (request->query.len)
		buf_append(out, "?", 1);
	buf_span(out, request->query);
	buf_print(out, " HTTP/1.%u\r\n", request->minor);
	for (size_t i = 0; i < request->n_fields; i++) {
		const struct gw_http_field *field = &request->fields[i];
		if (is_of_framing(field->name))
			continue;
		buf_span(out, field->name);
		buf_append(out, ": ", 2);
		buf_span(out, field->value);
		buf_append(out, "\r\n", 2);
	}
	if (request->has_body)
		buf_print(out, "Content-Length: %zu\r\n", request->body.len);
	buf_append(out, "\r\n", 2);
	buf_span(out, request->body);
}

bool gw_http_exchange_carry(struct gw_http_exchange *exchange, struct gw_http_carried *ret_carried,
			    struct buf *ahead)
{
	struct gw_http_conn *conn = gw_http_conn_of(exchange);
	struct evbuffer *input = bufferevent_get_input(conn->bev);
	size_t len = evbuffer_get_length(input);
	const unsigned char *bytes = len ? evbuffer_pullup(input, -1) : NULL;
	if (conn->server->tls || conn->client_ended ||
	    evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0)
		return false;
	if (bytes)
		buf_append(ahead, bytes, len);
	ret_carried->fd = bufferevent_getfd(conn->bev);
	ret_carried->address = conn->address;
	ret_carried->hops = conn->hops;
	return true;
}

void gw_http_exchange_leave(struct gw_http_exchange *exchange)
{
	struct gw_http_conn *conn = gw_http_conn_of(exchange);
	conn->server->counts.exchanges--;
	gw_http_conn_leave(conn);
}

bool gw_http_server_adopt(struct gw_http_server *server, const struct gw_http_carried *carried_take,
			  struct span ahead)
{
	const struct sockaddr_in6 address = {.sin6_family = AF_INET6,
					     .sin6_addr = carried_take->address};
	struct gw_http_conn *conn = gw_http_server_enter(server, carried_take->fd,
							 (const struct sockaddr *)&address, false);
	if (!conn)
		return false;
	struct evbuffer *input = bufferevent_get_input(conn->bev);
	conn->hops = carried_take->hops + 1;
	/* libevent lets only the socket add to an input. */
	evbuffer_unfreeze(input, 0);
	bool added = evbuffer_add(input, ahead.ptr, ahead.len) == 0;
	evbuffer_freeze(input, 0);
	if (added)
		event_active(conn->again, EV_TIMEOUT, 0);
	else
		gw_http_conn_free(conn);
	return added;
}

unsigned gw_http_exchange_hops(const struct gw_http_exchange *exchange)
{
	const char *start = (const char *)exchange - offsetof(struct gw_http_conn, exchange);
	return ((const struct gw_http_conn *)(const void *)start)->hops;
}
