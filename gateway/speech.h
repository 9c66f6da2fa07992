/* gateway/speech.h: what an answer's text says: reasoning, content, calls of tools. A pure function
 * of the bytes, fed as they come: how they are cut changes only what is said when. Calls are
 * recognised in the one form that the request's grammar lets through (tools.h); while bytes may
 * still become the beginning of a call or a tag, they are held back. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "shm/vocab.h"

#define GW_TOOL_NAME_MAX 64u

/* A call's beginning (name), or more of its arguments' text. */
struct gw_call_piece {
	uint32_t index;
	bool begins;
	char name[GW_TOOL_NAME_MAX + 1]; /* if it begins */
	size_t at, len;			 /* of the arguments, in gw_said.arguments */
};

/* What some bytes say. */
struct gw_said {
	struct buf reasoning, content, arguments;
	struct gw_call_piece *pieces;
	size_t n_pieces, room_pieces;
	bool failed; /* memory, also of the buffers */
};

enum gw_speech_state { SPEECH_TEXT, SPEECH_NAME, SPEECH_SKIP, SPEECH_ARGUMENTS, SPEECH_AFTER };

struct gw_speech {
	enum vocab_tools tools;		  /* VOCAB_TOOLS_COUNT: no calls */
	bool thinks;			  /* the model may begin with <think> */
	bool reasoning;			  /* within it */
	bool said;			  /* some content */
	enum gw_speech_state state, then; /* then: after SPEECH_SKIP */
	uint32_t skip;			  /* bytes */
	uint32_t n_calls;
	char held[40], name[GW_TOOL_NAME_MAX + 1];
	uint32_t n_held, n_name;
	uint32_t depth; /* of brackets in the arguments */
	bool in_string, escaped;
	bool trimming; /* line breaks behind a tag aren't said */
};

/* inside: the prompt ended within <think>. */
void gw_speech_begin(struct gw_speech *speech, enum vocab_tools tools, bool thinks, bool inside);
/* Adds what the bytes say. */
void gw_speech_feed(struct gw_speech *speech, struct span bytes, struct gw_said *said);
/* The text ends: what was held back is content. */
void gw_speech_end(struct gw_speech *speech, struct gw_said *said);
void gw_said_free(struct gw_said *said);
