#include "gateway/api/api_read.h"

static enum svc_code input_check(struct gw_reading *reading)
{
	const struct gw_request *request = reading->request;
	switch (request->endpoint) {
	case GW_CHAT:
	case GW_TEMPLATE:
		if (!reading->messages)
			return gw_wrong(reading, "messages", "messages is missing");
		break;
	case GW_COMPLETIONS:
		if (!request->prompts)
			return gw_wrong(reading, "prompt", "prompt is missing");
		break;
	case GW_EMBEDDINGS:
		if (!request->prompts)
			return gw_wrong(reading, "input", "input is missing");
		break;
	case GW_TOKENIZE:
		if (!reading->messages == !request->prompts)
			return gw_wrong(reading, "prompt",
					"give one of prompt (a string) and messages, not both");
		if (request->prompts && (request->n_prompts > 1 || request->prompts[0].ids))
			return gw_wrong(reading, "prompt", "prompt must be a string");
		break;
	case GW_DETOKENIZE:
		if (!request->tokens)
			return gw_wrong(reading, "tokens", "tokens is missing");
		break;
	}
	return SVC_OK;
}

static enum svc_code count_check(struct gw_reading *reading)
{
	struct gw_request *request = reading->request;
	uint64_t prompts = request->n_prompts ? request->n_prompts : 1;
	if ((uint64_t)request->n * prompts > reading->limits->max_choices)
		return gw_wrong(reading, "n", "n times the number of prompts must be at most %u",
				reading->limits->max_choices);
	if (reading->best_of && reading->best_of != request->n)
		return svc_fail_param(reading->err, SVC_UNSUPPORTED, "best_of",
				      "best_of is supported only with the same value as n");
	if (reading->max_completion_tokens)
		request->max_tokens = reading->max_completion_tokens;
	if (request->max_tokens >= 0 && request->min_tokens > request->max_tokens)
		return gw_wrong(reading, "min_tokens", "min_tokens must not be above max_tokens");
	return SVC_OK;
}

static enum svc_code shown_check(struct gw_reading *reading)
{
	struct gw_request *request = reading->request;
	if (reading->has_stream_options && !request->stream)
		return gw_wrong(reading, "stream_options", "stream_options needs stream: true");
	if (request->endpoint == GW_COMPLETIONS) {
		request->logprobs = reading->top_logprobs_given >= 0;
	} else if (reading->top_logprobs_given > 0 && !request->logprobs) {
		return gw_wrong(reading, "top_logprobs", "top_logprobs needs logprobs: true");
	}
	request->top_logprobs = reading->top_logprobs_given > 0 ? reading->top_logprobs_given : 0;
	return SVC_OK;
}

static enum svc_code too_long(struct gw_reading *reading, const char *what, size_t i,
			      size_t n_answer)
{
	const struct gw_request *request = reading->request;
	enum svc_code code = svc_fail_too_long(reading->err, what, what, request->prompts[i].n_ids,
					       n_answer, reading->limits->ctx);
	if (request->n_prompts > 1)
		svc_err_prefix(reading->err, "number %zu", i);
	return code;
}

static enum svc_code vector_check(struct gw_reading *reading)
{
	struct gw_request *request = reading->request;
	uint32_t n_embd = reading->limits->n_embd;
	for (size_t i = 0; i < request->n_prompts; i++)
		if (request->prompts[i].n_ids > reading->limits->ctx)
			return too_long(reading, "input", i, 0);
	if (request->dimensions > n_embd)
		return gw_wrong(reading, "dimensions",
				"dimensions must be at most %u, which is what this model has",
				n_embd);
	request->dimensions = request->dimensions ? request->dimensions : n_embd;
	return SVC_OK;
}

/* Prompts of ids are known in length now; for the others the tokenizer says the same. */
static enum svc_code length_check(struct gw_reading *reading)
{
	const struct gw_request *request = reading->request;
	size_t wanted = request->max_tokens >= 0 ? (size_t)request->max_tokens : 1;
	for (size_t i = 0; i < request->n_prompts; i++) {
		size_t n = request->prompts[i].n_ids;
		if (n && n + wanted > reading->limits->ctx)
			return too_long(reading, "prompt", i, wanted);
	}
	return SVC_OK;
}

enum svc_code gw_request_check(struct gw_reading *reading)
{
	enum svc_code code = input_check(reading);
	if (code == SVC_OK && reading->request->endpoint & (GW_CHAT | GW_COMPLETIONS)) {
		code = count_check(reading);
		if (code == SVC_OK)
			code = shown_check(reading);
		if (code == SVC_OK)
			code = length_check(reading);
		if (code == SVC_OK)
			code = gw_tools_check(reading);
		if (code == SVC_OK)
			code = gw_constraint_build(reading);
	}
	if (code == SVC_OK && reading->request->endpoint == GW_EMBEDDINGS)
		code = vector_check(reading);
	if (code == SVC_OK && reading->messages)
		code = gw_chat_build(reading);
	return code;
}
