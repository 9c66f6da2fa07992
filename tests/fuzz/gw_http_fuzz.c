/* The first byte says how the rest is cut; two readings of the same stream, cut differently, must
 * agree. */
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "gateway/http/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct gw_http_limits limits = {
	.line_bytes = 256, .head_bytes = 1024, .n_fields = 16, .body_bytes = 1024};

static bool feed(struct gw_http_parser *parser, struct span piece, struct buf *out)
{
	for (size_t at = 0, used = 0;; at += used) {
		enum gw_http_event event = gw_http_parser_feed(
			parser, (struct span){piece.ptr + at, piece.len - at}, &used);
		if (event == GW_HTTP_MORE)
			return true;
		if (event == GW_HTTP_FAULT) {
			buf_print(out, "fault %s", gw_http_parser_fault(parser)->code);
			return false;
		}
		if (event == GW_HTTP_HEAD)
			continue;
		const struct gw_http_request *request = gw_http_parser_request(parser);
		buf_span(out, request->method);
		buf_span(out, request->path);
		for (size_t i = 0; i < request->n_fields; i++) {
			buf_span(out, request->fields[i].name);
			buf_span(out, request->fields[i].value);
		}
		if (request->body.len)
			buf_span(out, request->body);
		gw_http_parser_next(parser);
	}
}

static void read_all(struct span stream, size_t piece, struct buf *out)
{
	struct gw_http_parser *parser = gw_http_parser_new(&limits);
	if (!parser)
		abort();
	for (size_t at = 0; at < stream.len; at += piece) {
		size_t left = stream.len - at;
		if (!feed(parser, (struct span){stream.ptr + at, left < piece ? left : piece}, out))
			break;
	}
	gw_http_parser_free(parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = {0}, cut = {0};
	if (size < 2)
		return 0;
	struct span stream = {(const char *)data + 1, size - 1};
	read_all(stream, stream.len, &whole);
	read_all(stream, 1u + data[0] % 16u, &cut);
	if (whole.len != cut.len || (whole.len && memcmp(whole.ptr, cut.ptr, whole.len) != 0))
		abort();
	buf_free(&whole);
	buf_free(&cut);
	return 0;
}
