/* gateway/gw_state.h: what the files of the gateway process share: its state, and one call for each
 * HTTP request that the pipeline works on. Internal to gw_*.c. */
#pragma once
#include <sys/queue.h>

#include "gateway/api/api_request.h"
#include "gateway/api/render.h"
#include "gateway/event_id.h"
#include "gateway/file_stamp.h"
#include "gateway/gw_account.h"
#include "gateway/gw_meta.h"
#include "gateway/http/http_listen.h"
#include "gateway/http/http_server.h"
#include "gateway/metrics.h"
#include "gateway/models.h"
#include "gateway/otlp.h"
#include "gateway/route.h"
#include "services/service.h"
#include "shm/body.h"
#include "shm/vocab.h"

/* One choice: a slot of the request table while it holds this request. */
struct gw_choice {
	struct slot_handle handle;
	size_t width; /* code points of the text of the first n_wide tokens */
	uint32_t n_wide;
	uint32_t sent; /* events given to the client: the opening, tokens, the finish */
	uint32_t n_prompt, n_cached, n_tokens; /* for the usage, when it ended */
	bool ended;			       /* its finish event was given */
	struct gw_spoken spoken;
};

/* The trace that a call's spans belong to, if they are kept. */
struct gw_trace {
	struct gw_trace_context context;
	unsigned char span[GW_SPAN_ID_BYTES]; /* of the request */
	bool kept, has_parent;
	const char *route; /* static */
};

struct gw_call {
	LIST_ENTRY(gw_call) link;
	struct gw_http_exchange *exchange;
	struct gw_shape shape;
	uint64_t request;
	uint64_t arrived_us, first_us, last_us; /* CLOCK_MONOTONIC: arrival, first and last token */
	uint64_t written_us;			/* last byte given to the client */
	bool streaming;				/* the stream's head is written */
	bool keyed;				/* came with an Idempotency-Key */
	uint64_t account;			/* who asked; see struct gw_who */
	struct gw_trace trace;
	uint32_t n_choices;
	struct gw_choice choices[];
};

/* How a request says which one it is. */
struct gw_key {
	struct gw_who who;
	uint64_t key_hash;     /* of the Idempotency-Key; 0: none */
	uint64_t content_hash; /* of endpoint and body; 0: not to be compared */
	uint64_t seed;	       /* for requests without one */
	bool has_at;
	bool elsewhere;	       /* `at` is of another run, or of an answer that isn't kept any more:
				  it is made anew, and given from there */
	struct gw_event_id at; /* the last event that the client has seen */
};

/* A request whose client has gone and may come back. */
struct gw_detached {
	LIST_ENTRY(gw_detached) link;
	uint64_t until_us;
	uint32_t n;
	struct slot_handle handles[];
};

LIST_HEAD(gw_detached_list, gw_detached);
LIST_HEAD(gw_calls, gw_call);

struct gateway {
	struct svc *svc;
	struct gw_http_server *server;
	struct gw_router router;
	int claim_fd;
	struct gw_keys *keys; /* NULL: no key is needed */
	struct file_stamp keys_stamp;
	struct gw_tls *tls; /* NULL: plain HTTP */
	uint64_t files_us;  /* last look at their files */
	struct vocab vocab;
	bool has_vocab;
	char model_name[CTL_NAME_BYTES],
		fingerprint[64]; /* copies: the segment is others' to write */
	struct gw_api_limits limits;
	uint32_t next_slot; /* where to look for a free one */
	uint32_t queue;	    /* choices that may wait */
	uint64_t keep_alive_us, no_worker_us;
	uint64_t keep_us, detach_us;
	struct gw_detached_list detached;
	uint64_t quarantine_us; /* last sweep */
	bool draining, access_log, loopback;
	bool refuses;	     /* it drains, and nobody else answers on its port */
	uint64_t closing_us; /* when it stopped listening */
	struct gw_calls calls;
	uint32_t n_calls;
	uint64_t n_requests;	  /* for X-Request-Id */
	struct gw_call **by_slot; /* [n_table]: the call that reads a slot, or NULL */
	uint64_t *read_here;	  /* [n_table]: generation that this process has read there */
	uint64_t missing_since_us[ROLE_COUNT]; /* 0: the role has a ready instance */
	struct gw_metrics metrics;
	struct gw_watch *watch;	  /* gw_status.h */
	struct gw_models *models; /* gw_models.h; NULL: this run's is the only one */
	struct gw_otlp *otlp;	  /* NULL: no spans are kept */
};

/* gw_admit.c: a request becomes slots and a call. SVC_BUSY: the queue is full. */
enum svc_code gw_admit(struct gateway *gateway, struct gw_http_exchange *exchange,
		       const struct gw_request *request, const struct gw_key *key,
		       struct svc_err *err) SVC_CHECKED;

/* gw_service.c: goes on with a request that was read (code SVC_OK; it is taken), or says why it
 * wasn't. */
void gw_serve(struct gateway *gateway, struct gw_http_exchange *exchange, enum gw_endpoint endpoint,
	      struct gw_request *request_take, enum svc_code code, struct svc_err *err);

/* gw_responses.c */
/* Tells nothing of anyone else's: it holds for one account. */
void gw_response_id_print(const struct shm_run *run, uint64_t account, uint64_t request,
			  char id[GW_ID_BYTES]);
