/* The first byte chooses the endpoint and the server's options, the rest is the body. What is
 * refused has a message in valid JSON; what is accepted lies within the limits. */
#include <stdint.h>
#include <stdlib.h>

#include "gateway/api/api_error.h"
#include "gateway/api/api_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const struct gw_request *request, const struct gw_api_limits *limits)
{
	bool good = request->temperature >= 0 && request->temperature <= 2 &&
		    request->repetition_penalty > 0 && request->n >= 1 &&
		    request->n <= limits->max_choices && request->n_stops <= GW_STOPS_MAX &&
		    request->n_biases <= GW_BIASES_MAX;
	for (size_t i = 0; i < request->n_stop_ids; i++)
		good = good && request->stop_ids[i] >= 0 &&
		       (uint32_t)request->stop_ids[i] < limits->n_vocab;
	for (size_t i = 0; i < request->n_biases; i++)
		good = good && request->biases[i].value >= -100 && request->biases[i].value <= 100;
	good = good && (request->endpoint != GW_EMBEDDINGS ||
			(request->dimensions >= 1 && request->dimensions <= limits->n_embd));
	for (size_t p = 0; p < request->n_prompts; p++)
		for (size_t i = 0; i < request->prompts[p].n_ids; i++)
			good = good && request->prompts[p].ids[i] >= 0 &&
			       (uint32_t)request->prompts[p].ids[i] < limits->n_vocab;
	if (request->chat.ptr) {
		json_t *chat =
			json_loadb(request->chat.ptr, request->chat.len, JSON_ALLOW_NUL, NULL);
		good = good && json_is_array(json_object_get(chat, "messages"));
		json_decref(chat);
	}
	if (!good)
		abort();
}

static void check_refused(const struct svc_err *err)
{
	struct buf out = {0};
	struct gw_error error = gw_error_of(err);
	gw_error_print(&out, &error);
	json_t *json = json_loadb(out.ptr, out.len, 0, NULL);
	if (!json || !*err->msg || gw_error_status(err) < 400 || gw_error_status(err) >= 500)
		abort();
	json_decref(json);
	buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	if (size < 1)
		return 0;
	const struct gw_api_limits limits = {.model_name = "m",
					     .n_vocab = 1000,
					     .n_embd = 64,
					     .ctx = 4096,
					     .max_choices = 8,
					     .strict = data[0] & 8,
					     .trust_request_template = data[0] & 16};
	enum gw_endpoint endpoint = (enum gw_endpoint)(1u << (data[0] & 7) % 6);
	struct span body = {(const char *)data + 1, size - 1};
	if (gw_request_read(endpoint, body, &limits, &request, &err) == SVC_OK)
		check_accepted(request, &limits);
	else
		check_refused(&err);
	gw_request_free(request);
	return 0;
}
