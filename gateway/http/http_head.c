#include "gateway/http/http_head.h"

#include <string.h>

static const struct gw_http_fault bad_line = {
	400, "bad_request_line",
	"the request line must be: METHOD, space, target, space, HTTP/1.1"};
static const struct gw_http_fault bad_target = {
	400, "bad_request_target",
	"the request target must be a path that starts with '/' or an http URL, in printable ASCII "
	"without '#', with complete %XX escapes"};
static const struct gw_http_fault bad_version = {505, "http_version_not_supported",
						 "this server speaks HTTP/1.1 and HTTP/1.0"};
static const struct gw_http_fault bad_field = {400, "bad_header",
					       "a header field must be one line: a name (letters, "
					       "digits, hyphens), ':' directly after it, "
					       "a value without control characters"};
static const struct gw_http_fault bad_host = {
	400, "bad_host", "a request must have one Host header field with a valid host"};
static const struct gw_http_fault repeated = {
	400, "repeated_header", "a header field that may stand only once was sent more than once"};
static const struct gw_http_fault bad_length = {
	400, "bad_content_length",
	"Content-Length must be one decimal number without sign, below 2^63"};
static const struct gw_http_fault two_framings = {
	400, "bad_framing", "a request has either Content-Length or Transfer-Encoding, not both"};
static const struct gw_http_fault old_coding = {400, "bad_framing",
						"Transfer-Encoding needs HTTP/1.1"};
static const struct gw_http_fault bad_coding = {501, "transfer_coding_not_supported",
						"the only Transfer-Encoding supported is: chunked"};
static const struct gw_http_fault bad_content_coding = {415, "content_encoding_not_supported",
							"send the body without Content-Encoding"};
static const struct gw_http_fault bad_expect = {417, "expectation_failed",
						"the only expectation supported is: 100-continue"};
static const struct gw_http_fault bad_chunk = {
	400, "bad_chunk",
	"a chunk must start with its size in hexadecimal digits and CRLF, and end with CRLF"};
const struct gw_http_fault gw_http_body_too_large = {
	413, "request_too_large",
	"the body is larger than this server's limit (option --max-body-bytes)"};

static bool is_digit(unsigned char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(unsigned char c)
{
	return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_token(struct span text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if (!is_digit(c) && !is_alpha(c) && (!c || !strchr("!#$%&'*+-.^_`|~", c)))
			return false;
	}
	return text.len > 0;
}

/* Printable ASCII without what must never stand in a target. */
static bool is_target_text(struct span text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if (c <= 0x20 || c >= 0x7F || c == '#')
			return false;
	}
	return true;
}

static bool has_control(struct span text)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if ((c < 0x20 && c != '\t') || c == 0x7F)
			return true;
	}
	return false;
}

static int hex_value(char digit)
{
	unsigned char c = (unsigned char)digit;
	if (is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool gw_http_same(struct span text, const char *lower)
{
	if (text.len != strlen(lower))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];
		if ((is_alpha(c) ? c | 0x20 : c) != (unsigned char)lower[i])
			return false;
	}
	return true;
}

static struct span trim(struct span text)
{
	while (text.len && (text.ptr[0] == ' ' || text.ptr[0] == '\t'))
		text = (struct span){text.ptr + 1, text.len - 1};
	while (text.len && (text.ptr[text.len - 1] == ' ' || text.ptr[text.len - 1] == '\t'))
		text.len--;
	return text;
}

/* Returns what is before the first c (all, if there is none) and leaves in text what is after it.
 */
static struct span cut(struct span *text, char c)
{
	const char *at = text->len ? memchr(text->ptr, c, text->len) : NULL;
	struct span before = {text->ptr, at ? (size_t)(at - text->ptr) : text->len};
	size_t used = before.len + (at ? 1 : 0);
	*text = (struct span){text->ptr + used, text->len - used};
	return before;
}

