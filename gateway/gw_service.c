#include "gateway/gw_service.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/gw_access.h"
#include "gateway/gw_call.h"
#include "gateway/gw_models.h"
#include "gateway/gw_ready.h"
#include "gateway/gw_resume.h"
#include "gateway/gw_serve.h"
#include "gateway/gw_slots.h"
#include "gateway/gw_status.h"
#include "gateway/gw_trace.h"
#include "services/slots.h"

#define QUARANTINE_EVERY_US 1000000u
#define LAST_WORDS_US	    500000u

static const struct opt options[] = {
	{"host", OPT_STRING, "127.0.0.1", 0, 0, NULL,
	 "address to listen on: IPv4, IPv6, a name, or * for all"},
	{"port", OPT_INT, "8080", 0, 65535, NULL,
	 "port to listen on; gateways of one run share it; 0: any free one"},
	{"queue", OPT_INT, "256", 0, 4096, NULL, "sequences that may wait beyond --slots"},
	{"max-choices", OPT_INT, "16", 1, 128, NULL, "n times prompts of one request"},
	{"strict", OPT_BOOL, "false", 0, 0, NULL, "refuse unknown request parameters"},
	{"trust-request-chat-template", OPT_BOOL, "false", 0, 0, NULL,
	 "requests may bring chat_template and chat_template_kwargs"},
	{"cors-origins", OPT_STRING, "", 0, 0, NULL,
	 "web origins that may use this server, comma-separated, or *"},
	{"api-keys", OPT_STRING, "", 0, 0, NULL,
	 "file of API keys and their limits, read again when it changes; empty: none needed"},
	{"tls-cert", OPT_STRING, "", 0, 0, NULL,
	 "PEM file of certificate and chain, read again when it changes; empty: plain HTTP"},
	{"tls-key", OPT_STRING, "", 0, 0, NULL, "PEM file of its private key"},
	{"allowed-hosts", OPT_STRING, "", 0, 0, NULL,
	 "names this server answers to (Host) beside loopback's own, comma-separated, or *"},
	{"model-aliases", OPT_STRING, "", 0, 0, NULL,
	 "other names that requests may have for the model, comma-separated, or * for any"},
	{"models-file", OPT_STRING, "", 0, 0, NULL,
	 "file of several models and the runs that serve them, read again when it changes; empty: "
	 "only this run's"},
	{"otlp-endpoint", OPT_STRING, "", 0, 0, NULL,
	 "collector for traces, http://HOST[:PORT][/PATH] (OTLP, JSON); empty: none are made"},
	{"access-log", OPT_BOOL, "false", 0, 0, NULL, "a log line for each answered request"},
	{"keep-alive-s", OPT_REAL, "10", 0.05, 3600, NULL,
	 "a waiting event stream gets a comment line this often (s)"},
	{"keep-s", OPT_REAL, "600", 0, 86400, NULL,
	 "a complete answer that somebody may come back for is kept this long (s)"},
	{"detach-s", OPT_REAL, "30", 0, 86400, NULL,
	 "a request with an Idempotency-Key runs on this long without its client (s)"},
	{"no-worker-s", OPT_REAL, "60", 0, 86400, NULL,
	 "requests fail when a role has had no instance for this long (s)"},
	{"max-body-bytes", OPT_INT, "16777216", 1024, 1073741824, NULL, "of one request"},
	{"max-header-bytes", OPT_INT, "32768", 1024, 1048576, NULL,
	 "request line and header fields"},
	{"max-connections", OPT_INT, "1024", 1, 65536, NULL, "in all"},
	{"max-connections-per-address", OPT_INT, "512", 1, 65536, NULL, "from one client address"},
	{"header-timeout-s", OPT_REAL, "10", 0.1, 3600, NULL, "first byte to end of header (s)"},
	{"body-timeout-s", OPT_REAL, "60", 0.1, 3600, NULL, "end of header to end of body (s)"},
	{"idle-timeout-s", OPT_REAL, "75", 0.1, 3600, NULL, "between two requests (s)"},
	{"write-timeout-s", OPT_REAL, "30", 0.1, 3600, NULL,
	 "a client that takes less than half of --output-bytes in this time is dropped (s)"},
	{"output-bytes", OPT_INT, "131072", 4096, 67108864, NULL,
	 "held for a client that reads slowly; then its stream pauses"},
	{0},
};

