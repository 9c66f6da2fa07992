/* What texts say, however they are cut. */
#include "gateway/speech.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the above first. */
#include <cmocka.h>

/* "R:reasoning C:content name(arguments) ..." of all that is said when the text comes in pieces of
 * n bytes. */
static char *said_of(const char *text, size_t n, enum vocab_tools tools, bool thinks, bool inside)
{
	struct gw_speech speech;
	struct gw_said said = {0};
	struct buf out = {0};
	gw_speech_begin(&speech, tools, thinks, inside);
	for (size_t at = 0, len = strlen(text); at < len; at += n)
		gw_speech_feed(&speech, (struct span){text + at, len - at < n ? len - at : n},
			       &said);
	gw_speech_end(&speech, &said);
	assert_false(said.failed);
	if (said.reasoning.len)
		buf_print(&out, "R:%s ", said.reasoning.ptr);
	if (said.content.len)
		buf_print(&out, "C:%s ", said.content.ptr);
	for (size_t i = 0; i < said.n_pieces; i++) {
		const struct gw_call_piece *piece = &said.pieces[i];
		buf_print(&out, "%s(%.*s)", piece->name, (int)piece->len,
			  piece->len ? said.arguments.ptr + piece->at : "");
	}
	gw_said_free(&said);
	return out.ptr ? out.ptr : strdup("");
}

static void expect(const char *text, enum vocab_tools tools, bool thinks, bool inside,
		   const char *wanted)
{
	for (size_t n = 1; n < 70; n++) {
		char *got = said_of(text, n, tools, thinks, inside);
		assert_string_equal(got, wanted);
		free(got);
	}
}

#define CALL(name, arguments) \
	"<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void test_calls(void **state)
{
	(void)state;
	const enum vocab_tools hermes = VOCAB_TOOLS_HERMES;
	expect("just text < <tool <tool_cal", hermes, false, false,
	       "C:just text < <tool <tool_cal ");
	expect(CALL("f", "{}"), hermes, false, false, "f({})");
	expect("Well:\n" CALL("f", "{\"a\": \"}]\\\"{\", \"b\": [{}]}"), hermes, false, false,
	       "C:Well:\n f({\"a\": \"}]\\\"{\", \"b\": [{}]})");
	expect(CALL("f", "{}") "\n" CALL("g", "{\"x\":1}"), hermes, false, false,
	       "f({})g({\"x\":1})");
	expect("<<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", hermes, false, false,
	       "C:< f({\"a\": 1)");
	expect("[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
	       VOCAB_TOOLS_MISTRAL, false, false, "f({})g({})");
	expect("{\"name\": \"f\", \"parameters\": {\"a\": {}}}", VOCAB_TOOLS_LLAMA3, false, false,
	       "f({\"a\": {}})");
	/* Control tokens, as they stand in an answer; their names as text are text. */
	expect("\xFF[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
	       VOCAB_TOOLS_MISTRAL_LIST, false, false, "f({})g({})");
	expect("Hm\xFF [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", VOCAB_TOOLS_MISTRAL_SPACED,
	       false, false, "C:Hm f({\"a\": 1})");
	expect("\xFF"
	       "f\xFF{}\xFFg\xFF{\"a\": \"}\"}",
	       VOCAB_TOOLS_MISTRAL_ARGS, false, false, "f({})g({\"a\": \"}\"})");
	expect("So\xFF"
	       "f\xFF"
	       "abcdef123\xFF{}\xFFg\xFF"
	       "000000000\xFF{",
	       VOCAB_TOOLS_MISTRAL_IDS, false, false, "C:So f({})g({)");
	expect("[TOOL_CALLS]f[ARGS]{}", VOCAB_TOOLS_MISTRAL_ARGS, false, false,
	       "C:[TOOL_CALLS]f[ARGS]{} ");
	/* Cut before a name. */
	expect("a\xFF[{\"na", VOCAB_TOOLS_MISTRAL_LIST, false, false, "C:a ");
	/* Only what begins the answer is a call there. */
	expect("So: {\"name\": \"f\", \"parameters\": {}}", VOCAB_TOOLS_LLAMA3, false, false,
	       "C:So: {\"name\": \"f\", \"parameters\": {}} ");
	/* Without tools, text is text. */
	expect(CALL("f", "{}"), VOCAB_TOOLS_COUNT, false, false, "C:" CALL("f", "{}") " ");
}

static void test_reasoning(void **state)
{
	(void)state;
	const enum vocab_tools none = VOCAB_TOOLS_COUNT;
	expect("<think>\nhm</think>\n\nYes <think>", none, true, false, "R:hm C:Yes <think> ");
	expect("hm</think>Yes", none, true, true, "R:hm C:Yes ");
	expect("<think>never ends </thin", none, true, false, "R:never ends </thin ");
	expect("Yes <think>no</think>", none, true, false, "C:Yes <think>no</think> ");
	expect("<think>a</think>b", none, false, false, "C:<think>a</think>b ");
	expect("<think>a</think>" CALL("f", "{}"), VOCAB_TOOLS_HERMES, true, false, "R:a f({})");
	expect("<think>a" CALL("f", "{}"), VOCAB_TOOLS_HERMES, true, false, "R:a f({})");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_reasoning),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
