#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "gateway/api/api_request.h"
#include "gateway/api/json_read.h"

#define CHAT(more)   "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]" more "}"
#define PROMPT(more) "{\"prompt\":\"x\"" more "}"

static const struct gw_api_limits limits = {
	.model_name = "m", .n_vocab = 1000, .ctx = 4096, .max_choices = 8};

static struct gw_request *accept_with(const struct gw_api_limits *with, enum gw_endpoint endpoint,
				      const char *body)
{
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	if (gw_request_read(endpoint, span_of(body), with, &request, &err) != SVC_OK)
		fail_msg("refused: %s\n%s", err.msg, body);
	return request;
}

static struct gw_request *accept(enum gw_endpoint endpoint, const char *body)
{
	return accept_with(&limits, endpoint, body);
}

static struct svc_err refuse_with(const struct gw_api_limits *with, enum gw_endpoint endpoint,
				  struct span body)
{
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	/* An exact-size copy, so that a sanitizer sees a read too far. */
	char *copy = malloc(body.len ? body.len : 1);
	assert_non_null(copy);
	memcpy(copy, body.ptr, body.len);
	if (gw_request_read(endpoint, (struct span){copy, body.len}, with, &request, &err) ==
	    SVC_OK)
		fail_msg("accepted: %.*s", (int)body.len, body.ptr);
	free(copy);
	assert_true(strlen(err.msg) > 5);
	return err;
}

/* ---- every refusal names its parameter ---- */

struct refusal {
	uintptr_t endpoint; /* as wide as a pointer: no padding */
	const char *body, *param;
	uintptr_t code;
};

