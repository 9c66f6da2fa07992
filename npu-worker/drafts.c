/* Drafts: behind the guess for which a step ahead (ahead.c) is computed, what followed these
 * tokens where they stood before, or what a smaller model says (drafter.c), in the same pass. A
 * position's bits don't depend on what shares the pass, so the KV and the logits of a draft that is
 * then drawn are the very ones that plain decoding would make: they are committed as they are, one
 * token at a time, as each is drawn.
 *
 * Nothing of this is seen outside. The drafts' KV lies behind the committed positions, in the page
 * that the step ahead may write anyway; their logits lie in memory of this process until their turn
 * comes. A draft that isn't drawn is overwritten; when this process dies, it is gone. */
#include <stdlib.h>
#include <string.h>

#include "npu-worker/ahead.h"
#include "npu-worker/engine/lookup.h"
#include "npu-worker/guess.h"
#include "npu-worker/sequence.h"

/* A single equal token says little; more than four rarely say more. */
#define LEAST_MATCH 2u
#define MOST_MATCH  4u
/* --speculate -1 */
#define DRAFTS_AUTO 8u
/* What is assumed of a request's drafts by a model before it has shown how good they are, and again
 * when they have rested. */
#define MODEL_AT_FIRST 0.7f
/* How long they rest when they turned out not to pay: so many tokens, then twice as many, ... */
#define REST_FIRST 32u
#define REST_LAST  512u

static enum svc_code choose_length(struct worker *worker, struct svc_err *err)
{
	const struct opt_set *options = worker->svc->options;
	int64_t asked = opt_int(options, "speculate");
	bool run_ahead = opt_bool(options, "run-ahead");
	if (asked > 0 && !run_ahead)
		return svc_fail_param(err, SVC_BAD_CONFIG, "speculate",
				      "--speculate adds to steps ahead; it needs --run-ahead");
	if (asked > 0 && worker->products)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "speculate",
			"--speculate needs a batch to give the bits of its sequences "
			"one by one, which is not known of this NPU: leave it out, or "
			"choose --device host");
	worker->speculate = asked >= 0			     ? (uint32_t)asked
			    : run_ahead && !worker->products ? DRAFTS_AUTO
							     : 0;
	return SVC_OK;
}

enum svc_code drafts_open(struct worker *worker, uint32_t threads, struct svc_err *err)
{
	const struct shm_run *run = &worker->svc->run;
	enum svc_code code = choose_length(worker, err);
	if (code != SVC_OK)
		return code;
	worker->drafts_always =
		strcmp(opt_string(worker->svc->options, "draft-when"), "always") == 0;
	worker->n_chains = worker->speculate ? run->n_slots + 1 : 0;
	worker->chains = calloc(worker->n_chains + 1, sizeof *worker->chains);
	size_t rows = 1 + worker->speculate, n = rows * worker->n_chains * run->n_vocab;
	worker->draft_logits = n ? malloc(n * sizeof *worker->draft_logits) : NULL;
	worker->draft_ids = malloc(((size_t)run->ctx + 1) * sizeof *worker->draft_ids);
	if (!worker->chains || !worker->draft_ids || (n && !worker->draft_logits))
		return svc_fail(err, SVC_NO_MEMORY, __func__,
				"no memory for %zu bytes of drafts' logits; a smaller --speculate "
				"needs less",
				n * sizeof *worker->draft_logits);
	for (uint32_t i = 0; i < worker->n_chains; i++)
		worker->chains[i].logits = worker->draft_logits + i * rows * run->n_vocab;
	return drafter_open(worker, threads, &worker->drafter, err);
}

void drafts_close(struct worker *worker)
{
	drafter_close(worker->drafter);
	free(worker->chains);
	free(worker->draft_logits);
	free(worker->draft_ids);
}

struct chain *drafts_find(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_chains; i++)
		if (worker->chains[i].n && worker->chains[i].slot == slot)
			return &worker->chains[i];
	return NULL;
}

void drafts_drop(struct worker *worker, uint32_t slot)
{
	struct chain *chain = drafts_find(worker, slot);
	if (chain)
		chain->n = 0;
}

/* One that no sequence needs: of the others each belongs to a slot that is with a sampler, or that
 * went elsewhere meanwhile. */
