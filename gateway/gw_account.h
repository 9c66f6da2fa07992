/* gateway/gw_account.h: who asks, and how much of it. What is counted stands in shared memory, so a
 * limit holds over all gateways of a run, and no death of one leaves anything counted. */
#pragma once
#include "gateway/http/http_server.h"
#include "gateway/keys.h"
#include "shm/run.h"

/* Account 0 and no key: this server has no file of keys, and everybody may do everything. */
struct gw_who {
	uint64_t account;
	const struct gw_api_key *key; /* until the file is read again */
};

/* An account's number: of the name, so that a key can be replaced while its requests run. */
uint64_t gw_account_of(const struct shm_run *run, const char *name);
/* Takes one request out of the key's bucket, which refills by per_minute. SVC_RATE: it is empty;
 * *ret_wait_us says how long for. */
enum svc_code gw_account_take(struct shm_run *run, const struct gw_who *who, uint64_t now_us,
			      uint64_t *ret_wait_us, struct svc_err *err) SVC_CHECKED;
/* After its slots were filled: is there one request too many of this account? Of two gateways that
 * fill at the same moment at least one sees both, so the limit is never passed. */
enum svc_code gw_account_check(const struct shm_run *run, const struct gw_who *who,
			       struct svc_err *err) SVC_CHECKED;
