#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/line_text.h"

static void type(struct line_text *text, const char *bytes)
{
	for (; *bytes; bytes++)
		line_text_insert(text, *bytes);
}

/* The text with | at the cursor. */
static void holds(const struct line_text *text, const char *expected)
{
	struct buf got = {0};
	buf_append(&got, text->bytes, text->cursor);
	buf_append(&got, "|", 1);
	buf_append(&got, text->bytes + text->cursor, text->len - text->cursor);
	assert_string_equal(got.ptr, expected);
	buf_free(&got);
}

static void moves_and_cuts_go_by_characters(void **state)
{
	(void)state;
	struct line_text text = {0};
	type(&text, "a\xC3\xA4\xE6\xAD\xAA b");
	holds(&text, "a\xC3\xA4\xE6\xAD\xAA b|");
	for (int i = 0; i < 3; i++)
		line_text_move(&text, -1);
	holds(&text, "a\xC3\xA4|\xE6\xAD\xAA b");
	line_text_erase(&text);
	line_text_delete(&text);
	holds(&text, "a| b");
	type(&text, "\xF0\x9F\xA6\x99");
	line_text_home(&text);
	line_text_move(&text, -1);
	line_text_erase(&text);
	line_text_delete(&text);
	line_text_end(&text);
	line_text_delete(&text);
	holds(&text, "\xF0\x9F\xA6\x99 b|");
	type(&text, " cd  ");
	line_text_cut_word(&text);
	holds(&text, "\xF0\x9F\xA6\x99 b |");
	line_text_move(&text, -1);
	line_text_cut_right(&text);
	line_text_cut_left(&text);
	holds(&text, "|");
	line_text_set(&text, "new");
	char *copy = line_text_copy(&text);
	assert_string_equal(copy, "new");
	free(copy);
	line_text_free(&text);
}

static void half_characters_are_known(void **state)
{
	(void)state;
	struct line_text text = {0};
	assert_true(line_text_is_whole(&text));
	const char *llama = "\xF0\x9F\xA6\x99";
	for (int i = 0; i < 4; i++) {
		line_text_insert(&text, llama[i]);
		assert_int_equal(line_text_is_whole(&text), i == 3);
	}
	line_text_free(&text);
}

static void shows(struct line_text *text, size_t width, const char *expected)
{
	struct buf out = {0};
	line_text_show(text, "> ", width, &out);
	assert_string_equal(out.ptr, expected);
	buf_free(&out);
}

static void what_is_shown_fits(void **state)
{
	(void)state;
	struct line_text text = {0};
	shows(&text, 20, "\r> \x1B[K\r\x1B[2C");
	type(&text, "ab\nc\x01");
	shows(&text, 20,
	      "\r> ab\xE2\x86\xB5"
	      "c?\x1B[K\r\x1B[7C");
	line_text_set(&text, "\xE6\xAD\xAA"
			     "e\xCC\x81");
	shows(&text, 20,
	      "\r> \xE6\xAD\xAA"
	      "e\xCC\x81\x1B[K\r\x1B[5C");
	/* Longer than the line: around the cursor. */
	line_text_set(&text, "0123456789");
	shows(&text, 10, "\r> 3456789\x1B[K\r\x1B[9C");
	line_text_home(&text);
	shows(&text, 10, "\r> 0123456\x1B[K\r\x1B[2C");
	/* A terminal that is narrower than the prompt. */
	shows(&text, 1, "\r> 0\x1B[K\r\x1B[2C");
	line_text_free(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moves_and_cuts_go_by_characters),
		cmocka_unit_test(half_characters_are_known),
		cmocka_unit_test(what_is_shown_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
