#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "gateway/gw_models.h"
#include "gateway/gw_serve.h"
#include "gateway/gw_status.h"

/* The files of gateway/ui, as they are, between two symbols each. */
#define EMBED(name, file)                                                               \
	__asm__(".pushsection .rodata\n" #name "_begin:\n.incbin \"" GW_UI_DIR "/" file \
		"\"\n" #name "_end:\n.popsection\n");                                   \
	extern const char name##_begin[] __attribute__((visibility("hidden")));         \
	extern const char name##_end[] __attribute__((visibility("hidden")))

EMBED(ui_style, "common.css");
EMBED(ui_chat, "chat.html");
EMBED(ui_pipeline, "pipeline.html");

#define NONCE_BYTES 16u

static bool nonce_make(char nonce[2 * NONCE_BYTES + 1])
{
	uint8_t bytes[NONCE_BYTES];
	if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
		return false;
	for (size_t i = 0; i < NONCE_BYTES; i++)
		snprintf(nonce + 2 * i, 3, "%02x", bytes[i]);
	return true;
}

/* Appends page with @NONCE@ and @STYLE@ replaced. */
static void page_fill(struct buf *out, struct span page, const char *nonce)
{
	const struct span style = {ui_style_begin, (size_t)(ui_style_end - ui_style_begin)};
	const struct {
		struct span mark, text;
	} marks[] = {{span_of("@NONCE@"), span_of(nonce)}, {span_of("@STYLE@"), style}};
	while (page.len) {
		const char *at = memchr(page.ptr, '@', page.len);
		size_t plain = at ? (size_t)(at - page.ptr) : page.len, used = plain;
		buf_append(out, page.ptr, plain);
		for (size_t i = 0; i < 2 && at && used == plain; i++) {
			if (page.len - plain < marks[i].mark.len ||
			    memcmp(at, marks[i].mark.ptr, marks[i].mark.len) != 0)
				continue;
			buf_span(out, marks[i].text);
			used += marks[i].mark.len;
		}
		if (at && used == plain)
			buf_append(out, page.ptr + used++, 1);
		page = (struct span){page.ptr + used, page.len - used};
	}
}

/* Nothing of another origin, no script but the page's own, no frame around it. */
static void page_reply(struct gw_http_exchange *exchange, struct span page)
{
	char nonce[2 * NONCE_BYTES + 1], policy[400];
	struct buf out = {0};
	struct svc_err err;
	if (!nonce_make(nonce)) {
		(void)svc_fail_errno(&err, __func__, "getrandom");
		gw_reply_error(exchange, &err);
		return;
	}
	snprintf(policy, sizeof policy,
		 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; "
		 "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
		 "frame-ancestors 'none'",
		 nonce, nonce);
	page_fill(&out, page, nonce);
	gw_http_reply_field(exchange, "Content-Security-Policy", policy);
	gw_http_reply_field(exchange, "X-Content-Type-Options", "nosniff");
	gw_http_reply_field(exchange, "Referrer-Policy", "no-referrer");
	gw_http_reply_field(exchange, "Cross-Origin-Opener-Policy", "same-origin");
	gw_http_reply_field(exchange, "Cache-Control", "no-store");
	gw_http_reply(exchange, out.failed ? 503 : 200, "text/html; charset=utf-8",
		      (struct span){out.ptr, out.len});
	buf_free(&out);
}

void gw_serve_chat_page(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	page_reply(exchange, (struct span){ui_chat_begin, (size_t)(ui_chat_end - ui_chat_begin)});
}

void gw_serve_pipeline_page(void *context, struct gw_http_exchange *exchange)
{
	(void)context;
	page_reply(exchange,
		   (struct span){ui_pipeline_begin, (size_t)(ui_pipeline_end - ui_pipeline_begin)});
}

/* A browser gets the page, anyone else (curl, a wrong base URL) a few lines of text. */
void gw_serve_root(void *context, struct gw_http_exchange *exchange)
{
	const struct gateway *gateway = context;
	struct span accept = gw_http_field_find(gw_http_exchange_request(exchange), "accept");
	struct buf page = {0};
	if (gw_http_list_has(accept, "text/html")) {
		gw_serve_chat_page(context, exchange);
		return;
	}
	buf_print(&page,
		  "Lockstep %s serves %s.\n\n"
		  "OpenAI     /v1/chat/completions  /v1/completions  /v1/responses  /v1/embeddings "
		  " /v1/models\n"
		  "Anthropic  /v1/messages  /v1/messages/count_tokens\n"
		  "Ollama     /api/chat  /api/generate  /api/embed  /api/tags  /api/ps  /api/show  "
		  "/api/version\n"
		  "Texts      /tokenize  /detokenize  /apply-template\n"
		  "Operators  /status  /v1/requests  /ready  /live  /health  /metrics\n"
		  "In a browser: /ui (chat), /ui/pipeline\n\n"
		  "An OpenAI client's base URL is this address with /v1 at its end; Anthropic's "
		  "and Ollama's is the address alone.\n",
		  LOCKSTEP_VERSION, gateway->model_name);
	gw_http_reply(exchange, 200, "text/plain; charset=utf-8",
		      (struct span){page.ptr, page.len});
	buf_free(&page);
}

/* "after=N" of a query; 0 if it isn't there or is no number. */
static uint64_t after_of(struct span query)
{
	static const char name[] = "after=";
	const size_t len = sizeof name - 1;
	uint64_t number = 0;
	if (query.len <= len || memcmp(query.ptr, name, len) != 0)
		return 0;
	for (size_t i = len; i < query.len && query.ptr[i] != '&'; i++) {
		if (query.ptr[i] < '0' || query.ptr[i] > '9' || i == len + 18)
			return 0;
		number = 10 * number + (uint64_t)(query.ptr[i] - '0');
	}
	return number;
}

void gw_serve_status(void *context, struct gw_http_exchange *exchange)
{
	struct gateway *gateway = context;
	const struct shm_run *run = &gateway->svc->run;
	struct buf body = {0}, models = {0};
	gw_watch_print(&body, gateway->watch, run,
		       after_of(gw_http_exchange_request(exchange)->query));
	/* One member more, behind the object's last. */
	gw_served_states_print(gateway, &models);
	if (body.len && !models.failed) {
		body.ptr[body.len - 1] = ',';
		buf_span(&body, (struct span){models.ptr, models.len});
		buf_append(&body, "}", 1);
	}
	gw_http_reply_field(exchange, "Cache-Control", "no-store");
	gw_reply_json(exchange, 200, &body);
	buf_free(&models);
	buf_free(&body);
}
