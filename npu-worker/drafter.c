/* A model that drafts where the text doesn't repeat itself: another one of the same vocabulary
 * (--draft-model), with KV pages in memory of this process, or the first layers of the model itself
 * (--draft-layers), whose KV is the model's own: they are written where the step ahead writes them
 * again, with the same bits.
 *
 * It says its likeliest token, one a round, for all sequences at once. What it says is a guess: it
 * decides how fast an answer comes, never which. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "npu-worker/ahead.h"
#include "npu-worker/engine/hooks.h"
#include "npu-worker/weights.h"

/* Positions that the other model may be behind and still catch up with in one round. A longer
 * prompt takes several steps until there are drafts. */
#define CATCH_UP_ROWS 128u

/* The other model's view of a sequence. What it was fed counts as far as it is what the sequence
 * became, so nothing is ever taken back. */
struct place {
	uint32_t slot;
	uint64_t generation, used;
	uint32_t n_tokens; /* known, and the guess */
	uint32_t n_fed;	   /* whose KV is in the pages */
	int32_t *tokens;   /* [ctx + WORKER_MAX_DRAFTS + 1] */
	uint32_t *pages;   /* [pages_per_sequence], its own for good */
};

/* Drafts to make. */
struct wanted {
	struct chain *chain;
	const struct ahead *ahead; /* whose guess it stands behind */
	struct place *place;	   /* NULL: the model itself drafts */
};

struct drafter {
	struct worker *worker;
	struct engine *engine; /* the other model's, or the worker's */
	uint32_t n_layers;     /* of the worker's; 0: another model */
	struct segment weights;
	void *pages;
	size_t pages_bytes;
	struct place *places; /* [n_slots] */
	int32_t *tokens;      /* backing of place.tokens */
	uint32_t *tables;     /* backing of place.pages */
	uint64_t clock;
	double round_us;
	/* One round. */
	uint32_t n;
	struct wanted *wanted;	 /* [n_slots] */
	struct engine_seq *step; /* [n_slots] */
};

/* ---- opening */

static enum svc_code open_pages(struct drafter *drafter, struct svc_err *err)
{
	const struct shm_run *run = &drafter->worker->svc->run;
	uint32_t per = drafter->worker->pages_per_sequence, n = run->n_slots * per;
	size_t page_bytes = engine_info(drafter->engine)->page_bytes;
	/* Of this only what is written takes memory. */
	drafter->pages_bytes = n * page_bytes;
	drafter->pages = mmap(NULL, drafter->pages_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t length = (size_t)run->ctx + WORKER_MAX_DRAFTS + 1;
	drafter->places = calloc(run->n_slots, sizeof *drafter->places);
	drafter->tokens = calloc(run->n_slots * length, sizeof *drafter->tokens);
	drafter->tables = calloc(n, sizeof *drafter->tables);
	if (drafter->pages == MAP_FAILED) {
		drafter->pages = NULL;
		return svc_fail_errno(err, __func__, "no room for %zu bytes of a draft model's KV",
				      drafter->pages_bytes);
	}
	if (!drafter->places || !drafter->tokens || !drafter->tables)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	for (uint32_t i = 0; i < n; i++)
		drafter->tables[i] = i;
	for (uint32_t i = 0; i < run->n_slots; i++) {
		drafter->places[i].tokens = drafter->tokens + i * length;
		drafter->places[i].pages = drafter->tables + (size_t)i * per;
	}
	return engine_set_pages(drafter->engine, drafter->pages, page_bytes, n, err);
}

static enum svc_code open_model(struct drafter *drafter, const char *path, uint32_t threads,
				struct svc_err *err)
{
	struct worker *worker = drafter->worker;
	const struct engine_info *target = engine_info(worker->engine), *info;
	enum svc_code code = weights_map_draft(worker->svc, path, threads, &drafter->weights, err);
	if (code == SVC_OK && opt_bool(worker->svc->options, "lock-memory"))
		code = weights_lock(&drafter->weights, err);
	if (code != SVC_OK)
		return code;
	const struct engine_options options = {
		.region = (const char *)drafter->weights.base + WEIGHTS_OFFSET,
		.region_bytes = drafter->weights.bytes - WEIGHTS_OFFSET,
		.family = target->family,
		.isa = opt_string(worker->svc->options, "isa"),
		.threads_of = worker->engine,
		.max_rows = CATCH_UP_ROWS + worker->svc->run.n_slots,
		.max_seqs = worker->svc->run.n_slots,
	};
	code = engine_open(&options, &drafter->engine, err);
	if (code != SVC_OK)
		return code;
	info = engine_info(drafter->engine);
	if (info->config.n_vocab != target->config.n_vocab)
		return svc_fail_param(err, SVC_BAD_CONFIG, "draft-model",
				      "--draft-model %s gives %u logits, the model that is served "
				      "%u: drafts need the same vocabulary",
				      path, info->config.n_vocab, target->config.n_vocab);
	log_info("%s drafts: %u layers", path, info->config.n_layers);
	return open_pages(drafter, err);
}

static enum svc_code open_layers(struct drafter *drafter, uint32_t n_layers, struct svc_err *err)
{
	uint32_t all = engine_info(drafter->worker->engine)->config.n_layers;
	if (n_layers >= all)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, "draft-layers",
			"--draft-layers %u: the model has %u layers, and fewer are to "
			"draft",
			n_layers, all);
	drafter->engine = drafter->worker->engine;
	drafter->n_layers = n_layers;
	log_info("the first %u of %u layers draft", n_layers, all);
	return SVC_OK;
}

