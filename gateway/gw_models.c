#include "gateway/gw_models.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "gateway/api/json_read.h"
#include "gateway/gw_access.h"
#include "gateway/gw_resume.h"
#include "gateway/http/http_carry.h"
#include "services/summary.h"

/* Two gateways may have read the file before and after a change; three never disagree for long. */
#define HOPS_MAX 3u

enum { RUN_ANY = -1, RUN_UNKNOWN = -2 };

/* ---- the runs ---- */

const struct shm_run *gw_peer_run(struct gw_models *models, uint32_t index)
{
	struct gw_peer *peer = &models->peers[index];
	const char *dir = models->list.runs[index];
	char path[GW_MODEL_DIR_BYTES + 16];
	struct stat now;
	struct svc_err err;
	snprintf(path, sizeof path, "%s/control", dir);
	bool there = stat(path, &now) == 0;
	if (peer->attached && there && now.st_ino == peer->inode)
		return &peer->run;
	if (peer->attached)
		run_detach(&peer->run);
	peer->attached = there && run_attach(dir, dir, ROLE_KEEPER, &peer->run, &err) == SVC_OK;
	peer->inode = now.st_ino;
	return peer->attached ? &peer->run : NULL;
}

static uint64_t run_id_of(const struct shm_run *run)
{
	return run->ctl->header.run_id;
}

static bool is_own(const struct gateway *gateway, const struct shm_run *run)
{
	return run && run_id_of(run) == run_id_of(&gateway->svc->run);
}

/* What was attached stays so, if the new list has it too. */
static void peers_move(struct gw_models *models, const struct gw_model_list *list)
{
	struct gw_peer peers[GW_MODEL_RUNS_MAX] = {0};
	for (uint32_t i = 0; i < models->list.n_runs; i++) {
		uint32_t k = 0;
		while (k < list->n_runs && strcmp(list->runs[k], models->list.runs[i]) != 0)
			k++;
		if (k < list->n_runs)
			peers[k] = models->peers[i];
		else if (models->peers[i].attached)
			run_detach(&models->peers[i].run);
	}
	memcpy(models->peers, peers, sizeof peers);
	models->list = *list;
}

/* Before every request: a look at the file's state costs a microsecond, and so no request that
 * comes after a change is served as if it hadn't been. */
static enum svc_code refresh(struct gateway *gateway, struct svc_err *err)
{
	static struct gw_model_list list;
	struct gw_models *models = gateway->models;
	const char *path = opt_string(gateway->svc->options, "models-file");
	const struct file_stamp stamp = file_stamp_of(path);
	if (file_stamp_same(stamp, models->stamp))
		return SVC_OK;
	/* Taken before reading: what changes while it is read is read again. */
	models->stamp = stamp;
	enum svc_code code = gw_models_load(path, &list, err);
	if (code != SVC_OK)
		return code;
	peers_move(models, &list);
	log_info("%u models read from %s", list.n, path);
	return SVC_OK;
}

static void own_find(struct gateway *gateway)
{
	struct gw_models *models = gateway->models;
	struct svc_err err;
	if (refresh(gateway, &err) != SVC_OK)
		log_warn("the models stay as they were: %s", err.msg);
	gateway->limits.own_run = UINT32_MAX;
	for (uint32_t i = 0; i < models->list.n_runs; i++)
		if (is_own(gateway, gw_peer_run(models, i)))
			gateway->limits.own_run = i;
}

enum svc_code gw_models_open(struct gateway *gateway, struct svc_err *err)
{
	const char *path = opt_string(gateway->svc->options, "models-file");
	if (!*path)
		return SVC_OK;
	if (gateway->tls)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "models-file",
			"--models-file and --tls-cert can't be had together, because a "
			"TLS connection can't be handed over: let a proxy in front "
			"end TLS (deploy/haproxy/tls.cfg)");
	struct gw_models *models = calloc(1, sizeof *models);
	if (!models)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	LIST_INIT(&models->waiting);
	models->socket = -1;
	gateway->models = models;
	gateway->limits.models = &models->list;
	enum svc_code code = refresh(gateway, err);
	if (code == SVC_OK)
		code = gw_hand_open(gateway, err);
	if (code == SVC_OK)
		own_find(gateway);
	return code;
}

void gw_models_close(struct gateway *gateway)
{
	struct gw_models *models = gateway->models;
	if (!models)
		return;
	gw_hand_close(gateway);
	for (uint32_t i = 0; i < GW_MODEL_RUNS_MAX; i++)
		if (models->peers[i].attached)
			run_detach(&models->peers[i].run);
	free(models);
	gateway->models = NULL;
}

void gw_models_look(struct gateway *gateway)
{
	if (!gateway->models)
		return;
	own_find(gateway);
	gw_hand_look(gateway);
}

/* ---- which run a request is for ---- */

