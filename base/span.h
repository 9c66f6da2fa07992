/* base/span.h: a borrowed run of bytes, not terminated. Lives as long as what it points into. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct span {
	const char *ptr;
	size_t len;
};

static inline struct span span_of(const char *text)
{
	return (struct span){text, strlen(text)};
}

static inline bool span_is(struct span s, const char *text)
{
	size_t len = strlen(text);
	return s.len == len && memcmp(s.ptr, text, len) == 0;
}

static inline bool span_equal(struct span a, struct span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* The next word of a line, between blanks and tabs, taken off its front; empty at its end. */
static inline struct span span_word(struct span *rest)
{
	size_t from = 0, to;
	while (from < rest->len && (rest->ptr[from] == ' ' || rest->ptr[from] == '\t'))
		from++;
	to = from;
	while (to < rest->len && rest->ptr[to] != ' ' && rest->ptr[to] != '\t')
		to++;
	struct span word = {rest->ptr + from, to - from};
	*rest = (struct span){rest->ptr + to, rest->len - to};
	return word;
}
