/* services/reload.h: the configuration is read again while the process runs: at SIGHUP, which is
 * what `lockstep reload` sends.
 *
 * Flags and environment are what they were at the start, so it is the file (--config) that can have
 * changed. What may change while running is taken (struct svc_spec, `live`), the rest is refused by
 * name; a file with a mistake, or one whose values the role can't use, changes nothing. What became
 * of it stands in the log and in RUN/reload/ROLE-INSTANCE, for who asked:
 *
 *   number N                        of the incarnation, in decimal
 *   applied NAME: OLD -> NEW        or
 *   refused NAME: OLD -> NEW        needs a new start, or
 *   failed MESSAGE                  everything is as it was */
#pragma once
#include "services/service.h"

#define SVC_RELOAD_FOLDER "reload"

void svc_reload(struct svc *svc);
