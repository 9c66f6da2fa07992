#include "gateway/gw_ready.h"

static const enum shm_role needed[] = {ROLE_TOKENIZER, ROLE_WORKER, ROLE_SAMPLER};

/* Ready, beating and not known to be dead. */
static bool role_is_there(const struct svc *svc, enum shm_role role)
{
	uint64_t now = svc_now_us();
	for (uint32_t entry = 1; entry < INC_COUNT; entry++)
		if (inc_role(&svc->run, entry) == role && inc_is_ready(&svc->run, entry) &&
		    inc_watch_silence_us(&svc->watch, entry, now) <= svc->stall_us &&
		    !inc_is_dead(&svc->run, entry))
			return true;
	return false;
}

void gw_ready_look(struct gateway *gateway)
{
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
		uint64_t *since = &gateway->missing_since_us[needed[i]];
		if (role_is_there(gateway->svc, needed[i]))
			*since = 0;
		else if (*since == 0)
			*since = svc_now_us();
	}
}

enum shm_role gw_ready_missing(const struct gateway *gateway)
{
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
		if (gateway->missing_since_us[needed[i]])
			return needed[i];
	return ROLE_NONE;
}

enum shm_role gw_ready_lost(const struct gateway *gateway, unsigned roles)
{
	uint64_t now = svc_now_us();
	for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
		uint64_t since = gateway->missing_since_us[needed[i]];
		if ((roles & 1u << needed[i]) && since && now - since > gateway->no_worker_us)
			return needed[i];
	}
	return ROLE_NONE;
}
