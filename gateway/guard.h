/* gateway/guard.h: names by which this server may be called. A page whose name its owner's DNS
 * turns into 127.0.0.1 is of the same origin as what listens there, for the browser; only the Host
 * field tells (DNS rebinding). */
#pragma once
#include <stdbool.h>

#include "base/span.h"

/* host: the Host field with or without port. Loopback's own names and addresses are always fine;
 * allowed: further names, separated by commas, or "*" for any. */
bool gw_host_is_allowed(struct span host, const char *allowed);
/* Is value one of a list's entries, which are separated by commas? ASCII, without regard to case;
 * an entry "*" is everything. */
bool gw_list_has(const char *list, struct span value);
