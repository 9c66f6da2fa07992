/* What a grammar's token masks cost beside the steps of the engine: answers that obey the grammar,
 * drawn with noise so that they differ, each step and each mask with its own time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cli/bench_rig.h"
#include "grammar/guide.h"
#include "grammar/schema.h"
#include "tokenizer/tokenizer.h"

struct masks {
	struct rig rig;
	struct tok *tok;
	struct gr_trie *trie;
	struct gr_guide *guide;
	uint32_t *allowed;	   /* [(n_vocab + 31) / 32] */
	double *step_us, *mask_us; /* [runs][tokens], in the order in which they came */
	uint32_t n_steps;
	uint32_t *run_ends; /* [runs] n_steps after each */
	uint64_t noise;
};

/* ---- the grammar ---- */

static enum svc_code file_read(const char *path, struct buf *out, struct svc_err *err)
{
	char chunk[4096];
	size_t n;
	FILE *file = fopen(path, "rb");
	if (!file)
		return svc_fail_param(err, SVC_USAGE, "grammar", "cannot open %s", path);
	while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
		buf_append(out, chunk, n);
	fclose(file);
	return SVC_OK;
}

/* "json": any JSON text; FILE.json: a schema; any other file: a grammar. */
static enum svc_code grammar_write(const char *name, struct gr_writer *writer, struct svc_err *err)
{
	struct buf text = {0};
	size_t len = strlen(name);
	bool any = strcmp(name, "json") == 0;
	bool schema = any || (len > 5 && strcmp(name + len - 5, ".json") == 0);
	enum svc_code code = SVC_OK;
	if (any)
		buf_span(&text, span_of("{\"type\":\"object\"}"));
	else
		code = file_read(name, &text, err);
	if (code == SVC_OK && schema) {
		json_t *root = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
		gr_put_json_rules(&writer->out);
		code = root ? gr_put_schema(writer, "root", root, err)
			    : svc_fail_param(err, SVC_USAGE, "grammar", "%s is no JSON", name);
		json_decref(root);
	} else if (code == SVC_OK) {
		buf_append(&writer->out, text.ptr, text.len);
	}
	buf_free(&text);
	return code;
}

static enum svc_code guide_open(struct masks *masks, const char *name, struct svc_err *err)
{
	struct gr_writer writer = {0};
	struct gr_grammar *grammar = NULL;
	enum svc_code code = grammar_write(name, &writer, err);
	if (code == SVC_OK)
		code = gr_compile((struct span){writer.out.ptr, writer.out.len}, &grammar, err);
	if (code == SVC_OK)
		code = gr_guide_open(grammar, masks->trie, masks->rig.n_vocab, &masks->guide, err);
	buf_free(&writer.out);
	return code;
}

static enum svc_code trie_open(struct masks *masks, struct svc_err *err)
{
	uint32_t n = masks->rig.n_vocab;
	struct span *pieces = calloc(n, sizeof *pieces);
	if (!pieces)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the vocabulary");
	for (uint32_t id = 0; id < n; id++)
		if (!(tok_token_flags(masks->tok, (int32_t)id) & VOCAB_CONTROL))
			pieces[id] = tok_token_bytes(masks->tok, (int32_t)id);
	enum svc_code code = gr_trie_open(pieces, n, &masks->trie, err);
	free(pieces);
	return code;
}

static enum svc_code masks_open(const struct bench_plan *plan, struct masks *masks,
				struct svc_err *err)
{
	struct tok_options options = {plan->model, NULL};
	size_t n = (size_t)plan->runs * plan->tokens;
	enum svc_code code = bench_rig_open(plan, &masks->rig, err);
	if (code == SVC_OK)
		code = tok_open(&options, &masks->tok, err);
	if (code == SVC_OK)
		code = trie_open(masks, err);
	if (code == SVC_OK)
		code = guide_open(masks, plan->grammar, err);
	masks->allowed = calloc((masks->rig.n_vocab + 31) / 32 + 1, sizeof *masks->allowed);
	masks->step_us = calloc(n, sizeof *masks->step_us);
	masks->mask_us = calloc(n, sizeof *masks->mask_us);
	masks->run_ends = calloc(plan->runs, sizeof *masks->run_ends);
	masks->noise = 1;
	if (code == SVC_OK &&
	    (!masks->allowed || !masks->step_us || !masks->mask_us || !masks->run_ends))
		code = svc_fail(err, SVC_NO_MEMORY, __func__, "out of memory");
	return code;
}

