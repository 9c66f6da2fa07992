/* gateway/http/http_echo.c: the HTTP layer without what is behind it, for tests. Not installed.
 *
 *   http_echo [--name value ...]   prints "port N" when it listens, runs until its standard input
 * ends
 *
 *   POST /echo          the body comes back
 *   POST /parse         the body as a chat request: {"ok":true} or the error
 *   GET  /flood?N       N bytes in pieces of 1000, as fast as they are taken
 *   GET, POST /wait     never answered
 *   GET  /counts        what the server counts, and how many clients went away */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gateway/api/api_request.h"
#include "gateway/http/http_listen.h"
#include "gateway/http/http_server.h"
#include "gateway/http/http_tls.h"
#include "gateway/route.h"

struct echo {
	struct event_base *base;
	struct gw_http_server *server;
	struct gw_router router;
	uint64_t gone, pauses;
};

struct flood {
	size_t left;
};

static void serve_echo(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	gw_http_reply(exchange, 200, "application/octet-stream",
		      gw_http_exchange_request(exchange)->body);
}

static void serve_parse(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	static const struct gw_api_limits limits = {.model_name = "m",
						    .n_vocab = 1000,
						    .ctx = 4096,
						    .max_choices = 8,
						    .trust_request_template = true};
	struct gw_request *request = NULL;
	struct svc_err err;
	if (gw_request_read(GW_CHAT, gw_http_exchange_request(exchange)->body, &limits, &request,
			    &err) != SVC_OK) {
		gw_reply_error(exchange, &err);
		return;
	}
	gw_request_free(request);
	gw_http_reply(exchange, 200, "application/json", span_of("{\"ok\":true}"));
}

static void flood_go_on(struct echo *echo, struct gw_http_exchange *exchange)
{
	static const char piece[1000] = {[0 ... 999] = 'x'};
	struct flood *flood = gw_http_exchange_user(exchange);
	while (flood->left > 0) {
		if (!gw_http_reply_has_room(exchange)) {
			echo->pauses++;
			return;
		}
		size_t len = flood->left < sizeof piece ? flood->left : sizeof piece;
		gw_http_reply_write(exchange, (struct span){piece, len});
		flood->left -= len;
	}
	free(flood);
	gw_http_reply_end(exchange);
}

static void serve_flood(void *context, struct gw_http_exchange *exchange)
{
	struct flood *flood = malloc(sizeof *flood);
	struct span query = gw_http_exchange_request(exchange)->query;
	if (!flood)
		abort();
	flood->left = query.len ? strtoull(query.ptr, NULL, 10) : 0;
	gw_http_exchange_set_user(exchange, flood);
	gw_http_reply_start(exchange, 200, "text/plain");
	flood_go_on(context, exchange);
}

static void serve_wait(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	(void)exchange;
}

static void serve_counts(void *context, struct gw_http_exchange *exchange)
{
	struct echo *echo = context;
	struct gw_http_counts counts = gw_http_server_counts(echo->server);
	struct buf body = {0};
	buf_print(&body,
		  "{\"connections\":%zu,\"exchanges\":%zu,\"bodies_bytes\":%zu,\"accepted\":%llu,"
		  "\"refused\":%llu,\"requests\":%llu,\"faults\":%llu,\"dropped_slow\":%llu,"
		  "\"gone\":%llu,\"pauses\":%llu,\"pid\":%d}",
		  counts.connections, counts.exchanges, counts.bodies_bytes,
		  (unsigned long long)counts.accepted, (unsigned long long)counts.refused,
		  (unsigned long long)counts.requests, (unsigned long long)counts.faults,
		  (unsigned long long)counts.dropped_slow, (unsigned long long)echo->gone,
		  (unsigned long long)echo->pauses, (int)getpid());
	gw_reply_json(exchange, 200, &body);
	buf_free(&body);
}

static const struct gw_route routes[] = {
	{"POST", "/echo", serve_echo, false},	 {"GET", "/echo", serve_echo, false},
	{"POST", "/parse", serve_parse, false},	 {"GET", "/flood", serve_flood, false},
	{"GET", "/wait", serve_wait, false},	 {"POST", "/wait", serve_wait, false},
	{"GET", "/counts", serve_counts, false}, {"GET", "/below/", serve_counts, false},
};

static void on_head(void *context, struct gw_http_exchange *exchange)
{
	struct echo *echo = context;
	gw_route_refuse(&echo->router, exchange);
}

