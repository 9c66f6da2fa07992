/* The answer's text: stop strings over every split of a text, what is held back and no more, UTF-8
 * at its edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sampler/text.h"

#define PIECE_MAX 64u

struct fixture {
	struct arena arena;
	struct smp_params params;
	struct smp_text text;
	char all[4096]; /* everything released so far */
	size_t n_all;
};

static void fixture_open(struct fixture *f, const char *const *stops, bool keep_stop)
{
	*f = (struct fixture){0};
	smp_params_default(&f->params.num);
	f->params.num.flags = keep_stop ? BODY_KEEP_STOP : 0;
	for (; stops && stops[f->params.num.n_stop]; f->params.num.n_stop++)
		f->params.stops[f->params.num.n_stop] = span_of(stops[f->params.num.n_stop]);
	assert_int_equal(smp_text_init(&f->params, PIECE_MAX, &f->arena, &f->text, NULL), SVC_OK);
}

static void released_add(struct fixture *f)
{
	struct span released = smp_text_released(&f->text);
	assert_true(f->n_all + released.len < sizeof f->all);
	memcpy(f->all + f->n_all, released.ptr, released.len);
	f->n_all += released.len;
	f->all[f->n_all] = 0;
}

static int feed(struct fixture *f, const char *bytes, size_t len)
{
	/* A copy of the exact size, for the sanitizer. */
	char *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	smp_text_next(&f->text);
	int stop = smp_text_feed(&f->text, (struct span){copy, len}, true);
	free(copy);
	released_add(f);
	return stop;
}

static int end(struct fixture *f)
{
	smp_text_next(&f->text);
	int stop = smp_text_end(&f->text, true);
	released_add(f);
	return stop;
}

/* Where the first stop string to be completed begins and ends in text, by looking everywhere. */
static bool stop_find(const char *text, const char *const *stops, size_t *ret_begin,
		      size_t *ret_end)
{
	for (size_t to = 1; to <= strlen(text); to++)
		for (size_t from = 0; from < to; from++)
			for (size_t i = 0; stops[i]; i++)
				if (strlen(stops[i]) == to - from &&
				    !memcmp(text + from, stops[i], to - from)) {
					*ret_begin = from;
					*ret_end = to;
					return true;
				}
	return false;
}

/* How many bytes at the end of text[len] could still become a stop string. */
static size_t held_find(const char *text, size_t len, const char *const *stops)
{
	size_t held = 0;
	for (size_t i = 0; stops[i]; i++)
		for (size_t n = 1; n < strlen(stops[i]) && n <= len; n++)
			if (!memcmp(text + len - n, stops[i], n) && n > held)
				held = n;
	return held;
}

/* Feeds text cut after byte i wherever bit i of cuts is set. */
static void split_check(const char *text, const char *const *stops, bool keep_stop, unsigned cuts)
{
	struct fixture f;
	size_t len = strlen(text), from = 0, begin = len, to = len;
	bool found = stop_find(text, stops, &begin, &to);
	int stop = -1;
	fixture_open(&f, stops, keep_stop);
	for (size_t at = 0; at < len && stop < 0; at++) {
		if (at + 1 < len && !(cuts >> at & 1))
			continue;
		stop = feed(&f, text + from, at + 1 - from);
		from = at + 1;
		if (stop < 0) /* exactly what can't become a stop string is out */
			assert_int_equal(f.n_all, from - held_find(text, from, stops));
		else
			assert_true(from >= to && strlen(stops[stop]) == to - begin);
	}
	if (stop < 0)
		assert_int_equal(end(&f), -1);
	assert_int_equal(stop >= 0, found);
	size_t expected = found ? (keep_stop ? to : begin) : len;
	assert_int_equal(f.n_all, expected);
	assert_memory_equal(f.all, text, expected);
	arena_free(&f.arena);
}

static void stop_strings_over_every_split(void **state)
{
	(void)state;
	static const char *const texts[] = {"aabaabaaac", "xabcabdab",	   "ENDEN",
					    "abababc",	  "a\n\nb\n\n\nc", ""};
	static const char *const sets[][5] = {
		{"aabaaac"},
		{"ab", "b"},
		{"abd", "bcab"},
		{"END", "NDE"},
		{"\n\n\n", "\n\nc"},
		{"ababc", "bab", "abc"},
		{"zzz"},
		{"a", "aa", "aaa", "aaaa"},
	};
	for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
		for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
			size_t len = strlen(texts[t]);
			for (unsigned cuts = 0; cuts < 1u << (len ? len - 1 : 0); cuts++)
				for (int keep = 0; keep < 2; keep++)
					split_check(texts[t], sets[s], keep, cuts);
		}
}

