#include "gateway/speech.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/tools.h"

static const char think_open[] = "<think>", think_close[] = "</think>";

/* ---- what is said ---- */

static void text_say(struct gw_speech *speech, char byte, struct gw_said *said)
{
	if ((speech->trimming && byte == '\n') || byte == *GW_MARK)
		return;
	speech->trimming = false;
	speech->said |= !speech->reasoning;
	buf_append(speech->reasoning ? &said->reasoning : &said->content, &byte, 1);
}

static struct gw_call_piece *piece_add(struct gw_said *said)
{
	if (said->n_pieces == said->room_pieces || !said->pieces) {
		size_t room = said->room_pieces ? 2 * said->room_pieces : 4;
		struct gw_call_piece *larger = realloc(said->pieces, room * sizeof *larger);
		if (!larger) {
			said->failed = true;
			return NULL;
		}
		said->pieces = larger;
		said->room_pieces = room;
	}
	struct gw_call_piece *piece = &said->pieces[said->n_pieces++];
	*piece = (struct gw_call_piece){.at = said->arguments.len};
	return piece;
}

static void call_say(struct gw_speech *speech, struct gw_said *said)
{
	struct gw_call_piece *piece = piece_add(said);
	if (!piece)
		return;
	piece->begins = true;
	piece->index = speech->n_calls++;
	memcpy(piece->name, speech->name, speech->n_name);
}

static void argument_say(const struct gw_speech *speech, char byte, struct gw_said *said)
{
	struct gw_call_piece *last = said->n_pieces ? &said->pieces[said->n_pieces - 1] : NULL;
	if (!last || last->index != speech->n_calls - 1)
		last = piece_add(said);
	if (!last)
		return;
	last->index = speech->n_calls - 1;
	last->len++;
	buf_append(&said->arguments, &byte, 1);
}

/* ---- text: tags and the beginnings of calls ---- */

/* What the held bytes may become here. */
static size_t literals_of(const struct gw_speech *speech, const char *out[3])
{
	size_t n = 0;
	const struct gw_tool_form *form = gw_tool_form_of(speech->tools);
	if (form && (form->anywhere || !speech->said))
		out[n++] = form->first;
	if (speech->reasoning)
		out[n++] = think_close;
	else if (speech->thinks && !speech->said)
		out[n++] = think_open;
	return n;
}

static void literal_met(struct gw_speech *speech, const char *literal)
{
	speech->n_held = 0;
	if (literal == think_open || literal == think_close) {
		speech->reasoning = literal == think_open;
		speech->thinks = literal == think_open; /* once */
		speech->trimming = true;
		return;
	}
	speech->reasoning = false;
	speech->state = SPEECH_NAME;
	speech->n_name = 0;
}

/* Releases held bytes until what is left is the beginning of something, or nothing. */
static void held_settle(struct gw_speech *speech, struct gw_said *said)
{
	while (speech->n_held) {
		const char *literals[3];
		size_t n = literals_of(speech, literals);
		for (size_t i = 0; i < n; i++) {
			if (strncmp(literals[i], speech->held, speech->n_held) != 0)
				continue;
			if (literals[i][speech->n_held] == 0)
				literal_met(speech, literals[i]);
			return;
		}
		text_say(speech, speech->held[0], said);
		speech->n_held--;
		memmove(speech->held, speech->held + 1, speech->n_held);
	}
}

/* ---- calls ---- */

static void skip_begin(struct gw_speech *speech, size_t n, enum gw_speech_state then)
{
	speech->skip = (uint32_t)n;
	speech->then = then;
	speech->state = n ? SPEECH_SKIP : then;
}

static void name_feed(struct gw_speech *speech, char byte, struct gw_said *said)
{
	const struct gw_tool_form *form = gw_tool_form_of(speech->tools);
	if (byte != form->middle[0]) {
		if (speech->n_name < GW_TOOL_NAME_MAX)
			speech->name[speech->n_name++] = byte;
		return;
	}
	call_say(speech, said);
	speech->depth = 0;
	speech->in_string = speech->escaped = false;
	/* The first byte of what lies between name and arguments was it; a call's id lies there
	 * between two marks. */
	skip_begin(speech, strlen(form->middle) - 1 + (form->has_ids ? GW_CALL_ID_LETTERS + 1 : 0),
		   SPEECH_ARGUMENTS);
}

static void arguments_feed(struct gw_speech *speech, char byte, struct gw_said *said)
{
	const struct gw_tool_form *form = gw_tool_form_of(speech->tools);
	argument_say(speech, byte, said);
	if (speech->in_string) {
		speech->in_string = speech->escaped || byte != '"';
		speech->escaped = !speech->escaped && byte == '\\';
		return;
	}
	speech->in_string = byte == '"';
	speech->depth += byte == '{' || byte == '[';
	speech->depth -= (byte == '}' || byte == ']') && speech->depth;
	if (speech->depth == 0)
		skip_begin(speech, strlen(form->end), SPEECH_AFTER);
}

/* Another call, or the end of the list. */
static void after_feed(struct gw_speech *speech, char byte)
{
	const struct gw_tool_form *form = gw_tool_form_of(speech->tools);
	if (!form->next || byte != form->next[0])
		return;
	speech->n_name = 0;
	skip_begin(speech, strlen(form->next) - 1, SPEECH_NAME);
}

static void byte_feed(struct gw_speech *speech, char byte, struct gw_said *said)
{
	switch (speech->state) {
	case SPEECH_TEXT:
		/* Settled bytes are fewer than the longest literal. */
		speech->held[speech->n_held++] = byte;
		held_settle(speech, said);
		break;
	case SPEECH_NAME:
		name_feed(speech, byte, said);
		break;
	case SPEECH_SKIP:
		if (--speech->skip == 0)
			speech->state = speech->then;
		break;
	case SPEECH_ARGUMENTS:
		arguments_feed(speech, byte, said);
		break;
	case SPEECH_AFTER:
		after_feed(speech, byte);
		break;
	}
}

/* ---- the whole ---- */

void gw_speech_begin(struct gw_speech *speech, enum vocab_tools tools, bool thinks, bool inside)
{
	*speech = (struct gw_speech){.tools = tools,
				     .thinks = thinks && !inside,
				     .reasoning = inside,
				     .trimming = inside};
}

static void failure_note(struct gw_said *said)
{
	said->failed |= said->reasoning.failed || said->content.failed || said->arguments.failed;
}

void gw_speech_feed(struct gw_speech *speech, struct span bytes, struct gw_said *said)
{
	for (size_t i = 0; i < bytes.len; i++)
		byte_feed(speech, bytes.ptr[i], said);
	failure_note(said);
}

void gw_speech_end(struct gw_speech *speech, struct gw_said *said)
{
	/* A call that was cut before its name is no text. */
	if (speech->n_held && speech->held[0] == *GW_MARK)
		speech->n_held = 0;
	for (uint32_t i = 0; i < speech->n_held; i++)
		text_say(speech, speech->held[i], said);
	speech->n_held = 0;
	failure_note(said);
}

void gw_said_free(struct gw_said *said)
{
	buf_free(&said->reasoning);
	buf_free(&said->content);
	buf_free(&said->arguments);
	free(said->pieces);
	*said = (struct gw_said){0};
}
