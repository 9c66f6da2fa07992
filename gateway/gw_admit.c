#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "gateway/gw_call.h"
#include "gateway/gw_ready.h"
#include "gateway/gw_resume.h"
#include "gateway/gw_slots.h"

/* Clocks of two machines may differ, not by this. */
#define ONE_DAY_S 86400u

/* A request on its way into slots. */
struct admission {
	struct gateway *gateway;
	const struct gw_request *request;
	const struct gw_key *key;
	struct gw_call *call;
	uint64_t seed, ticket;
	struct slot_state mine[GW_CHOICES_MAX];
	uint32_t bodies[GW_CHOICES_MAX];
	uint32_t n_begun;
};

/* A slot for each prompt and choice; else one for all. */
static bool is_computed(const struct gw_request *request)
{
	return request->endpoint & GW_COMPUTED;
}

/* ---- how large the body must be ---- */

static const struct gw_prompt *prompt_of(const struct gw_request *request, uint32_t choice)
{
	size_t index = is_computed(request) ? choice / (uint32_t)request->n : 0;
	return index < request->n_prompts ? &request->prompts[index] : NULL;
}

static struct span text_of(const struct gw_request *request, uint32_t choice)
{
	const struct gw_prompt *prompt = prompt_of(request, choice);
	if (request->chat.ptr)
		return request->chat;
	return prompt && !prompt->ids ? prompt->text : (struct span){"", 0};
}

static size_t stops_bytes(const struct gw_request *request)
{
	size_t bytes = 0;
	for (size_t i = 0; i < request->n_stops; i++)
		bytes += 4 + ((request->stops[i].len + 3) & ~(size_t)3);
	return bytes;
}

/* With its end. */
static size_t settings_bytes(const struct gw_request *request)
{
	return request->settings ? strlen(request->settings) + 1 : 0;
}

