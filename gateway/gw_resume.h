/* gateway/gw_resume.h: requests that are in the table already. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

/* A request that is in the table already. */
struct gw_found {
	uint64_t request, content_hash;
	uint32_t n, n_wanted;
	struct slot_handle handles[GW_CHOICES_MAX]; /* by choice; generation 0: not found */
};

/* Who sends a request, its Idempotency-Key and Last-Event-ID. */
enum svc_code gw_key_read(const struct gateway *gateway, struct gw_http_exchange *exchange,
			  enum gw_endpoint endpoint, struct gw_key *ret_key,
			  struct svc_err *err) SVC_CHECKED;
/* Goes on with the request that key names. *ret_found false: there is none, and its Idempotency-Key
 * is free. SVC_GONE: the one that an event id names is no more. SVC_CONFLICT: it was another
 * request. */
enum svc_code gw_resume(struct gateway *gateway, struct gw_http_exchange *exchange,
			struct gw_key *key, bool *ret_found, struct svc_err *err) SVC_CHECKED;
/* Does another slot hold this Idempotency-Key, taken before this request was? */
bool gw_key_is_taken(const struct gateway *gateway, uint64_t key_hash, uint64_t request);
/* Does a request of that run hold it? As gw_key_read makes it, for any run. */
bool gw_key_is_held(const struct shm_run *run, const struct gw_who *who, struct span key);
/* All choices of it. */
bool gw_request_find(const struct shm_run *run, uint64_t request, struct gw_found *ret_found);
/* What its body says of its answer's form. */
enum svc_code gw_shape_find(const struct gateway *gateway, const struct gw_found *found,
			    struct gw_shape *ret_shape, struct svc_err *err) SVC_CHECKED;
/* Its answer is kept, when it is complete, as one with an Idempotency-Key is. */
void gw_request_keep(const struct gateway *gateway, uint32_t slot, uint64_t request);
