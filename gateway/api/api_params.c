#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "gateway/api/api_read.h"
#include "gateway/api/json_read.h"

enum kind {
	KIND_BOOL,
	KIND_INT,
	KIND_REAL,
	KIND_CUSTOM,
	KIND_IGNORED, /* means nothing here and does no harm: accepted, also with --strict */
	KIND_REFUSED, /* would change the answer and isn't there: saying nothing would be a lie */
};

struct param {
	const char *name;
	unsigned endpoints;
	enum kind kind;
	double min, max, fallback;
	size_t offset; /* of a bool, int64_t or double in struct gw_request */
	bool local;    /* in struct gw_reading */
	gw_param_reader read;
	const char *remedy; /* KIND_REFUSED */
};

#define GENERATE  (GW_CHAT | GW_COMPLETIONS)
#define CONVERSE  (GW_CHAT | GW_TOKENIZE | GW_TEMPLATE)
#define EVERY	  (GENERATE | GW_TOKENIZE | GW_DETOKENIZE | GW_TEMPLATE | GW_EMBEDDINGS)
#define INT_MAX_D 2147483647.0

/* clang-format off */
#define PLACE(type, field) .offset = offsetof(struct type, field)
#define RANGE(low, high, otherwise) .min = (low), .max = (high), .fallback = (otherwise)
#define BOOL(text, where, field, otherwise) \
	{ .name = (text), .endpoints = (where), .kind = KIND_BOOL, RANGE(0, 1, otherwise), PLACE(gw_request, field) }
#define INT(text, where, field, low, high, otherwise) \
	{ .name = (text), .endpoints = (where), .kind = KIND_INT, RANGE(low, high, otherwise), PLACE(gw_request, field) }
#define REAL(text, where, field, low, high, otherwise) \
	{ .name = (text), .endpoints = (where), .kind = KIND_REAL, RANGE(low, high, otherwise), PLACE(gw_request, field) }
#define LOCAL(text, where, which, field, low, high, otherwise) \
	{ .name = (text), .endpoints = (where), .kind = (which), RANGE(low, high, otherwise), PLACE(gw_reading, field), .local = true }
#define CUSTOM(text, where, reader) { .name = (text), .endpoints = (where), .kind = KIND_CUSTOM, .read = (reader) }
#define IGNORED(text) { .name = (text), .endpoints = EVERY, .kind = KIND_IGNORED }
#define REFUSED(text, where, instead) { .name = (text), .endpoints = (where), .kind = KIND_REFUSED, .remedy = (instead) }
/* clang-format on */

