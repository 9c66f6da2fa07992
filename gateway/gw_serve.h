/* gateway/gw_serve.h: the functions behind the paths of gw_service.c's table. context is the struct
 * gateway. Internal to gw_*.c. */
#pragma once
#include "gateway/gw_state.h"

/* gw_pages.c: what needs no pipeline */
void gw_serve_live(void *context, struct gw_http_exchange *exchange);
void gw_serve_ready(void *context, struct gw_http_exchange *exchange);
void gw_serve_models(void *context, struct gw_http_exchange *exchange);
void gw_serve_model(void *context, struct gw_http_exchange *exchange);
void gw_serve_metrics(void *context, struct gw_http_exchange *exchange);

/* gw_ui.c: pages for a browser, and what they show */
void gw_serve_root(void *context, struct gw_http_exchange *exchange);
void gw_serve_chat_page(void *context, struct gw_http_exchange *exchange);
void gw_serve_pipeline_page(void *context, struct gw_http_exchange *exchange);
void gw_serve_status(void *context, struct gw_http_exchange *exchange);

/* gw_resume.c */
void gw_serve_stream(void *context, struct gw_http_exchange *exchange);

/* gw_requests.c: what runs and waits */
void gw_serve_requests(void *context, struct gw_http_exchange *exchange);
void gw_serve_cancel(void *context, struct gw_http_exchange *exchange);

/* gw_responses.c: OpenAI's responses, and those that are kept */
void gw_serve_responses(void *context, struct gw_http_exchange *exchange);
void gw_serve_response_delete(void *context, struct gw_http_exchange *exchange);
void gw_serve_response(void *context, struct gw_http_exchange *exchange);

/* gw_surface.c: Anthropic's and Ollama's paths */
void gw_serve_messages(void *context, struct gw_http_exchange *exchange);
void gw_serve_count_tokens(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_chat(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_generate(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_embed(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_tags(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_ps(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_show(void *context, struct gw_http_exchange *exchange);
void gw_serve_ollama_version(void *context, struct gw_http_exchange *exchange);
