#include <errno.h>
#include <float.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "gateway/api/render.h"
#include "gateway/event_id.h"

/* Five tokens: half a character, its other half, a word, a control token, a second token with the
 * word's text. */
static const char pieces[] = "\xC3\xA4 hi<end> hi";
static const uint32_t offsets[] = {0, 1, 2, 5, 10, 13};
static const uint8_t flags[] = {VOCAB_BYTE, VOCAB_BYTE, 0, VOCAB_CONTROL | VOCAB_END, 0};
static const struct vocab vocab = {
	.n_tokens = 5, .offsets = offsets, .flags = flags, .bytes = pieces, .bytes_len = 13};

/* Prompt: " hi" as ids; answer: a-umlaut in two tokens, " hi", the end. */
static const int32_t ids[] = {2, 0, 1, 2, 3};
static const uint32_t ends[] = {0, 2, 5, 5};

struct record {
	float chosen;
	uint32_t n_top;
	struct {
		int32_t id;
		float logprob;
	} top[2];
};

static const struct record records[] = {
	{-0.5f, 2, {{0, -0.5f}, {1, -1.5f}}},
	{-0.25f, 2, {{1, -0.25f}, {0, -3.0f}}},
	{-2.0f, 2, {{4, -0.125f}, {2, -2.0f}}},
	{-0.001f, 2, {{3, -0.001f}, {0, -INFINITY}}},
};

static struct gw_view view_of(uint32_t n_tokens, enum body_finish finish)
{
	return (struct gw_view){
		.n_prompt = 1,
		.n_tokens = n_tokens,
		.tokenized = true,
		.finish = finish,
		.ids = ids,
		.ends = ends,
		.out = {"\xC3\xA4 hi", 5},
		.records = (const char *)records,
		.n_records = 4,
		.n_top = 2,
	};
}

static const struct gw_meta chat = {.id = "chatcmpl-1",
				    .created_s = 5,
				    .model = "m\"",
				    .fingerprint = "f",
				    .chat = true,
				    .logprobs = true,
				    .n = 1};
static const struct gw_meta completion = {.id = "cmpl-1",
					  .created_s = 5,
					  .model = "m",
					  .fingerprint = "f",
					  .logprobs = true,
					  .echo = true,
					  .token_ids = true,
					  .n = 1};

static void expect(struct buf *out, const char *wanted)
{
	json_error_t error;
	json_t *json = json_loadb(out->ptr, out->len, 0, &error);
	if (!json)
		fail_msg("no JSON: %s\n%s", error.text, out->ptr);
	json_decref(json);
	assert_string_equal(out->ptr, wanted);
	buf_free(out);
}

#define HEAD(object)        \
	"{\"id\":\"" object \
	",\"created\":5,\"model\":\"m\",\"system_fingerprint\":\"f\",\"choices\":["
#define CHUNK                                                                                     \
	"chat.completion.chunk\",\"created\":5,\"model\":\"m\\\"\",\"system_fingerprint\":\"f\"," \
	"\"choices\":[{\"index\":3,"

static void chat_events(void **state)
{
	(void)state;
	struct buf out = {0};
	const struct gw_render render = {.out = &out, .meta = &chat, .vocab = &vocab};
	struct gw_view view = view_of(4, FINISH_STOP);
	gw_render_opening(&render, 3, &view);
	expect(&out, "{\"id\":\"chatcmpl-1\",\"object\":\"" CHUNK
		     "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
		     "\"finish_reason\":null}]}");
	gw_render_token(&render, 3, &view, 0, 0);
	expect(&out, "{\"id\":\"chatcmpl-1\",\"object\":\"" CHUNK
		     "\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[{\"token\":\"bytes:"
		     "\\\\xc3\",\"logprob\":-0.5,"
		     "\"bytes\":[195],\"top_logprobs\":[{\"token\":\"bytes:\\\\xc3\",\"logprob\":-"
		     "0.5,\"bytes\":[195]},"
		     "{\"token\":\"bytes:\\\\xa4\",\"logprob\":-1.5,\"bytes\":[164]}]}],"
		     "\"refusal\":null},"
		     "\"finish_reason\":null}]}");
	view.finish = FINISH_STOP;
	gw_render_finish(&render, 3, &view);
	expect(&out, "{\"id\":\"chatcmpl-1\",\"object\":\"" CHUNK
		     "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}");
}