/* ---- requests ---- */

static void result_note(struct gateway *gateway, enum svc_code code)
{
	gateway->metrics.results[code]++;
}

void gw_serve(struct gateway *gateway, struct gw_http_exchange *exchange, enum gw_endpoint endpoint,
	      struct gw_request *request_take, enum svc_code code, struct svc_err *err)
{
	struct gw_key key = {0};
	bool found = false;
	uint64_t wait_us = 0;
	gateway->metrics.requests[__builtin_ctz((unsigned)endpoint)]++;
	if (code == SVC_OK)
		code = gw_key_read(gateway, exchange, endpoint, &key, err);
	if (code == SVC_OK && (key.has_at || key.key_hash))
		code = gw_resume(gateway, exchange, &key, &found, err);
	if (code == SVC_OK && !found)
		code = gw_account_take(&gateway->svc->run, &key.who, svc_now_us(), &wait_us, err);
	if (code == SVC_OK && !found)
		code = gw_admit(gateway, exchange, request_take, &key, err);
	gw_request_free(request_take);
	if (code != SVC_OK) {
		gw_trace_refused(gateway, exchange, code);
		result_note(gateway, code);
		gw_reply_error_later(exchange, err, wait_us);
	}
	svc_hint_flush(gateway->svc);
}

static void serve(struct gateway *gateway, struct gw_http_exchange *exchange,
		  enum gw_endpoint endpoint)
{
	struct gw_request *request = NULL;
	struct svc_err err = {0};
	enum svc_code code = gw_request_read(endpoint, gw_http_exchange_request(exchange)->body,
					     &gateway->limits, &request, &err);
	gw_serve(gateway, exchange, endpoint, request, code, &err);
}

static void serve_chat(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_CHAT);
}

static void serve_completions(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_COMPLETIONS);
}

static void serve_tokenize(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_TOKENIZE);
}

static void serve_detokenize(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_DETOKENIZE);
}

static void serve_template(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_TEMPLATE);
}

static void serve_embeddings(void *context, struct gw_http_exchange *exchange)
{
	serve(context, exchange, GW_EMBEDDINGS);
}

static const struct gw_route routes[] = {
	{"POST", "/v1/chat/completions", serve_chat, false},
	{"POST", "/v1/completions", serve_completions, false},
	{"POST", "/v1/embeddings", serve_embeddings, false},
	{"POST", "/tokenize", serve_tokenize, false},
	{"POST", "/detokenize", serve_detokenize, false},
	{"POST", "/apply-template", serve_template, false},
	{"POST", "/v1/messages", gw_serve_messages, false},
	{"POST", "/v1/messages/count_tokens", gw_serve_count_tokens, false},
	{"POST", "/v1/responses", gw_serve_responses, false},
	{"GET", "/v1/responses/", gw_serve_response, false},
	{"DELETE", "/v1/responses/", gw_serve_response_delete, false},
	{"POST", "/api/chat", gw_serve_ollama_chat, false},
	{"POST", "/api/generate", gw_serve_ollama_generate, false},
	{"POST", "/api/embed", gw_serve_ollama_embed, false},
	{"GET", "/api/tags", gw_serve_ollama_tags, false},
	{"GET", "/api/ps", gw_serve_ollama_ps, false},
	{"POST", "/api/show", gw_serve_ollama_show, false},
	{"GET", "/api/version", gw_serve_ollama_version, false},
	{"GET", "/v1/streams/", gw_serve_stream, false},
	{"GET", "/v1/requests", gw_serve_requests, false},
	{"POST", "/v1/requests/", gw_serve_cancel, false},
	{"GET", "/v1/models", gw_serve_models, false},
	{"GET", "/v1/models/", gw_serve_model, false},
	{"GET", "/ready", gw_serve_ready, true},
	{"GET", "/health", gw_serve_ready, true},
	{"GET", "/live", gw_serve_live, true},
	{"GET", "/metrics", gw_serve_metrics, false},
	{"GET", "/", gw_serve_root, true},
	{"GET", "/ui", gw_serve_chat_page, true},
	{"GET", "/ui/pipeline", gw_serve_pipeline_page, true},
	{"GET", "/status", gw_serve_status, false},
};

