/* shm/vocab.h: the vocabulary as bytes in a mapping: what turns a token into text and tells the end
 * tokens. The tokenizer writes it once (vocab_size, vocab_write) before it is published; everyone
 * else reads it through a const mapping. It can lie at any 8-byte aligned address, for example
 * behind a segment's header. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"

#define VOCAB_MAGIC	 0x42434f564b434f4cull /* "LOCKVOCB" */
#define VOCAB_VERSION	 1u
#define VOCAB_MAX_TOKENS (4u << 20)
#define VOCAB_MAX_ENDS	 64u
#define VOCAB_MAX_BYTES	 (1u << 30)

enum vocab_flag {
	VOCAB_CONTROL = 1, /* steers the model: not text, never made from a user's text */
	VOCAB_ADDED = 2,   /* matched as a whole before all else; without VOCAB_CONTROL also in a
			      user's text */
	VOCAB_BYTE = 4,	   /* one raw byte, which need not be a character */
	VOCAB_UNKNOWN = 8, /* stands for text without a token */
	VOCAB_UNUSED = 16, /* a hole: no bytes */
	VOCAB_END = 32,	   /* ends an answer */
};

/* What a decoder does with the space that SentencePiece puts before a text. */
enum vocab_strip {
	VOCAB_STRIP_NONE = 0,
	VOCAB_STRIP_FIRST = 1, /* one leading space of the text made from the first token */
};

/* How the model's chat template shows tools and expects calls of them. */
enum vocab_tools {
	VOCAB_TOOLS_NONE = 0, /* it knows no tools */
	VOCAB_TOOLS_HERMES,   /* <tool_call>{"name", "arguments"}</tool_call> */
	VOCAB_TOOLS_LLAMA3,   /* {"name", "parameters"} */
	VOCAB_TOOLS_MISTRAL,  /* [{"name", "arguments"}, ...]: without the control tokens below */
	VOCAB_TOOLS_OTHER,    /* some other way */
	VOCAB_TOOLS_MISTRAL_LIST,   /* [TOOL_CALLS][{"name", "arguments"}, ...] */
	VOCAB_TOOLS_MISTRAL_SPACED, /* [TOOL_CALLS] [{"name", "arguments"}, ...] */
	VOCAB_TOOLS_MISTRAL_ARGS,   /* [TOOL_CALLS]name[ARGS]arguments ... */
	VOCAB_TOOLS_MISTRAL_IDS,    /* [TOOL_CALLS]name[CALL_ID]id[ARGS]arguments ... */
	VOCAB_TOOLS_COUNT
};

struct vocab_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	uint64_t total_bytes;
	uint64_t model_hash; /* of whatever the builder says; 0: none */
	uint32_t n_tokens, n_ends;
	int32_t bos_id, eos_id; /* -1: none */
	int32_t unk_id, pad_id;
	uint32_t strip; /* enum vocab_strip */
	uint32_t max_token_bytes;
	uint64_t offsets_at; /* uint32_t[n_tokens + 1], into bytes */
	uint64_t ends_at;    /* int32_t[n_ends], ascending */
	uint64_t flags_at;   /* uint8_t[n_tokens], enum vocab_flag */
	uint64_t bytes_at, bytes_len;
	uint32_t tools;	 /* enum vocab_tools */
	uint32_t thinks; /* 1: answers may begin with <think> */
	uint8_t reserved[16];
};
_Static_assert(sizeof(struct vocab_header) == 128, "two lines");

/* What the builder puts in. */
struct vocab_parts {
	uint64_t model_hash;
	uint32_t n_tokens, n_ends;
	int32_t bos_id, eos_id, unk_id, pad_id;
	enum vocab_strip strip;
	enum vocab_tools tools;
	bool thinks;
	const uint32_t *offsets; /* n_tokens + 1, from 0, ascending */
	const char *bytes;
	const uint8_t *flags;
	const int32_t *ends; /* ascending */
};

/* What a chat template's text shows of its ways with tools and reasoning. */
enum vocab_tools vocab_tools_of(struct span template_text);
bool vocab_thinks_of(struct span template_text);

/* Bytes that vocab_write needs; 0 if parts break a limit above. */
size_t vocab_size(const struct vocab_parts *parts);
/* target: at least vocab_size(parts) bytes, 8-byte aligned. */
void vocab_write(const struct vocab_parts *parts, void *target);

/* A checked view. Lives as long as the mapping. */
struct vocab {
	uint32_t n_tokens, n_ends;
	int32_t bos_id, eos_id, unk_id, pad_id;
	enum vocab_strip strip;
	enum vocab_tools tools;
	bool thinks;
	uint32_t max_token_bytes;
	uint64_t model_hash;
	const uint32_t *offsets;
	const int32_t *ends;
	const uint8_t *flags;
	const char *bytes;
	uint32_t bytes_len;
};

/* Checks magic, version, sizes and every offset against `size`. SVC_CORRUPT names what is wrong. */
SVC_CHECKED enum svc_code vocab_open(const void *mapping, size_t size, struct vocab *ret_vocab,
				     struct svc_err *err);

/* The bytes of a token; empty for ids out of range and for holes. Never reads outside of the
 * mapping, even if that changes under us. */
struct span vocab_token(const struct vocab *vocab, int32_t id);
/* enum vocab_flag; 0 for ids out of range. */
unsigned vocab_token_flags(const struct vocab *vocab, int32_t id);
bool vocab_is_end(const struct vocab *vocab, int32_t id);

/* The control tokens that Mistral's calls are made of; -1: the vocabulary has none of that name. */
struct vocab_call_tokens {
	int32_t calls, args, call_id;
};
struct vocab_call_tokens vocab_call_tokens_of(const struct vocab *vocab);
/* The form itself if its control tokens are there, else VOCAB_TOOLS_MISTRAL. */
enum vocab_tools vocab_tools_with(enum vocab_tools tools, const struct vocab_call_tokens *tokens);
