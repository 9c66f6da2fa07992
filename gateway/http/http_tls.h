/* gateway/http/http_tls.h: TLS for the HTTP server, by OpenSSL: version 1.2 or later, no
 * renegotiation, no compression, no client certificates. Certificate and key are read again when
 * their files change; connections that exist keep what they began with. */
#pragma once
#include <event2/bufferevent.h>
#include <stdbool.h>

#include "base/err.h"

struct gw_tls;

/* PEM files: the certificate with its chain, and its private key. Paths are copied. SVC_BAD_CONFIG
 * names the file: it can't be read, isn't PEM, or the two don't fit each other. */
enum svc_code gw_tls_open(const char *cert_path, const char *key_path, struct gw_tls **ret_tls,
			  struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct gw_tls *gw_tls_free(struct gw_tls *tls);
/* Reads the files again if they have changed: *ret_changed. On failure what was there stays in use,
 * and the next change is tried again. */
enum svc_code gw_tls_look(struct gw_tls *tls, bool *ret_changed, struct svc_err *err) SVC_CHECKED;

/* The server's side of a connection on fd, which the bufferevent closes. NULL: out of memory; fd
 * stays open. */
struct bufferevent *gw_tls_accept(const struct gw_tls *tls, struct event_base *base,
				  evutil_socket_t fd);
/* Tells the client that nothing more will come, if bev is a TLS connection. */
void gw_tls_shut(struct bufferevent *bev);