static void stop_not_allowed_is_text(void **state)
{
	(void)state;
	struct fixture f;
	const char *const stops[] = {"aba", NULL};
	fixture_open(&f, stops, false);
	assert_int_equal(smp_text_feed(&f.text, span_of("xaba"), false), -1);
	released_add(&f);
	assert_string_equal(f.all, "xab"); /* its last byte may begin another */
	assert_int_equal(feed(&f, "b", 1), -1);
	assert_int_equal(feed(&f, "ay", 2), 0);
	assert_string_equal(f.all, "xab"); /* the stop began with the held byte */
	arena_free(&f.arena);
}

/* Every split into two and into single bytes gives `expected`. */
static void utf8_check(const char *bytes, size_t len, const char *expected)
{
	for (size_t cut = 0; cut <= len + 1; cut++) {
		struct fixture f;
		fixture_open(&f, NULL, false);
		if (cut <= len) {
			feed(&f, bytes, cut);
			feed(&f, bytes + cut, len - cut);
		} else {
			for (size_t i = 0; i < len; i++)
				feed(&f, bytes + i, 1);
		}
		end(&f);
		assert_string_equal(f.all, expected);
		arena_free(&f.arena);
	}
}

#define UTF8_CHECK(bytes, expected) utf8_check((bytes), sizeof(bytes) - 1, (expected))
#define R			    "\xEF\xBF\xBD"

static void utf8_at_its_edges(void **state)
{
	(void)state;
	UTF8_CHECK("🦙👩‍👩‍👧 歪", "🦙👩‍👩‍👧 歪");
	UTF8_CHECK("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF",
		   "\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
	UTF8_CHECK("\xE6\xAD", R); /* cut: one for what is there */
	UTF8_CHECK("\xF0\x9F\xA6", R);
	UTF8_CHECK("\xE6\xAD x", R " x");		  /* broken off by another byte */
	UTF8_CHECK("\xF0\x9F\xF0\x9F\xA6\x99", R "🦙"); /* by the start of another */
	UTF8_CHECK("\x80\xBF\xC0\xAF\xF5\xFF", R R R R R R);
	UTF8_CHECK("\xE0\x80\x80", R R R);		     /* overlong */
	UTF8_CHECK("\xED\xA0\xBD\xED\xB8\x80", R R R R R R); /* surrogates */
	UTF8_CHECK("\xF4\x90\x80\x80", R R R R);	     /* beyond U+10FFFF */
	UTF8_CHECK("\xC3\x28", R "(");
}

static void incomplete_character_is_held(void **state)
{
	(void)state;
	struct fixture f;
	fixture_open(&f, NULL, false);
	feed(&f, "a\xF0\x9F", 3);
	assert_string_equal(f.all, "a");
	feed(&f, "\xA6", 1);
	assert_string_equal(f.all, "a");
	feed(&f, "\x99", 1);
	assert_string_equal(f.all, "a🦙");
	arena_free(&f.arena);
}

/* A stop string may begin like another character: nothing is released in the middle of one. */
static void released_text_is_whole_characters(void **state)
{
	(void)state;
	struct fixture f;
	const char *const stops[] = {"🦙!", "歪歪", NULL};
	fixture_open(&f, stops, false);
	feed(&f, "x🦘", 5);
	assert_string_equal(f.all, "x🦘");
	feed(&f, "🦙", 4);
	assert_string_equal(f.all, "x🦘");
	feed(&f, "\xE6\xAD", 2);
	assert_string_equal(f.all,
			    "x🦘"); /* the llama is held until the character after it is known */
	feed(&f, "\xAA", 1);
	assert_string_equal(f.all, "x🦘🦙");
	assert_int_equal(feed(&f, "歪", 3), 1);
	assert_string_equal(f.all, "x🦘🦙");
	arena_free(&f.arena);
}

static void worst_piece_fits(void **state)
{
	(void)state;
	struct fixture f;
	char stop[SMP_STOP_BYTES_MAX + 1], piece[PIECE_MAX];
	memset(stop, 's', SMP_STOP_BYTES_MAX);
	stop[SMP_STOP_BYTES_MAX] = 0;
	const char *const stops[] = {stop, NULL};
	fixture_open(&f, stops, false);
	memset(piece, 's', sizeof piece);
	for (int i = 0; i < 3; i++)
		feed(&f, piece, sizeof piece);
	feed(&f, piece, sizeof piece - 1);
	assert_int_equal(f.n_all, 0);
	feed(&f, "\xF0\x9F\xA6", 3);
	memset(piece, 0xFF, sizeof piece);
	feed(&f, piece, sizeof piece); /* an overflow of the buffer is the sanitizer's to see */
	assert_int_equal(f.n_all, 255 + 3 * (1 + PIECE_MAX));
	arena_free(&f.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stop_strings_over_every_split),
		cmocka_unit_test(stop_not_allowed_is_text),
		cmocka_unit_test(utf8_at_its_edges),
		cmocka_unit_test(incomplete_character_is_held),
		cmocka_unit_test(released_text_is_whole_characters),
		cmocka_unit_test(worst_piece_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
