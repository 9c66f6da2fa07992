#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tokenizer/unicode/unicode.h"

static unsigned flags_of(const char *text)
{
	return unicode_at(text, strlen(text), 0).flags;
}

static void characters_have_classes(void **state)
{
	(void)state;
	assert_int_equal(flags_of("A"), UNICODE_UPPER | UNICODE_WORD);
	assert_int_equal(flags_of("\xC5\xBF"), UNICODE_LOWER | UNICODE_WORD); /* U+017F */
	assert_int_equal(flags_of("\xE6\xAD\xAA"),
			 UNICODE_OTHER_LETTER | UNICODE_WORD); /* U+6B6A */
	assert_int_equal(flags_of("\xCC\x81"), UNICODE_MARK | UNICODE_WORD);
	assert_int_equal(flags_of("\xC2\xB2"), UNICODE_NUMBER | UNICODE_NUMERIC); /* U+00B2 */
	assert_int_equal(flags_of("\n"), UNICODE_SPACE | UNICODE_NEWLINE);
	assert_int_equal(flags_of("\xE3\x80\x80"), UNICODE_SPACE); /* U+3000 */
	assert_int_equal(flags_of("_"), UNICODE_PUNCT | UNICODE_WORD);
	assert_int_equal(flags_of("$"), UNICODE_SYMBOL);
	assert_int_equal(flags_of("\xEF\xBB\xBF"), 0); /* U+FEFF is no space */
	/* Assigned in Unicode 17: a digit for Rust, nothing for the expressions. */
	assert_int_equal(flags_of("\xF0\x91\xB7\xA0"), UNICODE_NUMERIC);
}

static void bad_bytes_are_characters(void **state)
{
	static const char *const bad[] = {
		"\xC3", "\xA9", "\xE6\xAD", "\xED\xA0\x80", "\xC0\x80", "\xF5\x80\x80\x80", "\xFF"};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct unicode_char c = unicode_at(bad[i], strlen(bad[i]), 0);
		assert_true(c.point == UNICODE_INVALID && c.len == 1 && c.flags == 0);
	}
	assert_int_equal(unicode_at("a", 1, 1).len, 0);
}

static void points_encode_back(void **state)
{
	(void)state;
	for (uint32_t point = 0; point < UNICODE_END; point++) {
		char bytes[4];
		if (point >= 0xD800 && point < 0xE000)
			continue;
		size_t n = unicode_encode(point, bytes);
		struct unicode_char c = unicode_at(bytes, n, 0);
		assert_true(c.point == point && c.len == n);
	}
}

static void expect_nfc(const char *text, const char *wanted)
{
	struct buf out = {0};
	size_t len = strlen(text);
	for (size_t at = 0; at < len;) {
		size_t same = unicode_nfc_prefix(text, len, at);
		buf_append(&out, text + at, same - at);
		at = same < len ? unicode_nfc_segment(text, len, same, &out) : len;
	}
	assert_string_equal(out.ptr, wanted);
	buf_free(&out);
}

static void text_is_composed(void **state)
{
	(void)state;
	expect_nfc("plain", "plain");
	expect_nfc("e\xCC\x81x", "\xC3\xA9x");
	expect_nfc("a\xCC\xA3\xCC\x82", "\xE1\xBA\xAD"); /* U+1EAD, in two steps */
	expect_nfc("a\xCC\x82\xCC\xA3", "\xE1\xBA\xAD"); /* and with the marks in the other order */
	expect_nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); /* Hangul */
	expect_nfc("\xED\x95\x98\xE1\x86\xAB", "\xED\x95\x9C");
	expect_nfc("\xE2\x84\xAB", "\xC3\x85"); /* the Angstrom sign is one character only */
	expect_nfc("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"); /* U+0958 stays in two */
	expect_nfc("\xCC\x81\xCC\x81"
		   "e\xCC\x81",
		   "\xCC\x81\xCC\x81\xC3\xA9");
	expect_nfc("e\xFF\xCC\x81", "e\xFF\xCC\x81"); /* nothing composes over a bad byte */
}

/* Long runs of marks: sorted by class, and stable. */
static void marks_are_sorted(void **state)
{
	(void)state;
	struct buf text = {0}, wanted = {0}, out = {0};
	buf_append(&text, "q", 1);
	buf_append(&wanted, "q", 1);
	for (int i = 0; i < 5000; i++)
		buf_append(&text, i % 2 ? "\xCC\xA3" : "\xCC\x81", 2);
	for (int i = 0; i < 5000; i++)
		buf_append(&wanted, i < 2500 ? "\xCC\xA3" : "\xCC\x81", 2);
	assert_int_equal(unicode_nfc_segment(text.ptr, text.len, 0, &out), text.len);
	assert_string_equal(out.ptr, wanted.ptr);
	buf_free(&text);
	buf_free(&wanted);
	buf_free(&out);
}

static int start(void **state)
{
	(void)state;
	unicode_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_have_classes),
		cmocka_unit_test(bad_bytes_are_characters),
		cmocka_unit_test(points_encode_back),
		cmocka_unit_test(text_is_composed),
		cmocka_unit_test(marks_are_sorted),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
