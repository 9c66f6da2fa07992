#include <inttypes.h>
#include <stdio.h>

#include "gateway/api/dialect.h"
#include "gateway/api/json_read.h"
#include "gateway/api/render_parts.h"
#include "gateway/api/surface_tools.h"
#include "gateway/gw_access.h"
#include "gateway/gw_resume.h"
#include "gateway/gw_serve.h"

/* A response is kept where it was made: its slot holds the conversation and the answer until the
 * room is needed or its time is up (--keep-s), and every gateway of the run can read it. */

/* "resp_", the request, a keyed hash of it and of who asked, the run: 16 digits each. */
void gw_response_id_print(const struct shm_run *run, uint64_t account, uint64_t request,
			  char id[GW_ID_BYTES])
{
	const uint64_t words[3] = {request, account, run->ctl->header.run_id};
	uint64_t tag = gw_siphash(run->ctl->config.secret, words, sizeof words);
	snprintf(id, GW_ID_BYTES, "resp_%016" PRIx64 "%016" PRIx64 "%016" PRIx64, request, tag,
		 words[2]);
}

static bool request_parse(struct span id, uint64_t *ret_request)
{
	uint64_t request = 0;
	for (size_t i = 5; i < 21 && i < id.len; i++) {
		char c = id.ptr[i];
		bool digit = c >= '0' && c <= '9';
		if (!digit && !(c >= 'a' && c <= 'f'))
			return false;
		request = 16 * request + (uint64_t)(digit ? c - '0' : c - 'a' + 10);
	}
	*ret_request = request;
	return id.len == 53;
}

static enum svc_code not_found(const char *param, struct svc_err *err)
{
	return svc_fail_param(err, SVC_NOT_FOUND, param,
			      "no response with that id is kept: it was never there, store was "
			      "false, or its time is up (options --keep-s, --kept)");
}

/* A response that is complete, as views into its body; look says whether they still count. */
struct kept {
	struct slot_handle handle;
	struct body_seen look;
	struct gw_shape shape;
	struct gw_view view;
};

static enum svc_code kept_find(const struct gateway *gateway, const struct gw_who *who,
			       struct span id, const char *param, struct kept *ret_kept,
			       struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	char expected[GW_ID_BYTES];
	struct gw_found found;
	uint64_t request;
	if (!request_parse(id, &request))
		return not_found(param, err);
	gw_response_id_print(run, who->account, request, expected);
	if (!span_is(id, expected) || !gw_request_find(run, request, &found) || found.n != 1 ||
	    slot_is_cancelled(run, found.handles[0].slot))
		return not_found(param, err);
	ret_kept->handle = found.handles[0];
	ret_kept->look = body_peek(run, ret_kept->handle.slot);
	enum svc_code code = gw_shape_find(gateway, &found, &ret_kept->shape, err);
	snprintf(ret_kept->shape.meta.id, sizeof ret_kept->shape.meta.id, "%s", expected);
	if (code != SVC_OK || !ret_kept->look.body ||
	    ret_kept->shape.meta.form != GW_FORM_RESPONSES || !ret_kept->shape.meta.stored)
		return not_found(param, err);
	/* In RECLAIM the answer is complete, and was perhaps given already: only its KV pages
	 * aren't back yet. */
	if (ret_kept->look.word.stage != STAGE_DONE && ret_kept->look.word.stage != STAGE_RECLAIM)
		return svc_fail_param(err, SVC_BUSY, param,
				      "that response is not complete yet; retry later");
	code = gw_view_open(run, ret_kept->look.body, true, &ret_kept->view, err);
	bool whole = code == SVC_OK && (ret_kept->view.finish == FINISH_STOP ||
					ret_kept->view.finish == FINISH_LENGTH);
	return whole ? SVC_OK : not_found(param, err);
}

/* What was read counts only if the slot still held it then. */
static bool kept_stands(const struct gateway *gateway, const struct kept *kept)
{
	const struct shm_run *run = &gateway->svc->run;
	return slot_handle_valid(run, kept->handle) &&
	       body_stands(run, kept->handle.slot, &kept->look);
}

/* The answer as the assistant's message: its text and its calls. */
static enum svc_code answer_add(const struct gateway *gateway, const struct kept *kept,
				json_t *messages, struct svc_err *err)
{
	struct buf lack = {0};
	const struct gw_render render = {
		.out = &lack, .meta = &kept->shape.meta, .vocab = &gateway->vocab, .id = ""};
	struct gw_saying all;
	gw_say_all(&render, &kept->view, &all);
	struct span text = gw_said_content(&all.said);
	enum svc_code code =
		gw_message_add(messages, "assistant", json_stringn(text.ptr, text.len), err);
	json_t *message = json_array_get(messages, json_array_size(messages) - 1);
	for (size_t i = 0; code == SVC_OK && i < all.said.n_pieces; i++) {
		char id[GW_CALL_ID_BYTES];
		const struct gw_call_piece *call = &all.said.pieces[i];
		struct span arguments = gw_piece_arguments(&all.said, call);
		json_t *name = json_string(call->name),
		       *own = json_stringn(arguments.ptr, arguments.len);
		gw_call_id_make(render.meta, 0, call->index, id);
		/* One that max_output_tokens has cut was no call. */
		if (gw_is_json(arguments))
			code = gw_call_add(message, id, name, own, err);
		json_decref(name);
		json_decref(own);
	}
	gw_saying_free(&render, &all);
	return code;
}

