#include "gateway/gw_resume.h"
#include "gateway/gw_access.h"
#include "gateway/gw_call.h"
#include "gateway/gw_serve.h"

/* ---- which request is meant ---- */

static uint64_t hash_of(const uint8_t *key, char kind, struct span a, struct span b)
{
	struct buf text = {0};
	buf_append(&text, &kind, 1);
	buf_span(&text, a);
	if (b.len)
		buf_span(&text, b);
	/* Never 0, which means none; out of memory, it fits nothing. */
	uint64_t hash = text.failed ? 1 : gw_siphash(key, text.ptr, text.len) | 1;
	buf_free(&text);
	return hash;
}

static bool is_key(struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.ptr[i] <= 0x20 || text.ptr[i] >= 0x7F)
			return false;
	return text.len > 0 && text.len <= 255;
}

static enum svc_code at_read(const struct gateway *gateway, struct span text, struct gw_key *key,
			     struct svc_err *err)
{
	const struct ctl *ctl = gateway->svc->run.ctl;
	key->has_at = true;
	enum svc_code code = gw_event_id_parse(ctl->config.secret, key->who.account,
					       ctl->header.run_id, text, &key->at, err);
	/* With a key the seed is the same here, and with the seed the answer. The id's tag can't be
	 * checked, but all that it could tell is where in an answer of their own they are. */
	key->elsewhere = code == SVC_GONE && key->key_hash;
	return key->elsewhere ? SVC_OK : code;
}

static uint64_t key_hash_of(const struct shm_run *run, uint64_t account, struct span key)
{
	const struct span bytes = {(const char *)&account, sizeof account};
	return hash_of(run->ctl->config.secret, 'k', bytes, key);
}

enum svc_code gw_key_read(const struct gateway *gateway, struct gw_http_exchange *exchange,
			  enum gw_endpoint endpoint, struct gw_key *ret_key, struct svc_err *err)
{
	static const uint8_t no_secret[16];
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	const uint8_t *secret = gateway->svc->run.ctl->config.secret;
	struct span key = gw_http_field_find(request, "idempotency-key");
	struct span at = gw_http_field_find(request, "last-event-id");
	struct gw_key read = {0};
	enum svc_code code = gw_who_read(gateway, exchange, &read.who, err);
	if (code != SVC_OK)
		return code;
	if (!(endpoint & (GW_CHAT | GW_COMPLETIONS))) {
		*ret_key = read;
		return SVC_OK;
	}
	read.content_hash = hash_of(secret + 16, (char)endpoint, request->path, request->body);
	if (key.ptr && !is_key(key))
		return svc_fail_param(
			err, SVC_INVALID, "Idempotency-Key",
			"Idempotency-Key must have 1 to 255 printable ASCII characters "
			"without spaces");
	if (key.ptr) {
		read.key_hash = key_hash_of(&gateway->svc->run, read.who.account, key);
		/* Not of this run's secret: another pipeline gives the same answer. */
		read.seed = gw_siphash(no_secret, key.ptr, key.len);
	}
	if (at.ptr)
		code = at_read(gateway, at, &read, err);
	if (code == SVC_OK)
		*ret_key = read;
	return code;
}

/* ---- finding it ---- */

static bool slot_is_filled(const struct shm_run *run, uint32_t slot)
{
	enum slot_stage stage = slot_load(run, slot).stage;
	return stage != STAGE_FREE && stage != STAGE_FILL && stage < STAGE_COUNT;
}

static void found_add(const struct shm_run *run, uint32_t slot, struct gw_found *found)
{
	const struct slot_line *line = &run->slots[slot];
	struct slot_handle handle = {slot,
				     atomic_load_explicit(&line->generation, memory_order_acquire)};
	uint32_t choice = line->choice, n = line->n_choices;
	uint64_t content = atomic_load(&line->content_hash);
	/* The line may have gone on to another request between any two loads. */
	if (atomic_load(&line->request) != found->request || !slot_handle_valid(run, handle) ||
	    n > GW_CHOICES_MAX || choice >= n || found->handles[choice].generation)
		return;
	found->handles[choice] = handle;
	found->content_hash = content;
	found->n_wanted = n;
	found->n++;
}

bool gw_request_find(const struct shm_run *run, uint64_t request, struct gw_found *ret_found)
{
	*ret_found = (struct gw_found){.request = request};
	for (uint32_t slot = 0; slot < run->n_table; slot++)
		if (slot_is_filled(run, slot) && atomic_load(&run->slots[slot].request) == request)
			found_add(run, slot, ret_found);
	return ret_found->n > 0 && ret_found->n == ret_found->n_wanted;
}

/* The request that has the key, or 0. One that is still being filled can't be gone on with yet. */
static uint64_t find_key(const struct shm_run *run, uint64_t key_hash)
{
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		const struct slot_line *line = &run->slots[slot];
		if (slot_is_filled(run, slot) && atomic_load(&line->key_hash) == key_hash &&
		    !slot_is_cancelled(run, slot))
			return atomic_load(&line->request);
	}
	return 0;
}

bool gw_key_is_held(const struct shm_run *run, const struct gw_who *who, struct span key)
{
	uint64_t account = who->key ? gw_account_of(run, who->key->name) : 0;
	return find_key(run, key_hash_of(run, account, key)) != 0;
}

