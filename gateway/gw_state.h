/* gateway/gw_state.h: what the files of the gateway process share: its state, and one call for each
 * HTTP request that the pipeline works on. Internal to gw_*.c. */
#pragma once
#include <sys/queue.h>

#include "gateway/api_request.h"
#include "gateway/event_id.h"
#include "gateway/http_listen.h"
#include "gateway/http_server.h"
#include "gateway/metrics.h"
#include "gateway/render.h"
#include "gateway/route.h"
#include "services/service.h"
#include "shm/body.h"
#include "shm/vocab.h"

/* One choice: a slot of the request table while it holds this request. */
struct gw_choice {
	struct slot_handle handle;
	uint32_t sent; /* events given to the client: the opening, tokens, the finish */
	size_t width;  /* code points of the text of the tokens sent, for log-probabilities */
	bool ended;    /* its finish event was given */
	uint32_t n_prompt, n_tokens; /* for the usage, when it ended */
};

struct gw_call {
	LIST_ENTRY(gw_call) link;
	struct gw_http_exchange *exchange;
	struct gw_meta meta;
	enum gw_endpoint endpoint;
	bool stream, streaming; /* asked for; its head is written */
	uint64_t request;
	uint64_t arrived_us, first_us, last_us; /* CLOCK_MONOTONIC: arrival, first and last token */
	uint64_t written_us;			/* last byte given to the client */
	uint32_t n_choices;
	struct gw_choice choices[];
};

LIST_HEAD(gw_calls, gw_call);

struct gateway {
	struct svc *svc;
	struct gw_http_server *server;
	struct gw_router router;
	int claim_fd;
	struct vocab vocab;
	bool has_vocab;
	char model_name[CTL_NAME_BYTES],
		fingerprint[64]; /* copies: the segment is others' to write */
	struct gw_api_limits limits;
	uint32_t next_slot; /* where to look for a free one */
	uint32_t queue;	    /* choices that may wait */
	uint64_t keep_alive_us, no_worker_us;
	uint64_t quarantine_us; /* last sweep */
	bool draining;
	uint64_t closing_us; /* when it stopped listening */
	struct gw_calls calls;
	uint32_t n_calls;
	uint64_t n_requests;		       /* for X-Request-Id */
	struct gw_call **by_slot;	       /* [n_table]: the call that reads a slot, or NULL */
	uint64_t missing_since_us[ROLE_COUNT]; /* 0: the role has a ready instance */
	struct gw_metrics metrics;
};

/* gw_admit.c: a request becomes slots. The call is then among gateway->calls. SVC_BUSY: the queue
 * is full. */
enum svc_code gw_admit(struct gateway *gateway, struct gw_http_exchange *exchange,
		       const struct gw_request *request, struct svc_err *err) SVC_CHECKED;

/* gw_call.c: from slots to the client. */
/* Gives the client what there is to give; ends the call if it is complete. */
void gw_call_look(struct gateway *gateway, struct gw_call *call);
/* Ends it with an error, as an object or as the last event. */
void gw_call_fail(struct gateway *gateway, struct gw_call *call, const struct svc_err *err);
/* The client has gone: the exchange is not touched any more. */
void gw_call_gone(struct gateway *gateway, struct gw_call *call);
/* A comment line, so that nothing between us and the client takes the silence for death. */
void gw_call_keep_alive(struct gateway *gateway, struct gw_call *call);

/* gw_slots.c: slots and bodies without a call. */
/* A slot in FILL or DONE that no call of ours reads: frees it if it is ours, or its gateway's that
 * is dead. */
void gw_slot_look(struct gateway *gateway, uint32_t slot);
/* From FILL (mine) to FREE. false: this process was fenced and must leave. */
bool gw_slot_free(struct gateway *gateway, uint32_t slot, struct slot_state *mine);
/* Slots that are neither free nor done. */
uint32_t gw_slots_busy(const struct gateway *gateway);

/* gw_ready.c: is there an instance of each role? */
void gw_ready_look(struct gateway *gateway);
/* ROLE_NONE if all are there, else one that is missing. */
enum shm_role gw_ready_missing(const struct gateway *gateway);

/* gw_pages.c: what needs no pipeline. */
void gw_serve_root(void *context, struct gw_http_exchange *exchange);
void gw_serve_live(void *context, struct gw_http_exchange *exchange);
void gw_serve_ready(void *context, struct gw_http_exchange *exchange);
void gw_serve_models(void *context, struct gw_http_exchange *exchange);
void gw_serve_model(void *context, struct gw_http_exchange *exchange);
void gw_serve_metrics(void *context, struct gw_http_exchange *exchange);
