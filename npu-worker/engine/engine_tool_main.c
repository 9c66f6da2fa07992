/* lockstep-engine-tool: the engine alone, for tests and measurements. Reads jobs as JSON lines,
 * writes their results as JSON lines.
 *
 *   {"tokens":[1,2,3], "logits":"all"|"last"|"none", "logits_at":[N, ...], "generate":N, "chunk":N,
 * "start":N}
 *   {"batch":[job, job, ...]}
 *
 * A job feeds its tokens in chunks, then its own greedy choices, N of them. The jobs of a batch
 * share their steps; one with "start" joins at that step. A result has, for every position that got
 * logits, the argmax and the XXH3-64 of the row's bytes, and the tokens that were generated. With
 * --raw FILE the rows are appended to that file as float32. */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "model/open.h"
#include "npu-worker/engine/engine.h"
#include "npu-worker/kernels/pool.h"

enum { MAX_JOBS = 64 };

struct tool {
	const char *model, *family, *isa, *region_path, *raw_path;
	uint32_t threads, ctx, chunk, max_rows;
	bool check;
	struct engine *engine;
	void *region;
	size_t region_bytes;
	FILE *raw;
};

struct job {
	int32_t *tokens; /* prompt, then what was generated */
	uint32_t *pages;
	float *logits;
	const json_t *logits_at; /* ascending positions, or NULL */
	size_t next_at;
	json_t *argmax, *hashes;
	double prompt_s, decode_s;
	uint32_t n_prompt, n_total, n_known, done; /* positions fed so far */
	uint32_t chunk, start, n_pages, decode_steps;
	enum svc_code status;
	bool all_logits, any_logits;
};

static void die(const char *what, const struct svc_err *err)
{
	fprintf(stderr, "lockstep-engine-tool: %s%s%s\n", what, err ? ": " : "",
		err ? err->msg : "");
	exit(err && err->code ? svc_code_info(err->code)->exit_status : 64);
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *map_bytes(const char *path, size_t size, bool *ret_existed)
{
	int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	*ret_existed = false;
	if (path) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		off_t length = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
		*ret_existed = length == (off_t)size;
		if (length < 0 || ftruncate(fd, (off_t)size))
			die("can't open the --region file", NULL);
		flags = MAP_SHARED;
	}
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (at == MAP_FAILED)
		die("can't map the weights region", NULL);
	if (fd >= 0)
		close(fd);
	return at;
}

static void load(struct tool *tool)
{
	struct svc_err err = {0};
	struct gguf *gguf = NULL;
	struct plan *plan = NULL;
	struct pool *pool = NULL;
	bool existed;
	if (model_open(tool->model, NULL, &gguf, &err) || plan_open(gguf, tool->ctx, &plan, &err) ||
	    pool_open(tool->threads, &pool, &err))
		die("model", &err);
	struct region_job job = {.gguf = gguf, .plan = plan, .model = region_model_hash(gguf)};
	tool->region_bytes = plan->total_bytes;
	tool->region = job.region = map_bytes(tool->region_path, plan->total_bytes, &existed);
	if (!existed && region_pack(&job, pool, &err))
		die("packing", &err);
	pool_close(pool);
	plan_close(plan);
	struct engine_options options = {.region = tool->region,
					 .region_bytes = tool->region_bytes,
					 .model = &job.model,
					 .check_content = tool->check,
					 .isa = tool->isa,
					 .threads = tool->threads,
					 .max_rows = tool->max_rows,
					 .max_seqs = MAX_JOBS};
	gguf_close(gguf);
	if (engine_family_parse(tool->family, &options.family, &err) ||
	    engine_open(&options, &tool->engine, &err))
		die("engine", &err);
}

static uint32_t number_of(const json_t *object, const char *key, uint32_t absent)
{
	const json_t *value = json_object_get(object, key);
	return json_is_integer(value) ? (uint32_t)json_integer_value(value) : absent;
}

static void read_job(const struct tool *tool, const json_t *object, struct job *job)
{
	const struct engine_info *info = engine_info(tool->engine);
	const json_t *tokens = json_object_get(object, "tokens");
	const char *logits = json_string_value(json_object_get(object, "logits"));
	*job = (struct job){.n_prompt = (uint32_t)json_array_size(tokens)};
	job->n_total = job->n_prompt + number_of(object, "generate", 0);
	job->chunk = number_of(object, "chunk", tool->chunk);
	job->start = number_of(object, "start", 0);
	job->all_logits = logits && strcmp(logits, "all") == 0;
	job->any_logits = !logits || strcmp(logits, "none") != 0;
	job->logits_at = json_object_get(object, "logits_at");
	if (!job->n_prompt || job->n_total > info->ctx || !job->chunk)
		die("a job needs tokens, a chunk above 0, and must fit --ctx", NULL);
	job->n_pages = (job->n_total + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS;
	size_t rows = job->all_logits ? job->chunk : 1;
	job->tokens = calloc(job->n_total, sizeof *job->tokens);
	job->pages = calloc(job->n_pages, sizeof *job->pages);
	job->logits = calloc(rows * info->config.n_vocab, sizeof(float));
	job->argmax = json_array();
	job->hashes = json_array();
	if (!job->tokens || !job->pages || !job->logits)
		die("no memory for a job", NULL);
	for (uint32_t i = 0; i < job->n_prompt; i++)
		job->tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
	job->n_known = job->n_prompt;
}

static int32_t argmax_of(const float *row, uint32_t n)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < n; i++)
		best = row[i] > row[best] ? i : best;
	return (int32_t)best;
}

