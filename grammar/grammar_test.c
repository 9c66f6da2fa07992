/* Languages by their texts, and masks against the plain definition: a token may come if the text
 * with its bytes can still become one of the language. */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the above first. */
#include <cmocka.h>

#include "grammar/guide.h"

/* All bytes, and pieces that cross the borders of strings, numbers and brackets. */
static const char *const pieces[] = {
	"{\"",
	"\":",
	"\",\"",
	"\"}",
	"}}",
	"]}",
	"[[",
	"]]",
	"],[",
	"true",
	"fal",
	"se",
	"null",
	"12",
	"123",
	"-1",
	"0.",
	"e+",
	"\\\"",
	"\\u",
	"a\"",
	"ab",
	"abc",
	" {",
	"  ",
	"\n\t",
	"\xC3\xA4",
	"\xE6\xAD",
	"\xF0\x9F\xA6\x99",
	"xx",
	"xyx",
	"[[[[[[[[",
	"\"\"",
	"aaaa",
};
#define N_PIECES (sizeof pieces / sizeof *pieces)
#define N_VOCAB	 (256u + (uint32_t)N_PIECES + 2) /* two without bytes */
#define N_WORDS	 ((N_VOCAB + 31) / 32)

static char bytes[256];
static struct span vocab[N_VOCAB];

static struct gr_trie *trie_make(void)
{
	struct gr_trie *trie = NULL;
	for (uint32_t id = 0; id < N_VOCAB; id++) {
		vocab[id] = (struct span){"", 0};
		if (id < 256) {
			bytes[id] = (char)id;
			vocab[id] = (struct span){&bytes[id], 1};
		} else if (id < 256 + N_PIECES) {
			vocab[id] = span_of(pieces[id - 256]);
		}
	}
	assert_int_equal(gr_trie_open(vocab, N_VOCAB, &trie, NULL), SVC_OK);
	return trie;
}

struct fixture {
	struct gr_trie *trie;
	struct gr_guide *guide;
	struct gr_seq seq;
};

static void open_grammar(struct fixture *fixture, const char *text)
{
	struct svc_err err = {0};
	struct gr_grammar *grammar = NULL;
	enum svc_code code = gr_compile(span_of(text), &grammar, &err);
	if (code != SVC_OK)
		fail_msg("%s", err.msg);
	fixture->trie = trie_make();
	assert_int_equal(gr_guide_open(grammar, fixture->trie, N_VOCAB, &fixture->guide, NULL),
			 SVC_OK);
	assert_int_equal(gr_seq_open(fixture->guide, &fixture->seq, NULL), SVC_OK);
}

static void close_grammar(struct fixture *fixture)
{
	gr_seq_close(&fixture->seq);
	gr_guide_free(fixture->guide);
	gr_trie_free(fixture->trie);
}

/* The mask says what pushing each token says. */
static void mask_check(struct fixture *fixture)
{
	uint32_t bits[N_WORDS];
	assert_int_equal(gr_seq_mask(&fixture->seq, false, bits, NULL), SVC_OK);
	for (uint32_t id = 0; id < N_VOCAB; id++) {
		struct gr_seq copy;
		assert_int_equal(gr_seq_open(fixture->guide, &copy, NULL), SVC_OK);
		copy.set = fixture->seq.set;
		bool may = vocab[id].len && gr_seq_push(&copy, vocab[id]);
		gr_seq_close(&copy);
		if (may != (bits[id / 32] >> id % 32 & 1))
			fail_msg("token %u (%.*s): may %d", id, (int)vocab[id].len, vocab[id].ptr,
				 may);
	}
}

static bool accepts(const char *grammar, const char *text)
{
	struct fixture fixture;
	open_grammar(&fixture, grammar);
	bool good = gr_seq_push(&fixture.seq, span_of(text)) && gr_seq_ends(&fixture.seq);
	close_grammar(&fixture);
	return good;
}

static void refused(const char *grammar, const char *why)
{
	struct svc_err err = {0};
	struct gr_grammar *compiled = NULL;
	enum svc_code code = gr_compile(span_of(grammar), &compiled, &err);
	if (code == SVC_OK)
		fail_msg("not refused: %s", grammar);
	if (!strstr(err.msg, why))
		fail_msg("%s: %s", grammar, err.msg);
	assert_string_equal(err.param, "grammar");
}

