/* gateway/gw_slots.h: slots and bodies without a call. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

/* A slot in FILL or DONE that no call of ours reads: frees it if it is ours, or its gateway's that
 * is dead. */
void gw_slot_look(struct gateway *gateway, uint32_t slot);
/* This process leaves and has sent all that it had to: what it read that nobody has a key for is
 * freed by whoever finds it in DONE. (An answer is complete while the worker still has to take its
 * pages back.) */
void gw_slots_told(struct gateway *gateway);
/* From FILL (mine) to FREE. false: this process was fenced and must leave. */
bool gw_slot_free(struct gateway *gateway, uint32_t slot, struct slot_state *mine);
/* Makes room by forgetting the oldest kept answer. false: none is kept. */
bool gw_slot_evict(struct gateway *gateway);
/* Is it this process that reads the slot's request? An entry's successor has the same number in the
 * line. */
bool gw_slot_is_mine(const struct gateway *gateway, uint32_t slot);
/* Slots that are neither free nor done. */
uint32_t gw_slots_busy(const struct gateway *gateway);