static void take_row(struct tool *tool, struct job *job, const float *row, bool last)
{
	uint32_t vocab = engine_info(tool->engine)->config.n_vocab;
	int32_t best = argmax_of(row, vocab);
	char hash[17];
	snprintf(hash, sizeof hash, "%016" PRIx64, (uint64_t)XXH3_64bits(row, vocab * sizeof *row));
	json_array_append_new(job->argmax, json_integer(best));
	json_array_append_new(job->hashes, json_string(hash));
	if (tool->raw && fwrite(row, sizeof *row, vocab, tool->raw) != vocab)
		die("can't write the --raw file", NULL);
	if (last && job->n_known < job->n_total)
		job->tokens[job->n_known++] = best;
}

/* Tokens up to the next position whose logits are listed, it included; n if none is. */
static uint32_t until_listed(struct job *job, uint32_t n, bool *ret_reached)
{
	*ret_reached = false;
	if (job->next_at == json_array_size(job->logits_at))
		return n;
	uint32_t at = (uint32_t)json_integer_value(json_array_get(job->logits_at, job->next_at));
	*ret_reached = job->done + n > at;
	job->next_at += *ret_reached;
	return *ret_reached ? at + 1 - job->done : n;
}

/* What the job puts into the next step. */
static bool next_piece(const struct tool *tool, struct job *job, uint32_t step, uint32_t room,
		       struct engine_seq *seq)
{
	uint32_t left = job->n_known - job->done;
	uint32_t count = left < job->chunk ? left : job->chunk;
	count = count < room ? count : room;
	if (job->status || job->start > step || count == 0)
		return false;
	bool wanted = job->done + count == job->n_known &&
		      (job->any_logits || job->n_known < job->n_total);
	if (job->logits_at)
		count = until_listed(job, count, &wanted);
	*seq = (struct engine_seq){.tokens = job->tokens + job->done,
				   .n_tokens = count,
				   .pos = job->done,
				   .pages = job->pages,
				   .n_pages = job->n_pages,
				   .n_logits = job->all_logits ? count : wanted,
				   .logits = job->logits,
				   .logits_stride = engine_info(tool->engine)->config.n_vocab};
	return true;
}

static void finish_piece(struct tool *tool, struct job *job, const struct engine_seq *seq,
			 double took)
{
	bool decoding = job->done >= job->n_prompt;
	job->status = seq->status;
	job->done += seq->n_tokens;
	job->decode_steps += decoding;
	*(decoding ? &job->decode_s : &job->prompt_s) += took;
	for (uint32_t i = 0; i < seq->n_logits && !seq->status; i++)
		take_row(tool, job, seq->logits + i * seq->logits_stride,
			 i + 1 == seq->n_logits && job->done == job->n_known);
}

static void run_jobs(struct tool *tool, struct job *jobs, uint32_t n_jobs)
{
	for (uint32_t step = 0;; step++) {
		struct engine_seq seqs[MAX_JOBS];
		uint32_t owner[MAX_JOBS], n = 0, room = tool->max_rows;
		bool waiting = false;
		for (uint32_t j = 0; j < n_jobs; j++) {
			waiting |= jobs[j].start > step;
			if (next_piece(tool, &jobs[j], step, room, &seqs[n])) {
				room -= seqs[n].n_tokens;
				owner[n++] = j;
			}
		}
		if (n == 0 && !waiting)
			return;
		struct engine_batch batch = {.seqs = seqs, .n_seqs = n};
		struct svc_err err = {0};
		double start = seconds();
		if (engine_step(tool->engine, &batch, &err))
			die("step", &err);
		double took = seconds() - start;
		for (uint32_t i = 0; i < n; i++)
			finish_piece(tool, &jobs[owner[i]], &seqs[i], took);
	}
}

/* Pages of all jobs come from one pool, dealt out in turn, so that neighbours belong to different
 * sequences; they start full of NaNs. */