static void on_request(void *context, struct gw_http_exchange *exchange)
{
	struct echo *echo = context;
	gw_route_serve(&echo->router, echo, exchange);
}

static void on_gone(void *context, struct gw_http_exchange *exchange)
{
	struct echo *echo = context;
	echo->gone++;
	free(gw_http_exchange_user(exchange));
}

static void on_room(void *context, struct gw_http_exchange *exchange)
{
	flood_go_on(context, exchange);
}

static void on_stdin(evutil_socket_t fd, short what, void *arg)
{
	(void)what;
	char line[64];
	struct echo *echo = arg;
	ssize_t n = read((int)fd, line, sizeof line);
	if (n <= 0)
		event_base_loopbreak(echo->base);
	else
		gw_http_server_drain(echo->server, false);
}

struct setting {
	const char *name;
	unsigned *number;
	size_t *size;
	const char **text;
};

static void settings_read(int argc, char **argv, const struct setting *settings, size_t n)
{
	for (int i = 1; i + 1 < argc; i += 2)
		for (size_t s = 0; s < n; s++) {
			if (strcmp(argv[i], settings[s].name) != 0)
				continue;
			if (settings[s].number)
				*settings[s].number = (unsigned)strtoul(argv[i + 1], NULL, 10);
			if (settings[s].size)
				*settings[s].size = strtoull(argv[i + 1], NULL, 10);
			if (settings[s].text)
				*settings[s].text = argv[i + 1];
		}
}

int main(int argc, char **argv)
{
	struct gw_http_options options = gw_http_options_default();
	const char *host = "127.0.0.1", *claims = NULL, *origins = "", *cert = "", *key = "";
	struct gw_tls *tls = NULL;
	unsigned port = 0;
	const struct setting settings[] = {
		{"--host", NULL, NULL, &host},
		{"--port", &port, NULL, NULL},
		{"--claims", NULL, NULL, &claims},
		{"--origins", NULL, NULL, &origins},
		{"--tls-cert", NULL, NULL, &cert},
		{"--tls-key", NULL, NULL, &key},
		{"--max-connections", &options.max_connections, NULL, NULL},
		{"--max-per-address", &options.max_connections_per_address, NULL, NULL},
		{"--head-ms", &options.head_timeout_ms, NULL, NULL},
		{"--body-ms", &options.body_timeout_ms, NULL, NULL},
		{"--idle-ms", &options.idle_timeout_ms, NULL, NULL},
		{"--write-ms", &options.write_timeout_ms, NULL, NULL},
		{"--output-bytes", NULL, &options.output_bytes, NULL},
		{"--body-bytes", NULL, &options.limits.body_bytes, NULL},
		{"--bodies-bytes", NULL, &options.bodies_bytes, NULL},
	};
	settings_read(argc, argv, settings, sizeof settings / sizeof *settings);
	struct gw_http_listener listener = {.fd = -1};
	struct svc_err err;
	struct echo echo = {.base = event_base_new(),
			    .router = {routes, sizeof routes / sizeof *routes, origins, NULL}};
	const struct gw_http_handler handler = {.context = &echo,
						.head = on_head,
						.request = on_request,
						.gone = on_gone,
						.room = on_room};
	if (!echo.base)
		return 1;
	if ((*cert && gw_tls_open(cert, key, &tls, &err) != SVC_OK) ||
	    gw_http_listen(host, (uint16_t)port, claims, &listener, &err) != SVC_OK ||
	    gw_http_server_new(echo.base, &options, &handler, &echo.server, &err) != SVC_OK ||
	    gw_http_server_listen(echo.server, listener.fd, &err) != SVC_OK) {
		fprintf(stderr, "%s\n", err.msg);
		gw_http_server_free(echo.server);
		event_base_free(echo.base);
		return 1;
	}
	gw_http_server_set_tls(echo.server, tls);
	struct event *input =
		event_new(echo.base, STDIN_FILENO, EV_READ | EV_PERSIST, on_stdin, &echo);
	event_add(input, NULL);
	printf("port %u\n", listener.port);
	fflush(stdout);
	event_base_dispatch(echo.base);
	event_free(input);
	echo.server = gw_http_server_free(echo.server);
	/* libevent frees a connection's last parts from its loop. */
	event_base_loop(echo.base, EVLOOP_NONBLOCK);
	gw_tls_free(tls);
	event_base_free(echo.base);
	libevent_global_shutdown();
	return 0;
}
