#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "gateway/http/http_parse.h"

#define GET "GET / HTTP/1.1\r\nHost: a\r\n"

static const struct gw_http_limits limits = {
	.line_bytes = 64, .head_bytes = 256, .n_fields = 8, .body_bytes = 64};

/* A stream and what becomes of it: requests as "METHOD path?query keep body|", or the fault's
 * status and code. */
struct sample {
	const char *stream, *result;
};

static const struct sample samples[] = {
	{GET "\r\n", "GET / 1 |"},
	{"\r\n" GET "\r\n", "GET / 1 |"},
	{"GET /a%20b?q=%41 HTTP/1.1\r\nhOsT:\t a:8 \t\r\n\r\n", "GET /a b?q=%41 1 |"},
	{"GET http://a/p HTTP/1.1\r\nHost: a\r\n\r\n", "GET /p 1 |"},
	{"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * 1 |"},
	{"GET / HTTP/1.0\r\n\r\n", "GET / 0 |"},
	{"GET / HTTP/1.0\r\nConnection: x, Keep-Alive\r\n\r\n", "GET / 1 |"},
	{GET "Connection: close\r\n\r\n", "GET / 0 |"},
	{GET "\r\n" GET "Connection: close\r\n\r\n", "GET / 1 |GET / 0 |"},
	{"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET", "POST /p 1 abc|"},
	{"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
	 "3;x=\"y\"\r\nabc\r\n00A \r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n" GET "\r\n",
	 "400 bad_chunk"}, /* a space after the size without an extension */
	{"POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
	 "3;x=\"y\"\r\nabc\r\n00A ;z\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n" GET "\r\n",
	 "POST /p 1 abc0123456789|GET / 1 |"},
	{"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
	 "expects POST / 1 x|"},

	/* line ends and white space */
	{"GET / HTTP/1.1\nHost: a\r\n\r\n", "400 bad_line_end"},
	{GET "\n", "400 bad_line_end"},
	{"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "400 bad_line_end"},
	{"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", "400 bad_header"},
	{GET " folded\r\n\r\n", "400 bad_header"},
	{GET "X : y\r\n\r\n", "400 bad_header"},
	{GET ": y\r\n\r\n", "400 bad_header"},
	{GET "X\r\n\r\n", "400 bad_header"},
	{GET "X: \x01\r\n\r\n", "400 bad_header"},
	{GET "X\xC3: y\r\n\r\n", "400 bad_header"},
	{GET "X: \xC3\xA4\r\n\r\n", "GET / 1 |"},
	{"\r\n\r\n" GET, "400 bad_request_line"},

	/* request line */
	{"GET /\r\n", "400 bad_request_line"},
	{"GET  / HTTP/1.1\r\n", "400 bad_request_line"},
	{"GET / HTTP/1.1 \r\n", "400 bad_request_line"},
	{"GET / http/1.1\r\n", "400 bad_request_line"},
	{"G(T / HTTP/1.1\r\n", "400 bad_request_line"},
	{"GET / HTTP/2.0\r\n", "505 http_version_not_supported"},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 http_version_not_supported"},
	{"GET a HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET * HTTP/1.1\r\n", "400 bad_request_target"},
	{"CONNECT a:80 HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET /%4 HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET /%00 HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET /\xC3\xA4 HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET /#x HTTP/1.1\r\n", "400 bad_request_target"},
	{"GET http://a HTTP/1.1\r\n", "400 bad_request_target"},
	{"\x16\x03\x01", "400 tls_on_plain_port"},

	/* host */
	{"GET / HTTP/1.1\r\n\r\n", "400 bad_host"},
	{GET "Host: b\r\n\r\n", "400 repeated_header"},
	{"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400 bad_host"},
	{"GET / HTTP/1.1\r\nHost:\r\n\r\n", "400 bad_host"},

	/* lengths and codings */
	{GET "Content-Length: -1\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: +5\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: 5,5\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: 0x5\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length:\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: 99999999999999999999\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: 9223372036854775808\r\n\r\n", "400 bad_content_length"},
	{GET "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "400 repeated_header"},
	{GET "Content-Length: 65\r\n\r\n", "413 request_too_large"},
	{GET "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400 bad_framing"},
	{"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400 bad_framing"},
	{GET "Transfer-Encoding: gzip, chunked\r\n\r\n", "501 transfer_coding_not_supported"},
	{GET "Transfer-Encoding: chunked, identity\r\n\r\n", "501 transfer_coding_not_supported"},
	{GET "Transfer-Encoding: xchunked\r\n\r\n", "501 transfer_coding_not_supported"},
	{GET "Transfer-Encoding: \x0B"
	     "chunked\r\n\r\n",
	 "400 bad_header"},
	{GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n", "400 repeated_header"},
	{GET "Content-Encoding: gzip\r\n\r\n", "415 content_encoding_not_supported"},
	{GET "Expect: x\r\n\r\n", "417 expectation_failed"},

	/* chunks */
	{GET "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\n0x1\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\n 1\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\n\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\n1\nx\r\n", "400 bad_line_end"},
	{GET "Transfer-Encoding: chunked\r\n\r\n1;a\nx\r\n", "400 bad_line_end"},
	{GET "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\n1\r\nx\n0\r\n\r\n", "400 bad_line_end"},
	{GET "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", "400 bad_chunk"},
	{GET "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\n", "413 request_too_large"},
	{GET "Transfer-Encoding: chunked\r\n\r\n40\r\n0123456789012345678901234567890123456789"
	     "012345678901234567890123\r\n1\r\n",
	 "413 request_too_large"},
	{GET "Transfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n", "400 bad_header"},

	/* sizes: 64 bytes of line, 256 of head, 8 fields */
	{"GET /012345678901234567890123456789012345678901234567 HTTP/1.1\r\n", ""},
	{"GET /01234567890123456789012345678901234567890123456789 HTTP/1.1\r\n",
	 "414 uri_too_long"},
	{GET "A:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\n\r\n", "GET / 1 |"},
	{GET "A:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\nA:\r\n", "431 header_too_large"},
	{GET "X: 0123456789012345678901234567890123456789012345678901234567890123456789"
	     "01234567890123456789012345678901234567890123456789012345678901234567890123456789"
	     "01234567890123456789012345678901234567890123456789012345678901234567890123456789",
	 "431 header_too_large"},
};

static void request_print(struct buf *out, const struct gw_http_request *request)
{
	buf_print(out, "%.*s %.*s%s%.*s %d %.*s|", (int)request->method.len, request->method.ptr,
		  (int)request->path.len, request->path.ptr, request->query.len ? "?" : "",
		  (int)request->query.len, request->query.ptr ? request->query.ptr : "",
		  request->keep_alive, (int)request->body.len,
		  request->body.ptr ? request->body.ptr : "");
}

/* Feeds an exact-size copy of each piece, so that a sanitizer sees a read too far. Returns false
 * after a fault. */
static bool feed_piece(struct gw_http_parser *parser, struct span piece, struct buf *out)
{
	char *copy = malloc(piece.len + 1);
	assert_non_null(copy);
	memcpy(copy, piece.ptr, piece.len);
	bool alive = true;
	for (size_t at = 0; alive;) {
		size_t used = 0;
		enum gw_http_event event = gw_http_parser_feed(
			parser, (struct span){copy + at, piece.len - at}, &used);
		at += used;
		if (event == GW_HTTP_MORE)
			break;
		if (event == GW_HTTP_HEAD && gw_http_parser_request(parser)->expects_continue)
			buf_print(out, "expects ");
		if (event == GW_HTTP_DONE) {
			request_print(out, gw_http_parser_request(parser));
			gw_http_parser_next(parser);
		}
		if (event == GW_HTTP_FAULT) {
			const struct gw_http_fault *fault = gw_http_parser_fault(parser);
			buf_clear(out);
			buf_print(out, "%d %s", fault->status, fault->code);
			alive = false;
		}
	}
	free(copy);
	return alive;
}

/* Cut at a and b (a <= b). */
static void check_cut(const struct sample *sample, size_t a, size_t b)
{
	struct gw_http_parser *parser = gw_http_parser_new(&limits);
	struct span s = span_of(sample->stream);
	struct buf out = {0};
	assert_non_null(parser);
	if (feed_piece(parser, (struct span){s.ptr, a}, &out) &&
	    feed_piece(parser, (struct span){s.ptr + a, b - a}, &out))
		feed_piece(parser, (struct span){s.ptr + b, s.len - b}, &out);
	if (strcmp(out.ptr ? out.ptr : "", sample->result) != 0)
		print_error("cut at %zu, %zu of: %s\n", a, b, sample->stream);
	assert_string_equal(out.ptr ? out.ptr : "", sample->result);
	buf_free(&out);
	gw_http_parser_free(parser);
}

static void every_cut_gives_the_same(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
		size_t len = strlen(samples[i].stream);
		for (size_t a = 0; a <= len; a++)
			for (size_t b = a; b <= len; b += 1 + len / 40)
				check_cut(&samples[i], a, b);
	}
}

static void byte_by_byte_gives_the_same(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
		struct gw_http_parser *parser = gw_http_parser_new(&limits);
		struct buf out = {0};
		const char *at = samples[i].stream;
		while (*at && feed_piece(parser, (struct span){at, 1}, &out))
			at++;
		assert_string_equal(out.ptr ? out.ptr : "", samples[i].result);
		buf_free(&out);
		gw_http_parser_free(parser);
	}
}

static void nul_is_refused_everywhere(void **state)
{
	(void)state;
	/* The last line is for a NUL that takes the place of a line end. */
	const char stream[] = GET "X: y\r\n\r\n"
				  "\r\n\r\n";
	for (size_t i = 0; i < sizeof stream - 5; i++) {
		char bad[sizeof stream];
		memcpy(bad, stream, sizeof stream);
		bad[i] = 0;
		struct gw_http_parser *parser = gw_http_parser_new(&limits);
		struct buf out = {0};
		assert_false(feed_piece(parser, (struct span){bad, sizeof stream - 1}, &out));
		assert_int_equal(gw_http_parser_fault(parser)->status, 400);
		buf_free(&out);
		gw_http_parser_free(parser);
	}
}

/* A fault in the middle of a head is answered with what is known of the request: nothing that
 * points into a buffer which has grown since. */
static void half_a_head_shows_nothing(void **state)
{
	(void)state;
	struct gw_http_parser *parser =
		gw_http_parser_new(&(struct gw_http_limits){8192, 65536, 100, 64});
	const struct gw_http_request *request = gw_http_parser_request(parser);
	struct buf out = {0};
	assert_true(feed_piece(parser, span_of(GET), &out));
	for (int i = 0; i < 50; i++) {
		assert_true(feed_piece(
			parser, span_of("Name: 0123456789012345678901234567890123456789\r\n"),
			&out));
		assert_true(request->method.len == 0 && request->path.len == 0 &&
			    request->n_fields == 0);
	}
	assert_false(feed_piece(parser, span_of("bad\r\n"), &out));
	assert_true(request->method.len == 0 && request->n_fields == 0);
	buf_free(&out);
	gw_http_parser_free(parser);
}

static void a_million_fields_cost_nothing(void **state)
{
	(void)state;
	struct gw_http_parser *parser =
		gw_http_parser_new(&(struct gw_http_limits){8192, 1u << 30, 100, 64});
	struct buf out = {0};
	bool alive = feed_piece(parser, span_of(GET), &out);
	int fields = 0;
	for (; alive && fields < 1000000; fields++)
		alive = feed_piece(parser, span_of("A: b\r\n"), &out);
	assert_false(alive);
	assert_int_equal(fields, 100);
	assert_string_equal(out.ptr, "431 header_too_large");
	buf_free(&out);
	gw_http_parser_free(parser);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_gives_the_same),
		cmocka_unit_test(byte_by_byte_gives_the_same),
		cmocka_unit_test(nul_is_refused_everywhere),
		cmocka_unit_test(half_a_head_shows_nothing),
		cmocka_unit_test(a_million_fields_cost_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