/* The client's own, if it is short and plain, so that its logs and ours can be put together. */
static void request_id_add(struct gateway *gateway, struct gw_http_exchange *exchange)
{
	char id[132];
	struct span given = gw_http_field_find(gw_http_exchange_request(exchange), "x-request-id");
	size_t plain = 0;
	while (plain < given.len && given.ptr[plain] > 0x20 && given.ptr[plain] < 0x7F)
		plain++;
	if (given.len > 0 && given.len <= 128 && plain == given.len)
		snprintf(id, sizeof id, "%.*s", (int)given.len, given.ptr);
	else
		snprintf(id, sizeof id, "req-%" PRIx64 "-%" PRIx64, gateway->svc->run.number,
			 ++gateway->n_requests);
	gw_http_reply_field(exchange, GW_REQUEST_ID, id);
}

static void on_head(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	request_id_add(gateway, exchange);
	if (!gw_route_refuse(&gateway->router, exchange))
		gw_access_refuse(gateway, exchange);
}

static void on_request(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	if (!gw_models_route(gateway, exchange))
		gw_route_serve(&gateway->router, context, exchange);
}

static void on_gone(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	struct gw_call *call = gw_http_exchange_user(exchange);
	if (!gw_models_gone(gateway, exchange) && call)
		gw_call_gone(gateway, call);
	svc_hint_flush(gateway->svc);
}

static void on_answered(void *context, const struct gw_http_answered *answered)
{
	const struct gateway *gateway = context;
	if (gateway->access_log)
		gw_access_note(gateway, answered);
}

static bool on_pass(void *context, struct gw_http_exchange *exchange)
{
	return gw_models_pass(context, exchange);
}

static void on_room(void *context, struct gw_http_exchange *exchange)
{
	gw_call_look(context, gw_http_exchange_user(exchange));
}

/* ---- the service's callbacks ---- */

static void look(struct svc *svc, uint32_t slot)
{
	struct gateway *gateway = svc->role_state;
	struct gw_call *call = gateway->by_slot[slot];
	if (call)
		gw_call_look(gateway, call);
	else
		gw_slot_look(gateway, slot);
}

/* The tokenizer publishes it when it has loaded the model, which may be after this process has
 * started. */
static void vocab_look(struct gateway *gateway)
{
	struct svc *svc = gateway->svc;
	struct svc_err err;
	if (gateway->has_vocab || run_map_vocab(&svc->run, &err) != SVC_OK)
		return;
	const char *base = svc->run.vocab.base;
	if (vocab_open(base + sizeof(struct seg_header),
		       svc->run.vocab.bytes - sizeof(struct seg_header), &gateway->vocab,
		       &err) == SVC_OK) {
		gateway->has_vocab = true;
		gateway->limits.tools = gateway->vocab.tools;
		gateway->limits.call_tokens = vocab_call_tokens_of(&gateway->vocab);
		gateway->limits.thinks = gateway->vocab.thinks;
		return;
	}
	log_err(&err);
	svc_leave(svc, err.code);
}

/* A bit for each role that the call can't do without: text is all that it wants that is not yet, or
 * not only, tokens. */
