/* npu-worker/guess.h: the token that a sampler will draw, before it does. */
#pragma once
#include "npu-worker/worker_private.h"

SVC_CHECKED enum svc_code guess_open(struct worker *worker, struct svc_err *err);
void guess_close(struct worker *worker);
/* A draw made beforehand is the sampler's, but for an end token that min_tokens forbids: it depends
 * on nothing but logits, numbers and position. */
bool guess_is_sure(const struct worker *worker, const struct sequence *sequence);
/* For the position n_kv of a sequence that is mine and has its logits: sets ahead's guess,
 * likeliest, is_draw and hit. */
void guess_make(struct worker *worker, const struct sequence *sequence, const struct hit *hit,
		struct ahead *ahead);
/* A sampler has drawn token. */
void guess_learn(struct worker *worker, struct hit *hit, const struct ahead *ahead, int32_t token);
