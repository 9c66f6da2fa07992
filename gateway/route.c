#include "gateway/route.h"

#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/api_error.h"
#include "gateway/api/dialect.h"
#include "gateway/guard.h"

static bool path_is(struct span path, const char *route)
{
	size_t len = strlen(route);
	if (len > 1 && route[len - 1] == '/')
		return path.len > len && memcmp(path.ptr, route, len) == 0;
	return span_is(path, route);
}

static bool method_is(struct span method, const char *route)
{
	return span_is(method, route) || (span_is(method, "HEAD") && strcmp(route, "GET") == 0);
}

static const struct gw_route *route_find(const struct gw_router *router,
					 const struct gw_http_request *request)
{
	for (size_t i = 0; i < router->n_routes; i++)
		if (path_is(request->path, router->routes[i].path) &&
		    method_is(request->method, router->routes[i].method))
			return &router->routes[i];
	return NULL;
}

const char *gw_route_path(const struct gw_router *router, const struct gw_http_request *request)
{
	const struct gw_route *route = route_find(router, request);
	return route ? route->path : "";
}

/* "GET, HEAD, OPTIONS" for a path; "" if no route has it. */
static void allowed_print(const struct gw_router *router, struct span path, struct buf *out)
{
	for (size_t i = 0; i < router->n_routes; i++) {
		const struct gw_route *route = &router->routes[i];
		if (!path_is(path, route->path) && !span_is(path, "*"))
			continue;
		if (out->len && strstr(out->ptr, route->method))
			continue;
		buf_print(out, "%s%s", route->method,
			  strcmp(route->method, "GET") == 0 ? ", HEAD, " : ", ");
	}
	if (out->len)
		buf_print(out, "OPTIONS");
}

void gw_reply_json(struct gw_http_exchange *exchange, int status, const struct buf *body)
{
	if (body->failed) {
		static const char text[] =
			"{\"error\":{\"message\":\"out of memory\",\"type\":"
			"\"server_error\",\"param\":null,\"code\":\"no_memory\"}}";
		gw_http_reply(exchange, 503, "application/json", span_of(text));
		return;
	}
	gw_http_reply(exchange, status, "application/json", (struct span){body->ptr, body->len});
}

void gw_reply_error(struct gw_http_exchange *exchange, const struct svc_err *err)
{
	gw_reply_error_later(exchange, err, 0);
}

void gw_reply_error_later(struct gw_http_exchange *exchange, const struct svc_err *err,
			  uint64_t wait_us)
{
	char seconds[24];
	struct buf body = {0};
	snprintf(seconds, sizeof seconds, "%" PRIu64, wait_us ? (wait_us + 999999u) / 1000000u : 1);
	gw_error_print_for(gw_http_exchange_request(exchange)->path, &body, err);
	if (svc_code_info(err->code)->retryable)
		gw_http_reply_field(exchange, "Retry-After", seconds);
	gw_reply_json(exchange, gw_error_status(err), &body);
	buf_free(&body);
}

static void refuse(struct gw_http_exchange *exchange, enum svc_code code, const char *message)
{
	struct svc_err err;
	(void)svc_fail(&err, code, __func__, "%s", message);
	gw_reply_error(exchange, &err);
}

/* ---- origins: what browsers ask for pages that come from elsewhere ---- */

static bool origin_is_own(const struct gw_http_request *request, struct span origin)
{
	struct span host = gw_http_field_find(request, "host");
	return host.ptr && origin.len > host.len + 3 &&
	       memcmp(origin.ptr + origin.len - host.len, host.ptr, host.len) == 0 &&
	       memcmp(origin.ptr + origin.len - host.len - 3, "://", 3) == 0;
}

static void origin_allow(struct gw_http_exchange *exchange, struct span origin)
{
	char value[512];
	if (origin.len >= sizeof value)
		return;
	memcpy(value, origin.ptr, origin.len);
	value[origin.len] = 0;
	gw_http_reply_field(exchange, "Access-Control-Allow-Origin", value);
	gw_http_reply_field(exchange, "Access-Control-Expose-Headers", "X-Request-Id");
	gw_http_reply_field(exchange, "Vary", "Origin");
}

/* Clients add fields of their own (OpenAI's some X-Stainless-*): an origin that is listed is
 * trusted with whatever it asks for. */
static void headers_allow(struct gw_http_exchange *exchange)
{
	char value[1024];
	struct span asked = gw_http_field_find(gw_http_exchange_request(exchange),
					       "access-control-request-headers");
	if (!asked.ptr || asked.len >= sizeof value)
		return;
	memcpy(value, asked.ptr, asked.len);
	value[asked.len] = 0;
	gw_http_reply_field(exchange, "Access-Control-Allow-Headers", value);
}

static void options_reply(const struct gw_router *router, struct gw_http_exchange *exchange,
			  bool listed)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	struct buf allowed = {0};
	allowed_print(router, request->path, &allowed);
	if (allowed.len == 0) {
		refuse(exchange, SVC_NOT_FOUND, "no such path");
		buf_free(&allowed);
		return;
	}
	gw_http_reply_field(exchange, "Allow", allowed.ptr);
	if (listed) {
		gw_http_reply_field(exchange, "Access-Control-Allow-Methods", allowed.ptr);
		headers_allow(exchange);
		gw_http_reply_field(exchange, "Access-Control-Max-Age", "600");
	}
	gw_http_reply(exchange, 204, NULL, span_of(""));
	buf_free(&allowed);
}

bool gw_route_refuse(const struct gw_router *router, struct gw_http_exchange *exchange)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	struct span origin = gw_http_field_find(request, "origin");
	struct span host = gw_http_field_find(request, "host");
	if (router->hosts && host.ptr && !gw_host_is_allowed(host, router->hosts)) {
		refuse(exchange, SVC_FORBIDDEN,
		       "this server does not go by that name (Host); option --allowed-hosts lists "
		       "those it answers to");
		return true;
	}
	bool listed = origin.ptr && gw_list_has(router->origins, origin);
	if (listed)
		origin_allow(exchange, origin);
	if (span_is(request->method, "OPTIONS")) {
		options_reply(router, exchange, listed);
		return true;
	}
	if (origin.ptr && !listed && !origin_is_own(request, origin) &&
	    span_is(request->method, "POST")) {
		refuse(exchange, SVC_FORBIDDEN,
		       "a page of another origin may not post here (option --cors-origins lists "
		       "those that may)");
		return true;
	}
	if (route_find(router, request))
		return false;
	struct buf allowed = {0};
	allowed_print(router, request->path, &allowed);
	if (allowed.len) {
		gw_http_reply_field(exchange, "Allow", allowed.ptr);
		refuse(exchange, SVC_METHOD,
		       "this path does not have that method; see the header field Allow");
	} else {
		refuse(exchange, SVC_NOT_FOUND, "no such path; GET / lists what there is");
	}
	buf_free(&allowed);
	return true;
}

bool gw_route_is_open(const struct gw_router *router, struct gw_http_exchange *exchange)
{
	const struct gw_route *route = route_find(router, gw_http_exchange_request(exchange));
	return route && route->open;
}

void gw_route_serve(const struct gw_router *router, void *context,
		    struct gw_http_exchange *exchange)
{
	const struct gw_route *route = route_find(router, gw_http_exchange_request(exchange));
	if (route)
		route->serve(context, exchange);
	else
		refuse(exchange, SVC_NOT_FOUND, "no such path");
}
