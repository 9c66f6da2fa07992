/* npu-worker/ahead.h: the next step, while the samplers draw. */
#pragma once
#include "npu-worker/worker_private.h"

SVC_CHECKED enum svc_code ahead_open(struct worker *worker, struct svc_err *err);
void ahead_close(struct worker *worker);
/* The sequence is about to be passed to a sampler: reserves a page for the next position and notes
 * the token that will be drawn. */
void ahead_note(struct worker *worker, struct sequence *sequence);
/* Nothing but generation waits, the guesses are likely to be right, and it pays: for drafts that
 * worth.h found to, else as trial.h finds out. */
bool ahead_is_worth_it(struct worker *worker);
/* The guesses, with drafts behind them, as sequences of a step, behind those already in it; returns
 * how many. tokens: room for `room` ids, at least as many as there are guesses. */
uint32_t ahead_append(struct worker *worker, struct engine_seq *step, int32_t *tokens,
		      uint32_t room);
/* What is noted of a slot that a sampler has; NULL: nothing. */
struct ahead *ahead_find(struct worker *worker, uint32_t slot);
/* The engine asks between layers (context: the svc): false as soon as a draw differs. */
bool ahead_goes_on(void *context);
/* The step with the guesses is complete; step: as ahead_append filled it. */
void ahead_done(struct worker *worker, const struct engine_seq *step);
/* A step is over; `plain`: nothing but generation took part, and no drafts. Teaches whether
 * running ahead pays. */
void ahead_learn(struct worker *worker, bool plain);
/* Nothing runs: what comes next is not compared with what was. */
void ahead_rest(struct worker *worker);
/* The sequence came back: was its next position computed already? Sets `computed`. */
void ahead_take(struct worker *worker, struct sequence *sequence);
