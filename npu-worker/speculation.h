/* npu-worker/speculation.h: drafts, part of the worker process (worker_private.h). One thread.
 *
 *   drafts.c   a pass' drafts: how many, verified with what pass, drawn when
 *   drafter.c  those that a model makes: another file, or the model's own first layers */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "npu-worker/worth.h"

struct worker;
struct sequence;
struct ahead;
struct drafter;
struct engine_seq;

#define WORKER_MAX_DRAFTS 15u

/* Who says which token comes next: the logits before it, the text where it repeats itself, or a
 * model that drafts. */
enum guess_source { FROM_LOGITS, FROM_TEXT, FROM_MODEL };

/* Drafts of a sequence: tokens for the positions n_kv, n_kv + 1, ... of the page that n_kv lies in.
 */
struct chain {
	uint32_t slot;
	uint64_t generation;
	uint32_t n_kv;		  /* the position that tokens[first] is for */
	uint32_t first, n;	  /* tokens[first .. n) are left; n == 0: none, the chain is free */
	bool computed;		  /* else only planned */
	enum guess_source source; /* FROM_MODEL: tokens aren't known before drafter_run */
	int32_t tokens[WORKER_MAX_DRAFTS];
	float *logits; /* [1 + drafts][n_vocab]: row i + 1 is what stands behind tokens[i] */
};

/* How often a request's guesses were right, of late. */
struct hit {
	uint64_t generation;
	float likeliest;   /* of the likeliest tokens */
	float drawn;	   /* of draws made beforehand (guess.c) */
	float text, model; /* of drafts, if those before them were right */
	/* What the text said when it was last asked: behind `guess`, `expected` at that index; 0:
	 * nothing. So drafts that aren't made teach, too. */
	int32_t guess, expected;
	uint32_t expected_at;
	/* The model isn't asked for so many tokens; and for how many after its next failure. */
	uint32_t rest, next_rest;
};

static inline void hit_learn(float *rate, bool right)
{
	*rate += ((right ? 1 : 0) - *rate) / 8;
}

/* ---- drafts.c */

/* By --speculate, when it is known whether there is an NPU; with a drafter, if one is wanted. */
SVC_CHECKED enum svc_code drafts_open(struct worker *worker, uint32_t threads, struct svc_err *err);
void drafts_close(struct worker *worker);
/* The sequence is about to be passed on, and ahead->guess will be computed: what may follow it? */
void drafts_plan(struct worker *worker, const struct sequence *sequence, struct hit *hit,
		 struct ahead *ahead);
/* The drafts behind a guess, into its step; at most `room`. Returns how many. */
uint32_t drafts_append(struct worker *worker, const struct ahead *ahead, uint32_t room,
		       struct engine_seq *step, int32_t *tokens);
/* The step is complete: puts the guess's logits where a sampler will look. false: the step is worth
 * nothing, and is to be done again without drafts. */
bool drafts_computed(struct worker *worker, const struct ahead *ahead,
		     const struct engine_seq *step);
/* Was the position behind the sequence's last one computed as a draft? For which token, and whose?
 * Puts its logits into the row of the other parity. FROM_LOGITS: it wasn't. */
enum guess_source drafts_next(struct worker *worker, const struct sequence *sequence,
			      int32_t *ret_token);
/* The sequence came back with its ids, the one at ahead->n_kv drawn; `right`: as guessed. Learns
 * how good guesses are. */
void drafts_learn(struct worker *worker, struct hit *hit, const struct ahead *ahead,
		  const int32_t *ids, bool right);
/* Another token was drawn, or the sequence went another way. */
void drafts_drop(struct worker *worker, uint32_t slot);
/* The drafts planned for a slot, or left of it; NULL: none. */
struct chain *drafts_find(struct worker *worker, uint32_t slot);

/* ---- drafter.c */

/* By --draft-model and --draft-layers; after the engine. *ret NULL: neither is given. threads: of
 * who packs the other model's weights. */
SVC_CHECKED enum svc_code drafter_open(struct worker *worker, uint32_t threads,
				       struct drafter **ret_drafter, struct svc_err *err);
/* NULL is fine. Before the worker's engine is closed. */
void drafter_close(struct drafter *drafter);
/* A draft is wanted behind ids[n], whose last one is the guess. They are copied. false: not now. */
bool drafter_note(struct drafter *drafter, const struct chain *chain, const int32_t *ids,
		  uint32_t n);
/* Fills the chains that were planned for a model, all at once, a token a round. The samplers draw
 * meanwhile: ends early, and without drafts, if a guess turns out wrong. */
void drafter_run(struct worker *worker);
/* What a round takes, in microseconds, as measured; 0: not known. */
double drafter_round_us(const struct drafter *drafter);
