/* gateway/gw_call.h: a call, from slots to the client. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

struct gw_call *gw_call_new(struct gateway *gateway, const struct gw_shape *shape, uint32_t n);
/* Its choices are known: from here on it is looked at. */
void gw_call_enter(struct gateway *gateway, struct gw_call *call,
		   struct gw_http_exchange *exchange);
/* Gives the client what there is to give; ends the call if it is complete. */
void gw_call_look(struct gateway *gateway, struct gw_call *call);
/* Ends it with an error, as an object or as the last event. */
void gw_call_fail(struct gateway *gateway, struct gw_call *call, const struct svc_err *err);
/* The client has gone: the exchange is not touched any more. */
void gw_call_gone(struct gateway *gateway, struct gw_call *call);
/* A comment line, so that nothing between us and the client takes the silence for death. */
void gw_call_keep_alive(struct gateway *gateway, struct gw_call *call);
/* Cancels what has waited long enough for its client. */
void gw_detached_look(struct gateway *gateway);
void gw_detached_forget(struct gateway *gateway);

/* ---- its parts: gw_call.c and gw_whole.c alone */

#define GW_ANSWER_BYTES_MAX (512u << 20)

/* What a look at a choice's slot shows. */
struct gw_seen {
	const struct body *body;
	bool ended; /* it has left the sampler for good */
	bool done;
};

/* SVC_STALE: the slot was given away; SVC_CORRUPT: the body isn't the request's. */
enum svc_code gw_choice_see(struct gateway *gateway, const struct gw_choice *choice,
			    struct gw_seen *ret_seen, struct svc_err *err) SVC_CHECKED;
struct gw_render gw_call_render(const struct gateway *gateway, const struct gw_call *call,
				const char *id, struct buf *out);
/* Frees the call; cancel: its slots, too, where they aren't done. */
void gw_call_end(struct gateway *gateway, struct gw_call *call, enum svc_code result, bool cancel);

/* gw_whole.c: answers if all is there. */
void gw_text_look(struct gateway *gateway, struct gw_call *call);
void gw_vectors_look(struct gateway *gateway, struct gw_call *call);
