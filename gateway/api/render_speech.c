/* gateway/api/render_speech.c: an answer's reasoning, content and calls as OpenAI's members. */
#include <inttypes.h>
#include <jansson.h>

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

/* The speech before token k: a function of the text alone, gone on with from where the last event
 * left it, if that is known. */
static void speech_find(const struct gw_render *render, const struct gw_view *view, uint32_t k,
			struct gw_speech *speech)
{
	const struct gw_meta *meta = render->meta;
	const struct gw_spoken *spoken = render->spoken;
	struct gw_said unheard = {0};
	uint32_t from = 0, end = k ? view->ends[k - 1] : 0;
	if (spoken && spoken->known && spoken->k <= k) {
		*speech = spoken->speech;
		from = spoken->k ? view->ends[spoken->k - 1] : 0;
	} else {
		bool inside = meta->thinks && prompt_thinks(render, view);
		gw_speech_begin(speech, meta->calls ? meta->tools : VOCAB_TOOLS_COUNT, meta->thinks,
				inside);
	}
	if (from < end && end <= view->out.len)
		gw_speech_feed(speech, (struct span){view->out.ptr + from, end - from}, &unheard);
	render->out->failed |= unheard.failed;
	gw_said_free(&unheard);
}

void gw_say_token(const struct gw_render *render, const struct gw_view *view, uint32_t k,
		  struct gw_saying *ret_saying)
{
	struct gw_saying saying = {0};
	speech_find(render, view, k, &saying.before);
	saying.after = saying.before;
	gw_speech_feed(&saying.after, gw_view_text(view, k), &saying.said);
	if (render->spoken)
		*render->spoken = (struct gw_spoken){true, k + 1, saying.after};
	*ret_saying = saying;
}

void gw_say_end(const struct gw_render *render, const struct gw_view *view,
		struct gw_saying *ret_saying)
{
	struct gw_saying saying = {0};
	speech_find(render, view, view->n_tokens, &saying.before);
	saying.after = saying.before;
	gw_speech_end(&saying.after, &saying.said);
	*ret_saying = saying;
}

static void say_text(const struct gw_render *render, const struct gw_view *view, struct span text,
		     struct gw_saying *ret_saying)
{
	const struct gw_render anew = {
		.out = render->out, .meta = render->meta, .vocab = render->vocab};
	struct gw_saying saying = {0};
	speech_find(&anew, view, 0, &saying.before);
	saying.after = saying.before;
	gw_speech_feed(&saying.after, text, &saying.said);
	*ret_saying = saying;
}

void gw_say_first(const struct gw_render *render, const struct gw_view *view, uint32_t n,
		  struct gw_saying *ret_saying)
{
	uint32_t end = n ? view->ends[n - 1] : 0;
	end = end <= view->out.len ? end : 0;
	say_text(render, view, (struct span){view->out.ptr, end}, ret_saying);
}

void gw_say_all(const struct gw_render *render, const struct gw_view *view,
		struct gw_saying *ret_saying)
{
	say_text(render, view, gw_view_answer(view), ret_saying);
	gw_speech_end(&ret_saying->after, &ret_saying->said);
}

void gw_saying_free(const struct gw_render *render, struct gw_saying *saying)
{
	render->out->failed |= saying->said.failed;
	gw_said_free(&saying->said);
}

struct span gw_said_content(const struct gw_said *said)
{
	return (struct span){said->content.len ? said->content.ptr : "", said->content.len};
}

struct span gw_piece_arguments(const struct gw_said *said, const struct gw_call_piece *piece)
{
	return (struct span){piece->len ? said->arguments.ptr + piece->at : "", piece->len};
}

bool gw_is_json(struct span text)
{
	json_t *json = json_loadb(text.ptr, text.len, 0, NULL);
	bool is = json != NULL;
	json_decref(json);
	return is;
}

void gw_call_id_make(const struct gw_meta *meta, uint32_t choice, uint32_t index,
		     char ret_id[GW_CALL_ID_BYTES])
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	for (const char *at = meta->id; *at; at++)
		hash = (hash ^ (unsigned char)*at) * 1099511628211u;
	hash = (hash ^ choice) * 1099511628211u;
	hash = (hash ^ index) * 1099511628211u;
	hash ^= hash >> 29;
	for (unsigned i = 0; i + 1 < GW_CALL_ID_BYTES; i++, hash /= 36)
		ret_id[i] = digits[hash % 36];
	ret_id[GW_CALL_ID_BYTES - 1] = 0;
}

static void call_id_print(const struct gw_render *render, uint32_t choice, uint32_t index)
{
	char id[GW_CALL_ID_BYTES];
	gw_call_id_make(render->meta, choice, index, id);
	buf_print(render->out, "\"id\":\"%s\",\"type\":\"function\",", id);
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
	buf_json_string(out, gw_piece_arguments(said, piece));
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
		buf_json_string(out, gw_said_content(said));
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
	buf_json_string(out, gw_piece_arguments(said, piece));
	buf_print(out, "}}");
}

bool gw_message_print(const struct gw_render *render, uint32_t choice, const struct gw_view *view)
{
	struct gw_saying saying;
	struct buf *out = render->out;
	gw_say_all(render, view, &saying);
	const struct gw_said *said = &saying.said;
	buf_print(out, "\"content\":");
	if (said->content.len || !said->n_pieces)
		buf_json_string(out, gw_said_content(said));
	else
		buf_print(out, "null");
	if (said->reasoning.len) {
		buf_print(out, ",\"reasoning_content\":");
		buf_json_string(out, (struct span){said->reasoning.ptr, said->reasoning.len});
	}
	for (size_t i = 0; i < said->n_pieces; i++) {
		buf_print(out, "%s", i ? "," : ",\"tool_calls\":[");
		call_print(render, choice, said, &said->pieces[i]);
	}
	buf_print(out, "%s", said->n_pieces ? "]" : "");
	bool called = said->n_pieces > 0;
	gw_saying_free(render, &saying);
	return called;
}