static void test_literals_and_repeats(void **state)
{
	(void)state;
	assert_true(accepts("root ::= \"ab\" \"c\"", "abc"));
	assert_false(accepts("root ::= \"ab\" \"c\"", "ab"));
	assert_true(accepts("root ::= (\"a\" | \"b\")*", ""));
	assert_true(accepts("root ::= (\"a\" | \"b\")*", "abba"));
	assert_true(accepts("root ::= \"a\"{2,3}", "aa"));
	assert_true(accepts("root ::= \"a\"{2,3}", "aaa"));
	assert_false(accepts("root ::= \"a\"{2,3}", "a"));
	assert_false(accepts("root ::= \"a\"{2,3}", "aaaa"));
	assert_true(accepts("root ::= \"a\"{2,}", "aaaaa"));
	assert_false(accepts("root ::= \"a\"{2,}", "a"));
	assert_true(accepts("root ::= \"a\"{3}", "aaa"));
	assert_true(accepts("root ::= \"a\"{0} \"b\"", "b"));
	assert_true(accepts("root ::= (\"a\"? \"b\"?){2}", "ba"));
	assert_true(accepts("root ::= \"\"", ""));
	assert_true(accepts("# comment\nroot ::=\n  a # more\n | \"x\"\na ::= \"y\"", "y"));
	assert_true(
		accepts("root ::= \"\\x41\\u00e4\\U0001F999\\n\"", "A\xC3\xA4\xF0\x9F\xA6\x99\n"));
}

static void test_classes(void **state)
{
	(void)state;
	assert_true(accepts("root ::= [a-c]+", "abc"));
	assert_false(accepts("root ::= [a-c]+", "abd"));
	assert_true(accepts("root ::= [^a-c]", "\xC3\xA4"));
	assert_false(accepts("root ::= [^a-c]", "b"));
	assert_true(accepts("root ::= [a\\-z]", "-"));
	assert_true(accepts("root ::= [a-]+", "a-"));
	assert_true(accepts("root ::= [\\]\\\\]+", "]\\"));
	assert_true(accepts("root ::= .", "\xF0\x9F\xA6\x99"));
	assert_false(accepts("root ::= .", "\xF0\x9F\xA6"));
	/* Not UTF-8: a surrogate, an overlong form, beyond the last code point. */
	assert_false(accepts("root ::= .", "\xED\xA0\x80"));
	assert_false(accepts("root ::= .", "\xC0\x80"));
	assert_false(accepts("root ::= .", "\xF4\x90\x80\x80"));
	assert_true(accepts("root ::= [\\u0100-\\U0001F999]", "\xC4\x80"));
	assert_false(accepts("root ::= [\\u0100-\\U0001F999]", "\xF0\x9F\xA6\x9A"));
}

static size_t encode(uint32_t c, char text[4])
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n; i > 1; i--, c >>= 6)
		text[i - 1] = (char)(0x80 | (c & 0x3F));
	text[0] = (char)(n == 1 ? c : (0xF00u >> n) | c);
	return n;
}

/* Every code point, against the definition. */
static void test_class_encodings(void **state)
{
	(void)state;
	struct fixture fixture;
	open_grammar(&fixture, "root ::= [\\u0041-\\u07FE\\u2001-\\uD7FE\\uE100-\\U0010FFFE]");
	uint32_t start = fixture.seq.set;
	for (uint32_t c = 1; c <= 0x10FFFF; c += c < 0x900 ? 1 : 7) {
		char text[4];
		size_t n = encode(c, text);
		bool inside = (c >= 0x41 && c <= 0x7FE) || (c >= 0x2001 && c <= 0xD7FE) ||
			      (c >= 0xE100 && c <= 0x10FFFE);
		fixture.seq.set = start;
		bool found = gr_seq_push(&fixture.seq, (struct span){text, n}) &&
			     gr_seq_ends(&fixture.seq);
		if (found != inside)
			fail_msg("U+%04X", c);
	}
	close_grammar(&fixture);
}