static unsigned needs(const struct gw_call *call)
{
	bool generates = call->shape.endpoint & (GW_CHAT | GW_COMPLETIONS);
	bool encodes = !generates || !call->first_us;
	bool computes = call->shape.endpoint & GW_COMPUTED;
	return (encodes ? 1u << ROLE_TOKENIZER : 0) | (computes ? 1u << ROLE_WORKER : 0) |
	       (generates ? 1u << ROLE_SAMPLER : 0);
}

static void calls_look(struct gateway *gateway)
{
	struct gw_call *next, *call = LIST_FIRST(&gateway->calls);
	for (; call; call = next) {
		next = LIST_NEXT(call, link);
		enum shm_role lost = gw_ready_lost(gateway, needs(call));
		if (lost) {
			struct svc_err err;
			(void)svc_fail(&err, SVC_NO_WORKER, __func__, "no %s is running",
				       inc_role_name(lost));
			gw_call_fail(gateway, call, &err);
			continue;
		}
		gw_call_keep_alive(gateway, call);
		gw_call_look(gateway, call);
	}
}

static void tick(struct svc *svc)
{
	struct gateway *gateway = svc->role_state;
	struct inc_entry *me = &svc->run.ctl->incs[svc->run.me];
	uint64_t now = svc_now_us();
	vocab_look(gateway);
	gw_ready_look(gateway);
	gw_access_look(gateway);
	gw_models_look(gateway);
	gw_watch_look(gateway->watch, &svc->run, now);
	calls_look(gateway);
	gw_detached_look(gateway);
	if (now - gateway->quarantine_us > QUARANTINE_EVERY_US) {
		svc_quarantine_sweep(svc);
		gateway->quarantine_us = now;
	}
	atomic_store_explicit(&me->gauge[GAUGE_RUNNING], gateway->n_calls, memory_order_relaxed);
}

/* Alone on its port it goes on listening, so that who comes is told to come back. Beside another
 * one it makes room; who has connected by then is served as ever, once: his next connection is the
 * other's. */
static bool drain(struct svc *svc)
{
	struct gateway *gateway = svc->role_state;
	struct gw_http_counts counts = gw_http_server_counts(gateway->server);
	bool answered = gateway->n_calls == 0 && counts.exchanges == 0 && counts.unflushed == 0;
	if (!gateway->draining) {
		gateway->refuses = !gw_http_port_is_shared(gateway->claim_fd);
		gw_http_server_drain(gateway->server, gateway->refuses);
	}
	gateway->draining = true;
	if (!answered)
		return false;
	bool told = !gateway->otlp || gw_otlp_flush(gateway->otlp);
	if (!gateway->closing_us) {
		gw_http_server_drain(gateway->server, false);
		gateway->closing_us = svc_now_us();
		return false;
	}
	bool over = (counts.connections == 0 && !counts.listening && told) ||
		    svc_now_us() - gateway->closing_us > LAST_WORDS_US;
	if (over)
		gw_slots_told(gateway);
	return over;
}

/* ---- start and stop ---- */

static unsigned ms_of(const struct opt_set *set, const char *name)
{
	return (unsigned)(opt_real(set, name) * 1000);
}

static struct gw_http_options http_options(const struct opt_set *set)
{
	struct gw_http_options http = gw_http_options_default();
	http.limits.body_bytes = (size_t)opt_int(set, "max-body-bytes");
	http.limits.head_bytes = (size_t)opt_int(set, "max-header-bytes");
	if (http.bodies_bytes < 4 * http.limits.body_bytes)
		http.bodies_bytes = 4 * http.limits.body_bytes;
	http.max_connections = (unsigned)opt_int(set, "max-connections");
	http.max_connections_per_address = (unsigned)opt_int(set, "max-connections-per-address");
	http.head_timeout_ms = ms_of(set, "header-timeout-s");
	http.body_timeout_ms = ms_of(set, "body-timeout-s");
	http.idle_timeout_ms = ms_of(set, "idle-timeout-s");
	http.write_timeout_ms = ms_of(set, "write-timeout-s");
	http.output_bytes = (size_t)opt_int(set, "output-bytes");
	return http;
}

