/* gateway/api/render_speech.c: an answer's reasoning, content and calls as OpenAI's members. */
#include <inttypes.h>

#include "gateway/api/render_parts.h"

/* Tokens at a prompt's end that are searched for an open <think>. */
#define TAIL_TOKENS 16u

bool gw_speaks(const struct gw_meta *meta)
{
	return meta->chat && (meta->thinks || meta->calls);
}

/* Some templates open the reasoning themselves. */
static bool prompt_thinks(const struct gw_render *render, const struct gw_view *view)
{
	struct buf tail = {0};
	uint32_t from = view->n_prompt > TAIL_TOKENS ? view->n_prompt - TAIL_TOKENS : 0;
	for (uint32_t p = from; p < view->n_prompt; p++)
		buf_span(&tail, vocab_token(render->vocab, view->ids[p]));
	const char *open = NULL;
	for (const char *at = tail.ptr; at && (at = strstr(at, "<think>")); at++)
		open = at;
	bool inside = open && !strstr(open, "</think>");
	render->out->failed |= tail.failed;
	buf_free(&tail);
	return inside;
}

static void said_clear(struct gw_said *said)
{
	buf_clear(&said->reasoning);
	buf_clear(&said->content);
	buf_clear(&said->arguments);
	said->n_pieces = 0;
}

/* The speech before token k. A function of the text alone, made anew for each event. */
static void speech_find(const struct gw_render *render, const struct gw_view *view, uint32_t k,
			struct gw_speech *speech, struct gw_said *said)
{
	const struct gw_meta *meta = render->meta;
	bool inside = meta->thinks && prompt_thinks(render, view);
	gw_speech_begin(speech, meta->calls ? meta->tools : VOCAB_TOOLS_COUNT, meta->thinks,
			inside);
	uint32_t end = k ? view->ends[k - 1] : 0;
	if (end <= view->out.len)
		gw_speech_feed(speech, (struct span){view->out.ptr, end}, said);
	said_clear(said);
}

bool gw_said_by_token(const struct gw_render *render, const struct gw_view *view, uint32_t k,
		      struct gw_said *said)
{
	struct gw_speech speech;
	speech_find(render, view, k, &speech, said);
	gw_speech_feed(&speech, gw_view_text(view, k), said);
	return speech.n_calls > 0;
}

bool gw_said_at_end(const struct gw_render *render, const struct gw_view *view,
		    struct gw_said *said)
{
	struct gw_speech speech;
	speech_find(render, view, view->n_tokens, &speech, said);
	gw_speech_end(&speech, said);
	return speech.n_calls > 0;
}

/* Nine letters and digits, as some templates demand it: a function of the answer's id and the
 * call's place. */
static void call_id_print(const struct gw_render *render, uint32_t choice, uint32_t index)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (const char *at = render->meta->id; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	hash = (hash ^ choice) * 1099511628211u;
	hash = (hash ^ index) * 1099511628211u;
	hash ^= hash >> 29;
	char id[10] = {0};
	for (int i = 0; i < 9; i++, hash /= 36)
		id[i] = digits[hash % 36];
	buf_print(render->out, "\"id\":\"%s\",\"type\":\"function\",", id);
}

static struct span arguments_of(const struct gw_said *said, size_t at, size_t len)
{
	return (struct span){len ? said->arguments.ptr + at : "", len};
}

static void piece_print(const struct gw_render *render, uint32_t choice, const struct gw_said *said,
			const struct gw_call_piece *piece)
{
	struct buf *out = render->out;
	buf_print(out, "{\"index\":%" PRIu32 ",", piece->index);
	if (piece->begins)
		call_id_print(render, choice, piece->index);
	buf_print(out, "\"function\":{");
	if (piece->begins) {
		buf_print(out, "\"name\":");
		buf_json_string(out, span_of(piece->name));
		buf_print(out, ",");
	}
	buf_print(out, "\"arguments\":");
	buf_json_string(out, arguments_of(said, piece->at, piece->len));
	buf_print(out, "}}");
}

void gw_said_print(const struct gw_render *render, uint32_t choice, const struct gw_said *said)
{
	struct buf *out = render->out;
	bool silent = !said->reasoning.len && !said->n_pieces;
	if (said->reasoning.len) {
		buf_print(out, "\"reasoning_content\":");
		buf_json_string(out, (struct span){said->reasoning.ptr, said->reasoning.len});
	}
	if (said->content.len || silent) {
		buf_print(out, "%s\"content\":", said->reasoning.len ? "," : "");
		buf_json_string(out, (struct span){said->content.len ? said->content.ptr : "",
						   said->content.len});
	}
	for (size_t i = 0; i < said->n_pieces; i++) {
		bool first = i == 0 && !said->reasoning.len && !said->content.len;
		buf_print(out, "%s", i ? "," : first ? "\"tool_calls\":[" : ",\"tool_calls\":[");
		piece_print(render, choice, said, &said->pieces[i]);
	}
	buf_print(out, "%s", said->n_pieces ? "]" : "");
}

/* All at once, a call is one piece. */
static void call_print(const struct gw_render *render, uint32_t choice, const struct gw_said *said,
		       const struct gw_call_piece *piece)
{
	struct buf *out = render->out;
	buf_print(out, "{");
	call_id_print(render, choice, piece->index);
	buf_print(out, "\"function\":{\"name\":");
	buf_json_string(out, span_of(piece->name));
	buf_print(out, ",\"arguments\":");
	buf_json_string(out, arguments_of(said, piece->at, piece->len));
	buf_print(out, "}}");
}

bool gw_message_print(const struct gw_render *render, uint32_t choice, const struct gw_view *view,
		      struct span text)
{
	struct gw_said said = {0};
	struct gw_speech speech;
	struct buf *out = render->out;
	speech_find(render, view, 0, &speech, &said);
	gw_speech_feed(&speech, text, &said);
	gw_speech_end(&speech, &said);
	buf_print(out, "\"content\":");
	if (said.content.len || !said.n_pieces)
		buf_json_string(out, (struct span){said.content.len ? said.content.ptr : "",
						   said.content.len});
	else
		buf_print(out, "null");
	if (said.reasoning.len) {
		buf_print(out, ",\"reasoning_content\":");
		buf_json_string(out, (struct span){said.reasoning.ptr, said.reasoning.len});
	}
	for (size_t i = 0; i < said.n_pieces; i++) {
		buf_print(out, "%s", i ? "," : ",\"tool_calls\":[");
		call_print(render, choice, &said, &said.pieces[i]);
	}
	buf_print(out, "%s", said.n_pieces ? "]" : "");
	out->failed |= said.failed;
	bool called = said.n_pieces > 0;
	gw_said_free(&said);
	return called;
}
