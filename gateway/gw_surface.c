#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "gateway/api/dialect.h"
#include "gateway/api/json_read.h"
#include "gateway/gw_models.h"
#include "gateway/gw_serve.h"

/* ---- requests in other forms than OpenAI's chat ---- */

static enum svc_code body_read(struct gw_http_exchange *exchange, json_t **ret_body,
			       struct svc_err *err)
{
	json_t *body = NULL;
	enum svc_code code =
		gw_json_read(gw_http_exchange_request(exchange)->body, NULL, &body, err);
	if (code == SVC_OK && !json_is_object(body)) {
		json_decref(body);
		code = svc_fail(err, SVC_INVALID, __func__, "the body must be a JSON object");
	}
	if (code == SVC_OK)
		*ret_body = body;
	return code;
}

/* The translated request, read as any; what it says of itself in its own form is added. */
static enum svc_code chat_read(const struct gateway *gateway, enum gw_endpoint endpoint,
			       enum gw_form form, json_t *chat_take,
			       struct gw_request **ret_request, struct svc_err *err)
{
	enum svc_code code =
		gw_request_take(endpoint, chat_take, &gateway->limits, ret_request, err);
	if (code == SVC_OK)
		(*ret_request)->form = form;
	else
		gw_form_blame(form, err);
	return code;
}

/* Ollama's think: true is about what the model does, and how it is shown. */
static enum svc_code think_read(const json_t *body, enum gw_form form, struct gw_request *request,
				struct svc_err *err)
{
	request->thoughts_apart =
		form == GW_FORM_OLLAMA_CHAT && json_is_true(json_object_get(body, "think"));
	if (!request->thoughts_apart || request->thinks)
		return SVC_OK;
	return svc_fail_param(err, SVC_UNSUPPORTED, "think",
			      "think: this model's chat template knows no thoughts, or a format "
			      "leaves them no room; leave think out");
}

typedef enum svc_code form_reader(const json_t *body, bool strict, json_t **ret_chat,
				  struct svc_err *err);

/* A chat in another form, translated by read. */
static void serve_form(struct gateway *gateway, struct gw_http_exchange *exchange,
		       enum gw_form form, form_reader *read)
{
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	json_t *body = NULL, *chat = NULL;
	enum svc_code code = body_read(exchange, &body, &err);
	if (code == SVC_OK)
		code = read(body, gateway->limits.strict, &chat, &err);
	if (code == SVC_OK)
		code = chat_read(gateway, GW_CHAT, form, chat, &request, &err);
	if (code == SVC_OK)
		code = think_read(body, form, request, &err);
	json_decref(body);
	gw_serve(gateway, exchange, GW_CHAT, request, code, &err);
}

void gw_serve_messages(void *context, struct gw_http_exchange *exchange)
{
	serve_form(context, exchange, GW_FORM_ANTHROPIC, gw_anthropic_read);
}

void gw_serve_count_tokens(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	json_t *body = NULL, *chat = NULL, *ask = NULL;
	enum svc_code code = body_read(exchange, &body, &err);
	/* Not needed for counting, but for the rest of the translation. */
	if (code == SVC_OK && !json_object_get(body, "max_tokens"))
		json_object_set_new(body, "max_tokens", json_integer(1));
	if (code == SVC_OK)
		code = gw_anthropic_read(body, gateway->limits.strict, &chat, &err);
	if (code == SVC_OK) {
		ask = json_pack("{s:O*, s:O, s:O*}", "model", json_object_get(chat, "model"),
				"messages", json_object_get(chat, "messages"), "tools",
				json_object_get(chat, "tools"));
		code = ask ? chat_read(gateway, GW_TOKENIZE, GW_FORM_ANTHROPIC, ask, &request, &err)
			   : svc_fail(&err, SVC_NO_MEMORY, __func__, "out of memory");
	}
	json_decref(chat);
	json_decref(body);
	gw_serve(gateway, exchange, GW_TOKENIZE, request, code, &err);
}

void gw_serve_ollama_chat(void *context, struct gw_http_exchange *exchange)
{
	serve_form(context, exchange, GW_FORM_OLLAMA_CHAT, gw_ollama_chat_read);
}

void gw_serve_ollama_embed(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	json_t *body = NULL, *embed = NULL;
	enum svc_code code = body_read(exchange, &body, &err);
	if (code == SVC_OK)
		code = gw_ollama_embed_read(body, gateway->limits.strict, &embed, &err);
	if (code == SVC_OK)
		code = chat_read(gateway, GW_EMBEDDINGS, GW_FORM_OLLAMA_EMBED, embed, &request,
				 &err);
	json_decref(body);
	gw_serve(gateway, exchange, GW_EMBEDDINGS, request, code, &err);
}

/* Without a prompt, Ollama's clients ask for the model to be loaded: it is. */
static bool is_load(const json_t *body)
{
	const json_t *prompt = json_object_get(body, "prompt");
	return !prompt || json_is_null(prompt) ||
	       (json_is_string(prompt) && json_string_length(prompt) == 0);
}

static void loaded_reply(const struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct buf out = {0};
	buf_span(&out, span_of("{\"model\":"));
	buf_json_string(&out, span_of(gateway->model_name));
	buf_span(&out, span_of(",\"created_at\":\"1970-01-01T00:00:00Z\",\"response\":\"\","
			       "\"done\":true,\"done_reason\":\"load\"}"));
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}

