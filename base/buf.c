#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(struct buf *buf, size_t more)
{
	if (buf->failed)
		return false;
	if (more > SIZE_MAX / 4 ||
	    (buf->limit && (more > buf->limit || buf->len > buf->limit - more)))
		return buf->failed = true, false;
	if (buf->len + more + 1 <= buf->room)
		return true;
	size_t room = buf->room ? buf->room : 256;
	while (room < buf->len + more + 1)
		room *= 2;
	char *ptr = realloc(buf->ptr, room);
	if (!ptr)
		return buf->failed = true, false;
	buf->ptr = ptr;
	buf->room = room;
	return true;
}

void buf_append(struct buf *buf, const void *bytes, size_t len)
{
	if (!reserve(buf, len))
		return;
	if (len)
		memcpy(buf->ptr + buf->len, bytes, len);
	buf->len += len;
	buf->ptr[buf->len] = 0;
}

void buf_span(struct buf *buf, struct span text)
{
	buf_append(buf, text.ptr, text.len);
}

void buf_print(struct buf *buf, const char *format, ...)
{
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len >= 0 && reserve(buf, (size_t)len)) {
		vsnprintf(buf->ptr + buf->len, (size_t)len + 1, format, again);
		buf->len += (size_t)len;
	}
	va_end(again);
}

/* How many bytes at text begin a well-formed sequence, which has *ret_need; 0: not even the first.
 */
static size_t utf8_prefix(const char *text, size_t len, size_t *ret_need)
{
	const unsigned char *s = (const unsigned char *)text;
	*ret_need = len == 0 || s[0] < 0x80 ? 1 : s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
	if (len == 0 || (s[0] >= 0x80 && s[0] < 0xC2) || s[0] > 0xF4)
		return 0;
	/* The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
	 */
	unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
	unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
	size_t n = 1;
	while (n < *ret_need && n < len && s[n] >= low && s[n] <= high) {
		low = 0x80;
		high = 0xBF;
		n++;
	}
	return n;
}

size_t utf8_length(const char *text, size_t len)
{
	size_t need, n = utf8_prefix(text, len, &need);
	return n == need ? n : 0;
}

static void json_escape(struct buf *buf, unsigned char c)
{
	switch (c) {
	case '"':
		buf_append(buf, "\\\"", 2);
		break;
	case '\\':
		buf_append(buf, "\\\\", 2);
		break;
	case '\n':
		buf_append(buf, "\\n", 2);
		break;
	case '\r':
		buf_append(buf, "\\r", 2);
		break;
	case '\t':
		buf_append(buf, "\\t", 2);
		break;
	default:
		buf_print(buf, "\\u%04x", c);
	}
}

void buf_json_string(struct buf *buf, struct span text)
{
	buf_append(buf, "\"", 1);
	for (size_t i = 0; i < text.len;) {
		unsigned char c = (unsigned char)text.ptr[i];
		size_t need, n = utf8_prefix(text.ptr + i, text.len - i, &need);
		if (n < need) {
			buf_append(buf, "\xEF\xBF\xBD", 3);
			n = n ? n : 1;
		} else if (c < 0x20 || c == '"' || c == '\\') {
			json_escape(buf, c);
		} else {
			buf_append(buf, text.ptr + i, n);
		}
		i += n;
	}
	buf_append(buf, "\"", 1);
}

void buf_clear(struct buf *buf)
{
	buf->len = 0;
	buf->failed = false;
	if (buf->ptr)
		buf->ptr[0] = 0;
}

void buf_free(struct buf *buf)
{
	free(buf->ptr);
	*buf = (struct buf){.limit = buf->limit};
}
