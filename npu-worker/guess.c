/* The very draw that a sampler will make is a function of the logits, a few numbers and the
 * position (draw/draw.h), so it can be made here, too, while the sampler is still being woken. What
 * needs the tokens before it or the request's lists is left out: penalties, biases, min_tokens;
 * with those the draw is only likely the same. A grammar's mask changes too much: there the
 * likeliest token is the guess. The sampler stays the authority: a guess that it doesn't draw is
 * dropped. */
#include "npu-worker/guess.h"

#include <string.h>

#include "draw/draw.h"

/* Draws that are right less often aren't worth their time, but for one in so many tokens, to learn.
 */
#define LEAST_RATE  0.5f
#define LEARN_EVERY 8u

enum svc_code guess_open(struct worker *worker, struct svc_err *err)
{
	enum draw_isa isa = DRAW_ISA_AUTO;
	worker->draws_beforehand = strcmp(opt_string(worker->svc->options, "guess"), "draw") == 0;
	/* One of the option's choices, so it parses. */
	draw_isa_parse(opt_string(worker->svc->options, "isa"), &isa);
	return draw_work_open(worker->svc->run.n_vocab, isa, &worker->draw, err);
}

void guess_close(struct worker *worker)
{
	worker->draw = draw_work_free(worker->draw);
}

static bool has_grammar(const struct worker *worker, const struct body *body)
{
	size_t bytes = 0;
	return body_region(&worker->svc->run, body, REGION_GRAMMAR, 0, &bytes) && bytes;
}

bool guess_is_sure(const struct worker *worker, const struct sequence *sequence)
{
	return draw_is_plain(&sequence->body->params) && !has_grammar(worker, sequence->body);
}

static bool draw_is_wanted(const struct worker *worker, const struct sequence *sequence,
			   const struct body_params *params, const struct hit *hit)
{
	if (!worker->draws_beforehand || params->temperature < DRAW_GREEDY_BELOW ||
	    has_grammar(worker, sequence->body))
		return false;
	return hit->drawn >= LEAST_RATE || sequence->n_known % LEARN_EVERY == 0;
}

/* false: out of range, or no numbers; the sampler will say so. */
static bool draw_beforehand(struct worker *worker, const struct sequence *sequence,
			    const struct body_params *params, struct ahead *ahead)
{
	const float *logits = run_logits(&worker->svc->run, sequence->row, sequence->n_kv & 1);
	uint32_t n_made = sequence->n_known - sequence->n_prompt;
	if (draw_params_check(params, NULL) != SVC_OK ||
	    draw_row_load(&worker->draw->row, logits, NULL) != SVC_OK)
		return false;
	ahead->guess = (int32_t)draw_pick(params, n_made, worker->draw);
	ahead->likeliest = (int32_t)draw_row_argmax(&worker->draw->row);
	return true;
}

void guess_make(struct worker *worker, const struct sequence *sequence, const struct hit *hit,
		struct ahead *ahead)
{
	const struct shm_run *run = &worker->svc->run;
	/* A copy: the body may be damaged, and what is checked is what is used. */
	const struct body_params params = sequence->body->params;
	ahead->is_draw = draw_is_wanted(worker, sequence, &params, hit) &&
			 draw_beforehand(worker, sequence, &params, ahead);
	if (!ahead->is_draw)
		ahead->guess = ahead->likeliest = engine_likeliest(
			run_logits(run, sequence->row, sequence->n_kv & 1), run->n_vocab);
	ahead->hit = ahead->is_draw ? hit->drawn : hit->likeliest;
}

void guess_learn(struct worker *worker, struct hit *hit, const struct ahead *ahead, int32_t token)
{
	const struct shm_run *run = &worker->svc->run;
	hit_learn(&hit->likeliest, token == ahead->likeliest);
	if (ahead->is_draw)
		hit_learn(&hit->drawn, token == ahead->guess);
	if (ahead->begun && token != ahead->guess)
		atomic_fetch_add_explicit(&run->ctl->incs[run->me].gauge[GAUGE_MISGUESSED], 1,
					  memory_order_relaxed);
}
