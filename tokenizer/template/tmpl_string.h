/* tokenizer/template/tmpl_string.h: strings that know which of their characters are trusted, and
 * the builder that every string operation goes through. Internal to tmpl_*.c.
 *
 * Trust is kept as runs of bytes. Nearly all strings have one run, which costs a flag; an
 * operation is written as a sequence of slices of its operands, and so carries trust along
 * without knowing of it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

struct tmpl_eval;

struct tmpl_run {
	size_t end; /* byte offset after the run */
	bool trusted;
};

/* Immutable UTF-8. The bytes may be another string's, the request's or the template's. */
struct tmpl_str {
	const char *ptr;
	size_t len;		     /* bytes */
	size_t chars;		     /* code points */
	const struct tmpl_run *runs; /* NULL: all as trusted says */
	uint32_t run_count;
	bool trusted;
	bool markup; /* Jinja's Markup: what is joined to it gets escaped */
};

/* NULL after a failure. The bytes are borrowed and must be UTF-8. */
const struct tmpl_str *tmpl_str_new(struct tmpl_eval *e, struct span bytes, bool trusted);
/* Bytes from..to of s, at character boundaries; shares its memory and is markup if s is. */
const struct tmpl_str *tmpl_str_slice(struct tmpl_eval *e, const struct tmpl_str *s, size_t from,
				      size_t to);
const struct tmpl_str *tmpl_str_join2(struct tmpl_eval *e, const struct tmpl_str *a,
				      const struct tmpl_str *b);
const struct tmpl_str *tmpl_str_mark(struct tmpl_eval *e, const struct tmpl_str *s, bool markup);
/* A trusted string that lives as long as text, for names and literals known here. */
const struct tmpl_str *tmpl_str_static(struct tmpl_eval *e, const char *text);

static inline struct span tmpl_span(const struct tmpl_str *s)
{
	return (struct span){s->ptr, s->len};
}
/* Whether the byte at offset is trusted. */
bool tmpl_trusted_at(const struct tmpl_str *s, size_t offset);
/* Whether all of it is. */
bool tmpl_trusted(const struct tmpl_str *s);
/* Byte offset of the index-th code point, index <= chars. */
size_t tmpl_offset(const struct tmpl_str *s, size_t index);
size_t tmpl_count_chars(struct span bytes);
/* Decodes one code point of well-formed UTF-8 and returns its length in bytes. */
size_t tmpl_decode(const char *ptr, uint32_t *ret_code);
/* ret_bytes: at least 4. Returns the length. */
size_t tmpl_encode(uint32_t code, char *ret_bytes);

#define TMPL_FIRST_RUNS 4

/* Collects a string. A failure is kept in the rendering's state: check once, at the end. */
struct tmpl_builder {
	struct tmpl_eval *e;
	char *ptr;
	size_t len, room;
	struct tmpl_run *runs;
	uint32_t run_count, run_room;
	bool failed;
	struct tmpl_run first_runs[TMPL_FIRST_RUNS];
};

/* expected: bytes, a hint. */
void tmpl_build(struct tmpl_builder *b, struct tmpl_eval *e, size_t expected);
void tmpl_add_bytes(struct tmpl_builder *b, const char *ptr, size_t len, bool trusted);
void tmpl_add_text(struct tmpl_builder *b, const char *text, bool trusted);
void tmpl_add_repeat(struct tmpl_builder *b, char byte, size_t count, bool trusted);
void tmpl_add(struct tmpl_builder *b, const struct tmpl_str *s);
/* Bytes from..to of s. */
void tmpl_add_slice(struct tmpl_builder *b, const struct tmpl_str *s, size_t from, size_t to);
/* NULL after a failure. The builder is spent. */
const struct tmpl_str *tmpl_built(struct tmpl_builder *b);
