/* tokenizer/template/tmpl.h: chat templates (a subset of Jinja2): JSON messages to the prompt's
 * text.
 *
 * A template is untrusted: a request may bring one. It computes within bounded steps, memory,
 * output and depth, reads nothing but its input and writes nothing but its output.
 *
 * Every character of the output knows where it came from. Characters of the template's own
 * literals (and of bos_token and its like) are trusted, characters of the request are not. A
 * tokenizer recognises a control token only where all of its characters are trusted, so that a
 * user's "<|im_end|>" stays text. See docs/templates.md. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

/* A compiled template: immutable; tmpl_render may be called on it from several threads. */
struct tmpl;

/* 0 in a field: its default. */
struct tmpl_limits {
	uint64_t steps;	     /* evaluated nodes, and one per 64 bytes moved; default 5,000,000 */
	size_t memory_bytes; /* of all values of one rendering; default 256 MiB */
	size_t output_bytes; /* of any one string, the output too; default 64 MiB */
	unsigned depth; /* nested expressions, blocks, calls and values; default and most 600 */
};

struct tmpl_input {
	const json_t *messages;		 /* array of objects; NULL: none */
	const json_t *tools, *documents; /* NULL: none */
	const json_t *kwargs; /* object of further variables, untrusted; not `messages` */
	bool add_generation_prompt;
	/* Content that is a list of text parts becomes one string, parts joined by a line feed:
	 * for a template that knows only strings (see tmpl_takes_parts). */
	bool join_parts;
	/* tool_calls' arguments that are a string of a JSON object become that object, as templates
	 * written for transformers expect and the API doesn't send. */
	bool parse_arguments;
	struct span bos_token, eos_token, pad_token, unk_token; /* ptr NULL: undefined */
	int64_t now_s; /* what strftime_now prints, in UTC */
	struct tmpl_limits limits;
};

/* Bytes of the text. Pieces follow one another without a gap and alternate in trust. */
struct tmpl_piece {
	size_t offset, length;
	bool trusted;
};

struct tmpl_output {
	char *text; /* UTF-8, terminated */
	size_t len;
	struct tmpl_piece *pieces;
	size_t piece_count;
};

/* SVC_INVALID: a syntax error, with its line. SVC_UNSUPPORTED: a construct, filter or test that
 * isn't implemented, by name and line. SVC_TOO_LARGE: over 1 MiB. The source is copied. */
SVC_CHECKED enum svc_code tmpl_compile(struct span source, struct tmpl **ret_tmpl,
				       struct svc_err *err);

/* NULL is fine. Returns NULL. */
struct tmpl *tmpl_free(struct tmpl *tmpl);

/* SVC_INVALID: the template refused the conversation (raise_exception: its message and nothing
 * else) or met a value it can't use. SVC_UNSUPPORTED: a method or format that isn't implemented.
 * SVC_TOO_LARGE: a limit was hit, by name. The caller frees ret_output. */
SVC_CHECKED enum svc_code tmpl_render(const struct tmpl *tmpl, const struct tmpl_input *input,
				      struct tmpl_output *ret_output, struct svc_err *err);

/* Frees what it holds; a zeroed one is fine. */
void tmpl_output_free(struct tmpl_output *output);

/* Whether the template names this variable, attribute or key anywhere: "tools", "thinking". */
bool tmpl_mentions(const struct tmpl *tmpl, const char *name);

/* Whether the template reads content as a list of parts: it looks at some part's "text". */
bool tmpl_takes_parts(const struct tmpl *tmpl);
