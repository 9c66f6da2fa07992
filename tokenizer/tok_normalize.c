/* Normalizers. Each reads a text and writes another, and carries over which parts of it are
 * trusted: what is made out of several characters is trusted if all of them are. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/tok_job.h"
#include "tokenizer/unicode/unicode.h"

#define MOST_GROWTH 16u /* "▁" for a space is three, NFC of one character at most three */

void tok_text_buf_free(struct tok_text_buf *buf)
{
	buf_free(&buf->bytes);
	free(buf->runs);
	*buf = (struct tok_text_buf){0};
}

/* The bytes written since the last call are trusted or not. */
static void note_trust(struct tok_text_buf *out, bool trusted)
{
	struct tok_run *last = out->runs && out->n_runs ? &out->runs[out->n_runs - 1] : NULL;
	if (last && last->trusted == trusted) {
		last->end = out->bytes.len;
		return;
	}
	if (!out->runs || out->n_runs == out->run_room) {
		size_t room = out->run_room ? 2 * out->run_room : 8;
		struct tok_run *runs = realloc(out->runs, room * sizeof *runs);
		if (!runs) {
			out->bytes.failed = true;
			return;
		}
		out->runs = runs;
		out->run_room = room;
	}
	out->runs[out->n_runs++] = (struct tok_run){out->bytes.len, trusted};
}

/* Moves to the run that holds in[at]; texts are read from front to back. */
static const struct tok_run *run_at(struct tok_text_buf *out, const struct tok_text *in, size_t at)
{
	while (out->in_run + 1 < in->n_runs && in->runs[out->in_run].end <= at)
		out->in_run++;
	return &in->runs[out->in_run];
}

static void copy(struct tok_text_buf *out, const struct tok_text *in, size_t from, size_t end)
{
	while (from < end) {
		const struct tok_run *run = run_at(out, in, from);
		size_t stop = run->end < end ? run->end : end;
		buf_append(&out->bytes, in->ptr + from, stop - from);
		note_trust(out, run->trusted);
		from = stop;
	}
}

/* Whether all of in[from..end) is trusted. */
static bool trusted(struct tok_text_buf *out, const struct tok_text *in, size_t from, size_t end)
{
	const struct tok_run *run = run_at(out, in, from);
	while (run->trusted && run->end < end)
		run = run_at(out, in, run->end);
	return run->trusted;
}

static void run_nfc(const struct tok_text *in, struct tok_text_buf *out)
{
	for (size_t at = 0; at < in->len;) {
		size_t same = unicode_nfc_prefix(in->ptr, in->len, at);
		copy(out, in, at, same);
		if (same == in->len)
			break;
		at = unicode_nfc_segment(in->ptr, in->len, same, &out->bytes);
		note_trust(out, trusted(out, in, same, at));
	}
}

static void run_replace(struct span pattern, struct span content, const struct tok_text *in,
			struct tok_text_buf *out)
{
	for (size_t at = 0; at < in->len;) {
		const char *found = memmem(in->ptr + at, in->len - at, pattern.ptr, pattern.len);
		size_t same = found ? (size_t)(found - in->ptr) : in->len;
		copy(out, in, at, same);
		if (!found)
			break;
		at = same + pattern.len;
		buf_span(&out->bytes, content);
		note_trust(out, trusted(out, in, same, at));
	}
}

static void prepend(struct span content, const struct tok_text *in, struct tok_text_buf *out)
{
	buf_span(&out->bytes, content);
	note_trust(out, in->runs[0].trusted);
}

void tok_normal_run(const struct tok_normal *normal, const struct tok_text *in, bool first,
		    struct tok_text_buf *out)
{
	const struct span space = span_of(TOK_SPACE);
	buf_clear(&out->bytes);
	out->n_runs = out->in_run = 0;
	if (in->len == 0 || !in->runs) /* an empty text may have none */
		return;
	switch (normal->kind) {
	case TOK_NORMAL_NFC:
		run_nfc(in, out);
		break;
	case TOK_NORMAL_PREPEND:
		prepend(normal->content, in, out);
		copy(out, in, 0, in->len);
		break;
	case TOK_NORMAL_REPLACE:
		run_replace(normal->pattern, normal->content, in, out);
		break;
	case TOK_NORMAL_METASPACE:
		if (normal->prepend != TOK_PREPEND_NEVER &&
		    (first || normal->prepend == TOK_PREPEND_ALWAYS) && in->ptr[0] != ' ' &&
		    (in->len < space.len || memcmp(in->ptr, space.ptr, space.len) != 0))
			prepend(space, in, out);
		run_replace(span_of(" "), space, in, out);
		break;
	}
}

/* A copy of from..end as a text of its own; its runs begin with the first byte. */
static void slice(const struct tok_text *text, size_t from, size_t end, struct tok_text_buf *out)
{
	buf_clear(&out->bytes);
	out->n_runs = out->in_run = 0;
	copy(out, text, from, end);
}

static struct tok_text text_of(const struct tok_text_buf *buf)
{
	return (struct tok_text){buf->bytes.ptr, buf->bytes.len, buf->runs, buf->n_runs};
}

bool tok_normalize(struct tok_job *job, const struct tok_text *text, size_t from, size_t end,
		   struct tok_text *ret_text)
{
	const struct tok *tok = job->tok;
	struct tok_text_buf *target = &job->normal[0], *source = &job->normal[1], *other;
	/* A forged file's replacements must not blow a text up without end. */
	source->bytes.limit = target->bytes.limit = MOST_GROWTH * (end - from) + 4096;
	slice(text, from, end, source);
	for (size_t i = 0; i < tok->n_normals && source->bytes.len; i++) {
		struct tok_text in = text_of(source);
		tok_normal_run(&tok->normals[i], &in, from == 0, target);
		other = source;
		source = target;
		target = other;
	}
	*ret_text = text_of(source);
	return !source->bytes.failed && !target->bytes.failed;
}