/* The value of a member of the query, decoded; false: it has none. */
static bool query_find(struct span query, const char *name, struct buf *out)
{
	const size_t len = strlen(name);
	while (query.len) {
		const char *end = memchr(query.ptr, '&', query.len);
		struct span pair = {query.ptr, end ? (size_t)(end - query.ptr) : query.len};
		size_t used = pair.len + (end ? 1 : 0);
		query = (struct span){query.ptr + used, query.len - used};
		if (pair.len <= len || memcmp(pair.ptr, name, len) != 0 || pair.ptr[len] != '=')
			continue;
		for (size_t i = len + 1; i < pair.len; i++) {
			char hex[3] = {0}, c = pair.ptr[i];
			if (c == '%' && i + 2 < pair.len) {
				memcpy(hex, pair.ptr + i + 1, 2);
				c = (char)strtol(hex, NULL, 16);
				i += 2;
			}
			buf_append(out, &c, 1);
		}
		return true;
	}
	return false;
}

/* 16 digits of an id; false: these are none. */
static bool run_id_read(struct span digits, uint64_t *ret_id)
{
	char text[17] = {0}, *end;
	if (digits.len != 16)
		return false;
	memcpy(text, digits.ptr, 16);
	*ret_id = strtoull(text, &end, 16);
	return *end == 0;
}

/* The list's run with that random id, or -1. */
static int run_of_id(struct gateway *gateway, struct span digits)
{
	struct gw_models *models = gateway->models;
	uint64_t id = 0;
	if (!run_id_read(digits, &id))
		return -1;
	for (uint32_t i = 0; i < models->list.n_runs; i++) {
		const struct shm_run *run = gw_peer_run(models, i);
		if (run && run_id_of(run) == id)
			return (int)i;
	}
	return -1;
}

static struct span first_digits(struct span id)
{
	return (struct span){id.ptr, id.len < 16 ? id.len : 16};
}

/* "resp_" and 48 digits, of which the last 16 are the run's. */
static struct span last_digits(struct span id)
{
	return id.len == 53 ? (struct span){id.ptr + 37, 16} : (struct span){id.ptr, 0};
}

static bool below(struct span path, const char *folder, struct span *ret_rest)
{
	size_t len = strlen(folder);
	if (path.len <= len || memcmp(path.ptr, folder, len) != 0)
		return false;
	*ret_rest = (struct span){path.ptr + len, path.len - len};
	return true;
}

/* What names something that only one run has: a stream, a kept response, an Idempotency-Key that a
 * request holds. */
static int run_that_has(struct gateway *gateway, struct gw_http_exchange *exchange,
			struct span previous)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	struct gw_models *models = gateway->models;
	struct span at = gw_http_field_find(request, "last-event-id"),
		    key = gw_http_field_find(request, "idempotency-key"), rest;
	struct gw_who who;
	struct svc_err err;
	int run = -1;
	if (below(request->path, "/v1/streams/", &rest))
		run = run_of_id(gateway, first_digits(rest));
	else if (below(request->path, "/v1/responses/", &rest))
		run = run_of_id(gateway, last_digits(rest));
	else if (previous.len)
		run = run_of_id(gateway, last_digits(previous));
	if (run < 0 && at.ptr)
		run = run_of_id(gateway, first_digits(at));
	if (run >= 0 || !key.ptr || gw_who_read(gateway, exchange, &who, &err) != SVC_OK)
		return run;
	for (uint32_t i = 0; i < models->list.n_runs && run < 0; i++) {
		const struct shm_run *peer = gw_peer_run(models, i);
		if (peer && gw_key_is_held(peer, &who, key))
			run = (int)i;
	}
	return run;
}

/* Pages about no model, or about all. */
static bool is_for_any(struct span path)
{
	static const char *const pages[] = {"/",       "/ui",	      "/ui/pipeline", "/live",
					    "/ready",  "/health",     "/v1/models",   "/api/tags",
					    "/api/ps", "/api/version"};
	struct span rest;
	for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
		if (span_is(path, pages[i]))
			return true;
	return below(path, "/v1/models/", &rest);
}

static const struct gw_model_entry *entry_of(const struct gateway *gateway, struct span path,
					     struct span name)
{
	static const char latest[] = ":latest";
	const size_t len = sizeof latest - 1;
	const struct gw_model_list *list = &gateway->models->list;
	struct span rest;
	/* Ollama's clients add it. */
	if (below(path, "/api/", &rest) && name.len > len &&
	    memcmp(name.ptr + name.len - len, latest, len) == 0)
		name.len -= len;
	return gw_models_find(list, name);
}

/* RUN_ANY: this gateway answers, be it that there is no such model. */
static int run_of_body(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	const struct gw_model_entry *entry = gw_models_first(&gateway->models->list);
	json_t *body = NULL;
	struct svc_err err;
	if (request->body.len && gw_json_read(request->body, NULL, &body, &err) != SVC_OK)
		return RUN_ANY;
	const json_t *model = json_object_get(body, "model");
	if (!model && span_is(request->path, "/api/show"))
		model = json_object_get(body, "name");
	const json_t *previous = json_object_get(body, "previous_response_id");
	if (json_is_string(model))
		entry = entry_of(
			gateway, request->path,
			(struct span){json_string_value(model), json_string_length(model)});
	int run =
		run_that_has(gateway, exchange,
			     json_is_string(previous) ? (struct span){json_string_value(previous),
								      json_string_length(previous)}
						      : span_of(""));
	/* Who is known by an id or a key is served there, whatever its model is called by now. */
	gateway->limits.any_model = run >= 0 && (uint32_t)run == gateway->limits.own_run;
	json_decref(body);
	return run >= 0 || !entry ? run : (int)entry->run;
}

