/* gateway/gw_access.h: API keys and TLS of the gateway process. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

enum svc_code gw_access_open(struct gateway *gateway, struct svc_err *err) SVC_CHECKED;
/* --api-keys has changed: another file, none any more, or the first. On failure nothing has. */
enum svc_code gw_access_reload(struct gateway *gateway, struct svc_err *err) SVC_CHECKED;
void gw_access_close(struct gateway *gateway);
/* Reads their files again if they have changed. */
void gw_access_look(struct gateway *gateway);
/* SVC_UNAUTHORIZED: a key is needed, and none that is valid was given. */
enum svc_code gw_who_read(const struct gateway *gateway, struct gw_http_exchange *exchange,
			  struct gw_who *ret_who, struct svc_err *err) SVC_CHECKED;
/* The field of every reply that names its request, for a client's logs and ours. */
#define GW_REQUEST_ID "X-Request-Id"
/* A line of the access log. Paths hold nothing of what was asked; the query is left out. */
void gw_access_note(const struct gateway *gateway, const struct gw_http_answered *answered);
/* After gw_route_refuse has said no: replies and returns true if the request needs a key. */
bool gw_access_refuse(const struct gateway *gateway, struct gw_http_exchange *exchange);
