/* tokenizer/tok_private.h: struct tok and what it is made of. Loading is in tok_load.h, encoding in
 * tok_job.h. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "tokenizer/tok_bpe.h"
#include "tokenizer/tok_split.h"
#include "tokenizer/tok_table.h"
#include "tokenizer/tokenizer.h"

#define TOK_MAX_STEPS  8u /* normalizers, and splitters of a pre-tokenizer */
#define TOK_MAX_AROUND 4u /* tokens put before or after a text */

#define TOK_SPACE "\xE2\x96\x81" /* U+2581, how SentencePiece writes a space */

/* ---- text whose parts are trusted or not */

struct tok_run {
	size_t end;
	bool trusted;
};

struct tok_text {
	const char *ptr;
	size_t len;
	const struct tok_run *runs; /* cover 0..len */
	size_t n_runs;
};

bool tok_text_trusted(const struct tok_text *text, size_t from, size_t end);

/* ---- added tokens */

struct tok_added {
	struct span pattern; /* what is searched for; not empty */
	int32_t id;
	bool single_word, lstrip, rstrip;
	bool normalized; /* searched for in normalized text */
	bool control;
};

struct tok_matcher {
	struct tok_trie trie; /* values: index into added */
	const struct tok_added *added;
	bool starts[256];
	bool any;
};

struct tok_match {
	size_t begin, end;
	int32_t id;
};

SVC_CHECKED enum svc_code tok_matcher_build(struct tok *tok, bool normalized,
					    struct tok_matcher *matcher, struct svc_err *err);
/* The first match at or after `at` within begin..end of *range, which is then set to where it is.
 * Nothing outside of the range counts as its context. false: there is none. */
bool tok_matcher_next(const struct tok_matcher *matcher, const struct tok_text *text,
		      struct tok_match *range, size_t at);

/* ---- normalizers */

enum tok_normal_kind {
	TOK_NORMAL_NFC,
	TOK_NORMAL_PREPEND,
	TOK_NORMAL_REPLACE,
	TOK_NORMAL_METASPACE
};
enum tok_prepend { TOK_PREPEND_NEVER, TOK_PREPEND_FIRST, TOK_PREPEND_ALWAYS };

struct tok_normal {
	enum tok_normal_kind kind;
	struct span pattern;	  /* REPLACE */
	struct span content;	  /* PREPEND, REPLACE */
	enum tok_prepend prepend; /* METASPACE */
};

/* ---- the whole */

enum tok_model { TOK_MODEL_BPE, TOK_MODEL_UNIGRAM };

struct tok_unigram {
	struct tok_trie trie; /* values: ids */
	double unk_score;     /* of an unknown character */
	bool byte_fallback;
};

struct tok_template {
	const char *name; /* NULL: the default one */
	struct span text;
};

struct tok {
	struct arena arena; /* whatever lives as long as the tok */
	enum tok_model model;
	struct tok_bpe bpe;
	struct tok_unigram unigram;
	uint32_t n_vocab;
	struct tok_entry *entries;
	struct tok_map pieces;	   /* text -> id, of what the model can make */
	_Atomic uint8_t *verdicts; /* BPE, by id: is it all that its text becomes? */
	int32_t byte_ids[256]; /* the byte's token: of a byte-level alphabet, or to fall back on */
	struct tok_added *added;
	size_t n_added;
	struct tok_map added_map; /* content -> id */
	struct tok_matcher raw, normalized;
	struct tok_normal normals[TOK_MAX_STEPS];
	size_t n_normals;
	bool metaspace; /* the pre-tokenizer begins with metaspace_step */
	struct tok_normal metaspace_step;
	struct tok_splitter splitters[TOK_MAX_STEPS];
	size_t n_splitters;
	bool glue[256]; /* of a WORD_START splitter */
	int32_t before[TOK_MAX_AROUND], after[TOK_MAX_AROUND];
	size_t n_before, n_after;
	int32_t bos_id, eos_id, unk_id, pad_id;
	int32_t model_unk_id; /* what the model makes of a character it doesn't know; -1: nothing */
	int32_t ends[VOCAB_MAX_ENDS];
	uint32_t n_ends;
	struct tok_template *templates;
	size_t n_templates, template_room;
	bool spaces; /* in tokens, TOK_SPACE stands for a space */
	enum vocab_strip strip;
	uint32_t *offsets; /* the tokens' bytes for decoding */
	char *bytes;
	uint8_t *flags;
};
