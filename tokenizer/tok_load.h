/* tokenizer/tok_load.h: how a struct tok comes about: a loader fills entries, added tokens, the
 * pipeline, the merges; tok_finish makes the rest out of them. */
#pragma once
#include "tokenizer/tok_private.h"

#define TOK_MAX_VOCAB	    VOCAB_MAX_TOKENS
#define TOK_MAX_MERGES	    (8u << 20)
#define TOK_MAX_TOKEN_BYTES 65536u
#define TOK_MAX_ADDED_BYTES 1024u /* a search walks at most this far from each position */

SVC_CHECKED enum svc_code tok_load_gguf(struct tok *tok, const struct tok_options *options,
					struct svc_err *err);
SVC_CHECKED enum svc_code tok_load_json(struct tok *tok, const char *path, struct svc_err *err);
/* The last step: added tokens, end tokens, tables for decoding. */
SVC_CHECKED enum svc_code tok_finish(struct tok *tok, struct svc_err *err);

/* A printable copy of a token for messages. */
struct tok_name {
	char text[96];
};
struct tok_name tok_name(struct span text);

/* ---- vocabulary */

/* n_vocab and entries, all of them holes. */
SVC_CHECKED enum svc_code tok_vocab_reserve(struct tok *tok, uint64_t n_vocab, struct svc_err *err);
/* Byte-level spelling to raw bytes: written to out (at least text.len bytes), length returned;
 * SIZE_MAX if a character isn't in the alphabet. */
size_t tok_byte_level_decode(struct span text, char *out);
/* The value of "<0x00>" to "<0xFF>", else -1. */
int tok_byte_value(struct span text);
/* Fills tok->pieces from the entries that the model can make, and tok->byte_ids. */
SVC_CHECKED enum svc_code tok_vocab_index(struct tok *tok, struct svc_err *err);

SVC_CHECKED enum svc_code tok_ends_collect(struct tok *tok, struct svc_err *err);
/* An end token named by a file; outside of the vocabulary it is an error that names field. */
SVC_CHECKED enum svc_code tok_end_add(struct tok *tok, const char *field, int64_t id,
				      struct svc_err *err);
/* name "" or "default": the default one. Of two with one name, the later counts. */
SVC_CHECKED enum svc_code tok_template_add(struct tok *tok, struct span name, struct span text,
					   struct svc_err *err);
/* Pre-tokenizer by its GGUF name; false: unknown. Sets splitters, normalizers and what goes with
 * them. */
bool tok_pre_by_name(struct tok *tok, struct span name);

/* ---- models */

struct tok_merge_list {
	struct tok_merge *ptr; /* in the order of their rank */
	size_t len, room;
};
/* left and right as in tok->pieces, not empty; what they make together must be there too. */
SVC_CHECKED enum svc_code tok_merge_add(struct tok *tok, struct tok_merge_list *list,
					struct span left, struct span right, struct svc_err *err);
/* Merges recovered from the tokens' scores. */
SVC_CHECKED enum svc_code tok_merges_from_scores(struct tok *tok, struct tok_merge_list *list,
						 struct svc_err *err);
SVC_CHECKED enum svc_code tok_bpe_build(struct tok *tok, const struct tok_merge_list *list,
					struct svc_err *err);
SVC_CHECKED enum svc_code tok_unigram_build(struct tok *tok, struct svc_err *err);
