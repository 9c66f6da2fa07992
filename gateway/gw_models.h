/* gateway/gw_models.h: several models at one address (--models-file FILE). Each model has a run of
 * its own, with its own gateways; a request that comes to a gateway of another run is handed over
 * with its connection. docs/models-serving.md tells why. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

/* Reads the file and opens the socket that others hand over to. Without --models-file: nothing. */
enum svc_code gw_models_open(struct gateway *gateway, struct svc_err *err) SVC_CHECKED;
void gw_models_close(struct gateway *gateway);
/* At every tick: the file, and requests that wait for a gateway. */
void gw_models_look(struct gateway *gateway);
/* true: the request is another run's. It was handed over, waits for that, or was refused. */
bool gw_models_route(struct gateway *gateway, struct gw_http_exchange *exchange);
/* Whether the query has ?model=NAME, and the file's entry of that name (NULL: it has none). */
bool gw_models_asked(struct gateway *gateway, const struct gw_http_request *request,
		     const struct gw_model_entry **ret_entry);
/* This gateway drains: an idle connection goes to another gateway of any run. */
bool gw_models_pass(struct gateway *gateway, struct gw_http_exchange *exchange);
/* The client of a request that waits for its gateway has gone; false: it doesn't wait. */
bool gw_models_gone(struct gateway *gateway, const struct gw_http_exchange *exchange);

/* A model as clients see it. */
struct gw_served {
	const char *name;
	const struct shm_run *run; /* NULL: there is none at this moment */
	bool alias;
};
/* The listed models in the file's order; without --models-file the one that this run serves. */
uint32_t gw_served_count(const struct gateway *gateway);
struct gw_served gw_served_get(struct gateway *gateway, uint32_t index);
/* Appends the member "models", each listed one's name with "ready" or what its run lacks; true:
 * all are ready. */
bool gw_served_states_print(struct gateway *gateway, struct buf *out);

/* ---- between gw_models.c and gw_hand.c ---- */

struct gw_waiting {
	LIST_ENTRY(gw_waiting) link;
	struct gw_http_exchange *exchange;
	struct buf text; /* the request */
	uint64_t until_us;
	char dir[GW_MODEL_DIR_BYTES]; /* of the run that it is for */
};

LIST_HEAD(gw_waiting_list, gw_waiting);

/* Another run, or this one, as the file names it. */
struct gw_peer {
	struct shm_run run; /* control only */
	bool attached;
	ino_t inode; /* of its control segment */
};

struct gw_models {
	struct file_stamp stamp;
	struct gw_model_list list;
	struct gw_peer peers[GW_MODEL_RUNS_MAX];
	int socket;
	struct event *event;
	struct gw_waiting_list waiting;
	size_t waiting_bytes;
	uint32_t next; /* entry after which to look for a gateway */
	uint64_t handed, taken;
};

/* The run as it is now; NULL if there is none. */
const struct shm_run *gw_peer_run(struct gw_models *models, uint32_t index);

/* gw_hand.c */
enum svc_code gw_hand_open(struct gateway *gateway, struct svc_err *err) SVC_CHECKED;
void gw_hand_close(struct gateway *gateway);
/* Hands over, with gw_http_exchange_leave, to a gateway of the list's run, now or as soon as there
 * is one; or replies that there is none. */
void gw_hand_over(struct gateway *gateway, struct gw_http_exchange *exchange, uint32_t run);
/* Hands over now, if that can be; false: it can't. */
bool gw_hand_try(struct gateway *gateway, struct gw_http_exchange *exchange,
		 const struct buf *request, uint32_t run);
/* Tries again for those that wait. */
void gw_hand_look(struct gateway *gateway);
