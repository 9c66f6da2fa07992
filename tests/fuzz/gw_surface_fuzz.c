/* The first byte chooses the form, the rest is the body: what is refused has a message in valid
 * JSON of that form, what is accepted is a request within the limits. */
#include <stdint.h>
#include <stdlib.h>

#include "gateway/api/dialect.h"
#include "gateway/api/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct gw_api_limits limits = {
	.model_name = "m", .n_vocab = 1000, .n_embd = 64, .ctx = 4096, .max_choices = 4};

static enum svc_code translate(uint8_t choice, const json_t *body, json_t **ret_chat, bool *ret_raw,
			       struct svc_err *err)
{
	const bool strict = choice & 4;
	if (choice & 8)
		return gw_ollama_embed_read(body, strict, ret_chat, err);
	switch (choice & 3) {
	case 0:
		return gw_anthropic_read(body, strict, ret_chat, err);
	case 1:
		return gw_ollama_chat_read(body, strict, ret_chat, err);
	case 2:
		return gw_ollama_generate_read(body, strict, ret_chat, ret_raw, err);
	default:
		return gw_responses_read(body, strict, NULL, ret_chat, err);
	}
}

static void check_refused(uint8_t choice, struct svc_err *err)
{
	static const char *const paths[] = {"/v1/messages", "/api/chat", "/api/generate",
					    "/v1/responses"};
	static const enum gw_form forms[] = {GW_FORM_ANTHROPIC, GW_FORM_OLLAMA_CHAT,
					     GW_FORM_OLLAMA_GENERATE, GW_FORM_RESPONSES};
	struct buf out = {0};
	gw_form_blame(forms[choice & 3], err);
	gw_error_print_for(span_of(paths[choice & 3]), &out, err);
	json_t *json = json_loadb(out.ptr, out.len, 0, NULL);
	if (!json || !err->msg[0])
		abort();
	json_decref(json);
	buf_free(&out);
}

/* What a response repeats of an accepted request is an object again. */
static void check_settings(const json_t *body)
{
	char *text = gw_responses_settings(body);
	json_t *json = json_loads(text ? text : "", JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(json) || !json_is_array(json_object_get(json, "tools")) ||
	    !json_is_object(json_object_get(json, "metadata")))
		abort();
	json_decref(json);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *body = NULL, *chat = NULL;
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	bool raw = false;
	if (size < 1)
		return 0;
	const struct span text = {(const char *)data + 1, size - 1};
	if (gw_json_read(text, NULL, &body, &err) != SVC_OK)
		return 0;
	enum svc_code code = json_is_object(body) ? translate(data[0], body, &chat, &raw, &err)
						  : svc_fail(&err, SVC_INVALID, __func__,
							     "the body must be an object");
	if (code == SVC_OK)
		code = gw_request_take(data[0] & 8 ? GW_EMBEDDINGS
				       : raw	   ? GW_COMPLETIONS
						   : GW_CHAT,
				       chat, &limits, &request, &err);
	if (code != SVC_OK)
		check_refused(data[0], &err);
	else if (request->temperature < 0 || request->temperature > 2 || request->n != 1 ||
		 (!request->chat.ptr && request->n_prompts != 1 && !(data[0] & 8)))
		abort();
	else if ((data[0] & 11) == 3)
		check_settings(body);
	gw_request_free(request);
	json_decref(body);
	return 0;
}