static const struct refusal refusals[] = {
	/* what is no JSON, or no object */
	{GW_CHAT, "", "", SVC_INVALID},
	{GW_CHAT, "{", "", SVC_INVALID},
	{GW_CHAT, "[]", "", SVC_INVALID},
	{GW_CHAT, "null", "", SVC_INVALID},
	{GW_CHAT, CHAT("") " {}", "", SVC_INVALID},
	{GW_CHAT, "\xEF\xBB\xBF{}", "", SVC_INVALID},
	{GW_CHAT, CHAT(",\"n\":1,\"n\":2"), "n", SVC_INVALID},
	{GW_CHAT, CHAT(",\"temperature\":NaN"), "temperature", SVC_INVALID},
	{GW_CHAT, CHAT(",\"temperature\":1e400"), "temperature", SVC_INVALID},
	{GW_CHAT, CHAT(",\"seed\":9223372036854775808"), "seed", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"emoji \\ud83d\"}]}", "messages",
	 SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x \\ude00 y\"}]}", "messages",
	 SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\x28\"}]}", "messages",
	 SVC_INVALID},

	/* numbers: type and range, -1 and beyond for each */
	{GW_CHAT, CHAT(",\"temperature\":999999"), "temperature", SVC_INVALID},
	{GW_CHAT, CHAT(",\"temperature\":-0.1"), "temperature", SVC_INVALID},
	{GW_CHAT, CHAT(",\"temperature\":\"1\""), "temperature", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_p\":-1"), "top_p", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_p\":1.01"), "top_p", SVC_INVALID},
	{GW_CHAT, CHAT(",\"min_p\":2"), "min_p", SVC_INVALID},
	{GW_CHAT, CHAT(",\"typical_p\":true"), "typical_p", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_k\":-2"), "top_k", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_k\":2147483648"), "top_k", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_k\":1.5"), "top_k", SVC_INVALID},
	{GW_CHAT, CHAT(",\"repetition_penalty\":0"), "repetition_penalty", SVC_INVALID},
	{GW_CHAT, CHAT(",\"presence_penalty\":2.1"), "presence_penalty", SVC_INVALID},
	{GW_CHAT, CHAT(",\"frequency_penalty\":-2.1"), "frequency_penalty", SVC_INVALID},
	{GW_CHAT, CHAT(",\"max_tokens\":0"), "max_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"max_tokens\":-1"), "max_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"max_tokens\":1e30"), "max_tokens", SVC_INVALID},
	{GW_COMPLETIONS, PROMPT(",\"max_tokens\":-1"), "max_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"max_completion_tokens\":0"), "max_completion_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"min_tokens\":-1"), "min_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"min_tokens\":5,\"max_tokens\":4"), "min_tokens", SVC_INVALID},
	{GW_CHAT, CHAT(",\"n\":0"), "n", SVC_INVALID},
	{GW_CHAT, CHAT(",\"n\":9"), "n", SVC_INVALID},
	{GW_CHAT, CHAT(",\"n\":\"2\""), "n", SVC_INVALID},
	{GW_CHAT, CHAT(",\"n\":true"), "n", SVC_INVALID},
	{GW_CHAT, CHAT(",\"seed\":1.5"), "seed", SVC_INVALID},
	{GW_CHAT, CHAT(",\"seed\":1e300"), "seed", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logprobs\":1"), "logprobs", SVC_INVALID},
	{GW_CHAT, CHAT(",\"top_logprobs\":2"), "top_logprobs", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs", SVC_INVALID},
	{GW_COMPLETIONS, PROMPT(",\"logprobs\":true"), "logprobs", SVC_INVALID},
	{GW_COMPLETIONS, PROMPT(",\"logprobs\":-1"), "logprobs", SVC_INVALID},
	{GW_COMPLETIONS, PROMPT(",\"best_of\":2"), "best_of", SVC_UNSUPPORTED},
	{GW_CHAT, CHAT(",\"stream\":\"yes\""), "stream", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stream_options\":{}"), "stream_options", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stream\":true,\"stream_options\":1"), "stream_options", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stream\":true,\"stream_options\":{\"include_usage\":1}"),
	 "stream_options.include_usage", SVC_INVALID},

	/* lists */
	{GW_CHAT, CHAT(",\"logit_bias\":{\"999999\":5}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"1000\":5}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"AI\":-100}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"-1\":1}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"\":1}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"1\":1,\"01\":1}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"1\":1e39}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":{\"1\":\"x\"}"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"logit_bias\":[]"), "logit_bias", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop\":\"\""), "stop", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop\":[\"a\",1]"), "stop", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop\":{}"), "stop", SVC_INVALID},
	{GW_CHAT,
	 CHAT(",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"a\",\"b\","
	      "\"c\",\"d\",\"e\",\"f\",\"g\"]"),
	 "stop", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop_token_ids\":[1000]"), "stop_token_ids", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop_token_ids\":[-1]"), "stop_token_ids", SVC_INVALID},
	{GW_CHAT, CHAT(",\"stop_token_ids\":5"), "stop_token_ids", SVC_INVALID},

	/* the input */
	{GW_CHAT, "{}", "messages", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[]}", "messages", SVC_INVALID},
	{GW_CHAT, "{\"messages\":null}", "messages", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[1]}", "messages[0]", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"a b\",\"content\":\"x\"}]}", "messages[0].role",
	 SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content", SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages[0].content",
	 SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
	 "messages[0].content", SVC_UNSUPPORTED},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}", "messages[0].content",
	 SVC_INVALID},
	{GW_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":1}]}",
	 "messages[0].name", SVC_INVALID},
	{GW_CHAT,
	 "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
	 "\"arguments\":\"{\"}}]}]}",
	 "messages[0].tool_calls", SVC_INVALID},
	{GW_COMPLETIONS, "{}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[]}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":5}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[1,\"x\"]}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[[1],[]]}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[1000]}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[[[1]]]}", "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}",
	 "prompt", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[\"1\",\"2\",\"3\"],\"n\":3}", "n", SVC_INVALID},
	{GW_COMPLETIONS, "{\"prompt\":[1,2,3],\"max_tokens\":4094}", "prompt", SVC_TOO_LONG},
	{GW_TOKENIZE, "{}", "prompt", SVC_INVALID},
	{GW_TOKENIZE, "{\"prompt\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
	 "prompt", SVC_INVALID},
	{GW_DETOKENIZE, "{}", "tokens", SVC_INVALID},
	{GW_DETOKENIZE, "{\"tokens\":[1,-1]}", "tokens", SVC_INVALID},

	/* what isn't there is refused by name */
	{GW_CHAT, CHAT(",\"model\":\"gpt-4\""), "model", SVC_NOT_FOUND},
	{GW_CHAT, CHAT(",\"model\":1"), "model", SVC_INVALID},
	{GW_COMPLETIONS, PROMPT(",\"suffix\":\"y\""), "suffix", SVC_UNSUPPORTED},
	{GW_CHAT, CHAT(",\"response_format\":{\"type\":\"xml\"}"), "response_format",
	 SVC_UNSUPPORTED},
	{GW_CHAT, CHAT(",\"response_format\":\"json\""), "response_format", SVC_INVALID},
	{GW_CHAT, CHAT(",\"tool_choice\":\"required\""), "tool_choice", SVC_INVALID},
	{GW_CHAT, CHAT(",\"tool_choice\":\"all\""), "tool_choice", SVC_INVALID},
	{GW_CHAT, CHAT(",\"tools\":[{\"type\":\"x\"}]"), "tools", SVC_INVALID},
	{GW_CHAT, CHAT(",\"guided_json\":{\"not\":{}}"), "guided_json", SVC_INVALID},
	{GW_CHAT, CHAT(",\"chat_template\":\"x\""), "chat_template", SVC_INVALID},
	{GW_CHAT, CHAT(",\"chat_template_kwargs\":{\"a\":1}"), "chat_template_kwargs", SVC_INVALID},
	{GW_CHAT, CHAT(",\"chat_template_kwargs\":{\"enable_thinking\":\"no\"}"),
	 "chat_template_kwargs", SVC_INVALID},
	{GW_CHAT, CHAT(",\"chat_template_kwargs\":{\"enable_thinking\":true,\"a\":true}"),
	 "chat_template_kwargs", SVC_INVALID},
	{GW_CHAT, CHAT(",\"user\":5"), "user", SVC_INVALID},
};

