#include "gateway/otlp.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define FLUSH_S	       1
#define TIMEOUT_S      5
#define BACK_OFF_MAX_S 32
#define QUEUE_BYTES    (4u << 20)
#define REPLY_BYTES    65536u
#define URL_BYTES      256u
#define STATUS_BYTES   12u

struct waiting {
	char *json;
	size_t len;
};

struct gw_otlp {
	struct event_base *base;
	struct event *timer;
	struct bufferevent *connection; /* NULL: none is open */
	struct sockaddr_storage address;
	socklen_t address_len;
	char host[URL_BYTES], path[URL_BYTES];
	char instance[64];
	struct waiting queue[GW_OTLP_QUEUE];
	uint32_t first, n;
	uint32_t n_sending; /* of the queue's first ones */
	size_t bytes;
	int back_off_s; /* 0: the last message was taken */
	struct gw_otlp_counts counts;
};

/* ---- the form ---- */

static void hex_print(struct buf *out, const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_print(out, "%02x", bytes[i]);
}

static void attribute_print(struct buf *out, const struct gw_attribute *attribute)
{
	buf_print(out, "{\"key\":\"%s\",\"value\":{", attribute->key);
	if (attribute->text) {
		buf_span(out, span_of("\"stringValue\":"));
		buf_json_string(out, span_of(attribute->text));
	} else {
		buf_print(out, "\"intValue\":\"%" PRId64 "\"", attribute->number);
	}
	buf_span(out, span_of("}}"));
}

/* Identifiers in hexadecimal, 64-bit numbers as strings: OTLP's own rules for JSON. */
void gw_span_print(struct buf *out, const struct gw_span *span)
{
	buf_span(out, span_of("{\"traceId\":\""));
	hex_print(out, span->trace, sizeof span->trace);
	buf_span(out, span_of("\",\"spanId\":\""));
	hex_print(out, span->id, sizeof span->id);
	if (span->has_parent) {
		buf_span(out, span_of("\",\"parentSpanId\":\""));
		hex_print(out, span->parent, sizeof span->parent);
	}
	buf_print(out,
		  "\",\"name\":\"%s\",\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64
		  "000\",\"endTimeUnixNano\":\"%" PRIu64 "000\",\"attributes\":[",
		  span->name, span->is_server ? 2 : 1, span->start_us, span->end_us);
	for (uint32_t i = 0; i < span->n_attributes; i++) {
		buf_span(out, span_of(i ? "," : ""));
		attribute_print(out, &span->attributes[i]);
	}
	buf_span(out, span_of("],\"status\":{"));
	if (span->error)
		buf_print(out, "\"code\":2,\"message\":\"%s\"", span->error);
	buf_span(out, span_of("}}"));
}

static void message_print(const struct gw_otlp *otlp, struct buf *out)
{
	const struct gw_attribute resource[] = {{"service.name", "lockstep", 0},
						{"service.instance.id", otlp->instance, 0}};
	buf_span(out, span_of("{\"resourceSpans\":[{\"resource\":{\"attributes\":["));
	attribute_print(out, &resource[0]);
	buf_span(out, span_of(","));
	attribute_print(out, &resource[1]);
	buf_span(out, span_of("]},\"scopeSpans\":[{\"scope\":{\"name\":\"lockstep-gateway\"},"
			      "\"spans\":["));
	for (uint32_t i = 0; i < otlp->n_sending; i++) {
		const struct waiting *span = &otlp->queue[(otlp->first + i) % GW_OTLP_QUEUE];
		buf_span(out, span_of(i ? "," : ""));
		buf_span(out, (struct span){span->json, span->len});
	}
	buf_span(out, span_of("]}]}]}"));
}

/* ---- the queue ---- */

static void timer_set(struct gw_otlp *otlp, int seconds)
{
	const struct timeval when = {.tv_sec = seconds};
	event_add(otlp->timer, &when);
}

void gw_otlp_add(struct gw_otlp *otlp, const struct gw_span *span)
{
	struct buf json = {0};
	gw_span_print(&json, span);
	if (json.failed || otlp->n == GW_OTLP_QUEUE || otlp->bytes + json.len > QUEUE_BYTES) {
		otlp->counts.dropped++;
		buf_free(&json);
		return;
	}
	otlp->queue[(otlp->first + otlp->n) % GW_OTLP_QUEUE] = (struct waiting){json.ptr, json.len};
	otlp->n++;
	otlp->bytes += json.len;
	if (!otlp->connection && !event_pending(otlp->timer, EV_TIMEOUT, NULL))
		timer_set(otlp, FLUSH_S);
}

