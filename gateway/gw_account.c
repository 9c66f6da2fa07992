#include "gateway/gw_account.h"

#include <inttypes.h>

#include "gateway/event_id.h"
#include "shm/slot.h"

#define MINUTE_US 60000000u

uint64_t gw_account_of(const struct shm_run *run, const char *name)
{
	return gw_siphash(run->ctl->config.secret, name, strlen(name)) | 1;
}

/* The account's entry, taken for it if it has none. NULL: the table is full. */
static struct ctl_account *entry_find(struct shm_run *run, uint64_t account)
{
	for (uint32_t i = 0; i < CTL_ACCOUNTS; i++) {
		struct ctl_account *entry = &run->ctl->accounts[(account + i) % CTL_ACCOUNTS];
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&entry->account, &none, account) ||
		    none == account)
			return entry;
	}
	return NULL;
}

/* A bucket of `burst` requests that refills evenly is one number: when it will be full again. A
 * request moves that moment on by its share of a minute, and is refused if the bucket is empty: if
 * the moment would lie more than burst shares ahead. (The generic cell rate algorithm, ITU-T
 * I.371.) */
enum svc_code gw_account_take(struct shm_run *run, const struct gw_who *who, uint64_t now_us,
			      uint64_t *ret_wait_us, struct svc_err *err)
{
	if (!who->key || !who->key->per_minute)
		return SVC_OK;
	struct ctl_account *entry = entry_find(run, who->account);
	if (!entry)
		return svc_fail(err, SVC_BUSY, __func__,
				"more than %u API keys with limits were used in this run; restart "
				"it to forget the old ones",
				CTL_ACCOUNTS);
	const uint64_t share_us = MINUTE_US / who->key->per_minute;
	const uint64_t all_us = share_us * who->key->burst;
	uint64_t full_us = atomic_load(&entry->full_us), next_us;
	do {
		next_us = full_us > now_us ? full_us : now_us;
		/* Farther ahead than an empty bucket: the limits were others then. */
		next_us = (next_us < now_us + all_us ? next_us : now_us + all_us) + share_us;
		if (next_us > now_us + all_us) {
			*ret_wait_us = next_us - now_us - all_us;
			return svc_fail(err, SVC_RATE, __func__,
					"this API key may send %" PRIu32
					" requests per minute; retry in %.1f s",
					who->key->per_minute, (double)*ret_wait_us / 1e6);
		}
	} while (!atomic_compare_exchange_weak(&entry->full_us, &full_us, next_us));
	return SVC_OK;
}

enum svc_code gw_account_check(const struct shm_run *run, const struct gw_who *who,
			       struct svc_err *err)
{
	uint32_t n = 0;
	if (!who->key || !who->key->concurrent)
		return SVC_OK;
	for (uint32_t slot = 0; slot < run->n_table; slot++) {
		enum slot_stage stage = slot_load(run, slot).stage;
		n += stage != STAGE_FREE && stage != STAGE_DONE && run->slots[slot].choice == 0 &&
		     atomic_load(&run->slots[slot].account) == who->account;
	}
	if (n > who->key->concurrent)
		return svc_fail(err, SVC_RATE, __func__,
				"this API key may have %" PRIu32
				" requests at once; retry when one of them has ended",
				who->key->concurrent);
	return SVC_OK;
}