static struct chain *free_chain(struct worker *worker)
{
	for (uint32_t i = 0; i < worker->n_chains; i++)
		if (worker->chains[i].n == 0)
			return &worker->chains[i];
	for (uint32_t i = 0; i < worker->n_chains; i++)
		if (!ahead_find(worker, worker->chains[i].slot) &&
		    !sequence_find(worker, worker->chains[i].slot))
			return &worker->chains[i];
	return NULL;
}

/* How many positions behind n_kv may hold drafts: within the page of n_kv, and not beyond what the
 * request or the context lets come. */
static uint32_t room_behind(const struct worker *worker, const struct sequence *sequence)
{
	const struct body_params *params = &sequence->body->params;
	uint32_t made = sequence->n_known - sequence->n_prompt, most = worker->speculate;
	if (params->flags & BODY_NO_DRAFTS || sequence->n_known >= worker->svc->run.ctx)
		return 0;
	uint32_t in_page = PAGE_POSITIONS - 1 - sequence->n_kv % PAGE_POSITIONS;
	uint32_t in_ctx = worker->svc->run.ctx - sequence->n_known - 1;
	most = in_page < most ? in_page : most;
	most = in_ctx < most ? in_ctx : most;
	/* The guess is token made + 1 of max_tokens; the last one's logits are asked for by nobody.
	 */
	if (params->max_tokens && params->max_tokens < made + 2 + most)
		most = params->max_tokens < made + 2 ? 0 : params->max_tokens - made - 2;
	return most;
}

/* What followed draft_ids[n] before, at most `most` tokens; remembered, so that what isn't drafted
 * teaches, too. */
static uint32_t look_up(struct worker *worker, struct hit *hit, uint32_t n, uint32_t most,
			int32_t *ret_tokens)
{
	uint32_t count =
		lookup_draft(worker->draft_ids, n, LEAST_MATCH, MOST_MATCH, most, ret_tokens);
	for (uint32_t i = 0; i < count; i++) /* the body may be damaged */
		if (ret_tokens[i] < 0 || (uint32_t)ret_tokens[i] >= worker->svc->run.n_vocab)
			return 0;
	if (count) {
		hit->guess = worker->draft_ids[n - 1];
		hit->expected = ret_tokens[0];
		hit->expected_at = n;
	}
	return count;
}

/* How many of `most` drafts pay; from a model they cost time of their own. */
static uint32_t length_that_pays(const struct worker *worker, const struct hit *hit,
				 enum guess_source source, uint32_t most)
{
	bool by_model = source == FROM_MODEL;
	if (worker->drafts_always)
		return most;
	uint32_t rows = worker->n_sequences + worker->n_outstanding;
	struct worth_draft draft =
		worth_shares(&worker->cost, rows ? rows : 1,
			     by_model ? drafter_round_us(worker->drafter) : 0, worker->turn_us);
	draft.acceptance = by_model ? hit->model : hit->text;
	return worth_length(&draft, most);
}

/* How many drafts to ask a model for. */
static uint32_t ask_model(const struct worker *worker, struct hit *hit, uint32_t most)
{
	if (!worker->drafter || most == 0)
		return 0;
	if (hit->rest && !worker->drafts_always) {
		hit->rest--;
		return 0;
	}
	if (hit->next_rest == 0) {
		hit->model = MODEL_AT_FIRST;
		hit->next_rest = REST_FIRST;
	}
	uint32_t n = length_that_pays(worker, hit, FROM_MODEL, most);
	if (n == 0) {
		hit->rest = hit->next_rest;
		hit->next_rest = 2 * hit->next_rest < REST_LAST ? 2 * hit->next_rest : REST_LAST;
		hit->model = MODEL_AT_FIRST;
	}
	return n;
}

