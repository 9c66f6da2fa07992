/* tokenizer/tok_private.h: what the tok_*.c files share. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "tokenizer/tok_split.h"
#include "tokenizer/tok_table.h"
#include "tokenizer/tokenizer.h"

#define TOK_MAX_VOCAB	    VOCAB_MAX_TOKENS
#define TOK_MAX_MERGES	    (8u << 20)
#define TOK_MAX_TOKEN_BYTES 65536u
#define TOK_MAX_ADDED_BYTES \
	1024u /* one added token; a search walks at most this far from each position */
#define TOK_MAX_TEXT_BYTES (1u << 30)
#define TOK_MAX_STEPS	   8u /* normalizers, and splitters of a pre-tokenizer */
#define TOK_MAX_AROUND	   4u /* tokens put before or after a text */

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
/* The first match at or after `at` within from..end of the text. Nothing outside of from..end
 * counts as its context. */
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

/* One of the two buffers a normalizer writes to. */
struct tok_text_buf {
	struct buf bytes;
	struct tok_run *runs;
	size_t n_runs, run_room;
	size_t in_run; /* the input's run that was copied from last */
};

/* ---- models */

enum tok_model { TOK_MODEL_BPE, TOK_MODEL_UNIGRAM };

struct tok_merge {
	uint32_t left, right;
	uint32_t rank; /* UINT32_MAX: empty */
	uint32_t result;
};

struct tok_bpe {
	struct tok_merge *table; /* hash table by (left, right) */
	uint32_t mask;
	uint32_t *slots; /* rank -> index into table */
	uint32_t n_merges;
	bool byte_level, byte_fallback, fuse_unk, ignore_merges;
};

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
	uint32_t n_vocab;
	struct tok_entry *entries;
	struct tok_map pieces; /* text -> id, of what the model can make */
	struct tok_map
		words; /* text -> id, of tokens that are the whole result for their own text */
	struct tok_bpe bpe;
	struct tok_unigram unigram;
	struct tok_added *added;
	size_t n_added;
	struct tok_map added_map; /* content -> id */
	struct tok_matcher raw, normalized;
	struct tok_normal normals[TOK_MAX_STEPS];
	size_t n_normals;
	bool metaspace; /* the pre-tokenizer begins with metaspace_step */
	struct tok_normal metaspace_step;
	struct tok_splitter splitters[TOK_MAX_STEPS];
	bool glue[256]; /* of a WORD_START splitter */
	size_t n_splitters;
	int32_t before[TOK_MAX_AROUND], after[TOK_MAX_AROUND];
	size_t n_before, n_after;
	int32_t byte_ids[256]; /* the byte's token: of a byte-level alphabet, or to fall back on;
				  -1: none */
	int32_t bos_id, eos_id, unk_id, pad_id;
	int32_t ends[VOCAB_MAX_ENDS];
	uint32_t n_ends;
	struct tok_template *templates;
	size_t n_templates, template_room;
	bool spaces; /* in tokens, TOK_SPACE stands for a space */
	enum vocab_strip strip;
	uint32_t *offsets; /* the tokens' bytes for decoding */
	char *bytes;
	uint8_t *flags;
	const char *pre; /* the pre-tokenizer's name */
};

/* ---- loading */

SVC_CHECKED enum svc_code tok_load_gguf(struct tok *tok, const struct tok_options *options,
					struct svc_err *err);
SVC_CHECKED enum svc_code tok_load_json(struct tok *tok, const char *path, struct svc_err *err);

/* A printable copy of a token for messages. */
struct tok_name {
	char text[96];
};
struct tok_name tok_name(struct span text);

/* n_vocab and entries, all holes. */
SVC_CHECKED enum svc_code tok_vocab_reserve(struct tok *tok, uint64_t n_vocab, struct svc_err *err);
/* Byte-level spelling to raw bytes: written to out (at least text.len bytes), length returned;
 * SIZE_MAX if a character isn't in the alphabet. */
size_t tok_byte_level_decode(struct span text, char *out);
/* The value of "<0x00>" to "<0xFF>", else -1. */
int tok_byte_value(struct span text);
/* Fills tok->pieces from entries that the model can make, and the byte tables. */
SVC_CHECKED enum svc_code tok_vocab_index(struct tok *tok, struct svc_err *err);
/* The last step: tables for decoding, added tokens, whole words, end tokens. */
SVC_CHECKED enum svc_code tok_finish(struct tok *tok, struct svc_err *err);
SVC_CHECKED enum svc_code tok_ends_collect(struct tok *tok, struct svc_err *err);
/* An id named by a file: within the vocabulary or an error. */
SVC_CHECKED enum svc_code tok_end_add(struct tok *tok, const char *field, int64_t id,
				      struct svc_err *err);
SVC_CHECKED enum svc_code tok_template_add(struct tok *tok, struct span name, struct span text,
					   struct svc_err *err);
/* Pre-tokenizer by its GGUF name; false: unknown. Sets splitters, normalizers and what goes with
 * them. */
bool tok_pre_by_name(struct tok *tok, struct span name);

/* Merges in the order of their rank; each {left, right}, the result is looked up. */
struct tok_merge_list {
	struct tok_merge *ptr;
	size_t len, room;
};
/* left and right as spelled in the vocabulary; where names the merge in messages. */
SVC_CHECKED enum svc_code tok_merge_add(struct tok *tok, struct tok_merge_list *list,
					struct span left, struct span right, struct svc_err *err);
/* Merges recovered from the tokens' scores, as SentencePiece's own are. */
SVC_CHECKED enum svc_code tok_merges_from_scores(struct tok *tok, struct tok_merge_list *list,
						 struct svc_err *err);
SVC_CHECKED enum svc_code tok_bpe_build(struct tok *tok, struct tok_merge_list *list,
					struct svc_err *err);
SVC_CHECKED enum svc_code tok_unigram_build(struct tok *tok, struct svc_err *err);

/* ---- encoding */

struct tok_long; /* memory for long words, tok_bpe_long.c */

/* One call of tok_encode. */
struct tok_job {
	const struct tok *tok;
	struct tok_ids ids;
	bool failed; /* no memory */
	struct tok_text_buf bufs[2];
	struct tok_text_buf metaspace;
	struct tok_long *longs;
};

void tok_job_free(struct tok_job *job);
void tok_push(struct tok_job *job, int32_t id);
void tok_bpe_encode(struct tok_job *job, struct span word);
void tok_unigram_encode(struct tok_job *job, struct span word);
const struct tok_merge *tok_merge_find(const struct tok_bpe *bpe, uint32_t left, uint32_t right);
/* The symbols of a word before any merge: their number; at most word.len are written to ids. */
size_t tok_bpe_symbols(const struct tok *tok, struct span word, uint32_t *ids);
void tok_bpe_encode_long(struct tok_job *job, struct span word);
void tok_long_free(struct tok_long *longs);
/* The text from..end of `text`, normalized. The result is borrowed from text or from the job's
 * buffers. */
bool tok_normalize(struct tok_job *job, const struct tok_text *text, size_t from, size_t end,
		   struct tok_text *ret_text);
/* One normalizer; first: the text begins the whole input. */
void tok_normal_run(const struct tok_normal *normal, const struct tok_text *in, bool first,
		    struct tok_text_buf *out);