static void test_refusals(void **state)
{
	(void)state;
	refused("root ::= \"a", "ends within quotes");
	refused("root ::= [a", "ends within quotes");
	refused("root ::= (\"a\"", "expected )");
	refused("root ::= \"a\")", "expected an item");
	refused("root ::= b", "line 1, byte 10 names is missing");
	refused("x ::= \"a\"", "no rule root");
	refused("", "no rule root");
	refused("root ::= \"a\"\nroot ::= \"b\"", "there already, at line 2");
	refused("root ::= root \"a\" | \"b\"", "left recursion");
	refused("root ::= a root \"x\" | \"b\"\na ::= \"y\"?", "rule root");
	refused("root ::= \"a\" root", "no text fulfils it");
	refused("root ::= []", "no text fulfils it");
	refused("root ::= [b-a]", "backwards");
	refused("root ::= \"\\q\"", "unknown escape");
	refused("root ::= \"\\ud800\"", "names no character");
	refused("root ::= \"a\"{3,2}", "below its minimum");
	refused("root ::= \"a\"{99999}", "65536");
	refused("root ::= \"\xFF\"", "not UTF-8");
	refused("root = \"a\"", "expected a rule");
	refused("root ::= (((\"aaaaaaaa\"{500}){100}){100})", "states");
}

static void test_deep_brackets(void **state)
{
	(void)state;
	char text[1200] = "root ::= ";
	memset(text + 9, '(', 500);
	refused(text, "nested deeper");
}

static const char json[] =
	"root ::= value\n"
	"value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
	"object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws\n"
	"pair ::= string \":\" ws value\n"
	"array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
	"string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
	"[0-9a-f]{4}))* \"\\\"\" ws\n"
	"number ::= \"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [0-9]+)? ([eE] [+-]? [0-9]+)? ws\n"
	"ws ::= [ \\n\\t]*\n";

/* What a text may go on with, at every point of random texts of several languages. */
static void test_masks_are_exact(void **state)
{
	static const char *const grammars[] = {
		json,
		"root ::= (\"a\" | \"ab\" | \"abc\")* \"x\" ([xy] \"x\")*",
		"root ::= a{3,9} | .{2} \"}\"\na ::= \"a\" | b\nb ::= [b-z]* \"\\\"\"",
		"root ::= \"[\" root \"]\" | \"{\" root? \"}\" | \"[\" \"[\" \"]\" \"]\"",
		"root ::= t\nt ::= [^<x] t | \"x\" u | \"\"\nu ::= \"x\" u | \"y\" | [^xy] t",
		"root ::= (n n)* \"0\"\nn ::= [0-9]? m?\nm ::= \"-\" n | \"e\"",
	};
	(void)state;
	unsigned seed = 7;
	for (size_t g = 0; g < sizeof grammars / sizeof *grammars; g++) {
		struct fixture fixture;
		open_grammar(&fixture, grammars[g]);
		for (int round = 0; round < 30; round++) {
			gr_seq_close(&fixture.seq);
			assert_int_equal(gr_seq_open(fixture.guide, &fixture.seq, NULL), SVC_OK);
			for (int step = 0; step < 40; step++) {
				uint32_t bits[N_WORDS], id = (uint32_t)rand_r(&seed) % N_VOCAB;
				mask_check(&fixture);
				if (!gr_seq_reads(&fixture.seq))
					break;
				assert_int_equal(gr_seq_mask(&fixture.seq, false, bits, NULL),
						 SVC_OK);
				while (!(bits[id / 32] >> id % 32 & 1))
					id = (id + 1) % N_VOCAB;
				assert_true(gr_seq_push(&fixture.seq, vocab[id]));
			}
		}
		close_grammar(&fixture);
	}
}

/* Where brackets can't be opened any more they can still be closed, and masks know it. */
static void test_depth_has_an_end(void **state)
{
	(void)state;
	struct fixture fixture;
	unsigned depth = 0;
	open_grammar(&fixture, json);
	while (depth < 2 * GR_DEPTH_MAX && gr_seq_push(&fixture.seq, span_of("[")))
		if (++depth % 37 == 0)
			mask_check(&fixture);
	assert_in_range(depth, GR_DEPTH_MAX / 4, GR_DEPTH_MAX);
	mask_check(&fixture);
	for (; depth; depth--)
		assert_true(gr_seq_push(&fixture.seq, span_of("]")));
	assert_true(gr_seq_ends(&fixture.seq));
	close_grammar(&fixture);
}

/* A call at a rule's end takes its caller's place: a list may be as long as it likes. */
static void test_tail_calls(void **state)
{
	(void)state;
	struct fixture fixture;
	open_grammar(&fixture, "root ::= \"a\" root | \"b\"");
	for (int i = 0; i < 10000; i++)
		assert_true(gr_seq_push(&fixture.seq, span_of("a")));
	assert_true(gr_seq_push(&fixture.seq, span_of("b")));
	assert_true(gr_seq_ends(&fixture.seq));
	assert_false(gr_seq_reads(&fixture.seq));
	close_grammar(&fixture);
}

