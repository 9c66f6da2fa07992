#include "gateway/http/http_tls.h"

#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/file_stamp.h"

struct gw_tls {
	SSL_CTX *context;
	char cert_path[PATH_MAX], key_path[PATH_MAX];
	struct file_stamp cert, key;
};

/* OpenSSL's reason for what has just failed; its queue is empty afterwards. */
static enum svc_code tls_fail(struct svc_err *err, const char *option, const char *path,
			      const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	enum svc_code code =
		svc_fail_param(err, SVC_BAD_CONFIG, option, "--%s %.200s: %s (%s)", option, path,
			       what, reason ? reason : "no reason given");
	ERR_clear_error();
	return code;
}

static enum svc_code context_new(const struct gw_tls *tls, SSL_CTX **ret_context,
				 struct svc_err *err)
{
	static const char no_cert[] = "this is no PEM certificate that can be read";
	static const char no_key[] = "this is no PEM private key that can be read, or it isn't "
				     "the key of --tls-cert";
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	enum svc_code code = SVC_OK;
	if (!context)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					     SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
	if (SSL_CTX_use_certificate_chain_file(context, tls->cert_path) != 1)
		code = tls_fail(err, "tls-cert", tls->cert_path, no_cert);
	else if (SSL_CTX_use_PrivateKey_file(context, tls->key_path, SSL_FILETYPE_PEM) != 1 ||
		 SSL_CTX_check_private_key(context) != 1)
		code = tls_fail(err, "tls-key", tls->key_path, no_key);
	if (code == SVC_OK)
		*ret_context = context;
	else
		SSL_CTX_free(context);
	return code;
}

enum svc_code gw_tls_open(const char *cert_path, const char *key_path, struct gw_tls **ret_tls,
			  struct svc_err *err)
{
	if (!*cert_path || !*key_path)
		return svc_fail_param(err, SVC_BAD_CONFIG, "tls-cert",
				      "--tls-cert and --tls-key are given together or not at all");
	struct gw_tls *tls = calloc(1, sizeof *tls);
	if (!tls)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	snprintf(tls->cert_path, sizeof tls->cert_path, "%s", cert_path);
	snprintf(tls->key_path, sizeof tls->key_path, "%s", key_path);
	bool changed;
	enum svc_code code = gw_tls_look(tls, &changed, err);
	if (code == SVC_OK && !tls->context)
		code = tls_fail(err, "tls-cert", cert_path, "there is no such file");
	if (code == SVC_OK)
		*ret_tls = tls;
	else
		gw_tls_free(tls);
	return code;
}

struct gw_tls *gw_tls_free(struct gw_tls *tls)
{
	if (!tls)
		return NULL;
	SSL_CTX_free(tls->context);
	free(tls);
	return NULL;
}

enum svc_code gw_tls_look(struct gw_tls *tls, bool *ret_changed, struct svc_err *err)
{
	/* Taken before reading: what changes while it is read is read again. */
	const struct file_stamp cert = file_stamp_of(tls->cert_path),
				key = file_stamp_of(tls->key_path);
	SSL_CTX *context = NULL;
	*ret_changed = false;
	if (file_stamp_same(cert, tls->cert) && file_stamp_same(key, tls->key))
		return SVC_OK;
	tls->cert = cert;
	tls->key = key;
	enum svc_code code = context_new(tls, &context, err);
	if (code != SVC_OK)
		return code;
	SSL_CTX_free(tls->context);
	tls->context = context;
	*ret_changed = true;
	return SVC_OK;
}

struct bufferevent *gw_tls_accept(const struct gw_tls *tls, struct event_base *base,
				  evutil_socket_t fd)
{
	SSL *ssl = SSL_new(tls->context);
	if (!ssl)
		return NULL;
	struct bufferevent *bev = bufferevent_openssl_socket_new(
		base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
	if (!bev) {
		SSL_free(ssl);
		return NULL;
	}
	/* A client that just closes has gone, as without TLS: HTTP's own framing says whether a
	 * request was whole. */
	bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	return bev;
}

void gw_tls_shut(struct bufferevent *bev)
{
	SSL *ssl = bufferevent_openssl_get_ssl(bev);
	if (ssl && SSL_is_init_finished(ssl))
		SSL_shutdown(ssl);
	ERR_clear_error();
}