static void plan_generation(const struct admission *admission, size_t sizes[REGION_COUNT])
{
	const struct gw_request *request = admission->request;
	size_t ctx = admission->gateway->svc->run.ctx;
	size_t most = request->max_tokens >= 0 && (size_t)request->max_tokens < ctx
			      ? (size_t)request->max_tokens
			      : ctx;
	bool scores_prompt = request->echo && request->logprobs;
	sizes[REGION_IDS] = 4 * ctx;
	sizes[REGION_PAGES] = 4 * ((ctx + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
	sizes[REGION_ENDS] = 4 * most;
	sizes[REGION_OUT] = 16 * most + 4096;
	if (request->logprobs)
		sizes[REGION_LOGPROBS] = (scores_prompt ? ctx : most) *
					 body_logprob_bytes((uint32_t)request->top_logprobs);
}

static void plan_vector(const struct admission *admission, size_t sizes[REGION_COUNT])
{
	const struct shm_run *run = &admission->gateway->svc->run;
	sizes[REGION_IDS] = 4 * (size_t)run->ctx;
	sizes[REGION_PAGES] = 4 * (((size_t)run->ctx + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
	sizes[REGION_VECTOR] = body_vector_bytes(run->n_embd);
}

/* What the tokenizer alone answers: room for the largest answer that such an input can have. */
static void plan_text(const struct admission *admission, size_t text, size_t sizes[REGION_COUNT])
{
	const struct gw_request *request = admission->request;
	const struct gateway *gateway = admission->gateway;
	if (request->endpoint == GW_TOKENIZE) {
		sizes[REGION_IDS] = 4 * (2 * text + gateway->svc->run.ctx + 1024);
	} else if (request->endpoint == GW_DETOKENIZE) {
		size_t bytes = 64;
		for (size_t i = 0; i < request->n_tokens; i++)
			/* A byte that is no character becomes three. */
			bytes += 3 * vocab_token(&gateway->vocab, request->tokens[i]).len;
		sizes[REGION_IDS] = 4 * request->n_tokens;
		sizes[REGION_OUT] = bytes;
	} else {
		sizes[REGION_OUT] = 4 * text + 65536;
	}
}

static enum svc_code plan_make(const struct admission *admission, uint32_t choice,
			       struct body_plan *ret_plan, struct svc_err *err)
{
	const struct gw_request *request = admission->request;
	size_t sizes[REGION_COUNT] = {0};
	sizes[REGION_TEXT] = text_of(request, choice).len;
	sizes[REGION_STOP] = stops_bytes(request);
	sizes[REGION_STOP_IDS] = 4 * request->n_stop_ids;
	sizes[REGION_BIAS] = sizeof(struct body_bias) * request->n_biases;
	sizes[REGION_META] = GW_SHAPE_BYTES + settings_bytes(request);
	sizes[REGION_GRAMMAR] = request->grammar.len;
	if (request->endpoint == GW_EMBEDDINGS)
		plan_vector(admission, sizes);
	else if (is_computed(request))
		plan_generation(admission, sizes);
	else
		plan_text(admission, sizes[REGION_TEXT], sizes);
	for (int i = 0; i < REGION_COUNT; i++) {
		if (sizes[i] > UINT32_MAX / 2)
			return svc_fail(err, SVC_TOO_LARGE, __func__, "the request is too large");
		ret_plan->bytes[i] = (uint32_t)sizes[i];
	}
	return SVC_OK;
}

/* ---- what stands in it ---- */

static uint32_t flags_of(const struct gw_request *request)
{
	uint32_t flags = 0;
	flags |= request->ignore_eos ? BODY_IGNORE_EOS : 0;
	flags |= request->logprobs ? BODY_LOGPROBS : 0;
	flags |= request->echo ? BODY_ECHO : 0;
	flags |= request->echo && request->logprobs ? BODY_PROMPT_LOGPROBS : 0;
	flags |= request->keep_stop ? BODY_KEEP_STOP : 0;
	flags |= request->skip_special ? 0 : BODY_KEEP_SPECIAL;
	flags |= request->add_special ? 0 : BODY_NO_BOS;
	flags |= request->speculate ? 0 : BODY_NO_DRAFTS;
	flags |= request->endpoint == GW_EMBEDDINGS ? BODY_SCORE_ONLY : 0;
	flags |= is_computed(request) && request->max_tokens == 0 ? BODY_SCORE_ONLY : 0;
	return flags;
}

static struct body_params params_of(const struct admission *admission, uint32_t choice)
{
	const struct gw_request *request = admission->request;
	struct body_params params = {
		.seed = admission->seed,
		.max_tokens = request->max_tokens > 0 ? (uint32_t)request->max_tokens : 0,
		.min_tokens = (uint32_t)request->min_tokens,
		/* Within its prompt: a prompt among others gets what it gets alone. */
		.choice = is_computed(request) ? choice % (uint32_t)request->n : 0,
		.flags = flags_of(request),
		.top_logprobs = (uint32_t)request->top_logprobs,
		.top_k = request->top_k > 0 ? (uint32_t)request->top_k : 0,
		.temperature = (float)request->temperature,
		.top_p = (float)request->top_p,
		.min_p = (float)request->min_p,
		.typical_p = (float)request->typical_p,
		.repetition_penalty = (float)request->repetition_penalty,
		.presence_penalty = (float)request->presence_penalty,
		.frequency_penalty = (float)request->frequency_penalty,
		.n_stop = (uint32_t)request->n_stops,
		.n_stop_ids = (uint32_t)request->n_stop_ids,
		.n_bias = (uint32_t)request->n_biases,
		.pooling = request->pooling,
		.dimensions = (uint32_t)request->dimensions,
	};
	return params;
}

static void region_write(struct gateway *gateway, struct body *body, enum body_region region,
			 const void *bytes, size_t len)
{
	void *target = len ? body_region(&gateway->svc->run, body, region, len, NULL) : NULL;
	if (target)
		memcpy(target, bytes, len);
}

static void stops_write(struct gateway *gateway, struct body *body,
			const struct gw_request *request)
{
	char *at = body_region(&gateway->svc->run, body, REGION_STOP, stops_bytes(request), NULL);
	for (size_t i = 0; at && i < request->n_stops; i++) {
		uint32_t len = (uint32_t)request->stops[i].len;
		memcpy(at, &len, sizeof len);
		memcpy(at + 4, request->stops[i].ptr, len);
		at += 4 + ((len + 3) & ~3u);
	}
}

static void shape_write(struct gateway *gateway, struct body *body, const struct gw_shape *shape,
			const struct gw_request *request)
{
	size_t bytes = settings_bytes(request);
	struct buf text = {.limit = GW_SHAPE_BYTES - 1};
	gw_shape_print(&text, shape);
	/* With its end: blocks are used again without being cleared. */
	region_write(gateway, body, REGION_META, text.ptr, text.failed ? 0 : text.len + 1);
	char *meta =
		body_region(&gateway->svc->run, body, REGION_META, GW_SHAPE_BYTES + bytes, NULL);
	if (meta && bytes)
		memcpy(meta + GW_SHAPE_BYTES, request->settings, bytes);
	buf_free(&text);
}

static enum body_kind kind_of(enum gw_endpoint endpoint)
{
	switch (endpoint) {
	case GW_TOKENIZE:
		return BODY_TOKENIZE;
	case GW_DETOKENIZE:
		return BODY_DETOKENIZE;
	case GW_TEMPLATE:
		return BODY_TEMPLATE;
	case GW_EMBEDDINGS:
		return BODY_EMBED;
	case GW_CHAT:
	case GW_COMPLETIONS:
		break;
	}
	return BODY_GENERATE;
}

static void body_fill(const struct admission *admission, uint32_t choice, struct body *body)
{
	struct gateway *gateway = admission->gateway;
	const struct gw_request *request = admission->request;
	const struct gw_prompt *prompt = prompt_of(request, choice);
	struct span text = text_of(request, choice);
	body->generation = admission->call->choices[choice].handle.generation;
	body->kind = kind_of(request->endpoint);
	body->input = request->chat.ptr	       ? INPUT_CHAT
		      : prompt && !prompt->ids ? INPUT_TEXT
					       : INPUT_IDS;
	body->template_time_s = admission->call->shape.meta.created_s;
	body->params = params_of(admission, choice);
	region_write(gateway, body, REGION_TEXT, text.ptr, text.len);
	stops_write(gateway, body, request);
	shape_write(gateway, body, &admission->call->shape, request);
	region_write(gateway, body, REGION_STOP_IDS, request->stop_ids, 4 * request->n_stop_ids);
	_Static_assert(sizeof(struct gw_bias) == sizeof(struct body_bias), "the same pair");
	region_write(gateway, body, REGION_BIAS, request->biases,
		     sizeof(struct body_bias) * request->n_biases);
	region_write(gateway, body, REGION_GRAMMAR, request->grammar.ptr, request->grammar.len);
	if (body->input == INPUT_IDS) {
		const int32_t *ids = prompt ? prompt->ids : request->tokens;
		size_t n = prompt ? prompt->n_ids : request->n_tokens;
		region_write(gateway, body, REGION_IDS, ids, 4 * n);
		atomic_store(&body->n_prompt, (uint32_t)n);
		/* Their length was checked with the request. */
		atomic_store(&body->tokenized, 1);
	}
}

/* ---- slots ---- */

static bool free_slot_take(struct gateway *gateway, uint32_t *ret_slot, struct slot_state *ret_mine)
{
	struct shm_run *run = &gateway->svc->run;
	for (uint32_t i = 0; i < run->n_table; i++) {
		uint32_t slot = (gateway->next_slot + i) % run->n_table;
		if (!slot_begin(run, slot, ret_mine))
			continue;
		gateway->next_slot = slot + 1;
		*ret_slot = slot;
		return true;
	}
	return false;
}

static bool slot_find(struct gateway *gateway, uint32_t *ret_slot, struct slot_state *ret_mine)
{
	do {
		if (free_slot_take(gateway, ret_slot, ret_mine))
			return true;
	} while (gw_slot_evict(gateway));
	return false;
}

/* Answers that are kept give way to requests that are new. */
static enum svc_code body_find(struct gateway *gateway, uint32_t slot, const struct body_plan *plan,
			       uint32_t *ret_body, struct svc_err *err)
{
	enum svc_code code;
	do {
		code = body_alloc(&gateway->svc->run, slot, plan, ret_body, err);
	} while (code == SVC_BUSY && gw_slot_evict(gateway));
	return code;
}

static void line_fill(const struct admission *admission, uint32_t choice)
{
	struct gateway *gateway = admission->gateway;
	struct shm_run *run = &gateway->svc->run;
	struct gw_call *call = admission->call;
	struct gw_choice *mine = &call->choices[choice];
	struct slot_line *line = &run->slots[mine->handle.slot];
	mine->handle.generation = atomic_fetch_add(&run->ctl->counters.next_generation, 1);
	if (choice == 0)
		call->request = mine->handle.generation;
	line->choice = (uint16_t)choice;
	line->n_choices = (uint16_t)call->n_choices;
	atomic_store(&line->cancel, 0);
	atomic_store(&line->request, call->request);
	atomic_store(&line->ticket, admission->ticket);
	atomic_store(&line->key_hash, admission->key->key_hash);
	atomic_store(&line->content_hash, admission->key->content_hash);
	atomic_store(&line->ended_us, 0);
	atomic_store(&line->arrived_us, (uint64_t)call->shape.meta.created_s * 1000000u);
	atomic_store(&line->account, call->account);
	atomic_store(&line->gateway, run->me);
	if (admission->request->stored)
		gw_request_keep(gateway, mine->handle.slot, call->request);
	atomic_store_explicit(&line->generation, mine->handle.generation, memory_order_release);
}

static enum svc_code choice_begin(struct admission *admission, uint32_t choice, struct svc_err *err)
{
	struct gateway *gateway = admission->gateway;
	struct shm_run *run = &gateway->svc->run;
	struct slot_handle *handle = &admission->call->choices[choice].handle;
	struct slot_state *mine = &admission->mine[choice];
	struct body_plan plan;
	uint32_t index = 0;
	if (!slot_find(gateway, &handle->slot, mine))
		return svc_fail(err, SVC_BUSY, __func__, "the request table is full; retry later");
	admission->n_begun = choice + 1;
	line_fill(admission, choice);
	enum svc_code code = plan_make(admission, choice, &plan, err);
	if (code == SVC_OK)
		code = body_find(gateway, handle->slot, &plan, &index, err);
	if (code != SVC_OK)
		return code;
	struct body *body = body_get(run, index, handle->slot);
	if (!body)
		return svc_fail(err, SVC_CORRUPT, __func__, "the pool of bodies is damaged");
	admission->bodies[choice] = index;
	body_fill(admission, choice, body);
	return SVC_OK;
}

/* From here on the pipeline has it. */
static void choice_pass(struct admission *admission, uint32_t choice)
{
	struct gateway *gateway = admission->gateway;
	struct svc *svc = gateway->svc;
	uint32_t slot = admission->call->choices[choice].handle.slot;
	struct slot_state next = {.stage = STAGE_TOKENIZE, .body = admission->bodies[choice]};
	if (slot_pass(&svc->run, slot, &admission->mine[choice], next) != SVC_OK) {
		svc_leave(svc, SVC_STALE);
		return;
	}
	svc_hint_role(svc, ROLE_TOKENIZER, slot);
}

static void admission_undo(struct admission *admission)
{
	struct gateway *gateway = admission->gateway;
	for (uint32_t i = 0; i < admission->n_begun; i++)
		if (!gw_slot_free(gateway, admission->call->choices[i].handle.slot,
				  &admission->mine[i]))
			break;
	free(admission->call);
}

static enum svc_code seed_make(struct admission *admission, struct svc_err *err)
{
	admission->seed = (uint64_t)admission->request->seed;
	if (admission->request->has_seed)
		return SVC_OK;
	/* The same request with the same key gives the same answer, wherever it is asked again. */
	admission->seed = admission->key->seed;
	if (admission->key->key_hash)
		return SVC_OK;
	if (getrandom(&admission->seed, sizeof admission->seed, 0) !=
	    (ssize_t)sizeof admission->seed)
		return svc_fail_errno(err, __func__, "getrandom");
	return SVC_OK;
}

/* What the client has of the answer from another run: it gets the rest. */
static enum svc_code begin_where_it_was(struct admission *admission, struct svc_err *err)
{
	const struct gw_event_id *at = &admission->key->at;
	struct gw_call *call = admission->call;
	if (!admission->key->elsewhere)
		return SVC_OK;
	if (at->n != call->n_choices)
		return svc_fail(err, SVC_NOT_FOUND, __func__, "no stream has that event id");
	for (uint32_t i = 0; i < call->n_choices; i++)
		call->choices[i].sent = at->at[i];
	if ((int64_t)at->created_s > 0 &&
	    at->created_s < (uint64_t)call->shape.meta.created_s + ONE_DAY_S)
		call->shape.meta.created_s = (int64_t)at->created_s;
	return SVC_OK;
}

/* ---- the whole ---- */

static enum svc_code may_enter(struct gateway *gateway, uint32_t n, struct svc_err *err)
{
	const struct shm_run *run = &gateway->svc->run;
	enum shm_role lost = gw_ready_lost(gateway, ~0u);
	if (gateway->refuses)
		return svc_fail(err, SVC_DRAINING, __func__, "this gateway is shutting down");
	if (!gateway->has_vocab)
		return svc_fail(err, SVC_NO_WORKER, __func__,
				"the tokenizer has not published the vocabulary yet");
	if (lost)
		return svc_fail(err, SVC_NO_WORKER, __func__, "no %s is running",
				inc_role_name(lost));
	if (n > run->n_slots + gateway->queue)
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"the request asks for %u sequences; at most %u can run and wait "
				"(options --slots, --queue): ask for fewer at once",
				n, run->n_slots + gateway->queue);
	if (gw_slots_busy(gateway) + n > run->n_slots + gateway->queue)
		return svc_fail(
			err, SVC_BUSY, __func__,
			"%u sequences are running and %u may wait (options --slots, --queue); "
			"retry later",
			run->n_slots, gateway->queue);
	return SVC_OK;
}

static struct gw_shape shape_of(const struct gw_request *request)
{
	struct gw_shape shape = {
		.endpoint = request->endpoint,
		.stream = request->stream,
		.meta =
			{
				.created_s = (int64_t)time(NULL),
				.chat = request->endpoint == GW_CHAT,
				.include_usage = request->include_usage,
				.logprobs = request->logprobs,
				.echo = request->echo,
				.base64 = request->base64,
				.token_ids = request->return_token_ids,
				.keep_special = !request->skip_special,
				.calls = request->calls,
				.tools = request->tools,
				.thinks = request->thinks && (request->form == GW_FORM_OPENAI ||
							      request->thoughts_apart),
				.n = request->n > 0 ? (uint32_t)request->n : 1,
				.form = request->form,
				.stored = request->stored,
				.instructed = request->instructed,
			},
	};
	snprintf(shape.meta.previous, sizeof shape.meta.previous, "%s", request->previous);
	return shape;
}

/* Before anything is given up for it: a request that can never fit doesn't wait. */
static enum svc_code fits(const struct admission *admission, struct svc_err *err)
{
	const struct shm_run *run = &admission->gateway->svc->run;
	uint32_t n = admission->call->n_choices, most = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct body_plan plan;
		enum svc_code code = plan_make(admission, i, &plan, err);
		if (code != SVC_OK)
			return code;
		uint32_t blocks = body_plan_blocks(&plan);
		most = blocks > most ? blocks : most;
	}
	if (body_fits(run, most, n))
		return SVC_OK;
	return svc_fail(err, SVC_TOO_LARGE, __func__,
			"the request's %u sequences need more memory than the pool of %u KiB; ask "
			"for fewer at once, or raise --body-pool-mb",
			n, run->n_blocks * (BODY_BLOCK_BYTES / 1024));
}

static enum svc_code choices_begin(struct admission *admission, struct svc_err *err)
{
	struct gw_call *call = admission->call;
	enum svc_code code = fits(admission, err);
	for (uint32_t i = 0; i < call->n_choices && code == SVC_OK; i++)
		code = choice_begin(admission, i, err);
	/* Each of two gateways writes the key first and looks then, so at least one sees the other.
	 */
	if (code == SVC_OK && admission->key->key_hash &&
	    gw_key_is_taken(admission->gateway, admission->key->key_hash, call->request))
		code = svc_fail(
			err, SVC_BUSY, __func__,
			"a request with this Idempotency-Key is being admitted at this moment; "
			"retry");
	if (code == SVC_OK)
		code = gw_account_check(&admission->gateway->svc->run, &admission->key->who, err);
	return code;
}

enum svc_code gw_admit(struct gateway *gateway, struct gw_http_exchange *exchange,
		       const struct gw_request *request, const struct gw_key *key,
		       struct svc_err *err)
{
	struct admission admission = {.gateway = gateway, .request = request, .key = key};
	const struct gw_shape shape = shape_of(request);
	size_t prompts = request->n_prompts ? request->n_prompts : 1;
	uint32_t n = is_computed(request) ? (uint32_t)request->n * (uint32_t)prompts : 1;
	enum svc_code code = may_enter(gateway, n, err);
	if (code == SVC_OK)
		code = seed_make(&admission, err);
	if (code != SVC_OK)
		return code;
	admission.call = gw_call_new(gateway, &shape, n);
	if (!admission.call)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	admission.call->keyed = key->key_hash != 0;
	admission.call->account = key->who.account;
	admission.ticket = atomic_fetch_add(&gateway->svc->run.ctl->counters.next_ticket, 1);
	code = begin_where_it_was(&admission, err);
	if (code == SVC_OK)
		code = choices_begin(&admission, err);
	if (code != SVC_OK) {
		admission_undo(&admission);
		return code;
	}
	gw_call_enter(gateway, admission.call, exchange);
	for (uint32_t i = 0; i < n; i++)
		choice_pass(&admission, i);
	atomic_fetch_add_explicit(
		&gateway->svc->run.ctl->incs[gateway->svc->run.me].gauge[GAUGE_REQUESTS], 1,
		memory_order_relaxed);
	log_line(LOG_LEVEL_DEBUG, admission.call->request, SVC_OK, "admitted: %u choices from %s",
		 n, gw_http_exchange_address(exchange));
	return SVC_OK;
}