/* One descriptor per connection and some for everything else. */
static enum svc_code descriptors_check(unsigned max_connections, struct svc_err *err)
{
	struct rlimit limit;
	rlim_t wanted = (rlim_t)max_connections + 256;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
		return SVC_OK;
	limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < wanted)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "max-connections",
			"--max-connections %u needs %llu open files, the limit is %llu: "
			"lower it or raise ulimit -n",
			max_connections, (unsigned long long)wanted,
			(unsigned long long)limit.rlim_max);
	return SVC_OK;
}

/* From the options, at the start and whenever they have changed. */
static void limits_set(struct gateway *gateway)
{
	const struct opt_set *set = gateway->svc->options;
	gateway->limits.model_aliases = opt_string(set, "model-aliases");
	gateway->limits.max_choices = (uint32_t)opt_int(set, "max-choices");
	gateway->limits.strict = opt_bool(set, "strict");
	gateway->limits.trust_request_template = opt_bool(set, "trust-request-chat-template");
	gateway->queue = (uint32_t)opt_int(set, "queue");
	gateway->access_log = opt_bool(set, "access-log");
	gateway->keep_alive_us = (uint64_t)(opt_real(set, "keep-alive-s") * 1e6);
	gateway->keep_us = (uint64_t)(opt_real(set, "keep-s") * 1e6);
	gateway->detach_us = (uint64_t)(opt_real(set, "detach-s") * 1e6);
	gateway->no_worker_us = (uint64_t)(opt_real(set, "no-worker-s") * 1e6);
	gateway->router.origins = opt_string(set, "cors-origins");
	/* Who can be reached from elsewhere has names that only its operator knows. */
	bool named = gateway->loopback || *opt_string(set, "allowed-hosts");
	gateway->router.hosts = named ? opt_string(set, "allowed-hosts") : NULL;
}

/* What the run says, which doesn't change. */
static void model_set(struct gateway *gateway)
{
	const struct shm_run *run = &gateway->svc->run;
	snprintf(gateway->model_name, sizeof gateway->model_name, "%.*s", (int)CTL_NAME_BYTES - 1,
		 run->ctl->config.model_name);
	snprintf(gateway->fingerprint, sizeof gateway->fingerprint, "%.*s",
		 (int)sizeof gateway->fingerprint - 1, run->ctl->config.fingerprint);
	gateway->limits.model_name = gateway->model_name;
	gateway->limits.n_vocab = run->n_vocab;
	gateway->limits.n_embd = run->n_embd;
	gateway->limits.ctx = run->ctx;
	gateway->router.routes = routes;
	gateway->router.n_routes = sizeof routes / sizeof *routes;
}

static const char *const live[] = {"queue",
				   "max-choices",
				   "strict",
				   "trust-request-chat-template",
				   "cors-origins",
				   "api-keys",
				   "allowed-hosts",
				   "model-aliases",
				   "access-log",
				   "keep-alive-s",
				   "keep-s",
				   "detach-s",
				   "no-worker-s",
				   "max-body-bytes",
				   "max-header-bytes",
				   "max-connections",
				   "max-connections-per-address",
				   "header-timeout-s",
				   "body-timeout-s",
				   "idle-timeout-s",
				   "write-timeout-s",
				   "output-bytes",
				   NULL};

static enum svc_code reload(struct svc *svc, struct svc_err *err)
{
	struct gateway *gateway = svc->role_state;
	const struct gw_http_options http = http_options(svc->options);
	enum svc_code code = descriptors_check(http.max_connections, err);
	if (code == SVC_OK)
		code = gw_access_reload(gateway, err);
	if (code != SVC_OK)
		return code;
	limits_set(gateway);
	gw_http_server_set_options(gateway->server, &http);
	return SVC_OK;
}