void gw_serve_ollama_generate(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	json_t *body = NULL, *chat = NULL;
	enum gw_endpoint endpoint = GW_CHAT;
	bool raw = false, load = false;
	enum svc_code code = body_read(exchange, &body, &err);
	if (code == SVC_OK && is_load(body)) {
		load = true;
		json_object_set_new(body, "prompt", json_string("load"));
	}
	if (code == SVC_OK)
		code = gw_ollama_generate_read(body, gateway->limits.strict, &chat, &raw, &err);
	if (raw)
		endpoint = GW_COMPLETIONS;
	if (code == SVC_OK)
		code = chat_read(gateway, endpoint, GW_FORM_OLLAMA_GENERATE, chat, &request, &err);
	json_decref(body);
	if (code == SVC_OK && load) {
		gw_request_free(request);
		loaded_reply(gateway, exchange);
		return;
	}
	gw_serve(gateway, exchange, endpoint, request, code, &err);
}

/* ---- Ollama's pages ---- */

static void time_print(struct buf *out, uint64_t us)
{
	struct tm tm = {0};
	time_t seconds = (time_t)(us / 1000000u);
	if (gmtime_r(&seconds, &tm))
		buf_print(out, "\"%04d-%02d-%02dT%02d:%02d:%02dZ\"", 1900 + tm.tm_year,
			  1 + tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static void details_print(struct buf *out)
{
	buf_span(out, span_of("\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":"
			      "\"\",\"families\":[],\"parameter_size\":\"\","
			      "\"quantization_level\":\"\"}"));
}

/* The members that every list has. The file may be elsewhere than this process: size 0 then. */
static void model_print(const struct gw_served *served, struct buf *out)
{
	static const struct ctl_config none;
	const struct ctl_config *config = served->run ? &served->run->ctl->config : &none;
	char path[sizeof config->model_path + 1] = "";
	struct stat file = {0};
	memcpy(path, config->model_path, sizeof config->model_path);
	if (stat(path, &file) != 0)
		file.st_size = 0;
	buf_span(out, span_of("\"name\":"));
	buf_json_string(out, span_of(served->name));
	buf_span(out, span_of(",\"model\":"));
	buf_json_string(out, span_of(served->name));
	buf_span(out, span_of(",\"modified_at\":"));
	time_print(out, config->created_us);
	buf_print(out, ",\"size\":%" PRIu64 ",\"digest\":\"%016" PRIx64 "%016" PRIx64 "\",",
		  (uint64_t)file.st_size, config->model_hash[1], config->model_hash[0]);
	details_print(out);
}

void gw_serve_ollama_tags(void *context, struct gw_http_exchange *exchange)
{
	struct buf out = {0};
	buf_span(&out, span_of("{\"models\":["));
	for (uint32_t i = 0; i < gw_served_count(context); i++) {
		const struct gw_served served = gw_served_get(context, i);
		buf_print(&out, "%s{", i ? "," : "");
		model_print(&served, &out);
		buf_append(&out, "}", 1);
	}
	buf_span(&out, span_of("]}"));
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}

/* Those that can answer at this moment. */
void gw_serve_ollama_ps(void *context, struct gw_http_exchange *exchange)
{
	struct buf out = {0};
	const char *between = "";
	buf_span(&out, span_of("{\"models\":["));
	for (uint32_t i = 0; i < gw_served_count(context); i++) {
		const struct gw_served served = gw_served_get(context, i);
		if (!served.run)
			continue;
		buf_print(&out, "%s{", between);
		model_print(&served, &out);
		buf_print(&out,
			  ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,"
			  "\"context_length\":%u}",
			  served.run->ctx);
		between = ",";
	}
	buf_span(&out, span_of("]}"));
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}

void gw_serve_ollama_show(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	struct svc_err err = {0};
	struct buf out = {0};
	json_t *body = NULL;
	enum svc_code code = body_read(exchange, &body, &err);
	const json_t *name = json_object_get(body, "model");
	if (code == SVC_OK && !name)
		name = json_object_get(body, "name");
	if (code == SVC_OK && !gw_ollama_name_is(name, &gateway->limits))
		code = gw_model_unknown(&gateway->limits, "model", &err);
	json_decref(body);
	if (code != SVC_OK) {
		gw_reply_error(exchange, &err);
		return;
	}
	buf_span(&out, span_of("{\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\","));
	details_print(&out);
	buf_span(&out, span_of(",\"model_info\":{\"general.architecture\":\"lockstep\","
			       "\"general.name\":"));
	buf_json_string(&out, span_of(gateway->model_name));
	buf_print(&out,
		  ",\"lockstep.context_length\":%u,\"lockstep.vocab_size\":%u,"
		  "\"lockstep.embedding_length\":%u},"
		  "\"capabilities\":[\"completion\",\"embedding\"%s],\"modified_at\":",
		  gateway->svc->run.ctx, gateway->svc->run.n_vocab, gateway->svc->run.n_embd,
		  gateway->limits.tools == VOCAB_TOOLS_NONE ? "" : ",\"tools\"");
	time_print(&out, gateway->svc->run.ctl->config.created_us);
	buf_span(&out, span_of("}"));
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}

/* The release whose API this is: the last one without `think`. Clients turn away from older ones
 * than those that they were written for. */
#define OLLAMA_VERSION "0.8.0"

void gw_serve_ollama_version(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	gw_http_reply(exchange, 200, "application/json",
		      span_of("{\"version\":\"" OLLAMA_VERSION "\",\"lockstep\":\"" LOCKSTEP_VERSION
			      "\"}"));
}
