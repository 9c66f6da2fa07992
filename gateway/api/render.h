/* gateway/api/render.h: answers as OpenAI's JSON, whole or as server-sent events. Pure: an event is
 * a function of what was fixed at admission and of one choice's tokens so far, so any gateway can
 * make event k again.
 *
 * Events of one choice, in this order, each counted by its id line: for a chat the role; for a
 * completion with echo the prompt; then one event per token, also where the token releases no text
 * (half a character, a possible start of a stop string, a control token); then one with the
 * finish_reason. After the last choice, the usage if it was asked for, then [DONE]. An error event
 * ends a stream without [DONE]. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "gateway/api/api_request.h"
#include "gateway/api/view.h"
#include "gateway/speech.h"
#include "shm/vocab.h"

/* Fixed at admission. */
struct gw_meta {
	char id[GW_ID_BYTES]; /* "chatcmpl-..." or "cmpl-..." */
	int64_t created_s;
	const char *model, *fingerprint;
	bool chat; /* else a text completion */
	bool include_usage;
	bool logprobs;
	bool echo;
	bool token_ids;
	bool base64; /* embeddings; not kept: they aren't resumed */
	bool keep_special;
	bool calls; /* the text may call tools, in the form of `tools` */
	enum vocab_tools tools;
	bool thinks; /* it may begin with reasoning */
	uint32_t n;  /* choices of each prompt */
	enum gw_form form;
	bool stored, instructed;    /* see struct gw_request */
	char previous[GW_ID_BYTES]; /* id of the response before, or "" */
};

/* The speech before token k, so that the next event needn't begin at the answer's first byte. Only
 * a cache: it is a function of the text. */
struct gw_spoken {
	bool known;
	uint32_t k;
	struct gw_speech speech;
};

/* To whom, about what, for whom. */
struct gw_render {
	struct buf *out;
	const struct gw_meta *meta;
	const struct vocab *vocab;
	const char *id;		  /* of the event, "" if none; for dialect.h */
	uint64_t arrived_us;	  /* CLOCK_MONOTONIC of the request's arrival here; for dialect.h */
	struct gw_spoken *spoken; /* of the choice; NULL: none is kept */
};

struct gw_usage {
	uint64_t n_prompt, n_cached, n_answer; /* cached: part of the prompt */
};

/* ---- one choice's events: the JSON only, without the event's frame ---- */

/* Has this kind of answer an event before its first token? */
bool gw_render_has_opening(const struct gw_meta *meta);
void gw_render_opening(const struct gw_render *render, uint32_t choice, const struct gw_view *view);
/* width: code points of the text before token k (gw_render_width); only log-probabilities need it.
 */
void gw_render_token(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		     uint32_t k, size_t width);
void gw_render_finish(const struct gw_render *render, uint32_t choice, const struct gw_view *view);
void gw_render_usage(const struct gw_render *render, const struct gw_usage *usage);

/* Code points of the prompt's text if it is echoed, else 0; and what token k adds. */
size_t gw_render_prompt_width(const struct gw_render *render, const struct gw_view *view);
size_t gw_render_width(const struct gw_render *render, const struct gw_view *view, uint32_t k);

/* ---- the whole answer ---- */

void gw_render_answer(const struct gw_render *render, const struct gw_view *views, uint32_t n);

/* ---- frames ---- */

/* Appends "id: ID\ndata: JSON\n\n"; id may be empty: no id line. */
void gw_event_print(struct buf *out, const char *id, struct span json);

/* ---- parts, for tests ---- */

/* The shortest decimal form that reads back as the same float; -9999 for what JSON has no number
 * for. */
void gw_float_print(struct buf *out, float value);
/* A token's text as a JSON string; "bytes:\xe6\xad" for what is no text by itself, as OpenAI's
 * completions do. */
void gw_piece_print(struct buf *out, struct span piece);