/* Where the port is claimed: gateways of all runs of one file of models share it. */
static const char *port_folder(const struct svc *svc, char folder[PATH_MAX])
{
	const char *path = opt_string(svc->options, "models-file"), *slash = strrchr(path, '/');
	if (!*path)
		return svc->run.dir;
	snprintf(folder, PATH_MAX, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return folder;
}

static enum svc_code listen_start(struct gateway *gateway, struct svc_err *err)
{
	struct svc *svc = gateway->svc;
	const struct gw_http_options http = http_options(svc->options);
	const struct gw_http_handler handler = {.context = gateway,
						.head = on_head,
						.request = on_request,
						.gone = on_gone,
						.room = on_room,
						.pass = on_pass,
						.answered = on_answered};
	const char *host = opt_string(svc->options, "host");
	struct gw_http_listener listener;
	char folder[PATH_MAX];
	enum svc_code code = descriptors_check(http.max_connections, err);
	if (code == SVC_OK)
		code = gw_http_server_new(svc->base, &http, &handler, &gateway->server, err);
	if (code == SVC_OK)
		code = gw_models_open(gateway, err);
	if (code == SVC_OK)
		code = gw_http_listen(host, (uint16_t)opt_int(svc->options, "port"),
				      port_folder(svc, folder), &listener, err);
	if (code != SVC_OK)
		return code;
	gateway->claim_fd = listener.claim_fd;
	gateway->loopback = listener.loopback;
	limits_set(gateway);
	if (!gateway->router.hosts && !gateway->keys)
		log_warn("every machine that reaches port %u may use this server: --api-keys "
			 "restricts that",
			 listener.port);
	gw_http_server_set_tls(gateway->server, gateway->tls);
	log_info("listening on %s port %u", host, listener.port);
	return gw_http_server_listen(gateway->server, listener.fd, err);
}

static void stop(struct svc *svc)
{
	struct gateway *gateway = svc->role_state;
	/* Whoever still waits is cut off; streams can be gone on with at another gateway. */
	gateway->server = gw_http_server_free(gateway->server);
	gw_detached_forget(gateway);
	gw_models_close(gateway);
	gateway->otlp = gw_otlp_free(gateway->otlp);
	gw_access_close(gateway);
	svc_hint_flush(svc);
	if (gateway->claim_fd >= 0)
		close(gateway->claim_fd);
	free(gateway->by_slot);
	free(gateway->read_here);
	gw_watch_free(gateway->watch);
	free(gateway);
	svc->role_state = NULL;
}

static enum svc_code start(struct svc *svc, struct svc_err *err)
{
	struct gateway *gateway = calloc(1, sizeof *gateway);
	if (!gateway)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	svc->role_state = gateway;
	gateway->svc = svc;
	gateway->claim_fd = -1;
	LIST_INIT(&gateway->calls);
	LIST_INIT(&gateway->detached);
	gateway->by_slot = calloc(svc->run.n_table, sizeof(struct gw_call *));
	gateway->read_here = calloc(svc->run.n_table, sizeof *gateway->read_here);
	gateway->watch = gw_watch_new(&svc->run);
	if (!gateway->by_slot || !gateway->read_here || !gateway->watch)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	model_set(gateway);
	limits_set(gateway);
	vocab_look(gateway);
	gw_ready_look(gateway);
	enum svc_code code = gw_access_open(gateway, err);
	if (code == SVC_OK)
		code = gw_trace_open(gateway, err);
	if (code == SVC_OK)
		code = listen_start(gateway, err);
	if (code != SVC_OK)
		stop(svc);
	return code;
}

const struct svc_spec gateway_spec = {
	.role = ROLE_GATEWAY,
	.summary = "HTTP for clients: admission, answers, event streams",
	.options = options,
	.start = start,
	.look = look,
	.tick = tick,
	.drain = drain,
	.stop = stop,
	.live = live,
	.reload = reload,
};