bool gw_models_asked(struct gateway *gateway, const struct gw_http_request *request,
		     const struct gw_model_entry **ret_entry)
{
	struct buf name = {.limit = GW_MODEL_NAME_BYTES};
	bool asked = query_find(request->query, "model", &name) && (name.len || name.failed);
	*ret_entry = asked && !name.failed ? gw_models_find(&gateway->models->list,
							    (struct span){name.ptr, name.len})
					   : NULL;
	buf_free(&name);
	return asked;
}

static int run_of(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	const struct gw_http_request *request = gw_http_exchange_request(exchange);
	const struct gw_model_entry *entry;
	if (gw_models_asked(gateway, request, &entry))
		return entry ? (int)entry->run : RUN_UNKNOWN;
	return is_for_any(request->path) ? RUN_ANY : run_of_body(gateway, exchange);
}

bool gw_models_pass(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	const struct buf nothing = {0};
	for (uint32_t i = 0; gateway->models && i < gateway->models->list.n_runs; i++)
		if (gw_hand_try(gateway, exchange, &nothing, i))
			return true;
	return false;
}

/* While this gateway drains it refuses what another one of its run may take. */
static bool leave_to_own(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct buf text = {0};
	if (!gateway->svc->draining || gateway->limits.own_run == UINT32_MAX)
		return false;
	gw_http_request_print(&text, gw_http_exchange_request(exchange));
	bool gone = gw_hand_try(gateway, exchange, &text, gateway->limits.own_run);
	buf_free(&text);
	if (gone)
		gw_http_exchange_leave(exchange);
	return gone;
}

bool gw_models_route(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct svc_err err;
	if (!gateway->models)
		return false;
	own_find(gateway);
	gateway->limits.any_model = false;
	int run = run_of(gateway, exchange);
	if (run == RUN_UNKNOWN) {
		(void)gw_model_unknown(&gateway->limits, "model", &err);
		gw_reply_error(exchange, &err);
		return true;
	}
	if (run < 0)
		return false;
	if ((uint32_t)run == gateway->limits.own_run)
		return leave_to_own(gateway, exchange);
	if (gw_http_exchange_hops(exchange) < HOPS_MAX) {
		gw_hand_over(gateway, exchange, (uint32_t)run);
		return true;
	}
	(void)svc_fail(&err, SVC_NO_WORKER, __func__,
		       "the gateways don't agree at this moment which of them serves that model; "
		       "retry");
	gw_reply_error(exchange, &err);
	return true;
}

/* ---- what is served ---- */

static const struct gw_model_entry *listed(const struct gw_model_list *list, uint32_t index)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (!list->entries[i].unlisted && strcmp(list->entries[i].name, "*") != 0 &&
		    index-- == 0)
			return &list->entries[i];
	return NULL;
}

uint32_t gw_served_count(const struct gateway *gateway)
{
	uint32_t n = 0;
	if (!gateway->models)
		return 1;
	while (listed(&gateway->models->list, n))
		n++;
	return n;
}

struct gw_served gw_served_get(struct gateway *gateway, uint32_t index)
{
	const struct gw_model_entry *entry =
		gateway->models ? listed(&gateway->models->list, index) : NULL;
	if (!entry)
		return (struct gw_served){gateway->model_name, &gateway->svc->run, false};
	return (struct gw_served){entry->name, gw_peer_run(gateway->models, entry->run),
				  entry->alias};
}

static const char *lacks(const struct shm_run *run)
{
	static const enum shm_role roles[] = {ROLE_GATEWAY, ROLE_TOKENIZER, ROLE_WORKER,
					      ROLE_SAMPLER};
	struct svc_summary summary;
	if (!run)
		return "run";
	svc_summarise(run, &summary);
	for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
		bool there = false;
		for (uint32_t k = 0; k < summary.n_processes; k++)
			there |= summary.processes[k].role == roles[i] &&
				 strcmp(summary.processes[k].state, "ready") == 0;
		if (!there)
			return inc_role_name(roles[i]);
	}
	return NULL;
}

bool gw_served_states_print(struct gateway *gateway, struct buf *out)
{
	bool ready = true;
	buf_span(out, span_of("\"models\":{"));
	for (uint32_t i = 0; i < gw_served_count(gateway); i++) {
		const struct gw_served served = gw_served_get(gateway, i);
		const char *missing = lacks(served.run);
		ready = ready && !missing;
		buf_append(out, ",", i ? 1 : 0);
		buf_json_string(out, span_of(served.name));
		buf_print(out, ":\"%s%s\"", missing ? "no " : "ready", missing ? missing : "");
	}
	buf_append(out, "}", 1);
	return ready;
}
