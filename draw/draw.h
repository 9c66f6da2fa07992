/* draw/draw.h: from a row of logits to a token, as far as no history is needed: temperature,
 * filters, the random number. A pure function of the row, four numbers, and where the draw stands,
 * so that whoever has a row can make the very draw that a sampler will make of it. Order of the
 * chain, formulas, costs: docs/sampling.md. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "draw/work.h"
#include "shm/layout.h"

#define DRAW_TEMPERATURE_MAX 100.0f
#define DRAW_PENALTY_MAX     2.0f /* presence and frequency, either sign */
#define DRAW_REPETITION_MIN  0.01f
#define DRAW_REPETITION_MAX  100.0f
/* Below this a division by the temperature only costs precision: the draw is greedy. */
#define DRAW_GREEDY_BELOW 1e-5f

/* SVC_INVALID names the API field whose number is out of range, or none. What follows is only for
 * numbers that passed. */
enum svc_code draw_params_check(const struct body_params *params, struct svc_err *err) SVC_CHECKED;

/* What is drawn depends on the tokens before it. */
bool draw_is_penalized(const struct body_params *params);
/* What is drawn depends on nothing but the logits, these numbers and the position, unless there is
 * a grammar, or an end token would come before min_tokens. */
bool draw_is_plain(const struct body_params *params);

/* The token for work's row, which is loaded, changed as the request wants it, and has a finite
 * maximum. n_made: tokens of the answer before it. */
uint32_t draw_pick(const struct body_params *params, uint32_t n_made, struct draw_work *work);
