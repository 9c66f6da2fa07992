/* gateway/api/render_parts.h: what render.c and render_logprobs.c share. Internal to them. */
#pragma once
#include "gateway/api/render.h"
#include "gateway/speech.h"

/* The logprobs object of a chat, for tokens [from, to) of the answer. */
void gw_chat_logprobs(const struct gw_render *render, const struct gw_view *view, uint32_t from,
		      uint32_t to);
/* The logprobs object of a completion, for positions [from, to) of prompt and answer; width: code
 * points of the text before the first of them. */
void gw_completion_logprobs(const struct gw_render *render, const struct gw_view *view,
			    uint32_t from, uint32_t to, size_t width);
/* The text that a position of prompt or answer stands for: nothing for control tokens that aren't
 * shown. */
struct span gw_position_text(const struct gw_render *render, const struct gw_view *view,
			     uint32_t position);
/* Its code points, counted by their first bytes, so that pieces of a character add up to one. */
size_t gw_position_width(const struct gw_render *render, const struct gw_view *view,
			 uint32_t position);

/* render_speech.c: answers that say more than text. */

/* May this answer's text say something else than content? */
bool gw_speaks(const struct gw_meta *meta);
/* What a part of an answer says, and how far the answer was before and after it. */
struct gw_saying {
	struct gw_speech before, after;
	struct gw_said said; /* to be freed */
};

/* Of token k; of the end, where what was held back is said; of the first n tokens together; of the
 * whole answer with its end. */
void gw_say_token(const struct gw_render *render, const struct gw_view *view, uint32_t k,
		  struct gw_saying *ret_saying);
void gw_say_end(const struct gw_render *render, const struct gw_view *view,
		struct gw_saying *ret_saying);
void gw_say_first(const struct gw_render *render, const struct gw_view *view, uint32_t n,
		  struct gw_saying *ret_saying);
void gw_say_all(const struct gw_render *render, const struct gw_view *view,
		struct gw_saying *ret_saying);
/* Notes a lack of memory in the render's buffer. */
void gw_saying_free(const struct gw_render *render, struct gw_saying *saying);
struct span gw_said_content(const struct gw_said *said);
/* The text of a piece's arguments. */
struct span gw_piece_arguments(const struct gw_said *said, const struct gw_call_piece *piece);
/* Are the arguments whole? */
bool gw_is_json(struct span text);
/* A call's id without a prefix: nine letters and digits, as some templates demand it; a function of
 * the answer's id and the call's place. */
#define GW_CALL_ID_BYTES 10u
void gw_call_id_make(const struct gw_meta *meta, uint32_t choice, uint32_t index,
		     char ret_id[GW_CALL_ID_BYTES]);
/* The members of a delta. */
void gw_said_print(const struct gw_render *render, uint32_t choice, const struct gw_said *said);
/* The members of a message. Returns whether it calls tools. */
bool gw_message_print(const struct gw_render *render, uint32_t choice, const struct gw_view *view);
