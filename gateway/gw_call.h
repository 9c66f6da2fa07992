/* gateway/gw_call.h: a call's parts. Internal to gw_call.c and gw_whole.c. */
#pragma once
#include "gateway/gw_state.h"

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
