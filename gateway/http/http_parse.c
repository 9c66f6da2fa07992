#include "gateway/http/http_parse.h"

#include <stdlib.h>

#include "gateway/http/http_head.h"

#define CHUNK_LINE_BYTES 256u

enum state {
	READ_LINE,
	READ_FIELDS,
	READ_LENGTH, /* body of known length */
	READ_CHUNK_SIZE,
	READ_CHUNK,
	READ_CHUNK_END, /* the CRLF after a chunk */
	READ_TRAILERS,
	READ_DONE,
	READ_FAILED,
};

struct gw_http_parser {
	struct gw_http_limits limits;
	enum state state;
	struct buf head;   /* request line and fields as sent */
	size_t line_start; /* of the current line in head */
	struct buf line;   /* chunk size or trailer */
	size_t trailer_bytes;
	size_t n_lines; /* header fields read so far */
	struct buf path, body;
	uint64_t remaining; /* of the body, or of the chunk */
	bool skipped_empty; /* one empty line before a request is allowed */
	struct gw_http_request request;
	struct gw_http_field *fields;
	const struct gw_http_fault *fault;
};

static const struct gw_http_fault line_too_long = {
	414, "uri_too_long", "the request line is longer than this server's limit"};
static const struct gw_http_fault head_too_large = {
	431, "header_too_large",
	"the header is larger, or has more fields, than this server allows"};
static const struct gw_http_fault bare_line = {400, "bad_line_end",
					       "every line of a request must end with CRLF"};
static const struct gw_http_fault bad_chunk_end = {400, "bad_chunk",
						   "a chunk must be as long as it says"};
static const struct gw_http_fault is_tls = {400, "tls_on_plain_port",
					    "this port speaks plain HTTP: use an http:// URL"};
static const struct gw_http_fault no_memory = {503, "no_memory",
					       "out of memory while reading the request"};

struct gw_http_parser *gw_http_parser_new(const struct gw_http_limits *limits)
{
	struct gw_http_parser *parser = calloc(1, sizeof *parser);
	if (!parser)
		return NULL;
	parser->limits = *limits;
	parser->fields = calloc(limits->n_fields + 1, sizeof *parser->fields);
	return parser->fields ? parser : gw_http_parser_free(parser);
}

struct gw_http_parser *gw_http_parser_free(struct gw_http_parser *parser)
{
	if (!parser)
		return NULL;
	buf_free(&parser->head);
	buf_free(&parser->line);
	buf_free(&parser->path);
	buf_free(&parser->body);
	free(parser->fields);
	free(parser);
	return NULL;
}

void gw_http_parser_drop_body(struct gw_http_parser *parser)
{
	buf_free(&parser->body);
	parser->request.body = (struct span){NULL, 0};
}

void gw_http_parser_next(struct gw_http_parser *parser)
{
	buf_clear(&parser->head);
	buf_clear(&parser->line);
	buf_clear(&parser->path);
	gw_http_parser_drop_body(parser);
	parser->line_start = 0;
	parser->trailer_bytes = 0;
	parser->n_lines = 0;
	parser->remaining = 0;
	parser->skipped_empty = false;
	parser->request = (struct gw_http_request){0};
	parser->state = READ_LINE;
}

static enum gw_http_event fail(struct gw_http_parser *parser, const struct gw_http_fault *fault)
{
	parser->fault = fault;
	parser->state = READ_FAILED;
	return GW_HTTP_FAULT;
}

enum take { TAKE_MORE, TAKE_LINE, TAKE_FULL };

/* Moves bytes up to and including LF to the end of into, whose current line started at start. limit
 * counts the line's bytes with its end, so that what is refused doesn't depend on how the bytes
 * were cut. */
static enum take line_take(struct buf *into, size_t start, size_t limit, struct span bytes,
			   size_t *ret_used)
{
	size_t room = limit - (into->len - start);
	size_t look = bytes.len < room ? bytes.len : room;
	const char *end = look ? memchr(bytes.ptr, '\n', look) : NULL;
	size_t used = end ? (size_t)(end - bytes.ptr) + 1 : look;
	buf_append(into, bytes.ptr, used);
	*ret_used = used;
	if (end)
		return TAKE_LINE;
	return used == room ? TAKE_FULL : TAKE_MORE;
}

