/* The engine alone: greedy decoding over its own argmax, nothing shared, nothing sent. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/bench_rig.h"
#include "model/open.h"

static enum svc_code open_engine(const struct bench_plan *bench, struct rig *rig,
				 struct svc_err *err)
{
	rig->ctx = bench->prompt_tokens + bench->tokens;
	enum svc_code code = model_open(bench->model, NULL, &rig->gguf, err);
	if (code == SVC_OK)
		code = plan_open(rig->gguf, rig->ctx, &rig->plan, err);
	if (code != SVC_OK)
		return code;
	size_t bytes = (rig->plan->total_bytes + 4095) & ~(size_t)4095;
	rig->region = aligned_alloc(1u << 21, (bytes + (1u << 21) - 1) & ~(((size_t)1 << 21) - 1));
	if (!rig->region)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the weights");
	madvise(rig->region, bytes, MADV_HUGEPAGE);
	struct region_job job = {rig->gguf,   rig->plan, region_model_hash(rig->gguf),
				 rig->region, NULL,	 NULL};
	code = region_pack(&job, NULL, err);
	struct engine_options options = {
		.region = rig->region,
		.region_bytes = rig->plan->total_bytes,
		.isa = bench->isa,
		.threads = bench->threads,
		.max_rows = BENCH_CHUNK > bench->streams ? BENCH_CHUNK : bench->streams,
		.max_seqs = bench->streams,
	};
	if (code == SVC_OK)
		code = engine_family_parse(bench->family, &options.family, err);
	if (code == SVC_OK)
		code = engine_open(&options, &rig->engine, err);
	return code;
}

static enum svc_code open_memory(const struct bench_plan *bench, struct rig *rig,
				 struct svc_err *err)
{
	const struct engine_info *info = engine_info(rig->engine);
	rig->pages_each = (rig->ctx + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
	rig->n_vocab = info->config.n_vocab;
	uint32_t n_pages = rig->pages_each * bench->streams;
	rig->pages =
		aligned_alloc(4096, ((size_t)n_pages * info->page_bytes + 4095) & ~(size_t)4095);
	rig->seqs = calloc(bench->streams, sizeof *rig->seqs);
	rig->tokens = calloc((size_t)bench->streams * rig->ctx, sizeof *rig->tokens);
	rig->tables = calloc(n_pages, sizeof *rig->tables);
	rig->logits = calloc((size_t)bench->streams * rig->n_vocab, sizeof *rig->logits);
	if (!rig->pages || !rig->seqs || !rig->tokens || !rig->tables || !rig->logits)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %u KV pages", n_pages);
	for (uint32_t i = 0; i < n_pages; i++)
		rig->tables[i] = i;
	return engine_set_pages(rig->engine, rig->pages, info->page_bytes, n_pages, err);
}

void bench_rig_close(struct rig *rig)
{
	engine_close(rig->engine);
	plan_close(rig->plan);
	gguf_close(rig->gguf);
	free(rig->region);
	free(rig->pages);
	free(rig->seqs);
	free(rig->tokens);
	free(rig->tables);
	free(rig->logits);
}

struct engine_seq bench_rig_part(struct rig *rig, uint32_t stream, uint32_t pos, uint32_t n,
				 bool logits)
{
	return (struct engine_seq){
		.tokens = rig->tokens + (size_t)stream * rig->ctx + pos,
		.n_tokens = n,
		.pos = pos,
		.pages = rig->tables + (size_t)stream * rig->pages_each,
		.n_pages = rig->pages_each,
		.n_logits = logits,
		.logits = rig->logits + (size_t)stream * rig->n_vocab,
		.logits_stride = rig->n_vocab,
	};
}

enum svc_code bench_rig_open(const struct bench_plan *bench, struct rig *ret_rig,
			     struct svc_err *err)
{
	*ret_rig = (struct rig){0};
	enum svc_code code = open_engine(bench, ret_rig, err);
	return code == SVC_OK ? open_memory(bench, ret_rig, err) : code;
}

static void fill_prompts(struct rig *rig, uint32_t n)
{
	uint32_t seed = 1;
	for (uint32_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		rig->tokens[i] =
			(int32_t)((seed >> 8) % (rig->n_vocab < 30000 ? rig->n_vocab : 30000));
	}
}

enum svc_code bench_rig_prefill(const struct bench_plan *bench, struct rig *rig,
				struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	fill_prompts(rig, bench->streams * rig->ctx);
	for (uint32_t stream = 0; stream < bench->streams; stream++)
		for (uint32_t pos = 0; pos < bench->prompt_tokens && code == SVC_OK;
		     pos += BENCH_CHUNK) {
			uint32_t left = bench->prompt_tokens - pos,
				 n = left < BENCH_CHUNK ? left : BENCH_CHUNK;
			rig->seqs[0] = bench_rig_part(rig, stream, pos, n, n == left);
			struct engine_batch batch = {.seqs = rig->seqs, .n_seqs = 1};
			code = engine_step(rig->engine, &batch, err);
		}
	return code;
}

static enum svc_code decode(const struct bench_plan *bench, struct rig *rig, struct svc_err *err)
{
	enum svc_code code = SVC_OK;
	for (uint32_t i = 0; i + 1 < bench->tokens && code == SVC_OK; i++) {
		uint32_t pos = bench->prompt_tokens + i;
		for (uint32_t stream = 0; stream < bench->streams; stream++) {
			const float *logits = rig->logits + (size_t)stream * rig->n_vocab;
			rig->tokens[(size_t)stream * rig->ctx + pos] =
				engine_likeliest(logits, rig->n_vocab);
			rig->seqs[stream] = bench_rig_part(rig, stream, pos, 1, true);
		}
		struct engine_batch batch = {.seqs = rig->seqs, .n_seqs = bench->streams};
		code = engine_step(rig->engine, &batch, err);
	}
	return code;
}

static enum svc_code run_once(const struct bench_plan *bench, struct rig *rig,
			      struct bench_result *ret, struct svc_err *err)
{
	double start = bench_now();
	enum svc_code code = bench_rig_prefill(bench, rig, err);
	double middle = bench_now();
	if (code == SVC_OK)
		code = decode(bench, rig, err);
	double end = bench_now();
	*ret = (struct bench_result){
		.prompt_s = middle - start,
		.decode_s = end - middle,
		.total_s = end - start,
		.prompt_tokens = (uint64_t)bench->prompt_tokens * bench->streams,
		.tokens = (uint64_t)(bench->tokens - 1) * bench->streams,
		.steps = bench->tokens - 1,
	};
	return code;
}

enum svc_code bench_engine(const struct bench_plan *plan, struct bench_result *ret_results,
			   struct svc_err *err)
{
	struct rig rig;
	enum svc_code code = bench_rig_open(plan, &rig, err);
	/* Once without counting: caches and page tables fill. */
	for (uint32_t i = 0; code == SVC_OK && i <= plan->runs; i++)
		code = run_once(plan, &rig, &ret_results[i ? i - 1 : 0], err);
	double read_per_s = 0;
	if (code == SVC_OK)
		code = bench_read_rate(rig.region, rig.plan->total_bytes, plan->threads,
				       &read_per_s, err);
	for (uint32_t i = 0; code == SVC_OK && i < plan->runs; i++) {
		ret_results[i].token_bytes = bench_token_bytes(rig.plan);
		ret_results[i].read_per_s = read_per_s;
	}
	bench_rig_close(&rig);
	return code;
}