static void *deal_pages(const struct tool *tool, struct job *jobs, uint32_t n_jobs)
{
	const struct engine_info *info = engine_info(tool->engine);
	uint32_t count = 0, longest = 0;
	struct svc_err err = {0};
	for (uint32_t j = 0; j < n_jobs; j++)
		longest = jobs[j].n_pages > longest ? jobs[j].n_pages : longest;
	for (uint32_t p = 0; p < longest; p++) {
		for (uint32_t j = 0; j < n_jobs; j++) {
			if (p < jobs[j].n_pages)
				jobs[j].pages[p] = count++;
		}
	}
	void *base = aligned_alloc(64, count * info->page_bytes);
	if (!base)
		die("no memory for KV pages", NULL);
	memset(base, 0xff, count * info->page_bytes);
	if (engine_set_pages(tool->engine, base, info->page_bytes, count, &err))
		die("pages", &err);
	return base;
}

static json_t *result_of(struct job *job)
{
	json_t *tokens = json_array();
	for (uint32_t i = job->n_prompt; i < job->n_known; i++)
		json_array_append_new(tokens, json_integer(job->tokens[i]));
	json_t *result =
		json_pack("{s:s, s:o, s:o, s:o, s:f, s:f}", "status",
			  job->status ? svc_code_info(job->status)->name : "ok", "argmax",
			  job->argmax, "xxh3", job->hashes, "tokens", tokens, "prompt_tokens_per_s",
			  job->n_prompt / job->prompt_s, "decode_tokens_per_s",
			  job->decode_steps ? job->decode_steps / job->decode_s : 0.0);
	free(job->tokens);
	free(job->pages);
	free(job->logits);
	return result;
}

static void run_line(struct tool *tool, const char *line)
{
	json_error_t where;
	json_t *root = json_loads(line, 0, &where);
	if (!root)
		die(where.text, NULL);
	json_t *batch = json_object_get(root, "batch");
	uint32_t n = batch ? (uint32_t)json_array_size(batch) : 1;
	struct job jobs[MAX_JOBS];
	if (n == 0 || n > MAX_JOBS)
		die("a batch has 1 to 64 jobs", NULL);
	for (uint32_t j = 0; j < n; j++)
		read_job(tool, batch ? json_array_get(batch, j) : root, &jobs[j]);
	void *pages = deal_pages(tool, jobs, n);
	run_jobs(tool, jobs, n);
	json_t *results = json_array();
	for (uint32_t j = 0; j < n; j++)
		json_array_append_new(results, result_of(&jobs[j]));
	json_dumpf(batch ? results : json_array_get(results, 0), stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(results);
	json_decref(root);
	free(pages);
}

static uint32_t parse_number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	if (*end || !*text || value == 0 || value > 1u << 24)
		die("a number from 1 to 16777216 is needed", NULL);
	return (uint32_t)value;
}

static void parse_options(struct tool *tool, int argc, char **argv)
{
	struct {
		const char *name;
		const char **text;
		uint32_t *number;
	} options[] = {
		{"--model", &tool->model, NULL},       {"--family", &tool->family, NULL},
		{"--isa", &tool->isa, NULL},	       {"--region", &tool->region_path, NULL},
		{"--raw", &tool->raw_path, NULL},      {"--threads", NULL, &tool->threads},
		{"--ctx", NULL, &tool->ctx},	       {"--chunk", NULL, &tool->chunk},
		{"--max-rows", NULL, &tool->max_rows},
	};
	for (int i = 1; i < argc; i++) {
		unsigned o = 0, count = sizeof options / sizeof options[0];
		if (strcmp(argv[i], "--check") == 0) {
			tool->check = true;
			continue;
		}
		while (o < count && strcmp(argv[i], options[o].name) != 0)
			o++;
		if (o == count || i + 1 == argc)
			die("usage: lockstep-engine-tool --model FILE [--family F] [--isa X] "
			    "[--threads N] [--ctx N] "
			    "[--chunk N] [--max-rows N] [--region FILE] [--check] [--raw FILE] < "
			    "jobs",
			    NULL);
		if (options[o].text)
			*options[o].text = argv[++i];
		else
			*options[o].number = parse_number(argv[++i]);
	}
	if (!tool->model)
		die("--model is needed", NULL);
}

int main(int argc, char **argv)
{
	struct tool tool = {.family = "a16-v1",
			    .isa = "auto",
			    .threads = 1,
			    .ctx = 4096,
			    .chunk = 512,
			    .max_rows = 512};
	parse_options(&tool, argc, argv);
	double start = seconds();
	load(&tool);
	fprintf(stderr, "loaded in %.3f s\n", seconds() - start);
	if (tool.raw_path && !(tool.raw = fopen(tool.raw_path, "wb")))
		die("can't open the --raw file", NULL);
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0)
		run_line(&tool, line);
	free(line);
	if (tool.raw && fclose(tool.raw))
		die("can't write the --raw file", NULL);
	engine_close(tool.engine);
	munmap(tool.region, tool.region_bytes);
	return 0;
}