bool gw_key_is_taken(const struct gateway *gateway, uint64_t key_hash, uint64_t request)
{
	const struct shm_run *run = &gateway->svc->run;
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		const struct slot_line *line = &run->slots[slot];
		if (slot_load(run, slot).stage != STAGE_FREE &&
		    atomic_load(&line->key_hash) == key_hash && !slot_is_cancelled(run, slot) &&
		    atomic_load(&line->request) < request)
			return true;
	}
	return false;
}

/* ---- going on with it ---- */

enum svc_code gw_shape_find(const struct gateway *gateway, const struct gw_found *found,
			    struct gw_shape *ret_shape, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	struct slot_handle handle = found->handles[0];
	const struct body *body = body_peek(run, handle.slot).body;
	struct span text = {NULL, 0};
	if (body && body->generation == handle.generation)
		text.ptr = body_region(run, body, REGION_META, 0, &text.len);
	if (!text.ptr)
		return svc_fail(err, SVC_CORRUPT, __func__, "the request's body is damaged");
	return gw_shape_read(text, ret_shape, err);
}

/* Who has come back once may be cut off again: from now on the request is kept as if it had a key.
 */
void gw_request_keep(const struct gateway *gateway, uint32_t slot, uint64_t request)
{
	const struct shm_run *run = &gateway->svc->run;
	const struct span bytes = {(const char *)&request, sizeof request};
	uint64_t none = 0;
	atomic_compare_exchange_strong(
		&run->slots[slot].key_hash, &none,
		hash_of(run->ctl->config.secret, 'r', bytes, (struct span){"", 0}));
}

/* The connection that had it so far is told, not cut: there may be a person behind it. */
static void take_from(struct gateway *gateway, struct gw_call *before)
{
	struct svc_err err;
	(void)svc_fail(&err, SVC_STALE, __func__, "another connection goes on with this request");
	gw_call_fail(gateway, before, &err);
}

static void attach(struct gateway *gateway, struct gw_call *call, const struct gw_found *found,
		   struct gw_http_exchange *exchange)
{
	struct shm_run *run = &gateway->svc->run;
	struct gw_call *before[GW_CHOICES_MAX];
	uint32_t n_before = 0;
	for (uint32_t i = 0; i < found->n; i++) {
		struct slot_line *line = &run->slots[found->handles[i].slot];
		struct gw_call *reader = gateway->by_slot[found->handles[i].slot];
		call->choices[i].handle = found->handles[i];
		gw_request_keep(gateway, found->handles[i].slot, found->request);
		atomic_store(&line->gateway, run->me);
		atomic_store(&line->ended_us, 0);
		if (reader && (n_before == 0 || before[n_before - 1] != reader))
			before[n_before++] = reader;
	}
	gw_call_enter(gateway, call, exchange);
	/* Their slots are this call's by now, so that ending them cancels nothing. */
	for (uint32_t i = 0; i < n_before; i++)
		take_from(gateway, before[i]);
}

static enum svc_code start_again(struct gateway *gateway, struct gw_http_exchange *exchange,
				 const struct gw_key *key, const struct gw_found *found,
				 struct svc_err *err)
{
	struct gw_shape shape;
	enum svc_code code = SVC_OK;
	if (key->content_hash && key->content_hash != found->content_hash)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"this Idempotency-Key or Last-Event-ID belongs to a request with "
				"another body");
	if (key->has_at && key->at.n != found->n)
		return svc_fail(err, SVC_NOT_FOUND, __func__, "no stream has that event id");
	code = gw_shape_find(gateway, found, &shape, err);
	if (code != SVC_OK)
		return code;
	struct gw_call *call = gw_call_new(gateway, &shape, found->n);
	if (!call)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	call->request = found->request;
	call->account = key->who.account;
	call->keyed = true;
	for (uint32_t i = 0; key->has_at && i < found->n; i++)
		call->choices[i].sent = key->at.at[i];
	gateway->metrics.resumed++;
	attach(gateway, call, found, exchange);
	gw_call_look(gateway, call);
	return SVC_OK;
}

enum svc_code gw_resume(struct gateway *gateway, struct gw_http_exchange *exchange,
			struct gw_key *key, bool *ret_found, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	uint64_t request = key->has_at && !key->elsewhere ? key->at.request : 0;
	struct gw_found found;
	*ret_found = true;
	if (key->key_hash && (!request || !gw_request_find(run, request, &found)))
		request = find_key(run, key->key_hash);
	if (!gateway->has_vocab)
		return svc_fail(err, SVC_NO_WORKER, __func__,
				"the tokenizer has not published the vocabulary yet");
	if (request && gw_request_find(run, request, &found))
		return start_again(gateway, exchange, key, &found, err);
	/* As after another run: with the key the same answer can be made again. */
	key->elsewhere = key->has_at && key->key_hash;
	if (key->has_at && !key->elsewhere)
		return svc_fail(
			err, SVC_GONE, __func__,
			"that stream is not kept any more; ask again without Last-Event-ID");
	*ret_found = false;
	return SVC_OK;
}

void gw_serve_stream(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	const size_t prefix = sizeof "/v1/streams/" - 1;
	struct span path = gw_http_exchange_request(exchange)->path;
	struct gw_key key = {0};
	struct svc_err err;
	bool found;
	enum svc_code code = gw_who_read(gateway, exchange, &key.who, &err);
	if (code == SVC_OK)
		code = at_read(gateway, (struct span){path.ptr + prefix, path.len - prefix}, &key,
			       &err);
	if (code == SVC_OK)
		code = gw_resume(gateway, exchange, &key, &found, &err);
	if (code != SVC_OK)
		gw_reply_error(exchange, &err);
}