static const struct param params[] = {
	CUSTOM("model", EVERY, gw_read_model),
	CUSTOM("messages", CONVERSE, gw_read_messages),
	CUSTOM("prompt", GW_COMPLETIONS | GW_TOKENIZE, gw_read_prompt),
	CUSTOM("tokens", GW_DETOKENIZE, gw_read_tokens),
	CUSTOM("input", GW_EMBEDDINGS, gw_read_prompt),

	CUSTOM("encoding_format", GW_EMBEDDINGS, gw_read_encoding),
	CUSTOM("pooling", GW_EMBEDDINGS, gw_read_pooling),
	INT("dimensions", GW_EMBEDDINGS, dimensions, 1, INT_MAX_D, 0),

	REAL("temperature", GENERATE, temperature, 0, 2, 1),
	REAL("top_p", GENERATE, top_p, 0, 1, 1),
	REAL("min_p", GENERATE, min_p, 0, 1, 0),
	REAL("typical_p", GENERATE, typical_p, 0, 1, 1),
	INT("top_k", GENERATE, top_k, -1, INT_MAX_D, 0),
	REAL("repetition_penalty", GENERATE, repetition_penalty, 0.01, 100, 1),
	REAL("presence_penalty", GENERATE, presence_penalty, -2, 2, 0),
	REAL("frequency_penalty", GENERATE, frequency_penalty, -2, 2, 0),
	CUSTOM("logit_bias", GENERATE, gw_read_bias),
	CUSTOM("seed", GENERATE, gw_read_seed),

	INT("n", GENERATE, n, 1, 65535, 1),
	INT("max_tokens", GW_CHAT, max_tokens, 1, INT_MAX_D, -1),
	INT("max_tokens", GW_COMPLETIONS, max_tokens, 0, INT_MAX_D, -1),
	LOCAL("max_completion_tokens", GENERATE, KIND_INT, max_completion_tokens, 1, INT_MAX_D, 0),
	INT("min_tokens", GENERATE, min_tokens, 0, INT_MAX_D, 0),
	CUSTOM("stop", GENERATE, gw_read_stop),
	CUSTOM("stop_token_ids", GENERATE, gw_read_stop_ids),
	BOOL("ignore_eos", GENERATE, ignore_eos, 0),
	BOOL("speculate", GENERATE, speculate, 1),
	BOOL("include_stop_str_in_output", GENERATE, keep_stop, 0),
	LOCAL("best_of", GW_COMPLETIONS, KIND_INT, best_of, 1, 65535, 0),

	BOOL("stream", GENERATE, stream, 0),
	CUSTOM("stream_options", GENERATE, gw_read_stream_options),
	BOOL("logprobs", GW_CHAT, logprobs, 0),
	LOCAL("logprobs", GW_COMPLETIONS, KIND_INT, top_logprobs_given, 0, 20, -1),
	LOCAL("top_logprobs", GW_CHAT, KIND_INT, top_logprobs_given, 0, 20, -1),
	BOOL("echo", GW_COMPLETIONS, echo, 0),
	BOOL("return_token_ids", GENERATE, return_token_ids, 0),
	BOOL("skip_special_tokens", GENERATE, skip_special, 1),
	BOOL("add_special_tokens", GW_COMPLETIONS | GW_TOKENIZE | GW_EMBEDDINGS, add_special, 1),

	LOCAL("add_generation_prompt", CONVERSE, KIND_BOOL, add_generation_prompt, 0, 1, 1),
	CUSTOM("tools", CONVERSE, gw_read_tools),
	CUSTOM("tool_choice", GW_CHAT, gw_read_tool_choice),
	LOCAL("parallel_tool_calls", GW_CHAT, KIND_BOOL, parallel_calls, 0, 1, 1),
	CUSTOM("response_format", GENERATE, gw_read_response_format),
	CUSTOM("structured_outputs", GENERATE, gw_read_structured),
	CUSTOM("guided_json", GENERATE, gw_read_guided_json),
	CUSTOM("guided_regex", GENERATE, gw_read_guided_regex),
	CUSTOM("guided_choice", GENERATE, gw_read_guided_choice),
	CUSTOM("guided_grammar", GENERATE, gw_read_guided_grammar),
	CUSTOM("json_schema", GENERATE, gw_read_guided_json),
	CUSTOM("grammar", GENERATE, gw_read_guided_grammar),
	CUSTOM("chat_template", CONVERSE, gw_read_template),
	CUSTOM("chat_template_kwargs", CONVERSE, gw_read_template_kwargs),

	CUSTOM("user", EVERY, gw_read_user),
	IGNORED("metadata"),
	IGNORED("prompt_cache_key"),
	IGNORED("prompt_cache_retention"),
	IGNORED("safety_identifier"),
	IGNORED("service_tier"),
	IGNORED("store"),

	REFUSED("suffix", GW_COMPLETIONS,
		"put the text after the gap into the prompt, in the model's own form"),
	REFUSED("prompt_logprobs", GENERATE, "use /v1/completions with echo and logprobs"),
	REFUSED("use_beam_search", GENERATE, "use n with a temperature"),
	REFUSED("functions", GW_CHAT, "use tools"),
	REFUSED("function_call", GW_CHAT, "use tool_choice"),
	REFUSED("audio", GW_CHAT, "this server makes text only"),
	REFUSED("prediction", GW_CHAT, "leave it out"),
	REFUSED("continue_final_message", CONVERSE,
		"use add_generation_prompt and /v1/completions"),
	REFUSED("truncate_prompt_tokens", GENERATE | GW_TOKENIZE | GW_EMBEDDINGS,
		"shorten the prompt: it is never cut silently"),
};

#define N_PARAMS (sizeof params / sizeof *params)

const char *gw_param_known(struct span key)
{
	for (size_t i = 0; i < N_PARAMS; i++)
		if (span_is(key, params[i].name))
			return params[i].name;
	return NULL;
}

static const struct param *param_find(enum gw_endpoint endpoint, const char *name)
{
	for (size_t i = 0; i < N_PARAMS; i++)
		if ((params[i].endpoints & endpoint) && strcmp(params[i].name, name) == 0)
			return &params[i];
	return NULL;
}

static void *place_of(struct gw_reading *reading, const struct param *param)
{
	return (char *)(param->local ? (void *)reading : (void *)reading->request) + param->offset;
}

static void param_set(struct gw_reading *reading, const struct param *param, double value)
{
	void *place = place_of(reading, param);
	if (param->kind == KIND_BOOL)
		*(bool *)place = value != 0;
	else if (param->kind == KIND_INT)
		*(int64_t *)place = (int64_t)value;
	else if (param->kind == KIND_REAL)
		*(double *)place = value + 0.0; /* -0 becomes +0 */
}

static void defaults_set(struct gw_reading *reading)
{
	for (size_t i = 0; i < N_PARAMS; i++)
		if (params[i].kind <= KIND_REAL &&
		    (params[i].endpoints & reading->request->endpoint || !params[i].local))
			param_set(reading, &params[i], params[i].fallback);
}

bool gw_json_integer(const json_t *value, int64_t *ret_integer)
{
	if (json_is_integer(value)) {
		*ret_integer = json_integer_value(value);
		return true;
	}
	double real = json_is_real(value) ? json_real_value(value) : NAN;
	if (!(fabs(real) <= 9007199254740992.0) || real != floor(real))
		return false;
	*ret_integer = (int64_t)real;
	return true;
}