/* Takes CRLF off a line; false if it ends with LF alone. A CR elsewhere is found by the rules for
 * the line. */
static bool line_end(struct span *line)
{
	if (line->len < 2 || line->ptr[line->len - 2] != '\r')
		return false;
	line->len -= 2;
	return true;
}

/* A second pass over the complete head, whose buffer doesn't move any more: every line was found
 * good before. */
static const struct gw_http_fault *head_read(struct gw_http_parser *parser)
{
	struct gw_http_request *request = &parser->request;
	const struct gw_http_fault *fault = NULL;
	request->fields = parser->fields;
	request->n_fields = 0;
	buf_clear(&parser->path);
	for (size_t at = 0; !fault;) {
		const char *start = parser->head.ptr + at;
		const char *end = memchr(start, '\n', parser->head.len - at);
		struct span line = {start, end ? (size_t)(end - start) + 1 : 0};
		at += line.len;
		if (!line_end(&line))
			return &bare_line;
		if (line.len == 0)
			break;
		if (start == parser->head.ptr)
			fault = gw_http_line_read(line, &parser->path, request);
		else
			fault = gw_http_field_read(line, &parser->fields[request->n_fields++]);
	}
	request->path = (struct span){parser->path.ptr, parser->path.len};
	return parser->path.failed ? &no_memory : fault;
}

static enum gw_http_event head_end(struct gw_http_parser *parser)
{
	struct gw_http_framing framing = {0};
	const struct gw_http_fault *fault = head_read(parser);
	if (!fault)
		fault = gw_http_head_check(&parser->request, parser->limits.body_bytes, &framing);
	if (fault)
		return fail(parser, fault);
	parser->remaining = framing.length;
	parser->state = framing.chunked ? READ_CHUNK_SIZE : READ_LENGTH;
	return GW_HTTP_HEAD;
}

/* Checks each line as soon as it is there, so that nobody waits for the end of a hopeless head. */
static enum gw_http_event line_end_feed(struct gw_http_parser *parser)
{
	bool first = parser->state == READ_LINE;
	struct span line = {parser->head.ptr + parser->line_start,
			    parser->head.len - parser->line_start};
	if (!line_end(&line))
		return fail(parser, &bare_line);
	if (first && line.len == 0 && !parser->skipped_empty) {
		parser->skipped_empty = true;
		buf_clear(&parser->head);
		return GW_HTTP_MORE;
	}
	if (!first && line.len == 0)
		return head_end(parser);
	/* Nothing is kept of it: the buffer may move until the head is complete. */
	struct gw_http_field field;
	struct gw_http_request request;
	const struct gw_http_fault *fault = first ? gw_http_line_read(line, &parser->path, &request)
						  : gw_http_field_read(line, &field);
	if (!fault && !first && ++parser->n_lines > parser->limits.n_fields)
		fault = &head_too_large;
	if (fault)
		return fail(parser, fault);
	parser->line_start = parser->head.len;
	parser->state = READ_FIELDS;
	return GW_HTTP_MORE;
}

static enum gw_http_event head_feed(struct gw_http_parser *parser, struct span bytes,
				    size_t *ret_used)
{
	bool first = parser->state == READ_LINE;
	if (first && parser->head.len == 0 && bytes.len && bytes.ptr[0] == 0x16)
		return fail(parser, &is_tls);
	size_t limit = parser->limits.head_bytes - parser->line_start;
	if (first && limit > parser->limits.line_bytes)
		limit = parser->limits.line_bytes;
	enum take take = line_take(&parser->head, parser->line_start, limit, bytes, ret_used);
	if (parser->head.failed)
		return fail(parser, &no_memory);
	if (take == TAKE_FULL)
		return fail(parser, first ? &line_too_long : &head_too_large);
	return take == TAKE_MORE ? GW_HTTP_MORE : line_end_feed(parser);
}

static enum gw_http_event body_feed(struct gw_http_parser *parser, struct span bytes,
				    size_t *ret_used)
{
	size_t used = bytes.len < parser->remaining ? bytes.len : (size_t)parser->remaining;
	buf_append(&parser->body, bytes.ptr, used);
	if (parser->body.failed)
		return fail(parser, &no_memory);
	*ret_used = used;
	parser->remaining -= used;
	if (parser->remaining > 0)
		return GW_HTTP_MORE;
	if (parser->state == READ_CHUNK) {
		parser->state = READ_CHUNK_END;
		return GW_HTTP_MORE;
	}
	parser->state = READ_DONE;
	return GW_HTTP_DONE;
}

