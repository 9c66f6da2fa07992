/* Canonical composition (UAX #15). Text is cut into segments at characters that never combine with
 * what stands before them; a segment is decomposed, its marks are sorted, and it is composed again.
 */
#include "tokenizer/unicode/unicode_nfc.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode/unicode.h"
#include "tokenizer/unicode/unicode_table.h"

/* 0: a starter that NFC leaves alone and that combines with nothing before it. CARE: any other
 * starter. Else the combining class, which is below 255. */
#define CARE 255
static uint8_t care[UNICODE_END];

/* Pairs that compose, by (first, second). */
static struct pair {
	uint64_t key;
	uint32_t composed;
} * pairs;
static size_t n_pairs;

enum { /* the algorithmic Hangul syllables */
       L_BASE = 0x1100,
       V_BASE = 0x1161,
       T_BASE = 0x11A7,
       S_BASE = 0xAC00,
       L_COUNT = 19,
       V_COUNT = 21,
       T_COUNT = 28,
       S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

static int pair_order(const void *a, const void *b)
{
	uint64_t x = ((const struct pair *)a)->key, y = ((const struct pair *)b)->key;
	return (x > y) - (x < y);
}

void unicode_nfc_init(void)
{
	static struct pair storage[2048];
	for (size_t i = 0; i < unicode_mark_count; i++)
		memset(care + unicode_marks[i].first, unicode_marks[i].combining_class,
		       unicode_marks[i].last - unicode_marks[i].first + 1);
	for (size_t i = 0; i < unicode_decomposition_count; i++) {
		const struct unicode_decomposition *d = &unicode_decompositions[i];
		uint32_t touched = d->composes ? d->second : d->point;
		if (care[touched] == 0)
			care[touched] = CARE;
		if (d->composes && n_pairs < sizeof storage / sizeof *storage)
			storage[n_pairs++] =
				(struct pair){(uint64_t)d->first << 32 | d->second, d->point};
	}
	memset(care + V_BASE, CARE, V_COUNT);
	memset(care + T_BASE + 1, CARE, T_COUNT - 1);
	pairs = storage;
	qsort(pairs, n_pairs, sizeof *pairs, pair_order);
}

static uint8_t care_of(struct unicode_char c)
{
	return c.point == UNICODE_INVALID ? 0 : care[c.point];
}

size_t unicode_nfc_prefix(const char *text, size_t len, size_t at)
{
	size_t segment = at;
	while (at < len) {
		struct unicode_char c = unicode_at(text, len, at);
		if (c.point >= 0x300 && care_of(c))
			return segment;
		segment = at;
		at += c.len;
	}
	return len;
}

struct mark {
	uint32_t point;
	uint8_t class;
};

struct segment {
	struct mark *marks;
	size_t len, room;
	struct mark local[32];
};

static bool push(struct segment *segment, uint32_t point, uint8_t class)
{
	if (segment->len == segment->room) {
		size_t room = segment->room * 2;
		struct mark *old = segment->marks == segment->local ? NULL : segment->marks;
		struct mark *marks = realloc(old, room * sizeof *marks);
		if (!marks)
			return false;
		if (!old)
			memcpy(marks, segment->local, sizeof segment->local);
		segment->marks = marks;
		segment->room = room;
	}
	segment->marks[segment->len++] = (struct mark){point, class};
	return true;
}

static int decomposition_order(const void *key, const void *row)
{
	uint32_t a = *(const uint32_t *)key, b = ((const struct unicode_decomposition *)row)->point;
	return (a > b) - (a < b);
}

static bool push_decomposed(struct segment *segment, uint32_t point)
{
	if (point >= S_BASE && point < S_BASE + S_COUNT) {
		uint32_t s = point - S_BASE, t = s % T_COUNT;
		return push(segment, L_BASE + s / (V_COUNT * T_COUNT), 0) &&
		       push(segment, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT, 0) &&
		       (t == 0 || push(segment, T_BASE + t, 0));
	}
	const struct unicode_decomposition *d =
		bsearch(&point, unicode_decompositions, unicode_decomposition_count, sizeof *d,
			decomposition_order);
	if (!d)
		return push(segment, point, care[point] == CARE ? 0 : care[point]);
	/* Only the first part of a decomposition has one of its own; the chains are at most four
	 * long. */
	return push_decomposed(segment, d->first) &&
	       (!d->second || push_decomposed(segment, d->second));
}

/* Stable, by class: insertion for the usual two or three marks, counting for a crafted run of
 * millions. */
static bool sort_marks(struct mark *marks, size_t n)
{
	if (n <= 16) {
		for (size_t i = 1; i < n; i++) {
			struct mark mark = marks[i];
			size_t j = i;
			for (; j > 0 && marks[j - 1].class > mark.class; j--)
				marks[j] = marks[j - 1];
			marks[j] = mark;
		}
		return true;
	}
	size_t start[257] = {0};
	struct mark *copy = malloc(n * sizeof *copy);
	if (!copy)
		return false;
	memcpy(copy, marks, n * sizeof *copy);
	for (size_t i = 0; i < n; i++)
		start[copy[i].class + 1]++;
	for (size_t class = 1; class < 257; class ++)
		start[class] += start[class - 1];
	for (size_t i = 0; i < n; i++)
		marks[start[copy[i].class]++] = copy[i];
	free(copy);
	return true;
}

static bool sort_segment(struct segment *segment)
{
	for (size_t i = 0; i < segment->len;) {
		size_t end = i + 1;
		if (segment->marks[i].class) {
			while (end < segment->len && segment->marks[end].class)
				end++;
			if (!sort_marks(segment->marks + i, end - i))
				return false;
		}
		i = end;
	}
	return true;
}

/* 0 if the two don't compose. */
static uint32_t compose(uint32_t first, uint32_t second)
{
	uint32_t l = first - L_BASE, v = second - V_BASE, s = first - S_BASE, t = second - T_BASE;
	if (l < L_COUNT && v < V_COUNT)
		return S_BASE + (l * V_COUNT + v) * T_COUNT;
	if (s < S_COUNT && s % T_COUNT == 0 && t > 0 && t < T_COUNT)
		return first + t;
	struct pair key = {.key = (uint64_t)first << 32 | second};
	const struct pair *found = bsearch(&key, pairs, n_pairs, sizeof key, pair_order);
	return found ? found->composed : 0;
}

static void compose_segment(struct segment *segment)
{
	struct mark *starter = NULL;
	size_t out = 0;
	uint8_t last = 0;
	for (size_t i = 0; i < segment->len; i++) {
		struct mark mark = segment->marks[i];
		/* A mark is blocked by one of the same or a higher class between it and the
		 * starter. */
		bool blocked = !starter || (last >= mark.class && last > 0);
		uint32_t composed = blocked ? 0 : compose(starter->point, mark.point);
		if (composed) {
			starter->point = composed;
			continue;
		}
		segment->marks[out] = mark;
		if (mark.class == 0)
			starter = &segment->marks[out];
		last = mark.class;
		out++;
	}
	segment->len = out;
}

size_t unicode_nfc_segment(const char *text, size_t len, size_t at, struct buf *out)
{
	struct segment segment = {.marks = segment.local,
				  .room = sizeof segment.local / sizeof *segment.local};
	bool ok = true;
	struct unicode_char c = unicode_at(text, len, at);
	if (c.point == UNICODE_INVALID) {
		buf_append(out, text + at, 1);
		return at + 1;
	}
	do {
		ok = ok && push_decomposed(&segment, c.point);
		at += c.len;
		c = unicode_at(text, len, at);
	} while (at < len && care_of(c));
	ok = ok && sort_segment(&segment);
	if (ok)
		compose_segment(&segment);
	for (size_t i = 0; ok && i < segment.len; i++) {
		char bytes[4];
		buf_append(out, bytes, unicode_encode(segment.marks[i].point, bytes));
	}
	if (!ok)
		out->failed = true;
	if (segment.marks != segment.local)
		free(segment.marks);
	return at;
}
