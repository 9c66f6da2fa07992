#include <math.h>

#include "gateway/api/api_read.h"
#include "gateway/guard.h"
#include "gateway/models.h"

bool gw_model_is(const struct gw_api_limits *limits, struct span name)
{
	const struct gw_model_entry *entry =
		limits->models ? gw_models_find(limits->models, name) : NULL;
	return limits->any_model || span_is(name, limits->model_name) ||
	       (entry && entry->run == limits->own_run) ||
	       (limits->model_aliases && gw_list_has(limits->model_aliases, name));
}

enum svc_code gw_model_unknown(const struct gw_api_limits *limits, const char *param,
			       struct svc_err *err)
{
	struct buf names = {0};
	if (limits->models)
		gw_models_names_print(limits->models, &names);
	else
		buf_span(&names, span_of(limits->model_name));
	enum svc_code code = svc_fail_param(err, SVC_NOT_FOUND, param,
					    "that model does not exist here; this server has "
					    "%.300s (see GET /v1/models)",
					    names.failed ? "others" : names.ptr);
	buf_free(&names);
	return code;
}

enum svc_code gw_read_model(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_string(value))
		return gw_wrong(reading, name, "model must be a string");
	if (!gw_model_is(reading->limits, gw_json_span(value)))
		return gw_model_unknown(reading->limits, name, reading->err);
	return SVC_OK;
}

enum svc_code gw_read_user(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_string(value) || json_string_length(value) > 512)
		return gw_wrong(reading, name, "user must be a string of at most 512 bytes");
	return SVC_OK;
}

enum svc_code gw_read_ids(struct gw_reading *reading, const char *name, const json_t *array,
			  size_t limit, const int32_t **ret_ids)
{
	size_t n = json_array_size(array);
	if (limit && n > limit)
		return gw_wrong(reading, name, "%s must have at most %zu entries", name, limit);
	int32_t *ids = arena_alloc(&reading->request->arena, (n + 1) * sizeof *ids);
	if (!ids)
		return gw_no_memory(reading);
	for (size_t i = 0; i < n; i++) {
		int64_t id;
		if (!gw_json_integer(json_array_get(array, i), &id) || id < 0 ||
		    id >= reading->limits->n_vocab)
			return gw_wrong(reading, name,
					"%s: entry %zu must be a token id from 0 to %u", name, i,
					reading->limits->n_vocab - 1);
		ids[i] = (int32_t)id;
	}
	*ret_ids = ids;
	return SVC_OK;
}

enum svc_code gw_read_tokens(struct gw_reading *reading, const char *name, json_t *value)
{
	struct gw_request *request = reading->request;
	if (!json_is_array(value))
		return gw_wrong(reading, name, "tokens must be an array of token ids");
	request->n_tokens = json_array_size(value);
	return gw_read_ids(reading, name, value, reading->limits->ctx, &request->tokens);
}

static enum svc_code prompt_read(struct gw_reading *reading, const char *name, json_t *value,
				 struct gw_prompt *ret_prompt)
{
	bool empty = json_is_string(value) && json_string_length(value) == 0;
	if (json_is_string(value) && !(empty && reading->request->endpoint == GW_EMBEDDINGS)) {
		*ret_prompt = (struct gw_prompt){.text = gw_json_span(value)};
		return SVC_OK;
	}
	if (!json_is_array(value) || json_array_size(value) == 0)
		return gw_wrong(reading, name,
				"%s must be a string, an array of token ids, or an array of these, "
				"none of them empty",
				name);
	ret_prompt->n_ids = json_array_size(value);
	return gw_read_ids(reading, name, value, 0, &ret_prompt->ids);
}

/* Text, ids, or an array of both; an array that starts with a number is ids. */
enum svc_code gw_read_prompt(struct gw_reading *reading, const char *name, json_t *value)
{
	struct gw_request *request = reading->request;
	const json_t *first = json_array_get(value, 0);
	bool many = json_is_array(value) && first && !json_is_number(first);
	size_t n = many ? json_array_size(value) : 1;
	uint32_t most =
		request->endpoint == GW_EMBEDDINGS ? GW_INPUTS_MAX : reading->limits->max_choices;
	if (n > most)
		return gw_wrong(reading, name, "at most %u %s in one request", most,
				request->endpoint == GW_EMBEDDINGS ? "inputs" : "prompts");
	struct gw_prompt *prompts = arena_alloc(&request->arena, n * sizeof *prompts);
	if (!prompts)
		return gw_no_memory(reading);
	for (size_t i = 0; i < n; i++) {
		enum svc_code code = prompt_read(
			reading, name, many ? json_array_get(value, i) : value, &prompts[i]);
		if (code != SVC_OK)
			return code;
	}
	request->prompts = prompts;
	request->n_prompts = n;
	return SVC_OK;
}

