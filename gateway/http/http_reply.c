#include <event2/buffer.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "gateway/api/api_error.h"
#include "gateway/http/http_conn.h"

/* A chunk: its size, its bytes, its end. */
#define PIECES_MAX 3

static const char *reason_of(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{200, "OK"},
		{204, "No Content"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{417, "Expectation Failed"},
		{422, "Unprocessable Content"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{499, "Client Closed Request"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
	};
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Status";
}

/* Not strftime: its names follow the locale. */
static void date_print(struct buf *out)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t now = time(NULL);
	struct tm tm;
	if (!gmtime_r(&now, &tm))
		return;
	buf_print(out, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n", days + 3 * tm.tm_wday,
		  tm.tm_mday, months + 3 * tm.tm_mon, 1900 + tm.tm_year, tm.tm_hour, tm.tm_min,
		  tm.tm_sec);
}

/* Bytes that the socket took at once. A stream's event would otherwise wait for one more round of
 * the loop and two changes of what is polled. What is wrong with the socket its events tell. */
static size_t send_at_once(struct gw_http_conn *conn, const struct span *pieces, size_t n)
{
	struct iovec parts[PIECES_MAX];
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
	if (conn->encrypted || evbuffer_get_length(bufferevent_get_output(conn->bev)))
		return 0;
	for (size_t i = 0; i < n; i++)
		parts[i] = (struct iovec){(void *)(uintptr_t)pieces[i].ptr, pieces[i].len};
	ssize_t sent = sendmsg(bufferevent_getfd(conn->bev), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? 0 : (size_t)sent;
}

/* At most PIECES_MAX. An output that can't grow loses bytes in the middle of a reply: the
 * connection is of no use any more. */
static void write_pieces(struct gw_http_exchange *exchange, const struct span *pieces, size_t n)
{
	struct gw_http_conn *conn = gw_http_conn_of(exchange);
	size_t sent = send_at_once(conn, pieces, n);
	conn->written_bytes += sent;
	for (size_t i = 0; i < n; i++) {
		size_t skip = sent < pieces[i].len ? sent : pieces[i].len,
		       left = pieces[i].len - skip;
		sent -= skip;
		if (left == 0)
			continue;
		if (bufferevent_write(conn->bev, pieces[i].ptr + skip, left) != 0)
			exchange->broken = true;
		else
			conn->written_bytes += left;
	}
}

static void write_bytes(struct gw_http_exchange *exchange, struct span bytes)
{
	if (bytes.len)
		write_pieces(exchange, &bytes, 1);
}

/* length < 0: not known. */
static void head_write(struct gw_http_exchange *exchange, int status, const char *content_type,
		       long long length)
{
	struct gw_http_conn *conn = gw_http_conn_of(exchange);
	const struct gw_http_request *request = exchange->request;
	bool has_content = status != 204 && status >= 200;
	exchange->started = true;
	exchange->status = status;
	exchange->no_body = !has_content || span_is(request->method, "HEAD");
	exchange->chunked = length < 0 && request->minor > 0 && has_content;
	if (!request->keep_alive || conn->server->draining ||
	    (length < 0 && request->minor == 0 && !exchange->no_body))
		exchange->close_after = true;
	struct buf head = {0};
	buf_print(&head, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
	date_print(&head);
	if (has_content && content_type)
		buf_print(&head, "Content-Type: %s\r\n", content_type);
	if (exchange->chunked)
		buf_print(&head, "Transfer-Encoding: chunked\r\n");
	else if (has_content && length >= 0)
		buf_print(&head, "Content-Length: %lld\r\n", length);
	if (exchange->close_after)
		buf_print(&head, "Connection: close\r\n");
	else if (request->minor == 0)
		buf_print(&head, "Connection: keep-alive\r\n");
	buf_append(&head, exchange->fields.ptr, exchange->fields.len);
	buf_append(&head, "\r\n", 2);
	if (head.failed || exchange->fields.failed)
		exchange->broken = true;
	else
		write_bytes(exchange, (struct span){head.ptr, head.len});
	buf_free(&head);
}

void gw_http_reply_field(struct gw_http_exchange *exchange, const char *name, const char *value)
{
	buf_print(&exchange->fields, "%s: %s\r\n", name, value);
}

void gw_http_reply(struct gw_http_exchange *exchange, int status, const char *content_type,
		   struct span body)
{
	head_write(exchange, status, content_type, (long long)body.len);
	if (!exchange->no_body)
		write_bytes(exchange, body);
	exchange->ended = true;
	gw_http_conn_answered(gw_http_conn_of(exchange));
}

void gw_http_reply_start(struct gw_http_exchange *exchange, int status, const char *content_type)
{
	head_write(exchange, status, content_type, -1);
}

void gw_http_reply_write(struct gw_http_exchange *exchange, struct span bytes)
{
	if (exchange->no_body || bytes.len == 0)
		return;
	if (!exchange->chunked) {
		write_bytes(exchange, bytes);
		return;
	}
	char size[24];
	int len = snprintf(size, sizeof size, "%zx\r\n", bytes.len);
	const struct span pieces[PIECES_MAX] = {{size, (size_t)len}, bytes, {"\r\n", 2}};
	write_pieces(exchange, pieces, PIECES_MAX);
}

void gw_http_reply_end(struct gw_http_exchange *exchange)
{
	if (exchange->chunked && !exchange->no_body)
		write_bytes(exchange, (struct span){"0\r\n\r\n", 5});
	exchange->ended = true;
	gw_http_conn_answered(gw_http_conn_of(exchange));
}

bool gw_http_reply_started(const struct gw_http_exchange *exchange)
{
	return exchange->started;
}

bool gw_http_reply_has_room(struct gw_http_exchange *exchange)
{
	struct gw_http_conn *conn = gw_http_conn_of(exchange);
	size_t pending = evbuffer_get_length(bufferevent_get_output(conn->bev));
	if (pending < conn->server->options.output_bytes)
		return true;
	exchange->wants_room = true;
	gw_http_conn_watch_output(conn);
	return false;
}

void gw_http_reply_fault(struct gw_http_exchange *exchange, const struct gw_http_fault *fault)
{
	struct buf body = {0};
	gw_error_print(&body, &(struct gw_error){
				      .message = fault->message,
				      .type = fault->status < 500 ? "invalid_request_error"
								  : "server_error",
				      .code = fault->code,
			      });
	exchange->close_after = true;
	if (fault->status == 503)
		gw_http_reply_field(exchange, "Retry-After", "1");
	gw_http_reply(exchange, fault->status, "application/json",
		      (struct span){body.ptr, body.len});
	buf_free(&body);
}