enum svc_code drafter_open(struct worker *worker, uint32_t threads, struct drafter **ret_drafter,
			   struct svc_err *err)
{
	const struct opt_set *options = worker->svc->options;
	const char *path = opt_string(options, "draft-model");
	uint32_t n_layers = (uint32_t)opt_int(options, "draft-layers");
	uint32_t n_slots = worker->svc->run.n_slots;
	if (!*path && !n_layers)
		return SVC_OK;
	const char *name = *path ? "draft-model" : "draft-layers";
	if (*path && n_layers)
		return svc_fail_param(err, SVC_BAD_CONFIG, name,
				      "--draft-model and --draft-layers: one of them drafts");
	if (worker->speculate == 0)
		return svc_fail_param(
			err, SVC_BAD_CONFIG, name,
			"--%s: without --speculate there are no drafts, nor on an NPU", name);
	struct drafter *drafter = calloc(1, sizeof *drafter);
	if (!drafter)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	*ret_drafter = drafter; /* also if it fails: drafter_close takes it half built */
	drafter->worker = worker;
	drafter->wanted = calloc(n_slots, sizeof *drafter->wanted);
	drafter->step = calloc(n_slots, sizeof *drafter->step);
	if (!drafter->wanted || !drafter->step)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return *path ? open_model(drafter, path, threads, err)
		     : open_layers(drafter, n_layers, err);
}

void drafter_close(struct drafter *drafter)
{
	if (!drafter)
		return;
	if (drafter->n_layers == 0)
		engine_close(drafter->engine);
	seg_unmap(&drafter->weights);
	if (drafter->pages)
		munmap(drafter->pages, drafter->pages_bytes);
	free(drafter->places);
	free(drafter->tokens);
	free(drafter->tables);
	free(drafter->wanted);
	free(drafter->step);
	free(drafter);
}

double drafter_round_us(const struct drafter *drafter)
{
	return drafter->round_us;
}

/* ---- what the other model knows of a sequence */

static struct place *find_place(struct drafter *drafter, uint32_t slot, uint64_t generation)
{
	for (uint32_t i = 0; drafter->places && i < drafter->worker->svc->run.n_slots; i++)
		if (drafter->places[i].slot == slot && drafter->places[i].generation == generation)
			return &drafter->places[i];
	return NULL;
}

/* The one that was used longest ago: as many run as there are places. */
static struct place *oldest_place(struct drafter *drafter)
{
	struct place *oldest = &drafter->places[0];
	for (uint32_t i = 1; i < drafter->worker->svc->run.n_slots; i++)
		if (drafter->places[i].used < oldest->used)
			oldest = &drafter->places[i];
	return oldest;
}

bool drafter_note(struct drafter *drafter, const struct chain *chain, const int32_t *ids,
		  uint32_t n)
{
	if (drafter->n_layers)
		return true;
	struct place *place = find_place(drafter, chain->slot, chain->generation);
	if (!place)
		place = oldest_place(drafter);
	uint32_t same = 0;
	while (same < place->n_fed && same < n && place->tokens[same] == ids[same])
		same++;
	/* The last token is fed for its logits, whatever is there. */
	place->n_fed = same < n ? same : n - 1;
	place->n_tokens = n;
	place->slot = chain->slot;
	place->generation = chain->generation;
	place->used = ++drafter->clock;
	memcpy(place->tokens, ids, n * sizeof *ids);
	for (uint32_t i = 0; i < n; i++) /* the body may be damaged */
		if (ids[i] < 0 || (uint32_t)ids[i] >= drafter->worker->svc->run.n_vocab)
			return false;
	return true;
}

/* ---- a round */

/* The chains that want to be filled, each behind a guess. A place is as it was noted, unless
 * another sequence, noted since, has taken it over. */
static void gather_wanted(struct drafter *drafter)
{
	struct worker *worker = drafter->worker;
	drafter->n = 0;
	for (uint32_t i = 0; i < worker->n_aheads; i++) {
		const struct ahead *ahead = &worker->aheads[i];
		struct chain *chain = drafts_find(worker, ahead->slot);
		if (!chain || chain->source != FROM_MODEL || chain->computed ||
		    chain->generation != ahead->generation || chain->n_kv != ahead->n_kv + 1)
			continue;
		struct place *place = find_place(drafter, chain->slot, chain->generation);
		if (drafter->n_layers || (place && place->n_tokens == chain->n_kv))
			drafter->wanted[drafter->n++] = (struct wanted){chain, ahead, place};
		else
			chain->n = 0;
	}
}

