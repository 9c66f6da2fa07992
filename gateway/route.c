#include "gateway/route.h"

#include "gateway/api_error.h"

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
	struct buf body = {0};
	struct gw_error error = gw_error_of(err);
	gw_error_print(&body, &error);
	if (svc_code_info(err->code)->retryable)
		gw_http_reply_field(exchange, "Retry-After", "1");
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

static bool origin_is_listed(const char *origins, struct span origin)
{
	struct span list = span_of(origins);
	while (list.len) {
		const char *comma = memchr(list.ptr, ',', list.len);
		struct span entry = {list.ptr, comma ? (size_t)(comma - list.ptr) : list.len};
		if (span_is(entry, "*") || span_equal(entry, origin))
			return true;
		size_t used = entry.len + (comma ? 1 : 0);
		list = (struct span){list.ptr + used, list.len - used};
	}
	return false;
}

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
		gw_http_reply_field(exchange, "Access-Control-Allow-Headers",
				    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, "
				    "X-Request-Id");
		gw_http_reply_field(exchange, "Access-Control-Max-Age", "600");
	}
	gw_http_reply(exchange, 204, NULL, span_of(""));
	buf_free(&allowed);
}

/* A page from elsewhere can send a form or plain text without asking first, so such a request must
 * not do anything; for JSON the browser asks first (OPTIONS), and is told no by silence. */
static bool is_blind_post(const struct gw_http_request *request)
{
	struct span type = gw_http_field_find(request, "content-type");
	static const char json[] = "application/json";
	return span_is(request->method, "POST") &&
	       (type.len < sizeof json - 1 ||
		!gw_http_same((struct span){type.ptr, sizeof json - 1}, json));
}

bool gw_route_refuse(const struct gw_router *router, struct gw_http_exchange *exchange)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	struct span origin = gw_http_field_find(request, "origin");
	bool listed = origin.ptr && origin_is_listed(router->origins, origin);
	if (listed)
		origin_allow(exchange, origin);
	if (span_is(request->method, "OPTIONS")) {
		options_reply(router, exchange, listed);
		return true;
	}
	if (origin.ptr && !listed && !origin_is_own(request, origin) && is_blind_post(request)) {
		refuse(exchange, SVC_FORBIDDEN,
		       "a page of another origin may not post here (option --cors-origins lists "
		       "those "
		       "that may)");
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

void gw_route_serve(const struct gw_router *router, void *context,
		    struct gw_http_exchange *exchange)
{
	const struct gw_route *route = route_find(router, gw_http_exchange_request(exchange));
	if (route)
		route->serve(context, exchange);
	else
		refuse(exchange, SVC_NOT_FOUND, "no such path");
}