static void masks_close(struct masks *masks)
{
	gr_guide_free(masks->guide);
	gr_trie_free(masks->trie);
	tok_free(masks->tok);
	bench_rig_close(&masks->rig);
	free(masks->allowed);
	free(masks->step_us);
	free(masks->mask_us);
	free(masks->run_ends);
}

/* ---- answers ---- */

/* The likeliest of the allowed tokens, with Gumbel noise on top: a draw at temperature 1. -1: none
 * may come. */
static int32_t draw(struct masks *masks)
{
	float best = -INFINITY;
	int32_t token = -1;
	for (uint32_t id = 0; id < masks->rig.n_vocab; id++) {
		if (!(masks->allowed[id / 32] >> id % 32 & 1))
			continue;
		masks->noise = masks->noise * 6364136223846793005u + 1442695040888963407u;
		float u = ((float)(masks->noise >> 40) + 0.5f) / 16777216.0f;
		float x = masks->rig.logits[id] - logf(-logf(u));
		if (x > best) {
			best = x;
			token = (int32_t)id;
		}
	}
	return token;
}

/* One answer: up to its end, or plan->tokens. */
static enum svc_code answer(const struct bench_plan *plan, struct masks *masks, struct gr_seq *seq,
			    struct svc_err *err)
{
	struct rig *rig = &masks->rig;
	enum svc_code code = bench_rig_prefill(plan, rig, err);
	for (uint32_t i = 0; code == SVC_OK && i + 1 < plan->tokens; i++) {
		double start = bench_now();
		code = gr_seq_mask(seq, false, masks->allowed, err);
		masks->mask_us[masks->n_steps] = (bench_now() - start) * 1e6;
		int32_t token = code == SVC_OK ? draw(masks) : -1;
		if (token < 0 || !gr_seq_push(seq, tok_token_bytes(masks->tok, token)))
			break;
		rig->tokens[plan->prompt_tokens + i] = token;
		rig->seqs[0] = bench_rig_part(rig, 0, plan->prompt_tokens + i, 1, true);
		struct engine_batch batch = {.seqs = rig->seqs, .n_seqs = 1};
		start = bench_now();
		code = engine_step(rig->engine, &batch, err);
		masks->step_us[masks->n_steps++] = (bench_now() - start) * 1e6;
	}
	return code;
}

/* ---- what is printed ---- */

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return left < right ? -1 : left > right;
}

static double sum(const double *values, uint32_t n)
{
	double total = 0;
	for (uint32_t i = 0; i < n; i++)
		total += values[i];
	return total;
}

static void print_runs(const char *name, struct masks *masks, uint32_t from, uint32_t to)
{
	double *mask = masks->mask_us + from;
	uint32_t n = to - from;
	if (n == 0)
		return;
	double share = 100 * sum(mask, n) / sum(masks->step_us + from, n);
	qsort(mask, n, sizeof *mask, ascending);
	printf("%-24s %7u %11.1f %11.1f %11.1f %12.2f\n", name, n, mask[n / 2],
	       mask[(size_t)n * 99 / 100], mask[n - 1], share);
}

static void print_masks(const struct bench_plan *plan, struct masks *masks)
{
	uint32_t first = masks->run_ends[0], n = masks->n_steps;
	double *steps = malloc((n + (size_t)1) * sizeof *steps);
	if (!steps)
		return;
	memcpy(steps, masks->step_us, n * sizeof *steps);
	qsort(steps, n, sizeof *steps, ascending);
	printf("%s, %u tokens in the vocabulary, a step takes %.0f us (median)\n", plan->grammar,
	       masks->rig.n_vocab, n ? steps[n / 2] : 0.0);
	printf("%-24s %7s %11s %11s %11s %12s\n", "masks", "tokens", "median us", "p99 us",
	       "longest us", "% of steps");
	print_runs("first answer", masks, 0, first);
	print_runs("later answers", masks, first, n);
	free(steps);
}

enum svc_code bench_masks(const struct bench_plan *plan, struct svc_err *err)
{
	struct masks masks = {0};
	enum svc_code code = masks_open(plan, &masks, err);
	for (uint32_t i = 0; code == SVC_OK && i < plan->runs; i++) {
		struct gr_seq seq = {0};
		code = gr_seq_open(masks.guide, &seq, err);
		if (code == SVC_OK)
			code = answer(plan, &masks, &seq, err);
		gr_seq_close(&seq);
		masks.run_ends[i] = masks.n_steps;
	}
	if (code == SVC_OK)
		print_masks(plan, &masks);
	masks_close(&masks);
	return code;
}
