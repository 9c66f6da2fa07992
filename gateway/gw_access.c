#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "gateway/gw_access.h"
#include "gateway/gw_state.h"
#include "gateway/http/http_tls.h"

#define FILES_EVERY_US 1000000u

static enum svc_code keys_load(struct gateway *gateway, struct svc_err *err)
{
	const char *path = opt_string(gateway->svc->options, "api-keys");
	struct gw_keys *keys = calloc(1, sizeof *keys);
	/* Taken before reading: what changes while it is read is read again. */
	gateway->keys_stamp = file_stamp_of(path);
	if (!keys)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	enum svc_code code = gw_keys_load(path, keys, err);
	if (code != SVC_OK) {
		free(keys);
		return code;
	}
	free(gateway->keys);
	gateway->keys = keys;
	log_info("%zu API keys read from %s", keys->n, path);
	return SVC_OK;
}

enum svc_code gw_access_open(struct gateway *gateway, struct svc_err *err)
{
	const struct opt_set *set = gateway->svc->options;
	const char *cert = opt_string(set, "tls-cert"), *key = opt_string(set, "tls-key");
	enum svc_code code = SVC_OK;
	if (*opt_string(set, "api-keys"))
		code = keys_load(gateway, err);
	if (code == SVC_OK && (*cert || *key))
		code = gw_tls_open(cert, key, &gateway->tls, err);
	return code;
}

enum svc_code gw_access_reload(struct gateway *gateway, struct svc_err *err)
{
	if (*opt_string(gateway->svc->options, "api-keys"))
		return keys_load(gateway, err);
	free(gateway->keys);
	gateway->keys = NULL;
	return SVC_OK;
}

void gw_access_close(struct gateway *gateway)
{
	free(gateway->keys);
	gateway->keys = NULL;
	gateway->tls = gw_tls_free(gateway->tls);
}

/* A file that is wrong changes nothing: what was there stays in force, and the log says so once. */
void gw_access_look(struct gateway *gateway)
{
	struct svc_err err;
	bool changed = false;
	const char *path = opt_string(gateway->svc->options, "api-keys");
	if (svc_now_us() - gateway->files_us < FILES_EVERY_US)
		return;
	gateway->files_us = svc_now_us();
	if (gateway->keys && !file_stamp_same(file_stamp_of(path), gateway->keys_stamp) &&
	    keys_load(gateway, &err) != SVC_OK)
		log_warn("the API keys stay as they were: %s", err.msg);
	if (gateway->tls && gw_tls_look(gateway->tls, &changed, &err) != SVC_OK)
		log_warn("the certificate stays as it was: %s", err.msg);
	if (changed)
		log_info("certificate and key read again");
}

/* "Authorization: Bearer KEY" as OpenAI's clients send it, "X-Api-Key: KEY" as Anthropic's do. */
static struct span key_given(const struct gw_http_request *request)
{
	static const char bearer[] = "bearer ";
	struct span field = gw_http_field_find(request, "authorization");
	const size_t len = sizeof bearer - 1;
	if (field.len > len && gw_http_same((struct span){field.ptr, len}, bearer)) {
		field = (struct span){field.ptr + len, field.len - len};
		while (field.len && field.ptr[0] == ' ')
			field = (struct span){field.ptr + 1, field.len - 1};
		return field;
	}
	field = gw_http_field_find(request, "x-api-key");
	return field.ptr ? field : span_of("");
}

enum svc_code gw_who_read(const struct gateway *gateway, struct gw_http_exchange *exchange,
			  struct gw_who *ret_who, struct svc_err *err)
{
	*ret_who = (struct gw_who){0};
	if (!gateway->keys)
		return SVC_OK;
	struct span given = key_given(gw_http_exchange_request(exchange));
	if (given.len == 0)
		return svc_fail(err, SVC_UNAUTHORIZED, __func__,
				"this server needs an API key: Authorization: Bearer KEY, or "
				"X-Api-Key: KEY");
	ret_who->key = gw_keys_find(gateway->keys, given);
	if (!ret_who->key)
		return svc_fail(err, SVC_UNAUTHORIZED, __func__, "that API key is not valid here");
	ret_who->account = gw_account_of(&gateway->svc->run, ret_who->key->name);
	return SVC_OK;
}

/* Out of the fields of a reply, each a line that ends with CRLF. */
static struct span request_id_find(struct span fields)
{
	static const char name[] = GW_REQUEST_ID ": ";
	const size_t len = sizeof name - 1;
	const char *end;
	while (fields.len && (end = memchr(fields.ptr, '\r', fields.len))) {
		size_t line = (size_t)(end - fields.ptr), used = line + 2;
		if (line > len && memcmp(fields.ptr, name, len) == 0)
			return (struct span){fields.ptr + len, line - len};
		fields = (struct span){fields.ptr + used, fields.len - used};
	}
	return span_of("-");
}

void gw_access_note(const struct gateway *gateway, const struct gw_http_answered *answered)
{
	const struct gw_http_request *request = answered->request;
	struct span id = request_id_find(answered->fields), given = key_given(request);
	const struct gw_api_key *key =
		gateway->keys && given.len ? gw_keys_find(gateway->keys, given) : NULL;
	log_info("access: %s %.*s %.*s %d, %" PRIu64 " bytes in %.3f s, key %s, id %.*s",
		 answered->address, (int)request->method.len, request->method.ptr,
		 (int)request->path.len, request->path.ptr, answered->status, answered->bytes,
		 (double)answered->us / 1e6, key ? key->name : "-", (int)id.len, id.ptr);
}

bool gw_access_refuse(const struct gateway *gateway, struct gw_http_exchange *exchange)
{
	struct gw_who who;
	struct svc_err err;
	if (gw_route_is_open(&gateway->router, exchange) ||
	    gw_who_read(gateway, exchange, &who, &err) == SVC_OK)
		return false;
	gw_http_reply_field(exchange, "WWW-Authenticate", "Bearer");
	gw_reply_error(exchange, &err);
	return true;
}
