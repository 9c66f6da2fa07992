#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tokenizer/tok_split.h"
#include "tokenizer/unicode/unicode.h"

/* The pieces, with "/" between. */
static void expect(struct tok_splitter splitter, const char *text, const char *wanted)
{
	struct buf out = {0};
	struct span span = span_of(text);
	for (size_t at = 0; at < span.len;) {
		size_t end = tok_split_next(&splitter, span, at);
		assert_true(end > at && end <= span.len);
		if (at)
			buf_append(&out, "/", 1);
		buf_append(&out, text + at, end - at);
		at = end;
	}
	assert_string_equal(out.ptr, wanted);
	buf_free(&out);
}

static void words_of_gpt2(void **state)
{
	const struct tok_splitter s = {.kind = TOK_SPLIT_GPT2};
	(void)state;
	expect(s, "Hello  world's 123abc!?", "Hello/ / world/'s/ 123/abc/!?");
	expect(s, "a  \n\nb\t", "a/  \n/\n/b/\t");
	expect(s, "I'M I'm", "I/'/M/ I/'m");
}

static void words_of_llama3(void **state)
{
	const struct tok_splitter s = {.kind = TOK_SPLIT_WORDS, .digits = 3};
	(void)state;
	expect(s, "Hello  world'S 12345abc!?\n\nx", "Hello/ / world/'S/ /123/45/abc/!?\n\n/x");
	expect(s, "a \n \n  b", "a/ \n \n/ / b");
	expect(s, "\tx$y'\xC5\xBF", "\tx/$y/'\xC5\xBF");
	expect(s, "e\xCC\x81t", "e/\xCC\x81t");
	expect((struct tok_splitter){.kind = TOK_SPLIT_WORDS, .digits = 1, .marks = true},
	       "e\xCC\x81t12", "e\xCC\x81t/1/2");
}

static void words_of_o200k(void **state)
{
	const struct tok_splitter s = {.kind = TOK_SPLIT_CASED, .digits = 3, .contractions = true};
	(void)state;
	expect(s, "camelCaseXMLParser", "camel/Case/XMLParser");
	expect(s, "don't HTTP'S 1234//\n", "don't/ HTTP'S/ /123/4///\n");
	expect(s,
	       "\xE6\xAD\xAA"
	       "AB",
	       "\xE6\xAD\xAA/AB");
	expect(s,
	       "\xCC\x81"
	       "A",
	       "\xCC\x81/A");
}

static void words_of_deepseek(void **state)
{
	const struct tok_splitter s = {.kind = TOK_SPLIT_DEEPSEEK};
	(void)state;
	expect(s, "a.foo(bar) 1", "a/.foo/(bar/)/ /1");
	expect(s, "\x01\x02x", "\x01/\x02x");
	expect((struct tok_splitter){.kind = TOK_SPLIT_NUMBERS, .digits = 3}, "a12345b",
	       "a/123/45/b");
	expect((struct tok_splitter){.kind = TOK_SPLIT_CJK},
	       "a\xE6\xAD\xAA\xE3\x81\x82"
	       "b",
	       "a/\xE6\xAD\xAA\xE3\x81\x82/b");
}

static void digits_and_literals(void **state)
{
	static const bool glue[256] = {['>'] = true};
	(void)state;
	expect((struct tok_splitter){.kind = TOK_SPLIT_DIGITS, .digits = 1}, "a12b", "a/1/2/b");
	expect((struct tok_splitter){.kind = TOK_SPLIT_DIGITS}, "a12b", "a/12/b");
	struct tok_splitter s = {.kind = TOK_SPLIT_LITERAL, .literal = {"--", 2}};
	expect(s, "a----b-", "a/--/--/b-");
	s.behaviour = TOK_SPLIT_WITH_PREVIOUS;
	expect(s, "a----b-", "a--/--/b-");
	s.behaviour = TOK_SPLIT_WITH_NEXT;
	expect(s, "a----b-", "a/--/--b-");
	s = (struct tok_splitter){.kind = TOK_SPLIT_WORD_START, .glue = glue};
	expect(s,
	       "\xE2\x96\x81"
	       "a\xE2\x96\x81\xE2\x96\x81"
	       "b>\xE2\x96\x81\xE2\x96\x81"
	       "c",
	       "\xE2\x96\x81"
	       "a/\xE2\x96\x81\xE2\x96\x81"
	       "b>\xE2\x96\x81\xE2\x96\x81"
	       "c");
}

static void expressions_are_known_or_not(void **state)
{
	struct tok_splitter s;
	(void)state;
	assert_true(tok_split_by_regex(span_of("\\p{N}{1,3}"), &s) && s.kind == TOK_SPLIT_NUMBERS &&
		    s.digits == 3);
	assert_false(tok_split_by_regex(span_of("\\p{N}{1,2}"), &s));
	assert_false(tok_split_by_regex(span_of("\\p{N}{1,3}x"), &s));
	assert_false(tok_split_by_regex(span_of(""), &s));
}

/* No text, however odd, makes a scanner stand still or leave its text. */
static void every_byte_gets_a_piece(void **state)
{
	static const enum tok_split_kind kinds[] = {
		TOK_SPLIT_GPT2,	   TOK_SPLIT_WORDS,  TOK_SPLIT_CASED, TOK_SPLIT_DEEPSEEK,
		TOK_SPLIT_NUMBERS, TOK_SPLIT_DIGITS, TOK_SPLIT_CJK};
	uint64_t random = 20240;
	(void)state;
	for (int round = 0; round < 20000; round++) {
		static const char alphabet[] = "a B1'\n\xC3\xA9\xCC\x81\xE6\xAD\xAA\xFF$";
		char text[16];
		for (size_t i = 0; i < sizeof text; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			text[i] = alphabet[(random >> 33) % (sizeof alphabet - 1)];
		}
		struct tok_splitter s = {.kind = kinds[round % 7],
					 .digits = (unsigned)round % 3 + 1,
					 .marks = round % 2 == 0,
					 .contractions = round % 4 < 2};
		for (size_t at = 0; at < sizeof text;) {
			size_t end = tok_split_next(&s, (struct span){text, sizeof text}, at);
			assert_true(end > at && end <= sizeof text);
			at = end;
		}
	}
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
		cmocka_unit_test(words_of_gpt2),
		cmocka_unit_test(words_of_llama3),
		cmocka_unit_test(words_of_o200k),
		cmocka_unit_test(words_of_deepseek),
		cmocka_unit_test(digits_and_literals),
		cmocka_unit_test(expressions_are_known_or_not),
		cmocka_unit_test(every_byte_gets_a_piece),
	};
	return cmocka_run_group_tests(tests, start, NULL);
}
