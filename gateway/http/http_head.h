/* gateway/http/http_head.h: the part of http_parse that looks at single lines and at a whole head.
 * Internal to it. Each function returns NULL if all is well. */
#pragma once
#include "base/buf.h"
#include "gateway/http/http_parse.h"

/* What the head says about the body. */
struct gw_http_framing {
	bool chunked;
	uint64_t length;
};

/* A method, a target and a version; the line without its CRLF. The decoded path is appended to
 * path. */
const struct gw_http_fault *gw_http_line_read(struct span line, struct buf *path,
					      struct gw_http_request *request);
/* One header or trailer field; the line without its CRLF. */
const struct gw_http_fault *gw_http_field_read(struct span line, struct gw_http_field *ret_field);
/* All rules that concern several fields. Fills request's flags. */
const struct gw_http_fault *gw_http_head_check(struct gw_http_request *request, uint64_t body_limit,
					       struct gw_http_framing *ret_framing);
/* A chunk's size line without its CRLF: hexadecimal digits, then extensions, which are checked and
 * ignored. */
const struct gw_http_fault *gw_http_chunk_read(struct span line, uint64_t *ret_size);

extern const struct gw_http_fault gw_http_body_too_large;
