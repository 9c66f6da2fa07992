/* grammar/schema_string.c: strings: lengths, patterns, formats. */
#include <string.h>

#include "grammar/schema_parts.h"

/* Formats as regular expressions. Dates are those that every calendar has, so a month has 28 days
 * at most; a part of what the RFCs allow, and nothing else. */
#define DATE "[0-9]{3}[1-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
#define TIME                                                                                       \
	"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][" \
	"0-9])"
#define LABEL "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])"

static const struct {
	const char *name, *regex;
} formats[] = {
	{"date", "^" DATE "$"},
	{"time", "^" TIME "$"},
	{"date-time", "^" DATE "T" TIME "$"},
	{"duration", "^P([0-9]{1,4}W|[0-9]{1,4}D(T[0-9]{1,4}H)?|[0-9]{1,4}Y([0-9]{1,2}M)?|"
		     "T([0-9]{1,4}H([0-9]{1,4}M)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))$"},
	{"email", "^[A-Za-z0-9_]([A-Za-z0-9_+-]{0,30}[A-Za-z0-9_])?(\\.[A-Za-z0-9_]{1,10})?@" LABEL
		  "(\\." LABEL "){1,2}$"},
	{"hostname", "^" LABEL "(\\." LABEL "){0,3}$"},
	{"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
	{"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
	{"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
};

static const char *format_regex(const char *name)
{
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
		if (strcmp(formats[i].name, name) == 0)
			return formats[i].regex;
	return NULL;
}

static void length_put(const struct facts *facts, struct buf *out)
{
	buf_print(out, "([^\\\"\\\\\\x00-\\x1F] | \"\\\\\" json-escape){%u,", facts->min_length);
	if (facts->max_length != GR_NONE)
		buf_print(out, "%u", facts->max_length);
	buf_print(out, "}");
}

enum svc_code string_put(struct schema *schema, const struct facts *facts, struct buf *out)
{
	bool length = facts->min_length || facts->max_length != GR_NONE;
	const char *regex = facts->pattern;
	struct svc_err why;
	if (length + (facts->pattern != NULL) + (facts->format != NULL) > 1)
		return schema_wrong(schema, facts->path,
				    "of length, pattern and format only one is supported at once");
	if (facts->min_length > GR_REPEAT_MAX ||
	    (facts->max_length != GR_NONE && facts->max_length > GR_REPEAT_MAX))
		return schema_wrong(schema, facts->path,
				    "minLength or maxLength above %u is not supported",
				    GR_REPEAT_MAX);
	if (facts->min_length > facts->max_length) {
		buf_print(out, "[]");
		return SVC_OK;
	}
	if (facts->format) {
		regex = format_regex(facts->format);
		if (!regex)
			return schema_wrong(
				schema, facts->path,
				"this format is not supported; there are date, time, "
				"date-time, duration, email, hostname, ipv4, ipv6, uuid");
	}
	if (!length && !regex) {
		buf_print(out, "json-string");
		return SVC_OK;
	}
	buf_print(out, "\"\\\"\" ");
	if (length)
		length_put(facts, out);
	else if (gr_put_regex(out, span_of(regex), GR_REGEX_JSON, &why) != SVC_OK)
		return schema_wrong(schema, facts->pattern_path, "%s", why.msg);
	buf_print(out, " \"\\\"\"");
	return SVC_OK;
}