static void every_refusal_names_its_parameter(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		const struct refusal *r = &refusals[i];
		struct svc_err err =
			refuse_with(&limits, (enum gw_endpoint)r->endpoint, span_of(r->body));
		if (err.code != r->code || strcmp(err.param, r->param) != 0)
			print_error("%s\n -> %s\n", r->body, err.msg);
		assert_string_equal(err.param, r->param);
		assert_int_equal(err.code, r->code);
	}
}

static void no_message_repeats_bytes(void **state)
{
	(void)state;
	/* A marker that no message of ours contains. */
	static const char *const bodies[] = {
		"{\"prompt\":\"zqzq\xFF\"}",
		"{\"zqzq\":\"\\ud83d\",\"prompt\":\"x\"}",
		"{\"prompt\":zqzq}",
		"{\"prompt\":\"x\",\"model\":\"zqzq\"}",
		"{\"prompt\":\"x\",\"stop\":{\"zqzq\":1}}",
		"{\"zqzq\":1,\"zqzq\":1}",
		"{\"prompt\":\"x\",\"logit_bias\":{\"zqzq\":1}}",
	};
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		struct svc_err err = refuse_with(&limits, GW_COMPLETIONS, span_of(bodies[i]));
		assert_null(strstr(err.msg, "zqzq"));
		assert_null(strstr(err.param, "zqzq"));
	}
}

static void nesting_and_size_are_capped(void **state)
{
	(void)state;
	struct buf body = {0};
	buf_print(&body, "{\"prompt\":\"x\",\"x\":");
	for (int i = 0; i < 100000; i++)
		buf_append(&body, "[", 1);
	struct svc_err err =
		refuse_with(&limits, GW_COMPLETIONS, (struct span){body.ptr, body.len});
	assert_non_null(strstr(err.msg, "nested deeper"));
	buf_clear(&body);
	buf_print(&body, "{\"prompt\":[");
	for (int i = 0; i < 300000; i++)
		buf_append(&body, "1,", 2);
	buf_print(&body, "1]}");
	err = refuse_with(&limits, GW_COMPLETIONS, (struct span){body.ptr, body.len});
	assert_string_equal(err.param, "prompt");
	buf_clear(&body);
	buf_print(&body, "{\"prompt\":\"x\",\"stop_token_ids\":[0");
	for (int i = 0; i < 2000; i++)
		buf_print(&body, ",%d", i % 1000);
	buf_print(&body, "]}");
	err = refuse_with(&limits, GW_COMPLETIONS, (struct span){body.ptr, body.len});
	assert_string_equal(err.param, "stop_token_ids");
	buf_clear(&body);
	buf_print(&body, "{\"prompt\":\"x\",\"logit_bias\":{\"0\":1");
	for (int i = 1; i < 10000; i++)
		buf_print(&body, ",\"%d\":1", i);
	buf_print(&body, "}}");
	err = refuse_with(&limits, GW_COMPLETIONS, (struct span){body.ptr, body.len});
	assert_string_equal(err.param, "logit_bias");
	buf_free(&body);
}

