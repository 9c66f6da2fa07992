/* Running ahead: while the samplers draw, the next step is computed for the tokens that they are
 * going to draw, or likely so (guess.c). What a sampler then draws decides: the same token, and the
 * step is done already; another, and the step is dropped, at once if it still runs. A step's bits
 * don't depend on when it was computed.
 *
 * While a sampler owns a slot its body is not read or written here. The step writes only the
 * position behind the committed ones, in a page reserved before, and the logits row of the other
 * parity. `ahead` in the body tells who takes the slot over that this may be going on. */
#include "npu-worker/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "draw/draw.h"
#include "npu-worker/guess.h"
#include "npu-worker/sequence.h"

/* Draws that are to turn out as guessed, all together, for a step ahead to be worth its while: a
 * dropped one delays nobody much, but takes a core's time from the samplers. */
#define WORTH_IT 0.5f
/* What is assumed of a request that samples, until it has shown how likely its likeliest tokens
 * are. */
#define HIT_SAMPLED 0.7f
/* Likewise of draws made beforehand, where they depend on more than is known here. */
#define HIT_UNSURE 0.85f
/* Likewise of drafts from the text. */
#define HIT_TEXT 0.5f

enum svc_code ahead_open(struct worker *worker, struct svc_err *err)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t per = worker->pages_per_sequence;
	worker->aheads = calloc(run->n_slots, sizeof *worker->aheads);
	worker->hits = calloc(run->n_table, sizeof *worker->hits);
	worker->ahead_always =
		strcmp(opt_string(worker->svc->options, "ahead-when"), "always") == 0;
	worker->ahead_pages = calloc((size_t)run->n_slots * per, sizeof *worker->ahead_pages);
	if (!worker->aheads || !worker->hits || !worker->ahead_pages)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (uint32_t i = 0; i < run->n_slots; i++)
		worker->aheads[i].pages = worker->ahead_pages + (size_t)i * per;
	return guess_open(worker, err);
}

void ahead_close(struct worker *worker)
{
	guess_close(worker);
	free(worker->aheads);
	free(worker->hits);
	free(worker->ahead_pages);
}

/* Swapped, not overwritten: every entry keeps a page table's memory. */
static void drop_entry(struct worker *worker, uint32_t i)
{
	struct ahead *last = &worker->aheads[--worker->n_aheads], dropped = worker->aheads[i];
	worker->aheads[i] = *last;
	*last = dropped;
}

static struct hit *hit_of(struct worker *worker, const struct sequence *sequence)
{
	struct hit *hit = &worker->hits[sequence->slot];
	uint64_t generation = sequence->body->generation;
	if (hit->generation != generation) {
		bool greedy = sequence->body->params.temperature == 0;
		*hit = (struct hit){.generation = generation,
				    .likeliest = greedy ? 1 : HIT_SAMPLED,
				    .drawn = guess_is_sure(worker, sequence) ? 1 : HIT_UNSURE,
				    .text = HIT_TEXT};
	}
	return hit;
}

/* It ends with the token that is drawn now: nothing follows. */
static bool ends_now(const struct worker *worker, const struct sequence *sequence)
{
	uint32_t most = sequence->body->params.max_tokens,
		 made = sequence->n_known - sequence->n_prompt;
	return sequence->n_known + 1 >= worker->svc->run.ctx || (most && made + 1 >= most);
}

void ahead_note(struct worker *worker, struct sequence *sequence)
{
	const struct shm_run *run = &worker->svc->run;
	bool possible = worker->run_ahead && !worker->svc->draining &&
			worker->n_aheads < run->n_slots && sequence->n_kv == sequence->n_known &&
			!ends_now(worker, sequence) &&
			sequence_reserve(worker, sequence, sequence->n_kv + 1);
	int32_t draft = -1;
	enum guess_source source = possible ? drafts_next(worker, sequence, &draft) : FROM_LOGITS;
	bool is_draft = source != FROM_LOGITS;
	/* What a draft needs is written: nothing more will be, while the sampler has the slot. */
	atomic_store(&sequence->body->ahead, possible && !is_draft);
	if (!possible)
		return;
	struct hit *hit = hit_of(worker, sequence);
	struct ahead *ahead = &worker->aheads[worker->n_aheads++];
	ahead->slot = sequence->slot;
	ahead->generation = sequence->body->generation;
	ahead->n_kv = sequence->n_kv;
	ahead->row = sequence->row;
	ahead->n_pages = sequence->n_pages;
	memcpy(ahead->pages, sequence->pages, sequence->n_pages * sizeof *ahead->pages);
	ahead->guess = draft;
	ahead->hit = 1;
	ahead->computed = is_draft;
	ahead->source = source;
	ahead->expected = -1;
	ahead->noted_us = svc_now_us();
	ahead->status = SVC_OK;
	ahead->drawn = ahead->begun = false;
	ahead->is_greedy = sequence->body->params.temperature < DRAW_GREEDY_BELOW;
	if (is_draft)
		return;
	guess_make(worker, sequence, hit, ahead);
	drafts_plan(worker, sequence, hit, ahead);
}

struct ahead *ahead_find(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_aheads; i++)
		if (worker->aheads[i].slot == slot)
			return &worker->aheads[i];
	return NULL;
}

static bool is_outstanding(const struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_outstanding; i++)
		if (worker->outstanding[i] == slot)
			return true;
	return false;
}

static bool pays_here(const struct worker *worker)
{
	return worker->ahead_always || !worker->trial || trial_way(worker->trial);
}

/* Sequences that run together: one, few, some or many, and whether samplers have more to do than to
 * find the likeliest token. */
