#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "gateway/api/render_parts.h"

void gw_float_print(struct buf *out, float value)
{
	char text[32];
	int len = 0;
	if (!isfinite(value)) {
		buf_print(out, "-9999");
		return;
	}
	/* 9 digits are always enough (DBL_DECIMAL_DIG of float), 6 nearly never. */
	for (int digits = 6; digits <= 9; digits++) {
		len = snprintf(text, sizeof text, "%.*g", digits, (double)value);
		if (strtof(text, NULL) == value)
			break;
	}
	/* Should anyone ever set a locale: its decimal point is the only other character that %g
	 * writes. */
	for (int i = 0; i < len; i++)
		if (!strchr("0123456789+-e.", text[i]))
			text[i] = '.';
	buf_append(out, text, (size_t)len);
}

static bool is_text(struct span piece)
{
	for (size_t i = 0; i < piece.len;) {
		size_t n = utf8_length(piece.ptr + i, piece.len - i);
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

void gw_piece_print(struct buf *out, struct span piece)
{
	if (is_text(piece)) {
		buf_json_string(out, piece);
		return;
	}
	buf_print(out, "\"bytes:");
	for (size_t i = 0; i < piece.len; i++)
		buf_print(out, "\\\\x%02x", (unsigned char)piece.ptr[i]);
	buf_append(out, "\"", 1);
}

/* ---- chat: a list of objects ---- */

static void chat_token(const struct gw_render *render, int32_t id, float logprob)
{
	struct span piece = vocab_token(render->vocab, id);
	buf_print(render->out, "{\"token\":");
	gw_piece_print(render->out, piece);
	buf_print(render->out, ",\"logprob\":");
	gw_float_print(render->out, logprob);
	buf_print(render->out, ",\"bytes\":[");
	for (size_t i = 0; i < piece.len; i++)
		buf_print(render->out, "%s%u", i ? "," : "", (unsigned char)piece.ptr[i]);
	buf_print(render->out, "]");
}

void gw_chat_logprobs(const struct gw_render *render, const struct gw_view *view, uint32_t from,
		      uint32_t to)
{
	struct gw_record record;
	buf_print(render->out, "{\"content\":[");
	for (uint32_t k = from; k < to; k++) {
		if (!gw_view_record(view, k, &record))
			break;
		buf_print(render->out, "%s", k > from ? "," : "");
		chat_token(render, view->ids[view->n_prompt + k], record.chosen);
		buf_print(render->out, ",\"top_logprobs\":[");
		for (uint32_t i = 0; i < record.n_top; i++) {
			buf_print(render->out, "%s", i ? "," : "");
			chat_token(render, record.top[i].id, record.top[i].logprob);
			buf_print(render->out, "}");
		}
		buf_print(render->out, "]}");
	}
	buf_print(render->out, "],\"refusal\":null}");
}

/* ---- completions: four lists of equal length ---- */

/* The entries of one object for positions [from, to) of prompt and answer. */
struct positions {
	const struct gw_view *view;
	uint32_t from, to;
};

static bool record_at(const struct positions *at, uint32_t position, struct gw_record *ret_record)
{
	uint32_t n_prompt = at->view->n_prompt;
	return position < n_prompt ? gw_view_prompt_record(at->view, position, ret_record)
				   : gw_view_record(at->view, position - n_prompt, ret_record);
}

/* The alternatives and the token itself, by their texts. Two tokens with the same text would be one
 * member twice: the likelier one stands. */
static void top_print(const struct gw_render *render, const struct gw_record *record,
		      int32_t chosen)
{
	const struct vocab *vocab = render->vocab;
	bool first = true;
	buf_print(render->out, "{");
	for (uint32_t i = 0; i <= record->n_top; i++) {
		int32_t id = i < record->n_top ? record->top[i].id : chosen;
		struct span piece = vocab_token(vocab, id);
		bool seen = false;
		for (uint32_t j = 0; j < i && !seen; j++)
			seen = span_equal(vocab_token(vocab, record->top[j].id), piece);
		if (seen)
			continue;
		buf_print(render->out, "%s", first ? "" : ",");
		gw_piece_print(render->out, piece);
		buf_print(render->out, ":");
		gw_float_print(render->out,
			       i < record->n_top ? record->top[i].logprob : record->chosen);
		first = false;
	}
	buf_print(render->out, "}");
}

static void token_list(const struct gw_render *render, const struct positions *at)
{
	buf_print(render->out, "{\"tokens\":[");
	for (uint32_t p = at->from; p < at->to; p++) {
		buf_print(render->out, "%s", p > at->from ? "," : "");
		gw_piece_print(render->out, vocab_token(render->vocab, at->view->ids[p]));
	}
}

static void number_list(const struct gw_render *render, const struct positions *at)
{
	struct gw_record record;
	buf_print(render->out, "],\"token_logprobs\":[");
	for (uint32_t p = at->from; p < at->to; p++) {
		buf_print(render->out, "%s", p > at->from ? "," : "");
		if (record_at(at, p, &record))
			gw_float_print(render->out, record.chosen);
		else
			buf_print(render->out, "null");
	}
}

static void top_list(const struct gw_render *render, const struct positions *at)
{
	struct gw_record record;
	buf_print(render->out, "],\"top_logprobs\":[");
	for (uint32_t p = at->from; p < at->to; p++) {
		buf_print(render->out, "%s", p > at->from ? "," : "");
		if (record_at(at, p, &record))
			top_print(render, &record, at->view->ids[p]);
		else
			buf_print(render->out, "null");
	}
}

void gw_completion_logprobs(const struct gw_render *render, const struct gw_view *view,
			    uint32_t from, uint32_t to, size_t width)
{
	const struct positions at = {view, from, to};
	token_list(render, &at);
	number_list(render, &at);
	top_list(render, &at);
	buf_print(render->out, "],\"text_offset\":[");
	for (uint32_t p = from; p < to; p++) {
		buf_print(render->out, "%s%zu", p > from ? "," : "", width);
		width += gw_position_width(render, view, p);
	}
	buf_print(render->out, "]}");
}