bool gw_http_list_has(struct span list, const char *lower)
{
	while (list.len)
		if (gw_http_same(trim(cut(&list, ',')), lower))
			return true;
	return false;
}

static bool path_decode(struct span raw, struct buf *path)
{
	for (size_t i = 0; i < raw.len; i++) {
		char c = raw.ptr[i];
		if (c == '%') {
			if (raw.len - i < 3)
				return false;
			int high = hex_value(raw.ptr[i + 1]), low = hex_value(raw.ptr[i + 2]);
			if (high < 0 || low < 0 || high + low == 0)
				return false;
			c = (char)(high * 16 + low);
			i += 2;
		}
		buf_append(path, &c, 1);
	}
	return true;
}

/* "http://host/path" is what a proxy is sent; RFC 9112 wants servers to accept it too. */
static struct span target_path(struct span target)
{
	size_t scheme = 0;
	if (target.len > 7 && gw_http_same((struct span){target.ptr, 7}, "http://"))
		scheme = 7;
	else if (target.len > 8 && gw_http_same((struct span){target.ptr, 8}, "https://"))
		scheme = 8;
	if (!scheme)
		return target;
	const char *slash = memchr(target.ptr + scheme, '/', target.len - scheme);
	if (!slash)
		return (struct span){target.ptr, 0};
	return (struct span){slash, target.len - (size_t)(slash - target.ptr)};
}

static const struct gw_http_fault *version_read(struct span version,
						struct gw_http_request *request)
{
	if (version.len != 8 || memcmp(version.ptr, "HTTP/", 5) != 0 || version.ptr[6] != '.' ||
	    !is_digit((unsigned char)version.ptr[5]) || !is_digit((unsigned char)version.ptr[7]))
		return &bad_line;
	if (version.ptr[5] != '1')
		return &bad_version;
	request->minor = version.ptr[7] == '0' ? 0 : 1;
	return NULL;
}

const struct gw_http_fault *gw_http_line_read(struct span line, struct buf *path,
					      struct gw_http_request *request)
{
	request->method = cut(&line, ' ');
	struct span target = cut(&line, ' ');
	if (!is_token(request->method) || target.len == 0)
		return &bad_line;
	const struct gw_http_fault *fault = version_read(line, request);
	if (fault)
		return fault;
	if (!is_target_text(target))
		return &bad_target;
	if (span_is(target, "*") && span_is(request->method, "OPTIONS")) {
		buf_append(path, "*", 1);
		return NULL;
	}
	struct span rest = target_path(target);
	struct span raw = cut(&rest, '?');
	if (raw.len == 0 || raw.ptr[0] != '/' || !path_decode(raw, path))
		return &bad_target;
	request->query = rest;
	return NULL;
}

const struct gw_http_fault *gw_http_field_read(struct span line, struct gw_http_field *ret_field)
{
	struct span value = line;
	struct span name = cut(&value, ':');
	/* A folded line starts with white space, which is no name. */
	if (name.len == line.len || !is_token(name) || has_control(value))
		return &bad_field;
	*ret_field = (struct gw_http_field){name, trim(value)};
	return NULL;
}

struct span gw_http_field_find(const struct gw_http_request *request, const char *name)
{
	for (size_t i = 0; i < request->n_fields; i++)
		if (gw_http_same(request->fields[i].name, name))
			return request->fields[i].value;
	return (struct span){NULL, 0};
}

/* Fields of which a proxy might read the last one and we the first. */
static bool singles_are_single(const struct gw_http_request *request)
{
	static const char *const singles[] = {
		"host",	  "content-length", "transfer-encoding", "content-type",    "authorization",
		"expect", "origin",	    "content-encoding",	 "idempotency-key", "last-event-id",
	};
	for (size_t s = 0; s < sizeof singles / sizeof *singles; s++) {
		size_t seen = 0;
		for (size_t i = 0; i < request->n_fields; i++)
			seen += gw_http_same(request->fields[i].name, singles[s]);
		if (seen > 1)
			return false;
	}
	return true;
}

