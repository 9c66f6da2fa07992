/* gateway/gw_status.h: what happens in the run, as this gateway sees it: who came, froze or died,
 * and which request went from whom to whom. For the page /ui/pipeline. */
#pragma once
#include "base/buf.h"
#include "services/service.h"

struct gw_watch;

/* NULL: out of memory. */
struct gw_watch *gw_watch_new(const struct shm_run *run);
/* NULL is fine. Returns NULL. */
struct gw_watch *gw_watch_free(struct gw_watch *watch);
/* Notes what has changed since the last look. At every tick; does something every 50 ms. */
void gw_watch_look(struct gw_watch *watch, const struct shm_run *run, uint64_t now_us);
/* Appends a JSON object: what `lockstep status --json` says; `now_ms` and `next`, the number of the
 * next event; `me`, this gateway's incarnation; `requests`, what runs; `events` from number `after`
 * on, as far as they are kept. */
void gw_watch_print(struct buf *out, const struct gw_watch *watch, const struct shm_run *run,
		    uint64_t after);