/* Its conversation without the instructions, which hold for one response only, and its answer. */
static json_t *conversation_of(const struct gateway *gateway, const struct kept *kept)
{
	struct span text = {NULL, 0};
	struct svc_err err = {0};
	json_t *chat = NULL;
	text.ptr = body_region(&gateway->svc->run, kept->look.body, REGION_TEXT, 0, &text.len);
	if (!text.ptr || gw_json_read((struct span){text.ptr, strnlen(text.ptr, text.len)}, NULL,
				      &chat, &err) != SVC_OK)
		return NULL;
	json_t *messages = json_incref(json_object_get(chat, "messages"));
	json_decref(chat);
	if (kept->shape.meta.instructed)
		json_array_remove(messages, 0);
	if (answer_add(gateway, kept, messages, &err) == SVC_OK)
		return messages;
	json_decref(messages);
	return NULL;
}

static enum svc_code before_find(const struct gateway *gateway, struct gw_http_exchange *exchange,
				 const json_t *id, json_t **ret_messages, struct svc_err *err)
{
	static const char param[] = "previous_response_id";
	struct gw_who who;
	struct kept kept = {0};
	if (!json_is_string(id))
		return svc_fail_param(err, SVC_INVALID, param, "%s must be a string", param);
	enum svc_code code = gw_who_read(gateway, exchange, &who, err);
	if (code == SVC_OK)
		code = kept_find(gateway, &who,
				 (struct span){json_string_value(id), json_string_length(id)},
				 param, &kept, err);
	if (code != SVC_OK)
		return code;
	json_t *messages = conversation_of(gateway, &kept);
	if (!messages || !kept_stands(gateway, &kept)) {
		json_decref(messages);
		return not_found(param, err);
	}
	*ret_messages = messages;
	return SVC_OK;
}

static enum svc_code request_read(const struct gateway *gateway, const json_t *body,
				  const json_t *before, struct gw_request **ret_request,
				  struct svc_err *err)
{
	json_t *chat = NULL;
	const json_t *store = json_object_get(body, "store");
	if (store && !json_is_null(store) && !json_is_boolean(store))
		return svc_fail_param(err, SVC_INVALID, "store", "store must be true or false");
	enum svc_code code = gw_responses_read(body, gateway->limits.strict, before, &chat, err);
	if (code == SVC_OK)
		code = gw_request_take(GW_CHAT, chat, &gateway->limits, ret_request, err);
	if (code != SVC_OK) {
		gw_form_blame(GW_FORM_RESPONSES, err);
		return code;
	}
	const char *previous = json_string_value(json_object_get(body, "previous_response_id"));
	(*ret_request)->form = GW_FORM_RESPONSES;
	(*ret_request)->stored = !json_is_false(store);
	(*ret_request)->instructed = json_is_string(json_object_get(body, "instructions"));
	snprintf((*ret_request)->previous, sizeof(*ret_request)->previous, "%s",
		 previous ? previous : "");
	(*ret_request)->settings = gw_responses_settings(body);
	return (*ret_request)->settings ? SVC_OK
					: svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
}

void gw_serve_responses(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	json_t *body = NULL, *before = NULL;
	enum svc_code code =
		gw_json_read(gw_http_exchange_request(exchange)->body, NULL, &body, &err);
	if (code == SVC_OK && !json_is_object(body))
		code = svc_fail(&err, SVC_INVALID, __func__, "the body must be a JSON object");
	const json_t *id = json_object_get(body, "previous_response_id");
	if (code == SVC_OK && id && !json_is_null(id))
		code = before_find(gateway, exchange, id, &before, &err);
	if (code == SVC_OK)
		code = request_read(gateway, body, before, &request, &err);
	json_decref(before);
	json_decref(body);
	gw_serve(gateway, exchange, GW_CHAT, request, code, &err);
}

/* The response that the path names. */
static enum svc_code kept_of_path(const struct gateway *gateway, struct gw_http_exchange *exchange,
				  struct kept *ret_kept, struct svc_err *err)
{
	const size_t prefix = sizeof "/v1/responses/" - 1;
	struct span path = gw_http_exchange_request(exchange)->path;
	struct gw_who who;
	enum svc_code code = gw_who_read(gateway, exchange, &who, err);
	if (code == SVC_OK)
		code = kept_find(gateway, &who, (struct span){path.ptr + prefix, path.len - prefix},
				 "response_id", ret_kept, err);
	return code;
}

void gw_serve_response(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	struct kept kept = {0};
	struct svc_err err;
	struct buf out = {0};
	enum svc_code code = kept_of_path(gateway, exchange, &kept, &err);
	if (code == SVC_OK) {
		struct gw_meta *meta = &kept.shape.meta;
		const struct gw_render render = {
			.out = &out, .meta = meta, .vocab = &gateway->vocab, .id = ""};
		meta->model = gateway->model_name;
		gw_dialect_responses.answer(&render, &kept.view, 1);
		if (!kept_stands(gateway, &kept))
			code = not_found("response_id", &err);
	}
	if (code == SVC_OK)
		gw_reply_json(exchange, 200, &out);
	else
		gw_reply_error(exchange, &err);
	buf_free(&out);
}

/* Who reads it forgets it at its next look at the slot; nobody finds it from now on. */
void gw_serve_response_delete(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	struct kept kept = {0};
	struct svc_err err;
	struct buf out = {0};
	enum svc_code code = kept_of_path(gateway, exchange, &kept, &err);
	if (code != SVC_OK) {
		gw_reply_error(exchange, &err);
		return;
	}
	slot_cancel(&gateway->svc->run, kept.handle);
	buf_print(&out, "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}",
		  kept.shape.meta.id);
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}