static void a_cut_body_is_refused_wherever_it_is_cut(void **state)
{
	(void)state;
	static const char body[] = CHAT(",\"stop\":[\"\\u00e4\\ud83e\\udd99\"],\"temperature\":0.5,"
					"\"tools\":[],\"seed\":-3");
	for (size_t len = 0; len < sizeof body - 1; len++)
		refuse_with(&limits, GW_CHAT, (struct span){body, len});
	gw_request_free(accept(GW_CHAT, body));
}

/* ---- what is accepted means what it says ---- */

static void defaults(void **state)
{
	(void)state;
	struct gw_request *r = accept(GW_CHAT, CHAT(""));
	assert_true(r->temperature == 1 && r->top_p == 1 && r->min_p == 0 && r->typical_p == 1);
	assert_true(r->repetition_penalty == 1 && r->presence_penalty == 0 &&
		    r->frequency_penalty == 0);
	assert_int_equal(r->top_k, 0);
	assert_int_equal(r->n, 1);
	assert_int_equal(r->max_tokens, -1);
	assert_false(r->has_seed || r->stream || r->logprobs || r->echo || r->ignore_eos);
	assert_true(r->skip_special && r->add_special && r->speculate);
	assert_string_equal(r->chat.ptr, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
					 "\"add_generation_prompt\":true}");
	gw_request_free(r);
}

static void null_means_absent(void **state)
{
	(void)state;
	struct gw_request *r = accept(
		GW_CHAT,
		CHAT(",\"model\":null,\"temperature\":null,\"stop\":null,\"n\":null,\"seed\":null,"
		     "\"logit_bias\":null,\"stream_options\":null,\"tools\":null,"
		     "\"response_format\":null,\"logprobs\":null,\"max_tokens\":null"));
	assert_true(r->temperature == 1 && r->n == 1 && !r->has_seed);
	gw_request_free(r);
}

/* Of what would be refused, too: clients send it for all that they know. */
static void what_asks_for_nothing_is_accepted(void **state)
{
	(void)state;
	static const char *const chats[] = {
		CHAT(",\"functions\":[],\"function_call\":null,\"audio\":null,\"prediction\":null"),
		CHAT(",\"chat_template_kwargs\":{\"enable_thinking\":false,\"thinking\":false}"),
		CHAT(",\"functions\":null,\"function_call\":\"\",\"use_beam_search\":false"),
		"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"function_call\":null,"
		"\"audio\":null,\"refusal\":null,\"tool_calls\":null}]}",
	};
	for (size_t i = 0; i < sizeof chats / sizeof *chats; i++) {
		struct gw_request *r = accept(GW_CHAT, chats[i]);
		assert_false(r->calls);
		assert_null(strstr(r->chat.ptr, "\"tools\""));
		gw_request_free(r);
	}
	gw_request_free(accept(GW_COMPLETIONS, PROMPT(",\"suffix\":\"\"")));
}

static void numbers(void **state)
{
	(void)state;
	struct gw_request *r =
		accept(GW_COMPLETIONS, PROMPT(",\"temperature\":-0.0,\"top_k\":2147483647,\"max_"
					      "tokens\":3.0,\"seed\":-9223372036854775808,"
					      "\"logprobs\":0,\"logit_bias\":{\"7\":-100,\"999\":0."
					      "5},\"stop\":\"ab\",\"n\":2,\"best_of\":2,"
					      "\"stop_token_ids\":[0,999]"));
	assert_true(r->temperature == 0 && !__builtin_signbit(r->temperature));
	assert_int_equal(r->top_k, 2147483647);
	assert_int_equal(r->max_tokens, 3);
	assert_true(r->has_seed && r->seed == INT64_MIN);
	assert_true(r->logprobs && r->top_logprobs == 0);
	assert_int_equal(r->n_biases, 2);
	assert_int_equal(r->biases[0].id, 7);
	assert_true(r->biases[1].value == 0.5f);
	assert_true(r->n_stops == 1 && span_is(r->stops[0], "ab"));
	assert_int_equal(r->stop_ids[1], 999);
	gw_request_free(r);
	r = accept(GW_COMPLETIONS, PROMPT(",\"max_tokens\":0,\"echo\":true,\"logprobs\":1"));
	assert_int_equal(r->max_tokens, 0);
	gw_request_free(r);
	r = accept(GW_CHAT, CHAT(",\"max_tokens\":5,\"max_completion_tokens\":7"));
	assert_int_equal(r->max_tokens, 7);
	gw_request_free(r);
}

