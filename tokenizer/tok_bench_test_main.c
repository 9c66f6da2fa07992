/* tokenizer/tok_bench_test_main.c: what a byte of a long run costs, compared with a byte of prose.
 *
 *     lockstep-tok-bench MODEL PROSE_FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "tokenizer/tokenizer.h"

#define BYTES 5000000u

static double cpu_seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nanoseconds of CPU time per byte of unit, repeated to BYTES; the best of five. */
static double measure(const struct tok *tok, struct span unit)
{
	struct buf text = {0};
	double best = 0;
	while (text.len < BYTES)
		buf_span(&text, unit);
	for (int i = 0; i < 5; i++) {
		struct tok_ids ids = {0};
		struct tok_piece piece = {{text.ptr, text.len}, true};
		double start = cpu_seconds();
		enum svc_code code = tok_encode(tok, &piece, 1, NULL, &ids, NULL);
		double took = cpu_seconds() - start;
		if (code == SVC_OK && (i == 0 || took < best))
			best = took;
		tok_ids_free(&ids);
	}
	best *= 1e9 / (double)text.len;
	buf_free(&text);
	return best;
}

static void print_runs(const struct tok *tok, double prose)
{
	static const struct {
		const char *name, *unit;
	} runs[] = {{"a", "a"},
		    {"newline", "\n"},
		    {"space", " "},
		    {"\xC3\xA4", "\xC3\xA4"},
		    {"\xE6\xAD\xAA", "\xE6\xAD\xAA"},
		    {"e + acute", "e\xCC\x81"},
		    {"aB", "aB"}};
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		double cost = measure(tok, span_of(runs[i].unit));
		printf("%-10s %6.1f ns/byte, %.2f of prose\n", runs[i].name, cost, cost / prose);
	}
}

int main(int argc, char **argv)
{
	struct svc_err err;
	struct tok *tok;
	struct buf prose = {0};
	char block[65536];
	size_t n;
	FILE *file = argc == 3 ? fopen(argv[2], "rbe") : NULL;
	if (!file) {
		fputs("usage: lockstep-tok-bench MODEL PROSE_FILE\n", stderr);
		return 64;
	}
	while ((n = fread(block, 1, sizeof block, file)) > 0)
		buf_append(&prose, block, n);
	fclose(file);
	double start = cpu_seconds();
	if (prose.len == 0 ||
	    tok_open(&(struct tok_options){.path = argv[1]}, &tok, &err) != SVC_OK) {
		fprintf(stderr, "%s\n", prose.len ? err.msg : "no prose");
		return 78;
	}
	printf("open       %6.1f ms\n", (cpu_seconds() - start) * 1e3);
	double cost = measure(tok, (struct span){prose.ptr, prose.len});
	printf("prose      %6.1f ns/byte\n", cost);
	print_runs(tok, cost);
	buf_free(&prose);
	tok_free(tok);
	return 0;
}
