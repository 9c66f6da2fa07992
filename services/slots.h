/* services/slots.h: how an instance comes to own a slot and passes it on, with everything that can
 * have happened to the previous owner: unclaimed, handed to me, dead, frozen. */
#pragma once
#include "services/service.h"
#include "shm/body.h"

/* How a slot became mine. */
enum svc_claim {
	CLAIM_NO,     /* another living instance has it, or it has moved on */
	CLAIM_FRESH,  /* handed to me or unclaimed */
	CLAIM_ORPHAN, /* its owner is dead: what is committed stands, a half-done step is done again
		       */
	CLAIM_FENCED, /* its owner is frozen and may wake: the body is a copy of what is committed
		       */
};

/* Would svc_slot_own succeed? Without side effects. */
enum svc_claim svc_slot_look(struct svc *svc, uint32_t slot, enum slot_stage stage);
/* Makes the slot mine if it may be; *ret_mine is then its state and *ret_body its checked body. A
 * slot whose body is damaged is failed and passed on here (CLAIM_NO). So is a request that killed
 * its third owner without progress. */
enum svc_claim svc_slot_own(struct svc *svc, uint32_t slot, enum slot_stage stage,
			    struct slot_state *ret_mine, struct body **ret_body);

/* Passes on to a stage, for `owner` if it is ready, else for anyone, and hints. On SVC_STALE this
 * incarnation was fenced: the loop is told to leave, the caller returns at once. */
SVC_CHECKED enum svc_code svc_slot_pass(struct svc *svc, uint32_t slot, struct slot_state *mine,
					enum slot_stage stage, uint32_t owner);
/* Records the failure and passes towards DONE, by way of RECLAIM if pages or a row are held. */
void svc_slot_fail(struct svc *svc, uint32_t slot, struct slot_state *mine, struct body *body,
		   const struct svc_err *err);
/* Ends the request without failure (finish is set, or it was cancelled). */
void svc_slot_end(struct svc *svc, uint32_t slot, struct slot_state *mine, struct body *body);

/* Frees blocks of bodies that were left to frozen processes, or being filled by processes, which
 * have ended by now. Any gateway, at its tick. */
void svc_quarantine_sweep(struct svc *svc);
