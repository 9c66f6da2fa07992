#include "grammar/chars.h"

#include <stdlib.h>
#include <string.h>

bool char_next(struct span text, size_t *at, uint32_t *ret_char)
{
	if (*at >= text.len)
		return false;
	const unsigned char *bytes = (const unsigned char *)text.ptr + *at;
	size_t n = utf8_length(text.ptr + *at, text.len - *at);
	if (n == 0)
		return false;
	static const uint8_t masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
	uint32_t c = bytes[0] & masks[n];
	for (size_t i = 1; i < n; i++)
		c = c << 6 | (bytes[i] & 0x3Fu);
	*at += n;
	*ret_char = c;
	return true;
}

void char_append(struct buf *out, uint32_t c)
{
	char bytes[4];
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	static const uint8_t heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
	for (size_t i = n; i > 1; i--, c >>= 6)
		bytes[i - 1] = (char)(0x80 | (c & 0x3F));
	bytes[0] = (char)(heads[n] | c);
	buf_append(out, bytes, n);
}

bool char_hex(struct span text, size_t *at, size_t n, uint32_t *ret_value)
{
	uint32_t value = 0;
	if (text.len - *at < n)
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = text.ptr[*at + i];
		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t)(c - '0');
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			value = value << 4 | (uint32_t)((c | 32) - 'a' + 10);
		else
			return false;
	}
	*at += n;
	*ret_value = value;
	return true;
}

void char_set_add(struct char_set *set, uint32_t low, uint32_t high)
{
	if (set->n == set->room) {
		size_t room = set->room ? 2 * set->room : 16;
		struct draft_range *ranges = realloc(set->ranges, room * sizeof *ranges);
		if (!ranges) {
			set->failed = true;
			return;
		}
		set->ranges = ranges;
		set->room = room;
	}
	set->ranges[set->n++] = (struct draft_range){low, high};
}

static int range_compare(const void *a, const void *b)
{
	uint32_t x = ((const struct draft_range *)a)->low, y = ((const struct draft_range *)b)->low;
	return (x > y) - (x < y);
}

void char_set_tidy(struct char_set *set)
{
	size_t kept = 0;
	if (set->n == 0)
		return;
	qsort(set->ranges, set->n, sizeof *set->ranges, range_compare);
	for (size_t i = 1; i < set->n; i++) {
		struct draft_range *last = &set->ranges[kept], next = set->ranges[i];
		if (next.low <= last->high || next.low == last->high + 1)
			last->high = next.high > last->high ? next.high : last->high;
		else
			set->ranges[++kept] = next;
	}
	set->n = kept + 1;
}

void char_set_invert(struct char_set *set)
{
	struct char_set other = {0};
	uint32_t from = 0;
	char_set_tidy(set);
	for (size_t i = 0; i < set->n; i++) {
		if (set->ranges[i].low > from)
			char_set_add(&other, from, set->ranges[i].low - 1);
		from = set->ranges[i].high + 1;
	}
	if (from <= CHAR_LAST)
		char_set_add(&other, from, CHAR_LAST);
	other.failed |= set->failed;
	char_set_free(set);
	*set = other;
}

void char_set_clip(struct char_set *set, uint32_t low, uint32_t high)
{
	size_t kept = 0;
	for (size_t i = 0; i < set->n; i++) {
		struct draft_range range = set->ranges[i];
		range.low = range.low < low ? low : range.low;
		range.high = range.high > high ? high : range.high;
		if (range.low <= range.high)
			set->ranges[kept++] = range;
	}
	set->n = kept;
}

bool char_set_has(const struct char_set *set, uint32_t c)
{
	for (size_t i = 0; i < set->n; i++)
		if (c >= set->ranges[i].low && c <= set->ranges[i].high)
			return true;
	return false;
}

void char_set_free(struct char_set *set)
{
	free(set->ranges);
	*set = (struct char_set){0};
}