/* Layers of the model itself: one more token, in the sequence's own pages. */
static void build_own(const struct wanted *wanted, uint32_t round, struct engine_seq *seq)
{
	const struct ahead *ahead = wanted->ahead;
	seq->tokens = round ? &wanted->chain->tokens[round - 1] : &ahead->guess;
	seq->n_tokens = 1;
	seq->pos = ahead->n_kv + round;
	seq->pages = ahead->pages;
	seq->n_pages = ahead->n_pages;
	seq->n_logits = 1;
}

/* The other model: what it hasn't been fed yet, at most `room` positions and one. */
static void build_other(const struct wanted *wanted, uint32_t n_pages, uint32_t *room,
			struct engine_seq *seq)
{
	const struct place *place = wanted->place;
	uint32_t missing = place->n_tokens - place->n_fed;
	seq->tokens = place->tokens + place->n_fed;
	seq->n_tokens = missing <= *room + 1 ? missing : *room + 1;
	seq->pos = place->n_fed;
	seq->pages = place->pages;
	seq->n_pages = n_pages;
	seq->n_logits = seq->n_tokens == missing;
	*room -= seq->n_tokens - 1;
}

/* Takes in what a round says. false: no further draft. */
static bool take_in(const struct drafter *drafter, const struct wanted *wanted,
		    const struct engine_seq *seq, uint32_t round)
{
	struct chain *chain = wanted->chain;
	struct place *place = wanted->place;
	bool fine = seq->status == SVC_OK;
	if (fine && place)
		place->n_fed += seq->n_tokens;
	if (!fine || seq->n_logits == 0) {
		chain->n = round;
		return false;
	}
	chain->tokens[round] = engine_likeliest(chain->logits, drafter->worker->svc->run.n_vocab);
	if (place)
		place->tokens[place->n_tokens++] = chain->tokens[round];
	return round + 1 < chain->n;
}

/* The step was abandoned, and so will be the one that would verify: no drafts. */
static void give_up(struct drafter *drafter)
{
	for (uint32_t i = 0; i < drafter->n; i++)
		drafter->wanted[i].chain->n = 0;
	drafter->n = 0;
}

static void on_beat(void *context)
{
	svc_beat(context);
}

/* What a round took; catching up isn't what a draft costs, and an interrupted one counts twice. */
static void learn_round(struct drafter *drafter, uint32_t rows, double us)
{
	double usual = drafter->round_us;
	if (rows > 2 * drafter->n)
		return;
	if (usual > 0 && us > 2 * usual)
		us = 2 * usual;
	drafter->round_us = usual > 0 ? usual + (us - usual) / 8 : us;
}

/* Fills step for who still wants a token; returns the positions that are in it. */
static uint32_t build_round(struct drafter *drafter, uint32_t round)
{
	const struct worker *worker = drafter->worker;
	uint32_t room = CATCH_UP_ROWS, rows = 0;
	for (uint32_t i = 0; i < drafter->n; i++) {
		const struct wanted *wanted = &drafter->wanted[i];
		struct engine_seq *seq = &drafter->step[i];
		*seq = (struct engine_seq){.logits = wanted->chain->logits,
					   .logits_stride = worker->svc->run.n_vocab};
		if (drafter->n_layers)
			build_own(wanted, round, seq);
		else
			build_other(wanted, worker->pages_per_sequence, &room, seq);
		rows += seq->n_tokens;
	}
	return rows;
}

/* One token more for every chain that wants one. */
static void run_round(struct drafter *drafter, uint32_t round)
{
	struct svc *svc = drafter->worker->svc;
	struct svc_err err;
	const struct engine_hooks hooks = {
		.context = svc, .beat = on_beat, .goes_on = ahead_goes_on};
	uint32_t rows = build_round(drafter, round), left = 0;
	uint64_t start = svc_now_us();
	const struct engine_batch batch = {.seqs = drafter->step,
					   .n_seqs = drafter->n,
					   .hooks = &hooks,
					   .n_layers = drafter->n_layers};
	if (engine_step(drafter->engine, &batch, &err) != SVC_OK) {
		give_up(drafter);
		return;
	}
	learn_round(drafter, rows, (double)(svc_now_us() - start));
	for (uint32_t i = 0; i < drafter->n; i++)
		if (take_in(drafter, &drafter->wanted[i], &drafter->step[i], round))
			drafter->wanted[left++] = drafter->wanted[i];
	drafter->n = left;
}

void drafter_run(struct worker *worker)
{
	struct drafter *drafter = worker->drafter;
	if (!drafter)
		return;
	gather_wanted(drafter);
	for (uint32_t round = 0; drafter->n && !worker->svc->leaving; round++)
		run_round(drafter, round);
}
