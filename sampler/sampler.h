/* sampler/sampler.h: logits to token, token to text. Pure: no input or output, no clock, no random
 * state, no allocation after the opening calls. What a sequence draws and the text it releases are
 * functions of its parameters and of the tokens so far, so that any sampler can go on where another
 * one died. Knows nothing of slots or messages. Order of the chain, formulas, ranges, costs:
 * docs/sampling.md. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/span.h"
#include "draw/work.h"
#include "sampler/params.h"
#include "shm/layout.h"

/* ---- vocabulary
 * ------------------------------------------------------------------------------------------ */

enum smp_token_flag {
	SMP_TOKEN_CONTROL = 1u << 0, /* no text unless the request keeps special tokens */
};

/* Borrowed, read-only, may be damaged: what it says of a token is checked when the token is used.
 */
struct smp_vocab {
	uint32_t n_tokens;
	uint32_t n_bytes;
	const uint32_t *offsets; /* [n_tokens + 1] into bytes */
	const char *bytes;	 /* a token's text; of a byte token, the byte */
	const uint8_t *flags;	 /* [n_tokens] enum smp_token_flag */
	const int32_t *ends;	 /* [n_ends] tokens that end an answer: the union of all sources */
	uint32_t n_ends;
	uint32_t max_piece_bytes; /* of the longest token */
};

/* ---- log-probabilities
 * ------------------------------------------------------------------------------------------ */

/* The probability of a token, and the n_top most likely ones, ties by lower id, in the distribution
 * that the model gave: log softmax of the logits as they are, whatever temperature, penalties and
 * filters say. float32, not below -9999 (JSON has no infinity). ret_logprob has room for n_top
 * entries. SVC_NUMERIC as smp_draw. */
enum svc_code smp_score(struct draw_work *work, const float *logits, int32_t token, uint32_t n_top,
			struct body_logprob *ret_logprob, struct svc_err *err) SVC_CHECKED;

/* ---- grammars (sampler/guides.h)
 * --------------------------------------------------------------------------------- */

struct smp_guides;

/* ---- one sequence
 * ------------------------------------------------------------------------------------------- */

struct smp_seq;

struct smp_seq_spec {
	const struct smp_vocab *vocab; /* must outlive the sequence */
	struct smp_request request;
	const int32_t *prompt;
	uint32_t n_prompt;
	uint32_t n_ctx;	  /* prompt and answer together; bounds max_tokens */
	uint32_t n_vocab; /* logits of a row: models have more than tokens, the others are without
			     text. 0: as many */
	struct smp_guides *guides; /* must outlive the sequence; NULL if there is no grammar */
	struct span grammar;	   /* the answer's, in its text form; copied. Empty: none */
	bool strip_space; /* the answer's text stands alone: the space before its first word, which
			   * SentencePiece puts there, is left out (for a vocabulary with
			   * VOCAB_STRIP_FIRST) */
};

/* Copies and checks the request (smp_params_read) and counts the prompt. SVC_TOO_LONG: no room for
 * one more token. */
enum svc_code smp_seq_open(const struct smp_seq_spec *spec, struct smp_seq **ret_seq,
			   struct svc_err *err) SVC_CHECKED;
/* NULL is fine. Returns NULL. */
struct smp_seq *smp_seq_free(struct smp_seq *seq);

/* The next token for logits[n_vocab], which stay as they are and must not change meanwhile.
 * allowed: a grammar's mask, bit id % 32 of word id / 32 set for each token that may come; NULL:
 * all. Changes nothing: drawing twice gives the same. SVC_NUMERIC: a NaN or +Inf among the logits,
 * or no token that may come. */
enum svc_code smp_draw(const struct smp_seq *seq, struct draw_work *work, const float *logits,
		       const uint32_t *allowed, int32_t *ret_token,
		       struct svc_err *err) SVC_CHECKED;

/* What the sequence's grammar allows now, as smp_draw takes it; NULL: there is no grammar. Valid
 * until the next push. The work is done once per token, so it can be done early. */
enum svc_code smp_seq_mask(struct smp_seq *seq, const uint32_t **ret_allowed,
			   struct svc_err *err) SVC_CHECKED;

struct smp_event {
	struct span text; /* released by this token, whole UTF-8 characters, often empty; until the
			     next push. SMP_TEXT_MARK (text.h) for a control token that the grammar
			     asked for */
	enum body_finish finish; /* FINISH_NONE, FINISH_STOP or FINISH_LENGTH */
	int32_t stop_id;	 /* the end or stop token that ended the answer, else -1 */
	int32_t stop_index;	 /* the stop string that ended it, else -1 */
};

/* Takes the next token of the answer. An answer that its grammar lets go on no more ends with it.
 * SVC_CORRUPT: an id outside of the vocabulary, a damaged vocabulary, a token that the grammar
 * forbids, or one after the end; the sequence is then as before. */
enum svc_code smp_push(struct smp_seq *seq, int32_t token, struct smp_event *ret_event,
		       struct svc_err *err) SVC_CHECKED;

/* Pushes the tokens that another sampler drew, without their events: the sequence is then what that
 * sampler's was. */
enum svc_code smp_seq_replay(struct smp_seq *seq, const int32_t *tokens, size_t n,
			     struct svc_err *err) SVC_CHECKED;

uint32_t
smp_seq_made(const struct smp_seq *seq); /* tokens of the answer, the ending one included */
enum body_finish smp_seq_finish(const struct smp_seq *seq);
/* The checked copy of the request's parameters. */
const struct smp_params *smp_seq_params(const struct smp_seq *seq);
