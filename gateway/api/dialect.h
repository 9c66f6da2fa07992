/* gateway/api/dialect.h: the forms in which one and the same answer is given: OpenAI's (render.h),
 * Anthropic's messages, Ollama's lines, OpenAI's responses. A dialect turns a request's JSON into
 * the chat request that api_params.c reads, so limits and meanings are the same everywhere, and
 * renders what comes of it. Pure, as render.h says. */
#pragma once
#include <jansson.h>

#include "gateway/api/api_request.h"
#include "gateway/api/render.h"

/* One choice of an answer, one event after the other; each function appends whole frames, or
 * nothing where its form has nothing to say. render->id stands in the frame, if the form has a
 * place for it. */
struct gw_member;
struct gw_dialect {
	const char *id_prefix;
	const char *stream_type; /* Content-Type */
	const char *waiting;	 /* written while nothing comes, between two frames */
	bool (*has_opening)(const struct gw_meta *meta);
	void (*opening)(const struct gw_render *render, uint32_t choice,
			const struct gw_view *view);
	void (*token)(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		      uint32_t k, size_t width);
	void (*finish)(const struct gw_render *render, uint32_t choice, const struct gw_view *view);
	/* After the last choice's finish. */
	void (*end)(const struct gw_render *render, const struct gw_usage *usage);
	/* An error after the stream's head: its last frame. */
	void (*error)(struct buf *out, const struct svc_err *err);
	/* Its requests' members, for gw_form_blame. */
	const struct gw_member *members;
	size_t n_members;
	/* All of an answer that is no stream. */
	void (*answer)(const struct gw_render *render, const struct gw_view *views, uint32_t n);
};

const struct gw_dialect *gw_dialect_of(enum gw_form form);
extern const struct gw_dialect gw_dialect_openai, gw_dialect_anthropic, gw_dialect_ollama_chat,
	gw_dialect_ollama_generate, gw_dialect_responses;

/* An error object in the form that clients of a path expect. */
void gw_error_print_for(struct span path, struct buf *out, const struct svc_err *err);
void gw_error_print_anthropic(struct buf *out, const struct svc_err *err);
void gw_error_print_ollama(struct buf *out, const struct svc_err *err);

/* ---- from a request's JSON to that of a chat (or, for raw Ollama requests, a completion) ---- */

/* One member of a request. */
struct gw_member {
	const char *name; /* the dialect's */
	const char *as;	  /* the chat's, to be copied; NULL: read by hand, or without effect */
	/* Refused unless it asks for nothing (false, "", [], null). */
	const char *remedy;
};

/* Of Anthropic's requests. */
#define GW_ANTHROPIC_MEMBERS 18u
extern const struct gw_member gw_anthropic_members[GW_ANTHROPIC_MEMBERS];

/* The options of Ollama's. */
#define GW_OLLAMA_OPTIONS 27u
extern const struct gw_member gw_ollama_options[GW_OLLAMA_OPTIONS];

/* Of OpenAI's responses. */
#define GW_RESPONSES_MEMBERS 27u
extern const struct gw_member gw_responses_members[GW_RESPONSES_MEMBERS];

/* What a translation knows. */
struct gw_translation {
	const json_t *from;
	json_t *to;
	const struct gw_member *members;
	size_t n_members;
	bool strict; /* other members are refused */
	struct svc_err *err;
};

/* Copies and refuses what the members say. */
enum svc_code gw_members_copy(const struct gw_translation *translation) SVC_CHECKED;
/* The end of a translation that went as code says: *ret_chat is `to` with the messages. Takes `to`
 * and messages, also when it fails; returns code, or that there was no memory. */
enum svc_code gw_translation_end(const struct gw_translation *translation, enum svc_code code,
				 json_t *messages, json_t **ret_chat) SVC_CHECKED;
/* An error about a chat's member is one about the dialect's. */
void gw_members_blame(const struct gw_member *members, size_t n, struct svc_err *err);
void gw_form_blame(enum gw_form form, struct svc_err *err);
/* Is it a name of the model as Ollama's clients write it, with or without ":latest"? */
bool gw_ollama_name_is(const json_t *name, const struct gw_api_limits *limits);
/* Strings, and arrays of parts of the given types ("text"), each with a string member `text`: as
 * content of a chat's message. place names it in errors. A new reference, or NULL. */
json_t *gw_content_read(const json_t *content, const char *const *types, const char *place,
			struct svc_err *err);
/* Appends {"role", "content"}; takes content, which may be NULL: fails then. */
enum svc_code gw_message_add(json_t *messages, const char *role, json_t *content_take,
			     struct svc_err *err) SVC_CHECKED;

/* Each: a new reference in *ret_chat. */
enum svc_code gw_anthropic_read(const json_t *body, bool strict, json_t **ret_chat,
				struct svc_err *err) SVC_CHECKED;
enum svc_code gw_ollama_chat_read(const json_t *body, bool strict, json_t **ret_chat,
				  struct svc_err *err) SVC_CHECKED;
/* *ret_raw: it is a completion, without a template. */
enum svc_code gw_ollama_generate_read(const json_t *body, bool strict, json_t **ret_chat,
				      bool *ret_raw, struct svc_err *err) SVC_CHECKED;
/* A request for embeddings. */
enum svc_code gw_ollama_embed_read(const json_t *body, bool strict, json_t **ret_embed,
				   struct svc_err *err) SVC_CHECKED;
/* before: the conversation so far (an array), or NULL. */
enum svc_code gw_responses_read(const json_t *body, bool strict, const json_t *before,
				json_t **ret_chat, struct svc_err *err) SVC_CHECKED;
/* responses_settings.c: the members of a request that was read which its response shows, as the
 * text of a JSON object; the caller frees it. NULL: no memory. */
char *gw_responses_settings(const json_t *body);
enum svc_code gw_responses_metadata_check(const json_t *body, struct svc_err *err) SVC_CHECKED;