void drafts_plan(struct worker *worker, const struct sequence *sequence, struct hit *hit,
		 struct ahead *ahead)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t n = sequence->n_known, most = room_behind(worker, sequence);
	const int32_t *ids = body_region(run, sequence->body, REGION_IDS, n * sizeof *ids, NULL);
	int32_t found[WORKER_MAX_DRAFTS];
	drafts_drop(worker, sequence->slot);
	if (ids && hit->expected_at == n && ids[n - 1] == hit->guess)
		ahead->expected = hit->expected;
	hit->expected_at = 0;
	if (!most || !ids)
		return;
	memcpy(worker->draft_ids, ids, n * sizeof *ids);
	worker->draft_ids[n] = ahead->guess;
	enum guess_source source = FROM_TEXT;
	uint32_t count = look_up(worker, hit, n + 1, most, found);
	count = length_that_pays(worker, hit, FROM_TEXT, count);
	if (count == 0) {
		source = FROM_MODEL;
		count = ask_model(worker, hit, most);
	}
	struct chain *chain = count ? free_chain(worker) : NULL;
	if (!chain)
		return;
	*chain = (struct chain){.slot = sequence->slot,
				.generation = sequence->body->generation,
				.n_kv = sequence->n_kv + 1,
				.n = count,
				.source = source,
				.logits = chain->logits};
	if (source == FROM_TEXT)
		memcpy(chain->tokens, found, count * sizeof *found);
	else if (!drafter_note(worker->drafter, chain, worker->draft_ids, n + 1))
		chain->n = 0;
}

uint32_t drafts_append(struct worker *worker, const struct ahead *ahead, uint32_t room,
		       struct engine_seq *step, int32_t *tokens)
{
	struct chain *chain = drafts_find(worker, ahead->slot);
	if (!chain)
		return 0;
	if (chain->n > room || chain->generation != ahead->generation ||
	    chain->n_kv != ahead->n_kv + 1 || chain->computed) {
		chain->n = 0;
		return 0;
	}
	memcpy(tokens, chain->tokens, chain->n * sizeof *tokens);
	step->n_tokens += chain->n;
	step->n_logits += chain->n;
	step->logits = chain->logits;
	return chain->n;
}

bool drafts_computed(struct worker *worker, const struct ahead *ahead,
		     const struct engine_seq *step)
{
	const struct shm_run *run = &worker->svc->run;
	struct chain *chain = drafts_find(worker, ahead->slot);
	if (!chain || step->n_tokens == 1)
		return true;
	/* Perhaps a draft's fault, which plain decoding would never see. */
	if (step->status != SVC_OK) {
		chain->n = 0;
		return false;
	}
	chain->computed = true;
	atomic_fetch_add_explicit(&run->ctl->incs[run->me].gauge[GAUGE_DRAFTED], chain->n,
				  memory_order_relaxed);
	memcpy(run_logits(run, ahead->row, (ahead->n_kv + 1) & 1), chain->logits,
	       run->n_vocab * sizeof *chain->logits);
	return true;
}

enum guess_source drafts_next(struct worker *worker, const struct sequence *sequence,
			      int32_t *ret_token)
{
	const struct shm_run *run = &worker->svc->run;
	struct chain *chain = drafts_find(worker, sequence->slot);
	if (!chain || !chain->computed || chain->generation != sequence->body->generation ||
	    chain->n_kv != sequence->n_kv)
		return FROM_LOGITS;
	*ret_token = chain->tokens[chain->first++];
	chain->n_kv++;
	memcpy(run_logits(run, sequence->row, chain->n_kv & 1),
	       chain->logits + (size_t)chain->first * run->n_vocab,
	       run->n_vocab * sizeof *chain->logits);
	if (chain->first == chain->n)
		chain->n = 0;
	return chain->source;
}

/* While drafts are drawn nothing is computed: so that is what a turn takes. One that was
 * interrupted counts twice, no more. */
static void learn_turn(struct worker *worker, const struct ahead *ahead)
{
	double us = (double)(svc_now_us() - ahead->noted_us), usual = worker->turn_us;
	if (usual > 0 && us > 2 * usual)
		us = 2 * usual;
	worker->turn_us = usual > 0 ? usual + (us - usual) / 8 : us;
}

void drafts_learn(struct worker *worker, struct hit *hit, const struct ahead *ahead,
		  const int32_t *ids, bool right)
{
	const struct shm_run *run = &worker->svc->run;
	if (ahead->source == FROM_LOGITS) {
		guess_learn(worker, hit, ahead, ids[ahead->n_kv]);
		if (ahead->expected >= 0)
			hit_learn(&hit->text, ids[ahead->n_kv] == ahead->expected);
		return;
	}
	learn_turn(worker, ahead);
	hit_learn(ahead->source == FROM_TEXT ? &hit->text : &hit->model, right);
	if (right && ahead->source == FROM_MODEL)
		hit->next_rest = REST_FIRST;
	if (right)
		atomic_fetch_add_explicit(&run->ctl->incs[run->me].gauge[GAUGE_ACCEPTED], 1,
					  memory_order_relaxed);
}
