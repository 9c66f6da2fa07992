/* gateway/route.h: which function serves a path; answers for the paths, methods and origins that
 * none serves. */
#pragma once
#include "gateway/http/http_server.h"

struct gw_route {
	const char *method; /* "GET" (serves HEAD too), "POST" or "DELETE" */
	const char *path;   /* with '/' at the end: everything below it */
	void (*serve)(void *context, struct gw_http_exchange *exchange);
	bool open; /* needs no API key */
};

struct gw_router {
	const struct gw_route *routes;
	size_t n_routes;
	/* Web origins that may use this server, separated by commas, or "*"; "": none, browsers
	 * then use it only from pages of its own. */
	const char *origins;
	/* NULL: any Host will do; else see gw_host_is_allowed. */
	const char *hosts;
};

/* When the head has been read: replies and returns true if nothing serves the request. Otherwise
 * adds the fields that allow an origin its answer. */
bool gw_route_refuse(const struct gw_router *router, struct gw_http_exchange *exchange);
/* Is it served without an API key? */
bool gw_route_is_open(const struct gw_router *router, struct gw_http_exchange *exchange);
/* The path of the route that serves the request, as in the table; "" if there is none. */
const char *gw_route_path(const struct gw_router *router, const struct gw_http_request *request);
/* After gw_route_refuse has said no. */
void gw_route_serve(const struct gw_router *router, void *context,
		    struct gw_http_exchange *exchange);

/* Replies with an error object; the status follows from err's code. */
void gw_reply_error(struct gw_http_exchange *exchange, const struct svc_err *err);
/* The same for what can be asked again in wait_us (0: a second). */
void gw_reply_error_later(struct gw_http_exchange *exchange, const struct svc_err *err,
			  uint64_t wait_us);
void gw_reply_json(struct gw_http_exchange *exchange, int status, const struct buf *body);
