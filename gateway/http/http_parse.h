/* gateway/http/http_parse.h: one HTTP/1.x request at a time out of a byte stream, however the
 * stream is cut. Pure: no sockets, no clock. Whatever two implementations could read in two ways is
 * refused, because a proxy in front of us may read it the other way: bare LF, folded lines, white
 * space around names, repeated or signed lengths, a length together with a transfer coding. Source:
 * RFC 9110 and RFC 9112. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

struct gw_http_limits {
	size_t line_bytes; /* request line */
	size_t head_bytes; /* request line and all header fields */
	size_t n_fields;   /* header fields */
	size_t body_bytes;
};

struct gw_http_field {
	struct span name, value; /* the value without surrounding white space */
};

/* Borrowed from the parser: valid until the next gw_http_parser_next or _free. */
struct gw_http_request {
	struct span method;
	struct span path;  /* decoded, starts with '/'; "*" for OPTIONS */
	struct span query; /* as sent, without '?' */
	const struct gw_http_field *fields;
	size_t n_fields;
	struct span body;
	unsigned minor; /* 0 or 1 */
	bool keep_alive;
	bool expects_continue;
	bool has_body;
};

/* Why a request was refused before anyone looked at what it asks. Static strings, none of the
 * client's bytes. After it nothing more can be read from this connection. */
struct gw_http_fault {
	int status;
	const char *code;
	const char *message;
};

enum gw_http_event {
	GW_HTTP_MORE,  /* all bytes used, more needed */
	GW_HTTP_HEAD,  /* the head is complete: once per request; go on feeding, even without bytes
			*/
	GW_HTTP_DONE,  /* the request is complete; later bytes belong to the next one */
	GW_HTTP_FAULT, /* see gw_http_parser_fault */
};

struct gw_http_parser;

/* NULL if out of memory. */
struct gw_http_parser *gw_http_parser_new(const struct gw_http_limits *limits);
/* NULL is fine. Returns NULL. */
struct gw_http_parser *gw_http_parser_free(struct gw_http_parser *parser);

/* Reads from bytes until something happened; says in ret_used how many were taken. */
enum gw_http_event gw_http_parser_feed(struct gw_http_parser *parser, struct span bytes,
				       size_t *ret_used);
/* Empty before GW_HTTP_HEAD; the body is there after GW_HTTP_DONE. */
const struct gw_http_request *gw_http_parser_request(const struct gw_http_parser *parser);
const struct gw_http_fault *gw_http_parser_fault(const struct gw_http_parser *parser);
/* Gives up the body's memory; the rest of the request stays. */
void gw_http_parser_drop_body(struct gw_http_parser *parser);
/* Forgets the request, ready for the next. */
void gw_http_parser_next(struct gw_http_parser *parser);

/* Has anything of a request been read? */
bool gw_http_parser_started(const struct gw_http_parser *parser);
/* Has its whole head been read? */
bool gw_http_parser_has_head(const struct gw_http_parser *parser);
/* Bytes of body held now. */
size_t gw_http_parser_held(const struct gw_http_parser *parser);

/* The value of a field (name in lower case), or a span with ptr NULL. */
struct span gw_http_field_find(const struct gw_http_request *request, const char *name);
/* ASCII, without regard to case; lower must be lower case. */
bool gw_http_same(struct span text, const char *lower);
/* Does a comma-separated list have this word? As gw_http_same. */
bool gw_http_list_has(struct span list, const char *lower);
