#include "cli/client.h"

#include <curl/curl.h>
#include <string.h>

struct stream {
	struct client_call *call;
	struct buf line;
	bool stopped;
};

static void take_line(struct stream *stream, const char *line, size_t len)
{
	if (len < 6 || memcmp(line, "data: ", 6) != 0)
		return;
	if (len == 12 && memcmp(line + 6, "[DONE]", 6) == 0)
		return;
	json_t *event = json_loadb(line + 6, len - 6, 0, NULL);
	if (event && !stream->call->on_event(stream->call->context, event))
		stream->stopped = true;
	json_decref(event);
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user)
{
	struct stream *stream = user;
	size_t len = size * n;
	if (!stream->call->on_event) {
		buf_append(&stream->call->answer, bytes, len);
		return len;
	}
	/* An error answer isn't an event stream: keep it too. */
	if (stream->call->answer.len < 65536)
		buf_append(&stream->call->answer, bytes, len);
	for (size_t i = 0; i < len && !stream->stopped; i++) {
		if (bytes[i] != '\n') {
			buf_append(&stream->line, bytes + i, 1);
			continue;
		}
		take_line(stream, stream->line.ptr ? stream->line.ptr : "", stream->line.len);
		buf_clear(&stream->line);
	}
	return stream->stopped ? 0 : len;
}

static int on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total,
		       curl_off_t up_now)
{
	(void)total, (void)now, (void)up_total, (void)up_now;
	struct stream *stream = user;
	if (*stream->call->stop)
		stream->stopped = true;
	return stream->stopped;
}

static enum svc_code server_error(struct client_call *call, struct svc_err *err)
{
	json_t *root =
		call->answer.len ? json_loadb(call->answer.ptr, call->answer.len, 0, NULL) : NULL;
	const char *message = NULL;
	if (root)
		json_unpack(root, "{s:{s:s}}", "error", "message", &message);
	enum svc_code code = call->http_status >= 500 ? SVC_NO_WORKER : SVC_INVALID;
	svc_fail(err, code, __func__, "the server answered %ld: %s", call->http_status,
		 message ? message : "(no message)");
	json_decref(root);
	return code;
}

static struct curl_slist *make_headers(const struct client_call *call)
{
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (call->api_key && *call->api_key) {
		struct buf key = {0};
		buf_print(&key, "Authorization: Bearer %s", call->api_key);
		headers = curl_slist_append(headers, key.ptr);
		buf_free(&key);
	}
	return headers;
}

enum svc_code client_call(struct client_call *call, struct svc_err *err)
{
	struct stream stream = {call, {0}, false};
	struct buf url = {0};
	CURL *curl = curl_easy_init();
	if (!curl)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "cannot start libcurl");
	struct curl_slist *headers = make_headers(call);
	buf_print(&url, "%s%s", call->url, call->path);
	curl_easy_setopt(curl, CURLOPT_URL, url.ptr);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_bytes);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &stream);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 5L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	if (call->body)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->body);
	if (call->stop) {
		curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
		curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &stream);
	}
	CURLcode result = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &call->http_status);
	enum svc_code code = SVC_OK;
	if (result != CURLE_OK && !stream.stopped)
		code = svc_fail(err, SVC_NO_WORKER, __func__,
				"%s: %s (is the server running? deploy/up)", url.ptr,
				curl_easy_strerror(result));
	else if (call->http_status >= 400)
		code = server_error(call, err);
	curl_slist_free_all(headers);
	curl_easy_cleanup(curl);
	buf_free(&stream.line);
	buf_free(&url);
	return code;
}