static enum gw_http_event chunk_size_end(struct gw_http_parser *parser, struct span line)
{
	const struct gw_http_fault *fault = gw_http_chunk_read(line, &parser->remaining);
	if (!fault && parser->remaining > parser->limits.body_bytes - parser->body.len)
		fault = &gw_http_body_too_large;
	if (fault)
		return fail(parser, fault);
	parser->state = parser->remaining ? READ_CHUNK : READ_TRAILERS;
	return GW_HTTP_MORE;
}

/* Trailers are checked like fields and then forgotten: none of them means anything here. */
static enum gw_http_event trailer_end(struct gw_http_parser *parser, struct span line)
{
	struct gw_http_field field;
	if (line.len == 0) {
		parser->state = READ_DONE;
		return GW_HTTP_DONE;
	}
	const struct gw_http_fault *fault = gw_http_field_read(line, &field);
	return fault ? fail(parser, fault) : GW_HTTP_MORE;
}

/* The lines of a chunked body. */
static enum gw_http_event chunk_line_feed(struct gw_http_parser *parser, struct span bytes,
					  size_t *ret_used)
{
	bool trailer = parser->state == READ_TRAILERS;
	size_t limit =
		trailer ? parser->limits.head_bytes - parser->trailer_bytes : CHUNK_LINE_BYTES;
	enum take take = line_take(&parser->line, 0, limit, bytes, ret_used);
	if (parser->line.failed)
		return fail(parser, &no_memory);
	if (take == TAKE_MORE)
		return GW_HTTP_MORE;
	if (take == TAKE_FULL)
		return fail(parser, trailer ? &head_too_large : &bad_chunk_end);
	struct span line = {parser->line.ptr, parser->line.len};
	parser->trailer_bytes += trailer ? line.len : 0;
	parser->line.len = 0; /* the bytes stay where they are until the next append */
	if (!line_end(&line))
		return fail(parser, &bare_line);
	if (trailer)
		return trailer_end(parser, line);
	if (parser->state == READ_CHUNK_SIZE)
		return chunk_size_end(parser, line);
	if (line.len)
		return fail(parser, &bad_chunk_end);
	parser->state = READ_CHUNK_SIZE;
	return GW_HTTP_MORE;
}

static enum gw_http_event step(struct gw_http_parser *parser, struct span bytes, size_t *ret_used)
{
	switch (parser->state) {
	case READ_LINE:
	case READ_FIELDS:
		return head_feed(parser, bytes, ret_used);
	case READ_LENGTH:
	case READ_CHUNK:
		return body_feed(parser, bytes, ret_used);
	case READ_CHUNK_SIZE:
	case READ_CHUNK_END:
	case READ_TRAILERS:
		return chunk_line_feed(parser, bytes, ret_used);
	case READ_DONE:
		return GW_HTTP_DONE;
	case READ_FAILED:
		break;
	}
	return GW_HTTP_FAULT;
}

enum gw_http_event gw_http_parser_feed(struct gw_http_parser *parser, struct span bytes,
				       size_t *ret_used)
{
	enum gw_http_event event;
	enum state before;
	size_t total = 0, used;
	do {
		before = parser->state;
		used = 0;
		event = step(parser, (struct span){bytes.ptr + total, bytes.len - total}, &used);
		total += used;
	} while (event == GW_HTTP_MORE && (used > 0 || parser->state != before));
	*ret_used = total;
	if (event == GW_HTTP_DONE)
		parser->request.body = (struct span){parser->body.ptr, parser->body.len};
	return event;
}

const struct gw_http_request *gw_http_parser_request(const struct gw_http_parser *parser)
{
	return &parser->request;
}

const struct gw_http_fault *gw_http_parser_fault(const struct gw_http_parser *parser)
{
	return parser->fault;
}

bool gw_http_parser_started(const struct gw_http_parser *parser)
{
	return parser->state != READ_LINE || parser->head.len > 0;
}

bool gw_http_parser_has_head(const struct gw_http_parser *parser)
{
	return parser->state != READ_LINE && parser->state != READ_FIELDS;
}

size_t gw_http_parser_held(const struct gw_http_parser *parser)
{
	return parser->body.room;
}
