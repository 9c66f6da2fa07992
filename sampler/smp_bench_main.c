/* smp_bench [FILE]: what one token costs, by parameters and instruction set. FILE: rows of n
 * float32 logits of a model, n as SMP_BENCH_VOCAB says (default 262144); without it, normally
 * distributed ones. Rows take turns, so that a row comes from memory as one does that another
 * process has written. Prints the median in microseconds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sampler/sampler.h"

enum { N_ROWS = 24, N_ROUNDS = 96, N_SETTINGS = 13 };

struct setting {
	const char *name;
	struct body_params num;
	bool score;
};

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static float *rows_make(const char *path, uint32_t n_vocab)
{
	size_t n = (size_t)n_vocab * N_ROWS, there = 0;
	float *rows = malloc(n * sizeof *rows);
	if (!rows)
		abort();
	FILE *file = path ? fopen(path, "rb") : NULL;
	if (file) {
		there = fread(rows, sizeof *rows, n, file) / n_vocab * n_vocab;
		fclose(file);
	}
	if (path && !there) {
		fprintf(stderr, "%s: no row of %u logits in it\n", path, n_vocab);
		exit(1);
	}
	for (size_t i = 0; i < n; i++)
		if (there)
			rows[i] = rows[i % there];
		else
			rows[i] = 3 * sqrtf(-2 * logf((float)drand48() + 1e-30f)) *
				  cosf(6.2831853f * (float)drand48());
	return rows;
}

static double token_cost(const struct setting *setting, struct draw_work *work,
			 const struct smp_vocab *vocab, const float *rows)
{
	double costs[N_ROUNDS];
	int32_t prompt[500];
	struct smp_seq *seq;
	for (int32_t i = 0; i < 500; i++)
		prompt[i] = (int32_t)((uint32_t)i * 7919u % vocab->n_tokens);
	struct smp_seq_spec spec = {
		.vocab = vocab,
		.request.params = &setting->num,
		.prompt = prompt,
		.n_prompt = 500,
		.n_ctx = 4096,
	};
	if (smp_seq_open(&spec, &seq, NULL) != SVC_OK)
		abort();
	for (int i = 0; i < N_ROUNDS; i++) {
		const float *row = rows + (size_t)vocab->n_tokens * (size_t)(i % N_ROWS);
		union {
			struct body_logprob record;
			char room[256];
		} score;
		struct smp_event event;
		int32_t token;
		double began = now_us();
		enum svc_code code = smp_draw(seq, work, row, NULL, &token, NULL);
		if (code == SVC_OK && setting->score)
			code = smp_score(work, row, token, 20, &score.record, NULL);
		if (code == SVC_OK)
			code = smp_push(seq, token, &event, NULL);
		costs[i] = now_us() - began;
		if (code != SVC_OK)
			abort();
	}
	smp_seq_free(seq);
	qsort(costs, N_ROUNDS, sizeof *costs, double_compare);
	return costs[N_ROUNDS / 2];
}

static size_t settings_make(struct setting *settings)
{
	size_t n = 0;
	for (; n < N_SETTINGS; n++)
		smp_params_default(&settings[n].num);
	n = 0;
	settings[n].name = "greedy", settings[n++].num.temperature = 0;
	settings[n].name = "greedy, 20 logprobs", settings[n].num.temperature = 0,
	settings[n++].score = true;
	settings[n++].name = "temperature 1";
	settings[n].name = "temperature 0.3", settings[n++].num.temperature = 0.3f;
	settings[n].name = "top_k 40", settings[n++].num.top_k = 40;
	settings[n].name = "top_k 1000", settings[n++].num.top_k = 1000;
	settings[n].name = "top_p 0.9", settings[n++].num.top_p = 0.9f;
	settings[n].name = "min_p 0.05", settings[n++].num.min_p = 0.05f;
	settings[n].name = "typical_p 0.9", settings[n++].num.typical_p = 0.9f;
	settings[n].name = "0.7, top_k 50, top_p 0.95, penalties",
	settings[n].num.temperature = 0.7f;
	settings[n].num.top_k = 50, settings[n].num.top_p = 0.95f,
	settings[n++].num.repetition_penalty = 1.1f;
	settings[n].name = "temperature 1.5, top_p 0.95", settings[n].num.temperature = 1.5f;
	settings[n++].num.top_p = 0.95f;
	settings[n].name = "temperature 2, top_p 0.95", settings[n].num.temperature = 2;
	settings[n++].num.top_p = 0.95f;
	settings[n].name = "temperature 100, top_p 0.95 (flat)", settings[n].num.temperature = 100;
	settings[n++].num.top_p = 0.95f;
	return n;
}

int main(int argc, char **argv)
{
	const char *vocab_text = getenv("SMP_BENCH_VOCAB");
	uint32_t n_vocab = vocab_text ? (uint32_t)strtoul(vocab_text, NULL, 10) : 262144;
	float *rows = rows_make(argc > 1 ? argv[1] : NULL, n_vocab);
	struct setting settings[N_SETTINGS] = {0};
	size_t n_settings = settings_make(settings);
	struct smp_vocab vocab = {.n_tokens = n_vocab, .bytes = ""};
	vocab.offsets = calloc((size_t)n_vocab + 1, sizeof *vocab.offsets);
	vocab.flags = calloc(n_vocab, 1);
	if (!vocab.offsets || !vocab.flags)
		abort();
	printf("%-38s", "microseconds per token");
	struct draw_work *works[3] = {0};
	for (int isa = DRAW_ISA_SCALAR; isa <= DRAW_ISA_AVX512; isa++)
		if (draw_work_open(n_vocab, (enum draw_isa)isa, &works[isa - 1], NULL) == SVC_OK)
			printf("%9s", draw_kernels_get((enum draw_isa)isa)->name);
	puts("");
	for (size_t i = 0; i < n_settings; i++) {
		printf("%-38s", settings[i].name);
		for (int isa = 0; isa < 3; isa++)
			if (works[isa])
				printf("%9.0f", token_cost(&settings[i], works[isa], &vocab, rows));
		puts("");
	}
	for (int isa = 0; isa < 3; isa++)
		draw_work_free(works[isa]);
	free((void *)(uintptr_t)vocab.offsets);
	free((void *)(uintptr_t)vocab.flags);
	free(rows);
	return 0;
}
