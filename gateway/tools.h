/* gateway/tools.h: the forms in which models call tools, and the grammar that lets an answer call
 * those of a request. */
#pragma once
#include <jansson.h>

#include "base/err.h"
#include "grammar/schema.h"
#include "shm/vocab.h"

#define GW_TOOLS_MAX 128u
#define GW_CALLS_MAX 16u /* of one answer */

/* A control token in the texts below, as it stands in an answer (SMP_TEXT_MARK): [TOOL_CALLS], in
 * `middle` [ARGS]. */
#define GW_MARK "\xFF"

/* first NAME middle ARGUMENTS end (next NAME middle ARGUMENTS end)* close */
struct gw_tool_form {
	const char *first, *middle, *end;
	const char *next; /* NULL: one call only */
	const char *close;
	size_t trigger; /* bytes of `first` that only begin a call */
	bool anywhere;	/* a call may follow text; else it begins the answer */
	bool has_ids;	/* NAME is followed by [CALL_ID] and GW_CALL_ID_LETTERS letters */
};
#define GW_CALL_ID_LETTERS 9u

/* NULL for VOCAB_TOOLS_COUNT: no calls. */
const struct gw_tool_form *gw_tool_form_of(enum vocab_tools tools);

enum gw_tool_choice { GW_TOOL_AUTO, GW_TOOL_NONE, GW_TOOL_REQUIRED, GW_TOOL_NAMED };

/* What a request says of its tools. */
struct gw_tool_use {
	const json_t *tools; /* an array, checked */
	enum gw_tool_choice choice;
	const char *name; /* GW_TOOL_NAMED */
	bool single;	  /* parallel_tool_calls: false */
	enum vocab_tools form;
	struct vocab_call_tokens tokens; /* those of the form are there */
};

/* Adds the rule `root`: calls, and for GW_TOOL_AUTO text or calls; text is the rule `content` if
 * content is true (which the caller adds), else anything. SVC_INVALID names the tool, place and
 * keyword. */
enum svc_code gw_tools_put(struct gr_writer *writer, const struct gw_tool_use *use, bool content,
			   struct svc_err *err) SVC_CHECKED;