static bool host_is_valid(struct span host)
{
	for (size_t i = 0; i < host.len; i++) {
		unsigned char c = (unsigned char)host.ptr[i];
		if (!is_alpha(c) && !is_digit(c) && (!c || !strchr("-._~:[]%", c)))
			return false;
	}
	return host.len > 0;
}

static bool length_read(struct span digits, uint64_t *ret_length)
{
	uint64_t length = 0;
	for (size_t i = 0; i < digits.len; i++) {
		unsigned char c = (unsigned char)digits.ptr[i];
		if (!is_digit(c) || length > (uint64_t)(INT64_MAX - 9) / 10)
			return false;
		length = length * 10 + (uint64_t)(c - '0');
	}
	*ret_length = length;
	return digits.len > 0;
}

static const struct gw_http_fault *framing_read(const struct gw_http_request *request,
						uint64_t body_limit,
						struct gw_http_framing *framing)
{
	struct span length = gw_http_field_find(request, "content-length");
	struct span coding = gw_http_field_find(request, "transfer-encoding");
	if (length.ptr && coding.ptr)
		return &two_framings;
	if (coding.ptr) {
		if (request->minor == 0)
			return &old_coding;
		if (!gw_http_same(coding, "chunked"))
			return &bad_coding;
		framing->chunked = true;
	}
	if (length.ptr && !length_read(length, &framing->length))
		return &bad_length;
	return framing->length > body_limit ? &gw_http_body_too_large : NULL;
}

static bool keep_alive_read(const struct gw_http_request *request)
{
	bool keep = request->minor > 0;
	for (size_t i = 0; i < request->n_fields; i++) {
		if (!gw_http_same(request->fields[i].name, "connection"))
			continue;
		if (gw_http_list_has(request->fields[i].value, "close"))
			return false;
		if (gw_http_list_has(request->fields[i].value, "keep-alive"))
			keep = true;
	}
	return keep;
}

const struct gw_http_fault *gw_http_head_check(struct gw_http_request *request, uint64_t body_limit,
					       struct gw_http_framing *ret_framing)
{
	struct gw_http_framing framing = {0};
	if (!singles_are_single(request))
		return &repeated;
	struct span host = gw_http_field_find(request, "host");
	if (host.ptr ? !host_is_valid(host) : request->minor > 0)
		return &bad_host;
	const struct gw_http_fault *fault = framing_read(request, body_limit, &framing);
	if (fault)
		return fault;
	struct span coding = gw_http_field_find(request, "content-encoding");
	if (coding.ptr && !gw_http_same(coding, "identity"))
		return &bad_content_coding;
	struct span expect = gw_http_field_find(request, "expect");
	if (expect.ptr && !gw_http_same(expect, "100-continue"))
		return &bad_expect;
	request->keep_alive = keep_alive_read(request);
	request->has_body = framing.chunked || framing.length > 0;
	request->expects_continue = expect.ptr && request->minor > 0 && request->has_body;
	*ret_framing = framing;
	return NULL;
}

const struct gw_http_fault *gw_http_chunk_read(struct span line, uint64_t *ret_size)
{
	struct span extensions = line;
	struct span digits = cut(&extensions, ';');
	while (digits.len && digits.len < line.len && strchr(" \t", digits.ptr[digits.len - 1]))
		digits.len--;
	/* 15 digits: no overflow, and more than any limit. */
	if (digits.len == 0 || digits.len > 15 || has_control(extensions))
		return &bad_chunk;
	uint64_t size = 0;
	for (size_t i = 0; i < digits.len; i++) {
		int value = hex_value(digits.ptr[i]);
		if (value < 0)
			return &bad_chunk;
		size = size * 16 + (uint64_t)value;
	}
	*ret_size = size;
	return NULL;
}