/* An event depends on its token and what came before, never on what came after. */
static void an_event_is_the_same_whenever_it_is_made(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 4; k++) {
		struct buf early = {0}, late = {0};
		struct gw_view then = view_of(k + 1, FINISH_NONE), now = view_of(4, FINISH_STOP);
		gw_render_token(&(struct gw_render){.out = &early, .meta = &chat, .vocab = &vocab},
				0, &then, k, 0);
		gw_render_token(&(struct gw_render){.out = &late, .meta = &chat, .vocab = &vocab},
				0, &now, k, 0);
		assert_string_equal(early.ptr, late.ptr);
		buf_free(&early);
		buf_free(&late);
	}
}

static void a_stream_adds_up_to_the_answer(void **state)
{
	(void)state;
	char text[32] = "";
	struct gw_view view = view_of(4, FINISH_STOP);
	for (uint32_t k = 0; k < 4; k++) {
		struct span piece = gw_view_text(&view, k);
		strncat(text, piece.ptr, piece.len);
	}
	assert_string_equal(text, "\xC3\xA4 hi");
}

static void completion_with_echo(void **state)
{
	(void)state;
	struct buf out = {0};
	const struct gw_render render = {.out = &out, .meta = &completion, .vocab = &vocab};
	struct gw_view view = view_of(4, FINISH_LENGTH);
	gw_render_answer(&render, &view, 1);
	expect(&out,
	       HEAD("cmpl-1\",\"object\":\"text_completion\"") "{\"index\":0,\"text\":\" "
							       "hi\xC3\xA4 hi\",\"logprobs\":{"
							       "\"tokens\":[\" "
							       "hi\",\"bytes:\\\\xc3\",\"bytes:"
							       "\\\\xa4\",\" hi\",\"<end>\"],"
							       "\"token_logprobs\":[null,-0.5,-0."
							       "25,-2,-0.001],"
							       "\"top_logprobs\":[null,{\"bytes:"
							       "\\\\xc3\":-0.5,\"bytes:\\\\xa4\":-"
							       "1.5},"
							       "{\"bytes:\\\\xa4\":-0.25,\"bytes:"
							       "\\\\xc3\":-3},{\" hi\":-0.125},"
							       "{\"<end>\":-0.001,\"bytes:"
							       "\\\\xc3\":-9999}],"
							       "\"text_offset\":[0,3,4,4,7]},"
							       "\"prompt_token_ids\":[2],\"token_"
							       "ids\":[0,1,2,3],"
							       "\"finish_reason\":\"length\"}],"
							       "\"usage\":{\"prompt_tokens\":1,"
							       "\"completion_tokens\":4,\"total_"
							       "tokens\":5,\"prompt_tokens_details"
							       "\":{\"cached_tokens\":0}}}");
}

static void damaged_memory_is_survived(void **state)
{
	(void)state;
	static const int32_t wild_ids[] = {2147483647, -1, 5, 2147483647, -2147483647};
	static const uint32_t wild_ends[] = {4294967295u, 0, 3, 1};
	struct buf out = {0};
	struct gw_view view = view_of(4, FINISH_ERROR);
	view.ids = wild_ids;
	view.ends = wild_ends;
	view.n_records = 1;
	for (uint32_t k = 0; k < 4; k++)
		gw_render_token(&(struct gw_render){.out = &out, .meta = &chat, .vocab = &vocab}, 0,
				&view, k, 0);
	buf_clear(&out);
	gw_render_answer(&(struct gw_render){.out = &out, .meta = &completion, .vocab = &vocab},
			 &view, 1);
	json_t *json = json_loadb(out.ptr, out.len, 0, NULL);
	assert_non_null(json);
	json_decref(json);
	buf_free(&out);
}