/* Emptying the pool in the middle changes nothing. */
static void test_pool_is_a_cache(void **state)
{
	(void)state;
	struct fixture fixture;
	struct gr_grammar *grammar = NULL;
	struct gr_pool pool;
	assert_int_equal(gr_compile(span_of(json), &grammar, NULL), SVC_OK);
	assert_int_equal(gr_pool_open(&pool, grammar, NULL), SVC_OK);
	open_grammar(&fixture, json);
	static const char text[] = "{\"a\":[1,[2.5e3,{\"x\":[true,\"\\u00e4\"]}]],\"b\":null}";
	uint32_t set = gr_pool_start(&pool, grammar->starts[grammar->root], GR_BOTTOM);
	for (size_t i = 0; text[i]; i++) {
		uint32_t *sets[] = {&set};
		set = gr_pool_step(&pool, set, (uint8_t)text[i]);
		assert_int_equal(gr_pool_empty(&pool, sets, 1, NULL), SVC_OK);
		assert_int_not_equal(set, GR_DEAD);
		assert_true(gr_seq_push(&fixture.seq, (struct span){text + i, 1}));
		assert_int_equal(gr_pool_ends(&pool, set), gr_seq_ends(&fixture.seq));
		for (unsigned byte = 0; byte < 256; byte++)
			assert_int_equal(gr_pool_step(&pool, set, (uint8_t)byte) != GR_DEAD,
					 gr_pool_step(&pool, set, (uint8_t)byte) != GR_DEAD);
	}
	assert_true(gr_pool_ends(&pool, set));
	gr_pool_close(&pool);
	gr_free(grammar);
	close_grammar(&fixture);
}

/* A text that begins with the first token's space: what lies behind it counts. */
static void test_stripped_space(void **state)
{
	(void)state;
	struct fixture fixture;
	uint32_t bits[N_WORDS];
	open_grammar(&fixture, "root ::= \"{\" \"x\"");
	assert_int_equal(gr_seq_mask(&fixture.seq, true, bits, NULL), SVC_OK);
	for (uint32_t id = 0; id < N_VOCAB; id++) {
		bool may = id == '{' || (id >= 256 && id < 256 + N_PIECES &&
					 strcmp(pieces[id - 256], " {") == 0);
		assert_int_equal(bits[id / 32] >> id % 32 & 1, may);
	}
	close_grammar(&fixture);
}

/* A token by its number is none of the texts that look like it. */
static void test_named_tokens(void **state)
{
	(void)state;
	struct fixture fixture;
	char code[GR_TOKEN_CODE_BYTES];
	open_grammar(&fixture, "root ::= . * <[70000]> \"a\" <[0]>?");
	assert_true(fixture.guide && gr_seq_push(&fixture.seq, span_of("<[70000]>")));
	gr_token_code(70001, code);
	assert_false(gr_seq_push(&fixture.seq, (struct span){code, sizeof code}));
	gr_token_code(70000, code);
	assert_false(gr_is_text((struct span){code, sizeof code}) || !gr_is_text(span_of("\xFE")));
	assert_true(gr_seq_push(&fixture.seq, (struct span){code, sizeof code}));
	assert_false(gr_seq_push(&fixture.seq, span_of("b")));
	assert_true(gr_seq_push(&fixture.seq, span_of("a")) && gr_seq_ends(&fixture.seq));
	gr_token_code(0, code);
	assert_true(gr_seq_push(&fixture.seq, (struct span){code, sizeof code}));
	assert_false(gr_seq_reads(&fixture.seq));
	close_grammar(&fixture);
	static const char *const wrong[] = {"<",    "<[",    "<[]>",	    "<[1]",
					    "<[1>", "<[x]>", "<[16777216]>"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char text[64];
		snprintf(text, sizeof text, "root ::= %s", wrong[i]);
		refused(text, "a token's number");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_literals_and_repeats), cmocka_unit_test(test_classes),
		cmocka_unit_test(test_class_encodings),	     cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_deep_brackets),	     cmocka_unit_test(test_masks_are_exact),
		cmocka_unit_test(test_depth_has_an_end),     cmocka_unit_test(test_tail_calls),
		cmocka_unit_test(test_pool_is_a_cache),	     cmocka_unit_test(test_stripped_space),
		cmocka_unit_test(test_named_tokens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