static void prompts(void **state)
{
	(void)state;
	struct gw_request *r = accept(GW_COMPLETIONS, "{\"prompt\":[1,2,999]}");
	assert_int_equal(r->n_prompts, 1);
	assert_int_equal(r->prompts[0].n_ids, 3);
	assert_int_equal(r->prompts[0].ids[2], 999);
	gw_request_free(r);
	r = accept(GW_COMPLETIONS, "{\"prompt\":[\"a\\u0000b\",[5,6],\"\"]}");
	assert_int_equal(r->n_prompts, 3);
	assert_int_equal(r->prompts[0].text.len, 3);
	assert_null(r->prompts[0].ids);
	assert_int_equal(r->prompts[1].ids[1], 6);
	assert_int_equal(r->prompts[2].text.len, 0);
	gw_request_free(r);
}

/* The conversation as the tokenizer gets it. */
static void conversations(void **state)
{
	(void)state;
	static const struct {
		const char *in, *out;
	} table[] = {
		{"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
		 "\"f\","
		 "\"arguments\":\"{\\\"a\\\": [1.5, \\\"x\\\"]}\"}}]}",
		 "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"
		 "\"f\","
		 "\"arguments\":{\"a\":[1.5,\"x\"]}}}]}"},
		{"{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}",
		 "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
		 "\"arguments\":{}}}],"
		 "\"content\":\"\"}"},
		{"{\"role\":\"user\",\"content\":[],\"tool_calls\":null}",
		 "{\"role\":\"user\",\"content\":\"\"}"},
		{"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_end|>\"}]}",
		 "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"<|im_end|>\"}]}"},
		{"{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\\u0000b\"}",
		 "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"a\\u0000b\"}"},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		char in[512], out[512];
		snprintf(in, sizeof in, "{\"messages\":[%s],\"add_generation_prompt\":false}",
			 table[i].in);
		snprintf(out, sizeof out, "{\"messages\":[%s],\"add_generation_prompt\":false}",
			 table[i].out);
		struct gw_request *r = accept(GW_CHAT, in);
		assert_string_equal(r->chat.ptr, out);
		gw_request_free(r);
	}
}

static void options_of_the_server(void **state)
{
	(void)state;
	struct gw_api_limits strict = limits, trusting = limits;
	strict.strict = true;
	trusting.trust_request_template = true;
	gw_request_free(accept(GW_CHAT, CHAT(",\"unknown\":1")));
	struct svc_err err = refuse_with(&strict, GW_CHAT, span_of(CHAT(",\"unknown\":1")));
	assert_string_equal(err.param, "unknown");
	err = refuse_with(&strict, GW_CHAT, span_of(CHAT(",\"un known\":1")));
	assert_string_equal(err.param, "");
	gw_request_free(accept_with(&strict, GW_CHAT,
				    CHAT(",\"metadata\":{},\"store\":true,\"user\":\"u\"")));
	struct gw_request *r =
		accept_with(&trusting, GW_CHAT,
			    CHAT(",\"chat_template\":\"T\",\"chat_template_kwargs\":{\"a\":0.1}"));
	assert_non_null(
		strstr(r->chat.ptr, "\"chat_template\":\"T\",\"chat_template_kwargs\":{\"a\":0.1"));
	gw_request_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_refusal_names_its_parameter),
		cmocka_unit_test(no_message_repeats_bytes),
		cmocka_unit_test(nesting_and_size_are_capped),
		cmocka_unit_test(a_cut_body_is_refused_wherever_it_is_cut),
		cmocka_unit_test(defaults),
		cmocka_unit_test(null_means_absent),
		cmocka_unit_test(what_asks_for_nothing_is_accepted),
		cmocka_unit_test(numbers),
		cmocka_unit_test(prompts),
		cmocka_unit_test(conversations),
		cmocka_unit_test(options_of_the_server),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
