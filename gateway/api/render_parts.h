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
/* What token k says, after those before it; and what the end of the answer says. Return whether the
 * answer has called tools so far. */
bool gw_said_by_token(const struct gw_render *render, const struct gw_view *view, uint32_t k,
		      struct gw_said *said);
bool gw_said_at_end(const struct gw_render *render, const struct gw_view *view,
		    struct gw_said *said);
/* The members of a delta. */
void gw_said_print(const struct gw_render *render, uint32_t choice, const struct gw_said *said);
/* The members of a message; text is the answer's. Returns whether it calls tools. */
bool gw_message_print(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		      struct span text);
