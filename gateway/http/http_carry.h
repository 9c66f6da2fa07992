/* gateway/http/http_carry.h: a connection goes on in another process, which gets its descriptor
 * and, as text, the request that was just read. Only for plain HTTP: TLS has a state of its own. */
#pragma once
#include <netinet/in.h>

#include "gateway/http/http_server.h"

/* A connection on its way. */
struct gw_http_carried {
	int fd; /* of the client */
	struct in6_addr address;
	unsigned hops; /* servers that the request has come through */
};

/* Appends the request so that a parser reads the same again; its body with a length. */
void gw_http_request_print(struct buf *out, const struct gw_http_request *request);

/* What the other server needs. Appends to ahead what the client has sent behind the request. The
 * descriptor stays the connection's. false: not yet, because what was answered before is still on
 * its way to the client; or never, because the client has ended. */
bool gw_http_exchange_carry(struct gw_http_exchange *exchange, struct gw_http_carried *ret_carried,
			    struct buf *ahead);
/* The other server has it: from here on nothing is read or written here. The exchange ends without
 * `gone` or `answered`. */
void gw_http_exchange_leave(struct gw_http_exchange *exchange);
/* Goes on with a connection that another server had; takes its descriptor. ahead begins with a
 * request. false: out of memory, or too many connections; the descriptor is closed. */
bool gw_http_server_adopt(struct gw_http_server *server, const struct gw_http_carried *carried_take,
			  struct span ahead);
/* Servers that this request has come through. */
unsigned gw_http_exchange_hops(const struct gw_http_exchange *exchange);
