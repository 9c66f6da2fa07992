/* Drafts: behind the likeliest token, which a step ahead (ahead.c) computes, what followed these
 * tokens where they stood before, in the same pass. A position's bits don't depend on what shares
 * the pass, so the KV and the logits of a draft that is then drawn are the very ones that plain
 * decoding would make: they are committed as they are, one token at a time, as each is drawn.
 *
 * Nothing of this is seen outside. The drafts' KV lies behind the committed positions, in the page
 * that the step ahead may write anyway; their logits lie in memory of this process until their turn
 * comes. A draft that isn't drawn is overwritten; when this process dies, it is gone. */
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/lookup.h"
#include "npu-worker/worker_private.h"

/* A single equal token says little; more than four rarely say more. */
#define LEAST_MATCH 2u
#define MOST_MATCH  4u

enum svc_code drafts_open(struct worker *worker, struct svc_err *err)
{
	const struct shm_run *run = &worker->svc->run;
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
	return SVC_OK;
}

void drafts_close(struct worker *worker)
{
	free(worker->chains);
	free(worker->draft_logits);
	free(worker->draft_ids);
}

static struct chain *find_chain(struct worker *worker, uint32_t slot)
{
	for (uint32_t i = 0; i < worker->n_chains; i++)
		if (worker->chains[i].n && worker->chains[i].slot == slot)
			return &worker->chains[i];
	return NULL;
}

void drafts_drop(struct worker *worker, uint32_t slot)
{
	struct chain *chain = find_chain(worker, slot);
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

void drafts_plan(struct worker *worker, const struct sequence *sequence, int32_t guess)
{
	const struct shm_run *run = &worker->svc->run;
	uint32_t n = sequence->n_known,
		 most = worker->speculate ? room_behind(worker, sequence) : 0;
	const int32_t *ids = body_region(run, sequence->body, REGION_IDS, n * sizeof *ids, NULL);
	drafts_drop(worker, sequence->slot);
	struct chain *chain = most && ids && n < run->ctx ? free_chain(worker) : NULL;
	if (!chain)
		return;
	memcpy(worker->draft_ids, ids, n * sizeof *ids);
	worker->draft_ids[n] = guess;
	chain->n = lookup_draft(worker->draft_ids, n + 1, LEAST_MATCH, MOST_MATCH, most,
				chain->tokens);
	chain->slot = sequence->slot;
	chain->generation = sequence->body->generation;
	chain->n_kv = sequence->n_kv + 1;
	chain->first = 0;
	chain->computed = false;
	for (uint32_t i = 0; i < chain->n; i++) /* the body may be damaged */
		if (chain->tokens[i] < 0 || (uint32_t)chain->tokens[i] >= run->n_vocab)
			chain->n = 0;
}

uint32_t drafts_append(struct worker *worker, const struct ahead *ahead, uint32_t room,
		       struct engine_seq *step, int32_t *tokens)
{
	struct chain *chain = find_chain(worker, ahead->slot);
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
	struct chain *chain = find_chain(worker, ahead->slot);
	if (!chain || step->n_tokens == 1)
		return true;
	/* Perhaps a draft's fault, which plain decoding would never see. */
	if (step->status != SVC_OK) {
		chain->n = 0;
		return false;
	}
	chain->computed = true;
	memcpy(run_logits(run, ahead->row, (ahead->n_kv + 1) & 1), chain->logits,
	       run->n_vocab * sizeof *chain->logits);
	return true;
}

bool drafts_next(struct worker *worker, const struct sequence *sequence, int32_t *ret_token)
{
	const struct shm_run *run = &worker->svc->run;
	struct chain *chain = find_chain(worker, sequence->slot);
	if (!chain || !chain->computed || chain->generation != sequence->body->generation ||
	    chain->n_kv != sequence->n_kv)
		return false;
	*ret_token = chain->tokens[chain->first++];
	chain->n_kv++;
	memcpy(run_logits(run, sequence->row, chain->n_kv & 1),
	       chain->logits + (size_t)chain->first * run->n_vocab,
	       run->n_vocab * sizeof *chain->logits);
	if (chain->first == chain->n)
		chain->n = 0;
	return true;
}
