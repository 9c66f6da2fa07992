/* gateway/gw_ready.h: is there an instance of each role? Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

void gw_ready_look(struct gateway *gateway);
/* ROLE_NONE if all are there, else one that is missing. */
enum shm_role gw_ready_missing(const struct gateway *gateway);
/* One of `roles` (a bit for each, 1 << role) that is missing for longer than --no-worker-s; or
 * ROLE_NONE. */
enum shm_role gw_ready_lost(const struct gateway *gateway, unsigned roles);
