/* gateway/http/http_listen.h: the listening socket. Several gateways of one run share a port
 * (SO_REUSEPORT); a port that somebody else listens on is an error even where the kernel would let
 * us share it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct gw_http_listener {
	int fd;	       /* listening, non-blocking; the caller hands it to gw_http_server_listen */
	int claim_fd;  /* keep open while listening; -1 without a claim folder */
	uint16_t port; /* the one bound, also if 0 was asked for */
	bool loopback; /* only this machine can connect */
};

/* host: IPv4 or IPv6 address, a name that resolves to one, or "*" for all of both. claim_folder:
 * where gateways of one run tell each other which ports are theirs, or NULL: the port is not
 * shared. Blocks for the name, and up to a second while another gateway starts at the same moment.
 */
enum svc_code gw_http_listen(const char *host, uint16_t port, const char *claim_folder,
			     struct gw_http_listener *ret_listener,
			     struct svc_err *err) SVC_CHECKED;

/* From now on the kernel takes no connection for this socket; those that it has taken wait in the
 * queue still. A client that is turned away so tries again within a second by itself, and reaches
 * another gateway of the port once this socket is closed. (Closing at once would reset who is
 * connecting at that moment.) */
void gw_http_listen_end(int fd);

/* Does another gateway of this run listen on the same port now? */
bool gw_http_port_is_shared(int claim_fd);
