/* tokenizer/tokenizer.h: text to token ids and back. Knows nothing of tensors, messages or HTTP. A
 * struct tok is immutable after tok_open, but for what it remembers of words, which is atomic;
 * every function may be called from several threads. The ids are those of Hugging Face `tokenizers`
 * (docs/tokenizer.md says what is supported and how that is shown). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"
#include "shm/vocab.h"

struct tok;

struct tok_options {
	const char *path; /* a GGUF file, a tokenizer.json, or a folder that holds one, or
			     metadata.gguf */
	const char *pre;  /* pre-tokenizer by its GGUF name instead of what a GGUF file says; NULL:
			     the file's */
};

/* Loads vocabulary, merges, special tokens and chat templates of a GGUF file (one without tensors
 * will do), or of tokenizer.json with, where they lie beside it, tokenizer_config.json,
 * generation_config.json, chat_template.jinja and chat_template.json. Refuses, naming field and
 * limit: unknown model, normalizer, pre-tokenizer and decoder types, ids out of range, duplicate
 * tokens, merges of tokens that don't exist. SVC_UNSUPPORTED, SVC_BAD_MODEL, SVC_IO, SVC_NO_MEMORY.
 */
SVC_CHECKED enum svc_code tok_open(const struct tok_options *options, struct tok **ret_tok,
				   struct svc_err *err);
/* NULL is fine. Returns NULL, so that: tok = tok_free(tok); */
struct tok *tok_free(struct tok *tok);

/* ---- text to ids */

struct tok_ids {
	int32_t *ptr;
	size_t len, room;
};
void tok_ids_free(struct tok_ids *ids);

/* A run of text of one origin. Control tokens are recognised only where all their bytes are
 * trusted; in untrusted text they stay text. Everything else (pre-tokenization, merges, added
 * tokens that aren't control tokens) runs across the joints, so that the ids are those of the whole
 * text whenever no untrusted piece contains a control token. */
struct tok_piece {
	struct span text; /* UTF-8; bytes that aren't are characters of their own and come back as
			     they are */
	bool trusted;
};

enum tok_add {
	TOK_ADD_NONE,	 /* only the text */
	TOK_ADD_ALWAYS,	 /* what this tokenizer puts around a text: BOS, EOS, both or nothing */
	TOK_ADD_MISSING, /* the same, but no second BOS before (no second EOS after) one that the
			    text brings */
};

struct tok_encode_options {
	enum tok_add add;
	size_t limit; /* on the number of ids; 0: none */
};

/* Appends the ids of the pieces, taken together, to ret_ids. options NULL: TOK_ADD_NONE, no limit.
 * Linear in the length of the text (n log n inside of a word). SVC_TOO_LONG (naming both numbers)
 * if more than options->limit ids, SVC_TOO_LARGE above 64 MiB, SVC_NO_MEMORY; ret_ids is then
 * unchanged. */
SVC_CHECKED enum svc_code tok_encode(const struct tok *tok, const struct tok_piece *pieces,
				     size_t n_pieces, const struct tok_encode_options *options,
				     struct tok_ids *ret_ids, struct svc_err *err);

/* ---- ids to text: the text is the concatenation of the tokens' bytes */

uint32_t tok_vocab_count(const struct tok *tok);
/* The exact bytes of a token: "▁" is a space, a byte token is its byte, holes and ids out of range
 * are empty. Borrowed from tok. A token may end inside of a character. */
struct span tok_token_bytes(const struct tok *tok, int32_t id);
/* enum vocab_flag; 0 for ids out of range. */
unsigned tok_token_flags(const struct tok *tok, int32_t id);
/* What a decoder drops from the front of a text that begins with `first`, the first token's bytes:
 * the space that was put before the text when it was encoded. 0 or 1. */
size_t tok_strip_bytes(const struct tok *tok, struct span first);

/* ---- what is known of the vocabulary */

/* -1: there is none. */
int32_t tok_bos_id(const struct tok *tok);
int32_t tok_eos_id(const struct tok *tok);
int32_t tok_unk_id(const struct tok *tok);
int32_t tok_pad_id(const struct tok *tok);
/* -1: no such token. text as in the vocabulary; added tokens come first. */
int32_t tok_find(const struct tok *tok, struct span text);
/* Whether TOK_ADD_ALWAYS puts BOS before (EOS after) a text. */
bool tok_adds_bos(const struct tok *tok);
bool tok_adds_eos(const struct tok *tok);
/* The tokens that end an answer, ascending: EOS, end of turn, end of message, the generation
 * config's, and the well-known end-of-turn tokens of the families. */
const int32_t *tok_end_ids(const struct tok *tok, size_t *ret_count);

/* The chat template called name, or the default one for NULL; false if there is none. */
bool tok_chat_template(const struct tok *tok, const char *name, struct span *ret_text);
/* "BPE", "byte-level BPE" or "unigram". */
const char *tok_model_name(const struct tok *tok);

/* For vocab_size and vocab_write; borrowed from tok. */
struct vocab_parts tok_vocab_parts(const struct tok *tok);

/* ---- the command line: `lockstep tokenize …` and `lockstep detokenize …`; argv[0] is the word.
 * Returns the exit status. */
int tok_command_main(int argc, char **argv);