static struct trial *find_trial(struct worker *worker)
{
	uint32_t n = worker->n_sequences + worker->n_outstanding, size = 0;
	bool all_greedy = true;
	for (uint32_t i = 0; i < worker->n_sequences; i++)
		all_greedy &= worker->sequences[i].body->params.temperature < DRAW_GREEDY_BELOW;
	for (uint32_t i = 0; i < worker->n_aheads; i++)
		all_greedy &= worker->aheads[i].is_greedy;
	while (size < TRIALS / 2 - 1 && n > 1u << (2 * size))
		size++;
	return &worker->trials[2 * size + all_greedy];
}

void ahead_learn(struct worker *worker, bool plain)
{
	const struct inc_entry *inc = &worker->svc->run.ctl->incs[worker->svc->run.me];
	struct trial *trial = find_trial(worker);
	if (worker->trial && (trial != worker->trial || !plain))
		trial_interrupt(worker->trial);
	worker->trial = trial;
	if (plain)
		trial_step(trial, svc_now_us(), atomic_load(&inc->gauge[GAUGE_DECODE_TOKENS]));
}

void ahead_rest(struct worker *worker)
{
	if (worker->trial)
		trial_interrupt(worker->trial);
}

bool ahead_is_worth_it(struct worker *worker)
{
	float all = 1;
	bool computed = false, pays = pays_here(worker);
	for (uint32_t i = worker->n_aheads; i-- > 0;)
		if (!is_outstanding(worker, worker->aheads[i].slot))
			drop_entry(worker, i);
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		all *= worker->aheads[i].hit;
		computed |= worker->aheads[i].computed;
		pays = pays || drafts_find(worker, worker->aheads[i].slot);
	}
	if (worker->n_aheads == 0 || !pays || computed || all < WORTH_IT || worker->n_waiting ||
	    worker->svc->draining)
		return false;
	/* Prompts have time: their steps are long against a sampler's turn. */
	for (uint32_t i = 0; i < worker->n_sequences; i++)
		if (!sequence_is_decode(&worker->sequences[i]) ||
		    sequence_is_scoring(&worker->sequences[i]))
			return false;
	return true;
}

uint32_t ahead_append(struct worker *worker, struct engine_seq *step, int32_t *tokens,
		      uint32_t room)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t spare = room - worker->n_aheads;
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		struct ahead *ahead = &worker->aheads[i];
		ahead->begun = true;
		tokens[0] = ahead->guess;
		step[i] = (struct engine_seq){
			.tokens = tokens,
			.n_tokens = 1,
			.pos = ahead->n_kv,
			.pages = ahead->pages,
			.n_pages = ahead->n_pages,
			.settled = true, /* I have just passed it on */
			.n_logits = 1,
			.logits = run_logits(run, ahead->row, (ahead->n_kv + 1) & 1),
			.logits_stride = run->n_vocab,
		};
		uint32_t n_drafts = drafts_append(worker, ahead, spare, &step[i], tokens + 1);
		spare -= n_drafts;
		tokens += 1 + n_drafts;
	}
	return worker->n_aheads;
}

/* A slot that came back is mine: its body may be read. */
static bool is_as_guessed(const struct worker *worker, struct ahead *ahead)
{
	const struct shm_run *run = &worker->svc->run;
	struct slot_state state = slot_load(run, ahead->slot);
	if (state.stage == STAGE_SAMPLE || ahead->drawn)
		return true;
	if (state.stage != STAGE_COMPUTE || state.owner != run->me)
		return false;
	struct body *body = body_get(run, state.body, ahead->slot);
	const int32_t *ids =
		body ? body_region(run, body, REGION_IDS, (ahead->n_kv + 1ull) * 4, NULL) : NULL;
	ahead->drawn = ids && body->generation == ahead->generation &&
		       body_n_ids(run, body) == ahead->n_kv + 1 && ids[ahead->n_kv] == ahead->guess;
	return ahead->drawn;
}

bool ahead_goes_on(void *context)
{
	struct svc *svc = context;
	struct worker *worker = svc->role_state;
	for (uint32_t i = 0; i < worker->n_aheads; i++)
		if (!is_as_guessed(worker, &worker->aheads[i]))
			return false;
	return !svc->leaving;
}

void ahead_done(struct worker *worker, const struct engine_seq *step)
{
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		struct ahead *ahead = &worker->aheads[i];
		ahead->computed = drafts_computed(worker, ahead, &step[i]);
		ahead->status = step[i].status;
	}
}

void ahead_take(struct worker *worker, struct sequence *sequence)
{
	const struct shm_run *run = &worker->svc->run;
	bool goes_on = false;
	sequence->computed = false;
	atomic_store(&sequence->body->ahead, 0);
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		const struct ahead *ahead = &worker->aheads[i];
		if (ahead->slot != sequence->slot)
			continue;
		const int32_t *ids = body_region(run, sequence->body, REGION_IDS,
						 sequence->n_known * sizeof *ids, NULL);
		/* No other worker had it in between, who may have written over drafts. */
		bool same = sequence->settled && ahead->generation == sequence->body->generation &&
			    ahead->n_kv == sequence->n_kv && ahead->row == sequence->row &&
			    sequence->n_known == sequence->n_kv + 1 &&
			    ahead->n_pages == sequence->n_pages &&
			    memcmp(ahead->pages, sequence->pages,
				   ahead->n_pages * sizeof *ahead->pages) == 0;
		bool hit = same && ids && ids[ahead->n_kv] == ahead->guess;
		if (same && ids)
			drafts_learn(worker, hit_of(worker, sequence), ahead, ids, hit);
		goes_on = sequence->computed = hit && ahead->computed;
		sequence->status = ahead->status;
		drop_entry(worker, i);
		break;
	}
	if (!goes_on)
		drafts_drop(worker, sequence->slot);
}