static void floats_read_back(void **state)
{
	(void)state;
	static const float special[] = {0.0f,	-0.0f, FLT_MIN,	 FLT_MAX,
					1e-45f, -0.1f, 1.0f / 3, 16777216.0f};
	uint32_t bits = 1;
	for (int i = 0; i < 200000; i++) {
		float value, back;
		bits = bits * 1664525u + 1013904223u;
		memcpy(&value, &bits, sizeof value);
		if (i < 8)
			value = special[i];
		if (!isfinite(value))
			continue;
		struct buf out = {0};
		gw_float_print(&out, value);
		back = strtof(out.ptr, NULL);
		assert_memory_equal(&back, &value, sizeof back);
		buf_free(&out);
	}
	struct buf out = {0};
	gw_float_print(&out, -0.1f);
	gw_float_print(&out, NAN);
	assert_string_equal(out.ptr, "-0.1-9999");
	buf_free(&out);
}

/* ---- event ids ---- */

/* Key and message of the paper's appendix; its result, and that of the empty message from the
 * reference vectors. */
static void siphash_vectors(void **state)
{
	(void)state;
	uint8_t key[16], message[15];
	for (uint8_t i = 0; i < 16; i++)
		key[i] = i;
	for (uint8_t i = 0; i < 15; i++)
		message[i] = i;
	assert_true(gw_siphash(key, message, 15) == 0xa129ca6149be45e5u);
	assert_true(gw_siphash(key, message, 0) == 0x726fdb47dd0e0e31u);
}

static void event_ids(void **state)
{
	(void)state;
	static const uint8_t key[16] = "0123456789abcde", other[16] = "0123456789abcdf";
	struct gw_event_id id = {.run = 0xAB,
				 .request = 7,
				 .created_s = 0x65,
				 .n = 3,
				 .at = {0, 15, 4294967295u}},
			   back;
	struct svc_err err;
	char text[GW_EVENT_ID_BYTES];
	gw_event_id_print(key, 1, &id, text);
	assert_int_equal(strncmp(text, "00000000000000ab.7.65.0-f-ffffffff.", 35), 0);
	assert_int_equal(gw_event_id_parse(key, 1, 0xAB, span_of(text), &back, &err), SVC_OK);
	assert_true(back.run == id.run && back.request == 7 && back.created_s == 0x65 &&
		    back.n == 3 && back.at[2] == 4294967295u);
	/* another run, another asker, another key, any changed byte */
	assert_int_equal(gw_event_id_parse(key, 1, 0xAC, span_of(text), &back, &err), SVC_GONE);
	assert_true(back.run == 0xAB && back.n == 3 && back.at[1] == 15);
	assert_int_equal(gw_event_id_parse(key, 2, 0xAB, span_of(text), &back, &err),
			 SVC_NOT_FOUND);
	assert_int_equal(gw_event_id_parse(other, 1, 0xAB, span_of(text), &back, &err),
			 SVC_NOT_FOUND);
	for (size_t i = 17; i < strlen(text); i++) {
		char bad[GW_EVENT_ID_BYTES];
		memcpy(bad, text, sizeof bad);
		bad[i] = bad[i] == '1' ? '2' : '1';
		assert_int_equal(gw_event_id_parse(key, 1, 0xAB, span_of(bad), &back, &err),
				 SVC_NOT_FOUND);
	}
	for (size_t len = 0; len < strlen(text); len++)
		assert_int_not_equal(
			gw_event_id_parse(key, 1, 0xAB, (struct span){text, len}, &back, &err),
			SVC_OK);
	/* the longest one fits */
	struct gw_event_id most = {.run = UINT64_MAX,
				   .request = UINT64_MAX,
				   .created_s = UINT64_MAX,
				   .n = GW_CHOICES_MAX};
	memset(most.at, 0xFF, sizeof most.at);
	gw_event_id_print(key, 1, &most, text);
	assert_int_equal(gw_event_id_parse(key, 1, UINT64_MAX, span_of(text), &back, &err), SVC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chat_events),
		cmocka_unit_test(an_event_is_the_same_whenever_it_is_made),
		cmocka_unit_test(a_stream_adds_up_to_the_answer),
		cmocka_unit_test(completion_with_echo),
		cmocka_unit_test(damaged_memory_is_survived),
		cmocka_unit_test(floats_read_back),
		cmocka_unit_test(siphash_vectors),
		cmocka_unit_test(event_ids),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