enum svc_code gw_read_encoding(struct gw_reading *reading, const char *name, json_t *value)
{
	struct span text = gw_json_span(value);
	reading->request->base64 = json_is_string(value) && span_is(text, "base64");
	if (!reading->request->base64 && !(json_is_string(value) && span_is(text, "float")))
		return gw_wrong(reading, name, "encoding_format must be \"float\" or \"base64\"");
	return SVC_OK;
}

enum svc_code gw_read_pooling(struct gw_reading *reading, const char *name, json_t *value)
{
	struct span text = gw_json_span(value);
	bool last = json_is_string(value) && span_is(text, "last");
	if (!last && !(json_is_string(value) && span_is(text, "mean")))
		return gw_wrong(reading, name, "pooling must be \"mean\" or \"last\"");
	reading->request->pooling = last ? POOLING_LAST : POOLING_MEAN;
	return SVC_OK;
}

enum svc_code gw_read_stop(struct gw_reading *reading, const char *name, json_t *value)
{
	bool many = json_is_array(value);
	size_t n = many ? json_array_size(value) : 1;
	if (n > GW_STOPS_MAX)
		return gw_wrong(reading, name, "stop must have at most %u strings", GW_STOPS_MAX);
	struct span *stops = arena_alloc(&reading->request->arena, (n + 1) * sizeof *stops);
	if (!stops)
		return gw_no_memory(reading);
	for (size_t i = 0; i < n; i++) {
		const json_t *stop = many ? json_array_get(value, i) : value;
		size_t len = json_string_length(stop);
		if (!json_is_string(stop) || len == 0 || len > GW_STOP_BYTES_MAX)
			return gw_wrong(
				reading, name,
				"stop must be a string of 1 to %u bytes, or an array of such",
				GW_STOP_BYTES_MAX);
		stops[i] = gw_json_span(stop);
	}
	reading->request->stops = stops;
	reading->request->n_stops = n;
	return SVC_OK;
}

enum svc_code gw_read_stop_ids(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_array(value))
		return gw_wrong(reading, name, "stop_token_ids must be an array of token ids");
	reading->request->n_stop_ids = json_array_size(value);
	return gw_read_ids(reading, name, value, GW_STOP_IDS_MAX, &reading->request->stop_ids);
}

/* A member's name as a token id: digits only. */
static bool id_parse(const char *name, uint32_t n_vocab, int32_t *ret_id)
{
	uint64_t id = 0;
	if (!*name || strlen(name) > 9)
		return false;
	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return false;
		id = id * 10 + (uint64_t)(*name - '0');
	}
	*ret_id = (int32_t)id;
	return id < n_vocab;
}

static bool bias_has(const struct gw_bias *biases, size_t n, int32_t id)
{
	for (size_t i = 0; i < n; i++)
		if (biases[i].id == id)
			return true;
	return false;
}

enum svc_code gw_read_bias(struct gw_reading *reading, const char *name, json_t *value)
{
	size_t n = 0;
	if (!json_is_object(value) || json_object_size(value) > GW_BIASES_MAX)
		return gw_wrong(
			reading, name,
			"logit_bias must be an object of at most %u members, token id to bias",
			GW_BIASES_MAX);
	struct gw_bias *biases = arena_alloc(&reading->request->arena,
					     (json_object_size(value) + 1) * sizeof *biases);
	if (!biases)
		return gw_no_memory(reading);
	const char *key;
	json_t *bias;
	json_object_foreach(value, key, bias)
	{
		int32_t id;
		if (!id_parse(key, reading->limits->n_vocab, &id) || bias_has(biases, n, id))
			return gw_wrong(
				reading, name,
				"logit_bias: a member's name must be a token id from 0 to %u, "
				"each once",
				reading->limits->n_vocab - 1);
		if (!json_is_number(bias) || !(fabs(json_number_value(bias)) <= 100))
			return gw_wrong(reading, name,
					"logit_bias: the bias of token %d must be a number from "
					"-100 to 100",
					id);
		biases[n++] = (struct gw_bias){id, (float)json_number_value(bias)};
	}
	reading->request->biases = biases;
	reading->request->n_biases = n;
	return SVC_OK;
}

enum svc_code gw_read_seed(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!gw_json_integer(value, &reading->request->seed))
		return gw_wrong(reading, name, "seed must be an integer of at most 64 bits");
	reading->request->has_seed = true;
	return SVC_OK;
}

enum svc_code gw_read_stream_options(struct gw_reading *reading, const char *name, json_t *value)
{
	if (!json_is_object(value))
		return gw_wrong(reading, name, "stream_options must be an object");
	const json_t *usage = json_object_get(value, "include_usage");
	if (usage && !json_is_null(usage) && !json_is_boolean(usage))
		return gw_wrong(reading, "stream_options.include_usage",
				"stream_options.include_usage must be true or false");
	reading->request->include_usage = json_is_true(usage);
	reading->has_stream_options = true;
	return SVC_OK;
}