/* The first ones are sent, or given up. */
static void queue_forget(struct gw_otlp *otlp, uint32_t n)
{
	for (; n; n--) {
		struct waiting *span = &otlp->queue[otlp->first];
		otlp->bytes -= span->len;
		free(span->json);
		*span = (struct waiting){0};
		otlp->first = (otlp->first + 1) % GW_OTLP_QUEUE;
		otlp->n--;
	}
}

/* ---- one message ---- */

/* What OTLP's senders may try again with: these, and no answer at all. */
static bool may_repeat(int status)
{
	return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

/* status 0: no answer. */
static void message_end(struct gw_otlp *otlp, int status)
{
	uint32_t n = otlp->n_sending;
	bool taken = status >= 200 && status < 300;
	otlp->n_sending = 0;
	bufferevent_free(otlp->connection);
	otlp->connection = NULL;
	if (taken || !may_repeat(status)) {
		*(taken ? &otlp->counts.sent : &otlp->counts.dropped) += n;
		queue_forget(otlp, n);
	}
	if (taken && otlp->back_off_s)
		log_info("the trace collector takes spans again");
	if (!taken && !otlp->back_off_s)
		log_warn("the trace collector %s took no spans (%s %d); requests go on without it",
			 otlp->host, status ? "status" : "no answer,", status);
	otlp->counts.failures += !taken;
	otlp->back_off_s = taken ? 0 : otlp->back_off_s ? 2 * otlp->back_off_s : 1;
	if (otlp->back_off_s > BACK_OFF_MAX_S)
		otlp->back_off_s = BACK_OFF_MAX_S;
	if (otlp->n)
		timer_set(otlp, taken ? 0 : otlp->back_off_s);
}

/* "HTTP/1.1 200": the three digits, or 0 for what is no answer. */
static int status_read(const char head[STATUS_BYTES])
{
	int status = 0;
	if (memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ')
		return 0;
	for (size_t i = 9; i < STATUS_BYTES; i++) {
		if (head[i] < '0' || head[i] > '9')
			return 0;
		status = 10 * status + (head[i] - '0');
	}
	return status;
}

static void on_read(struct bufferevent *connection, void *context)
{
	struct evbuffer *input = bufferevent_get_input(connection);
	char head[STATUS_BYTES];
	/* The rest of the answer says nothing that would change anything. */
	if (evbuffer_get_length(input) < sizeof head)
		return;
	evbuffer_copyout(input, head, sizeof head);
	message_end(context, status_read(head));
}

static void on_event(struct bufferevent *connection, short what, void *context)
{
	(void)connection;
	if (what & (BEV_EVENT_ERROR | BEV_EVENT_EOF | BEV_EVENT_TIMEOUT))
		message_end(context, 0);
}

static void message_begin(struct gw_otlp *otlp)
{
	const struct timeval limit = {.tv_sec = TIMEOUT_S};
	struct buf body = {0}, head = {0};
	otlp->n_sending = otlp->n < GW_OTLP_BATCH ? otlp->n : GW_OTLP_BATCH;
	message_print(otlp, &body);
	buf_print(&head,
		  "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		  "Content-Length: %zu\r\nConnection: close\r\n\r\n",
		  otlp->path, otlp->host, body.len);
	otlp->connection = bufferevent_socket_new(otlp->base, -1, BEV_OPT_CLOSE_ON_FREE);
	if (!otlp->connection || head.failed || body.failed) {
		log_warn("no memory for a message to the trace collector");
		otlp->counts.dropped += otlp->n_sending;
		queue_forget(otlp, otlp->n_sending);
		otlp->n_sending = 0;
		if (otlp->connection)
			bufferevent_free(otlp->connection);
		otlp->connection = NULL;
	} else {
		bufferevent_setcb(otlp->connection, on_read, NULL, on_event, otlp);
		bufferevent_set_timeouts(otlp->connection, &limit, &limit);
		bufferevent_setwatermark(otlp->connection, EV_READ, 0, REPLY_BYTES);
		bufferevent_write(otlp->connection, head.ptr, head.len);
		bufferevent_write(otlp->connection, body.ptr, body.len);
		bufferevent_enable(otlp->connection, EV_READ | EV_WRITE);
		/* on_event may have been told already. */
		if (bufferevent_socket_connect(otlp->connection, (struct sockaddr *)&otlp->address,
					       (int)otlp->address_len) != 0 &&
		    otlp->connection)
			message_end(otlp, 0);
	}
	buf_free(&head);
	buf_free(&body);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
	struct gw_otlp *otlp = context;
	(void)fd;
	(void)what;
	if (otlp->n && !otlp->connection)
		message_begin(otlp);
}

bool gw_otlp_flush(struct gw_otlp *otlp)
{
	if (otlp->n && !otlp->connection && !otlp->back_off_s)
		message_begin(otlp);
	return otlp->n == 0 || otlp->back_off_s;
}

/* ---- the whole ---- */

/* http://HOST[:PORT][/PATH] into its parts; an IPv6 address stands in brackets. */
static enum svc_code url_read(struct gw_otlp *otlp, const char *url, char name[URL_BYTES],
			      char port[8], struct svc_err *err)
{
	static const char scheme[] = "http://";
	const char *host = url + sizeof scheme - 1;
	if (strncmp(url, scheme, sizeof scheme - 1) != 0 || strlen(url) >= URL_BYTES ||
	    strpbrk(url, " \t\r\n?#@"))
		return svc_fail_param(err, SVC_BAD_CONFIG, "otlp-endpoint",
				      "--otlp-endpoint must be http://HOST[:PORT][/PATH] of at "
				      "most %u characters; for https let a collector on this "
				      "machine pass the spans on",
				      URL_BYTES - 1);
	size_t n_host = strcspn(host, "/");
	snprintf(otlp->host, sizeof otlp->host, "%.*s", (int)n_host, host);
	snprintf(otlp->path, sizeof otlp->path, "%s",
		 host[n_host] && host[n_host + 1] ? host + n_host : "/v1/traces");
	bool bracket = *otlp->host == '[';
	size_t n_name = bracket ? strcspn(otlp->host, "]") : strcspn(otlp->host, ":");
	const char *rest = otlp->host + n_name + (bracket && otlp->host[n_name]);
	snprintf(name, URL_BYTES, "%.*s", (int)(n_name - bracket), otlp->host + bracket);
	snprintf(port, 8, "%s", *rest == ':' ? rest + 1 : "4318");
	long number = strtol(port, NULL, 10);
	if (!*name || (bracket && otlp->host[n_name] != ']') || (*rest && *rest != ':') ||
	    strlen(rest) > 6 || strspn(port, "0123456789") != strlen(port) || number < 1 ||
	    number > 65535)
		return svc_fail_param(err, SVC_BAD_CONFIG, "otlp-endpoint",
				      "--otlp-endpoint: no host, or no port from 1 to 65535, in %s",
				      url);
	return SVC_OK;
}

static enum svc_code address_find(struct gw_otlp *otlp, const char *url, struct svc_err *err)
{
	char name[URL_BYTES], port[8];
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	enum svc_code code = url_read(otlp, url, name, port, err);
	if (code != SVC_OK)
		return code;
	int failed = getaddrinfo(name, port, &hints, &found);
	if (failed)
		return svc_fail_param(err, SVC_BAD_CONFIG, "otlp-endpoint",
				      "--otlp-endpoint: %s has no address: %s", name,
				      gai_strerror(failed));
	otlp->address_len = found->ai_addrlen;
	memcpy(&otlp->address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return SVC_OK;
}

enum svc_code gw_otlp_open(struct event_base *base, const char *url, const char *instance,
			   struct gw_otlp **ret_otlp, struct svc_err *err)
{
	struct gw_otlp *otlp = calloc(1, sizeof *otlp);
	if (!otlp)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	otlp->base = base;
	snprintf(otlp->instance, sizeof otlp->instance, "%s", instance);
	enum svc_code code = address_find(otlp, url, err);
	if (code == SVC_OK) {
		otlp->timer = evtimer_new(base, on_timer, otlp);
		if (!otlp->timer)
			code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	}
	if (code != SVC_OK) {
		gw_otlp_free(otlp);
		return code;
	}
	*ret_otlp = otlp;
	return SVC_OK;
}

struct gw_otlp *gw_otlp_free(struct gw_otlp *otlp)
{
	if (!otlp)
		return NULL;
	if (otlp->connection)
		bufferevent_free(otlp->connection);
	if (otlp->timer)
		event_free(otlp->timer);
	queue_forget(otlp, otlp->n);
	free(otlp);
	return NULL;
}

struct gw_otlp_counts gw_otlp_counts(const struct gw_otlp *otlp)
{
	return otlp ? otlp->counts : (struct gw_otlp_counts){0};
}