static enum svc_code number_read(struct gw_reading *reading, const struct param *param,
				 json_t *value)
{
	int64_t integer = 0;
	bool is_int = param->kind == KIND_INT;
	if (is_int ? !gw_json_integer(value, &integer) : !json_is_number(value))
		return gw_wrong(reading, param->name, "%s must be %s", param->name,
				is_int ? "an integer" : "a number");
	double real = is_int ? (double)integer : json_number_value(value);
	if (!(real >= param->min && real <= param->max))
		return gw_wrong(reading, param->name, "%s must be from %.10g to %.10g", param->name,
				param->min, param->max);
	param_set(reading, param, real);
	return SVC_OK;
}

/* A value that asks for nothing: clients send such defaults for everything they know. */
static bool is_empty_value(const json_t *value)
{
	return json_is_false(value) || (json_is_string(value) && json_string_length(value) == 0) ||
	       (json_is_array(value) && json_array_size(value) == 0);
}

static enum svc_code param_read(struct gw_reading *reading, const struct param *param,
				json_t *value)
{
	switch (param->kind) {
	case KIND_BOOL:
		if (!json_is_boolean(value))
			return gw_wrong(reading, param->name, "%s must be true or false",
					param->name);
		param_set(reading, param, json_is_true(value));
		return SVC_OK;
	case KIND_INT:
	case KIND_REAL:
		return number_read(reading, param, value);
	case KIND_CUSTOM:
		return param->read(reading, param->name, value);
	case KIND_REFUSED:
		if (is_empty_value(value))
			return SVC_OK;
		return svc_fail_param(reading->err, SVC_UNSUPPORTED, param->name,
				      "%s is not supported: %s", param->name, param->remedy);
	case KIND_IGNORED:
		break;
	}
	return SVC_OK;
}

/* A name of the client's own is repeated only if it looks like one. */
static enum svc_code unknown_read(struct gw_reading *reading, const char *name)
{
	bool plain =
		strlen(name) < sizeof reading->err->param &&
		strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
			strlen(name);
	const char *shown =
		plain ? name : "(a name with other characters than letters, digits, _ and -)";
	if (!reading->limits->strict) {
		log_debug("unknown parameter ignored: %s", shown);
		return SVC_OK;
	}
	return gw_wrong(reading, plain ? name : "",
			"unknown parameter: %s (this server runs with --strict)", shown);
}

static enum svc_code members_read(struct gw_reading *reading, json_t *json)
{
	const char *name;
	json_t *value;
	json_object_foreach(json, name, value)
	{
		const struct param *param = param_find(reading->request->endpoint, name);
		enum svc_code code = SVC_OK;
		if (!param)
			code = unknown_read(reading, name);
		else if (!json_is_null(value))
			code = param_read(reading, param, value);
		if (code != SVC_OK)
			return code;
	}
	return SVC_OK;
}

static enum svc_code request_fill(struct gw_reading *reading)
{
	json_t *json = reading->request->json;
	if (!json_is_object(json))
		return gw_wrong(reading, "", "the body must be a JSON object");
	defaults_set(reading);
	enum svc_code code = members_read(reading, json);
	return code == SVC_OK ? gw_request_check(reading) : code;
}

enum svc_code gw_request_read(enum gw_endpoint endpoint, struct span body,
			      const struct gw_api_limits *limits, struct gw_request **ret_request,
			      struct svc_err *err)
{
	json_t *json = NULL;
	enum svc_code code = gw_json_read(body, gw_param_known, &json, err);
	return code == SVC_OK ? gw_request_take(endpoint, json, limits, ret_request, err) : code;
}

enum svc_code gw_request_take(enum gw_endpoint endpoint, json_t *json_take,
			      const struct gw_api_limits *limits, struct gw_request **ret_request,
			      struct svc_err *err)
{
	struct gw_request *request = calloc(1, sizeof *request);
	if (!request) {
		json_decref(json_take);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	}
	request->json = json_take;
	arena_init(&request->arena, 0);
	request->endpoint = endpoint;
	struct svc_err own;
	struct gw_reading reading = {.limits = limits, .request = request, .err = err ? err : &own};
	enum svc_code code = request_fill(&reading);
	if (code == SVC_OK)
		*ret_request = request;
	else
		gw_request_free(request);
	json_decref(reading.constraint.own);
	return code;
}

struct gw_request *gw_request_free(struct gw_request *request)
{
	if (!request)
		return NULL;
	json_decref(request->json);
	arena_free(&request->arena);
	free(request->chat_text);
	free(request->grammar_text);
	free(request->settings);
	free(request);
	return NULL;
}

struct span gw_json_span(const json_t *string)
{
	return (struct span){json_string_value(string), json_string_length(string)};
}

enum svc_code gw_no_memory(struct gw_reading *reading)
{
	return svc_fail(reading->err, SVC_NO_MEMORY, __func__,
			"out of memory while reading the request");
}
