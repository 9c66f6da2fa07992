#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/vocab.h"

static const uint32_t offsets[] = {0, 3, 3, 4, 8};
static const uint8_t flags[] = {0, VOCAB_UNUSED, VOCAB_BYTE, VOCAB_CONTROL | VOCAB_END};
static const int32_t ends[] = {3};
static const struct vocab_parts parts = {.model_hash = 77,
					 .n_tokens = 4,
					 .n_ends = 1,
					 .bos_id = -1,
					 .eos_id = 3,
					 .unk_id = -1,
					 .pad_id = -1,
					 .strip = VOCAB_STRIP_FIRST,
					 .offsets = offsets,
					 .bytes = "abc\xFF<eos",
					 .flags = flags,
					 .ends = ends};

static void written_reads_back(void **state)
{
	(void)state;
	size_t size = vocab_size(&parts);
	void *blob = malloc(size);
	struct vocab vocab;
	vocab_write(&parts, blob);
	assert_int_equal(vocab_open(blob, size, &vocab, NULL), SVC_OK);
	assert_true(vocab.n_tokens == 4 && vocab.eos_id == 3 && vocab.bos_id == -1 &&
		    vocab.model_hash == 77);
	assert_true(span_is(vocab_token(&vocab, 0), "abc") && vocab_token(&vocab, 1).len == 0);
	assert_true(span_is(vocab_token(&vocab, 2), "\xFF") &&
		    span_is(vocab_token(&vocab, 3), "<eos"));
	assert_true(vocab_token(&vocab, -1).len == 0 && vocab_token(&vocab, 4).len == 0);
	assert_true(vocab_token(&vocab, INT32_MIN).len == 0 &&
		    vocab_token(&vocab, INT32_MAX).len == 0);
	assert_true(vocab_is_end(&vocab, 3) && !vocab_is_end(&vocab, 2) &&
		    !vocab_is_end(&vocab, 99));
	assert_true(vocab.strip == VOCAB_STRIP_FIRST && vocab.max_token_bytes == 4);
	free(blob);
}

static void limits_are_refused(void **state)
{
	(void)state;
	static const uint32_t falling[] = {0, 3, 2, 4, 8};
	struct vocab_parts bad = parts;
	bad.n_tokens = 0;
	assert_int_equal(vocab_size(&bad), 0);
	bad = parts;
	bad.n_ends = VOCAB_MAX_ENDS + 1;
	assert_int_equal(vocab_size(&bad), 0);
	bad = parts;
	bad.offsets = falling;
	assert_int_equal(vocab_size(&bad), 0);
}

/* Every byte of the header and tables made wrong: refused, or still readable without leaving the
 * blob. */
static void no_byte_is_trusted(void **state)
{
	(void)state;
	size_t size = vocab_size(&parts), refused = 0;
	unsigned char *blob = malloc(size);
	for (size_t at = 0; at < size; at++) {
		for (unsigned change = 1; change < 256; change *= 2) {
			struct vocab vocab;
			struct svc_err err = {0};
			vocab_write(&parts, blob);
			blob[at] ^= (unsigned char)change;
			if (vocab_open(blob, size, &vocab, &err) != SVC_OK) {
				assert_true(err.code == SVC_CORRUPT && err.msg[0]);
				refused++;
				continue;
			}
			for (int32_t id = -1; id <= (int32_t)vocab.n_tokens; id++) {
				struct span token = vocab_token(&vocab, id);
				assert_true(token.len <= size);
			}
		}
	}
	assert_true(refused > 400);
	for (size_t cut = 0; cut < size; cut++) {
		struct vocab vocab;
		vocab_write(&parts, blob);
		assert_int_equal(vocab_open(blob, cut, &vocab, NULL), SVC_CORRUPT);
	}
	free(blob);
}

/* The mapping changes after it was checked. */
static void a_changing_mapping_is_survived(void **state)
{
	(void)state;
	size_t size = vocab_size(&parts);
	char *blob = malloc(size);
	struct vocab vocab;
	vocab_write(&parts, blob);
	assert_int_equal(vocab_open(blob, size, &vocab, NULL), SVC_OK);
	memset(blob + sizeof(struct vocab_header), 0xEE, 20);
	for (int32_t id = 0; id < 4; id++)
		assert_int_equal(vocab_token(&vocab, id).len, 0);
	free(blob);
}

/* Mistral's forms, by what a template mentions, and by what the vocabulary has. */
static void forms_of_calls(void **state)
{
	(void)state;
	static const uint32_t starts[] = {0, 12, 24, 30, 39};
	static const uint8_t kinds[] = {VOCAB_ADDED, VOCAB_CONTROL, VOCAB_CONTROL, VOCAB_CONTROL};
	struct vocab_parts own = parts;
	struct vocab vocab;
	own.offsets = starts;
	own.bytes = "[TOOL_CALLS][TOOL_CALLS][ARGS][CALL_ID]";
	own.flags = kinds;
	size_t size = vocab_size(&own);
	void *blob = malloc(size);
	vocab_write(&own, blob);
	assert_int_equal(vocab_open(blob, size, &vocab, NULL), SVC_OK);
	struct vocab_call_tokens there = vocab_call_tokens_of(&vocab), none = {-1, -1, -1};
	assert_true(there.calls == 1 && there.args == 2 && there.call_id == 3);
	free(blob);
	static const struct {
		const char *text;
		enum vocab_tools form;
	} templates[] = {
		{"tools [TOOL_CALLS][", VOCAB_TOOLS_MISTRAL_LIST},
		{"tools [TOOL_CALLS] [", VOCAB_TOOLS_MISTRAL_SPACED},
		{"tools [TOOL_CALLS] [ARGS]", VOCAB_TOOLS_MISTRAL_ARGS},
		{"tools [TOOL_CALLS] [CALL_ID] [ARGS]", VOCAB_TOOLS_MISTRAL_IDS},
		{"[TOOL_CALLS]", VOCAB_TOOLS_NONE},
	};
	for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
		enum vocab_tools form = vocab_tools_of(span_of(templates[i].text));
		assert_int_equal(form, templates[i].form);
		assert_int_equal(vocab_tools_with(form, &there), form);
		assert_int_equal(vocab_tools_with(form, &none),
				 form == VOCAB_TOOLS_NONE ? VOCAB_TOOLS_NONE : VOCAB_TOOLS_MISTRAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(written_reads_back),
		cmocka_unit_test(limits_are_refused),
		cmocka_unit_test(no_byte_is_trusted),
		cmocka_unit_test(a_changing_mapping_is_survived),
		cmocka_unit_test(forms_of_calls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
