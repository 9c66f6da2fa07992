/* shm/fence.h: taking a slot from an incarnation that is alive but frozen. It may wake at any
 * moment and go on writing, so it keeps what it could write: the body (left to it until it has
 * ended), its logits row and the KV pages of its step (they carry its number and its bit). The slot
 * goes on with a copy, which says so before it becomes the slot's: whoever takes over next needs to
 * know nothing. */
#pragma once
#include "shm/slot.h"

/* From exactly `seen`, whose owner is frozen, to me, the same stage, with a copy of what is
 * committed; the old owner is told to leave. SVC_STALE: it was not frozen, or another was faster;
 * SVC_BUSY: no blocks for the copy now. In STAGE_FILL there is nothing committed and nobody waits:
 * never called there. */
SVC_CHECKED enum svc_code slot_fence(struct shm_run *run, uint32_t slot, struct slot_state seen,
				     struct slot_state *ret_mine, struct svc_err *err);
