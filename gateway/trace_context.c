#include "gateway/trace_context.h"

#include <string.h>

/* 2 + 1 + 32 + 1 + 16 + 1 + 2 characters. */
#define TRACE_AT  3u
#define PARENT_AT 36u
#define FLAGS_AT  53u
#define LENGTH	  55u

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_read(const char *text, unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		bytes[i] = (unsigned char)(16 * high + low);
	}
	return true;
}

static bool is_zero(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

/* Later versions may have more behind the flags; what stands before is the same. */
static bool version_fits(struct span text, unsigned char version)
{
	if (version == 0xFF)
		return false;
	return version == 0 ? text.len == LENGTH : text.len == LENGTH || text.ptr[LENGTH] == '-';
}

bool gw_traceparent_read(struct span text, struct gw_trace_context *ret_context)
{
	struct gw_trace_context context = {.sampled = false};
	unsigned char version, flags;
	if (text.len < LENGTH || text.ptr[TRACE_AT - 1] != '-' || text.ptr[PARENT_AT - 1] != '-' ||
	    text.ptr[FLAGS_AT - 1] != '-')
		return false;
	if (!hex_read(text.ptr, &version, 1) || !version_fits(text, version) ||
	    !hex_read(text.ptr + TRACE_AT, context.trace, sizeof context.trace) ||
	    !hex_read(text.ptr + PARENT_AT, context.parent, sizeof context.parent) ||
	    !hex_read(text.ptr + FLAGS_AT, &flags, 1))
		return false;
	if (is_zero(context.trace, sizeof context.trace) ||
	    is_zero(context.parent, sizeof context.parent))
		return false;
	context.sampled = flags & 1;
	*ret_context = context;
	return true;
}
