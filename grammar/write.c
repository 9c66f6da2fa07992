#include "grammar/write.h"

#include <stdlib.h>
#include <string.h>

static void char_put(struct buf *out, uint32_t c)
{
	if (c < 0x20 || c == 0x7F)
		buf_print(out, "\\x%02X", c);
	else if (c > 0xFFFF)
		buf_print(out, "\\U%08X", c);
	else if (c > 0x7F)
		buf_print(out, "\\u%04X", c);
	else if (strchr("\"\\[]-^", (int)c))
		buf_print(out, "\\%c", (int)c);
	else
		buf_print(out, "%c", (int)c);
}

void gr_put_literal(struct buf *out, struct span bytes)
{
	buf_print(out, "\"");
	for (size_t i = 0; i < bytes.len; i++) {
		unsigned char c = (unsigned char)bytes.ptr[i];
		if (c >= 0x80)
			buf_append(out, bytes.ptr + i, 1);
		else
			char_put(out, c);
	}
	buf_print(out, "\"");
}

void gr_put_class(struct buf *out, const struct char_set *set)
{
	buf_print(out, "[");
	for (size_t i = 0; i < set->n; i++) {
		struct draft_range range = set->ranges[i];
		/* Half of a surrogate pair is no character, also at a range's end. */
		if (range.low >= 0xD800 && range.low <= 0xDFFF)
			range.low = 0xE000;
		if (range.high >= 0xD800 && range.high <= 0xDFFF)
			range.high = 0xD7FF;
		if (range.low > range.high)
			continue;
		char_put(out, range.low);
		if (range.high > range.low) {
			buf_print(out, "-");
			char_put(out, range.high);
		}
	}
	buf_print(out, "]");
}

/* ---- choices ---- */

static int text_compare(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int order = n ? memcmp(x->ptr, y->ptr, n) : 0;
	return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Characters, not bytes: a literal must be UTF-8. */
static size_t shared(struct span a, struct span b)
{
	size_t n = 0;
	while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
		n++;
	while (n && n < a.len && ((unsigned char)a.ptr[n] & 0xC0) == 0x80)
		n--;
	return n;
}

/* Sorted texts that begin with the same `from` bytes. */
static void choices_put(struct gr_writer *writer, struct buf *out, const struct span *texts,
			size_t n, size_t from);

/* What all of them share, then the rest, in a rule of its own if there is more than one. */
static void branch_put(struct gr_writer *writer, struct buf *out, const struct span *texts,
		       size_t n, size_t from)
{
	size_t end = n > 1 ? shared(texts[0], texts[n - 1]) : texts[0].len;
	gr_put_literal(out, (struct span){texts[0].ptr + from, end - from});
	if (n == 1)
		return;
	struct buf rule = {0};
	uint32_t name = writer->n_names++;
	buf_print(&rule, "c%u ::= ", name);
	choices_put(writer, &rule, texts, n, end);
	buf_print(&rule, "\n");
	buf_print(out, " c%u", name);
	buf_span(&writer->out, (struct span){rule.ptr, rule.len});
	writer->out.failed |= rule.failed;
	buf_free(&rule);
}

static void choices_put(struct gr_writer *writer, struct buf *out, const struct span *texts,
			size_t n, size_t from)
{
	for (size_t i = 0, next = 0; i < n; i = next) {
		if (i)
			buf_print(out, " | ");
		for (next = i + 1; next < n && shared(texts[i], texts[next]) > from;)
			next++;
		branch_put(writer, out, texts + i, next - i, from);
	}
}

void gr_put_choices(struct gr_writer *writer, struct buf *out, struct span *texts, size_t n)
{
	size_t kept = 0;
	if (n == 0) {
		buf_print(out, "[]");
		return;
	}
	qsort(texts, n, sizeof *texts, text_compare);
	for (size_t i = 1; i < n; i++)
		if (!span_equal(texts[kept], texts[i]))
			texts[++kept] = texts[i];
	buf_print(out, "(");
	choices_put(writer, out, texts, kept + 1, 0);
	buf_print(out, ")");
}

/* White space is as people write it, and can't go on for ever. A number has the digits that a
 * double keeps. */
void gr_put_json_rules(struct buf *out)
{
	static const char rules[] =
		"json-ws ::= \"\" | \" \" | \"\\n\" [ \\t]{0,32}\n"
		"json-escape ::= [\"\\\\/bfnrt] | \"u\" ([0-9A-CEFa-cef] [0-9A-Fa-f]{3} | [Dd] "
		"[0-7] [0-9A-Fa-f]{2})\n"
		"json-string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" json-escape)* "
		"\"\\\"\"\n"
		"json-integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14})\n"
		"json-number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14}) (\".\" [0-9]{1,15})? ([eE] "
		"[+\\-]? [0-9]{1,2})?\n"
		"json-value ::= json-object | json-array | json-string | json-number | \"true\" | "
		"\"false\" | \"null\"\n"
		"json-member ::= json-string \":\" json-ws json-value\n"
		"json-object ::= \"{\" json-ws (json-member (\",\" json-ws json-member)* "
		"json-ws)? \"}\"\n"
		"json-array ::= \"[\" json-ws (json-value (\",\" json-ws json-value)* json-ws)? "
		"\"]\"\n";
	buf_span(out, span_of(rules));
}
