#include <inttypes.h>

#include "gateway/gw_access.h"
#include "gateway/gw_serve.h"
#include "services/slots.h"

/* Requests that wait or run, for those whose they are and for administrators. Nothing of what they
 * say is shown. */

static bool is_open(enum slot_stage stage)
{
	return stage == STAGE_TOKENIZE || stage == STAGE_COMPUTE || stage == STAGE_SAMPLE ||
	       stage == STAGE_RECLAIM;
}

/* Without keys everybody is an administrator, as everywhere else. */
static bool may_see(const struct gw_who *who, uint64_t account)
{
	return !who->key || who->key->admin || who->account == account;
}

static void key_print(const struct gateway *gateway, uint64_t account, struct buf *out)
{
	for (size_t i = 0; account && gateway->keys && i < gateway->keys->n; i++) {
		const char *name = gateway->keys->keys[i].name;
		if (gw_account_of(&gateway->svc->run, name) != account)
			continue;
		buf_json_string(out, span_of(name));
		return;
	}
	buf_span(out, span_of("null"));
}

static void request_print(const struct gateway *gateway, uint32_t slot, bool first, struct buf *out)
{
	const struct shm_run *run = &gateway->svc->run;
	const struct slot_line *line = &run->slots[slot];
	struct body_seen seen = body_peek(run, slot);
	uint32_t prompt = seen.body ? atomic_load(&seen.body->n_prompt) : 0;
	uint32_t tokens = seen.body ? atomic_load(&seen.body->n_tokens) : 0;
	buf_print(out,
		  "%s{\"id\":\"%" PRIx64 "\",\"object\":\"request\",\"choice\":%u,"
		  "\"n_choices\":%u,\"stage\":\"%s\",\"created\":%" PRIu64
		  ",\"prompt_tokens\":%u,\"completion_tokens\":%u,\"cancelled\":%s,\"key\":",
		  first ? "" : ",", atomic_load(&line->request), line->choice, line->n_choices,
		  slot_stage_name(seen.word.stage), atomic_load(&line->arrived_us) / 1000000u,
		  prompt, tokens, slot_is_cancelled(run, slot) ? "true" : "false");
	key_print(gateway, atomic_load(&line->account), out);
	buf_span(out, span_of("}"));
}

void gw_serve_requests(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	const struct shm_run *run = &gateway->svc->run;
	struct gw_who who;
	struct svc_err err;
	struct buf out = {0};
	bool first = true;
	if (gw_who_read(gateway, exchange, &who, &err) != SVC_OK) {
		gw_reply_error(exchange, &err);
		return;
	}
	buf_span(&out, span_of("{\"object\":\"list\",\"data\":["));
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		if (!is_open(slot_load(run, slot).stage) ||
		    !may_see(&who, atomic_load(&run->slots[slot].account)))
			continue;
		request_print(gateway, slot, first, &out);
		first = false;
	}
	buf_span(&out, span_of("]}"));
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}

/* "ID/cancel", ID in hexadecimal. */
static bool cancel_parse(struct span text, uint64_t *ret_request)
{
	static const char tail[] = "/cancel";
	const size_t len = sizeof tail - 1;
	uint64_t request = 0;
	if (text.len <= len || text.len > len + 16 ||
	    memcmp(text.ptr + text.len - len, tail, len) != 0)
		return false;
	for (size_t i = 0; i < text.len - len; i++) {
		char c = text.ptr[i];
		bool digit = c >= '0' && c <= '9';
		if (!digit && !(c >= 'a' && c <= 'f'))
			return false;
		request = 16 * request + (uint64_t)(digit ? c - '0' : c - 'a' + 10);
	}
	*ret_request = request;
	return request != 0;
}

/* How many of its choices were told to end. */
static uint32_t cancel_all(struct gateway *gateway, const struct gw_who *who, uint64_t request)
{
	struct svc *svc = gateway->svc;
	uint32_t n = 0;
	for (uint32_t slot = 0; slot < svc->run.n_table; slot++) {
		const struct slot_line *line = &svc->run.slots[slot];
		struct slot_state word = slot_load(&svc->run, slot);
		struct slot_handle handle = {
			slot, atomic_load_explicit(&line->generation, memory_order_acquire)};
		if (!is_open(word.stage) || atomic_load(&line->request) != request ||
		    !may_see(who, atomic_load(&line->account)) ||
		    !slot_handle_valid(&svc->run, handle))
			continue;
		slot_cancel(&svc->run, handle);
		svc_hint(svc, word.owner, slot);
		svc_hint_role(svc, slot_stage_role(word.stage), slot);
		n++;
	}
	return n;
}

void gw_serve_cancel(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	const size_t prefix = sizeof "/v1/requests/" - 1;
	struct span path = gw_http_exchange_request(exchange)->path;
	struct gw_who who;
	struct svc_err err;
	struct buf out = {0};
	uint64_t request = 0;
	uint32_t n = 0;
	enum svc_code code = gw_who_read(gateway, exchange, &who, &err);
	if (code == SVC_OK &&
	    cancel_parse((struct span){path.ptr + prefix, path.len - prefix}, &request))
		n = cancel_all(gateway, &who, request);
	if (code == SVC_OK && n == 0)
		code = svc_fail(&err, SVC_NOT_FOUND, __func__,
				"no request with that id runs or waits (GET /v1/requests lists "
				"those that do)");
	if (code != SVC_OK) {
		gw_reply_error(exchange, &err);
		return;
	}
	svc_hint_flush(gateway->svc);
	buf_print(&out, "{\"id\":\"%" PRIx64 "\",\"object\":\"request\",\"cancelled\":%u}", request,
		  n);
	gw_reply_json(exchange, 200, &out);
	buf_free(&out);
}
