/* tests/xrt/softnpu/contexts_test.c: several hardware contexts of one process, through
 * liblockstep-xrt.so: which of them may run a command, and what a lost one does.
 *
 *   contexts_test MODULE PROGRAM OTHER-PROGRAM FAULTS
 *
 * A line for each thing that was tried; exit status 1 if one was not as it should be. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu-worker/device/xrt_module.h"
#include "product.h"

enum { ROWS = 16, COLS = 32, Q8_0 = 8, PAGE = 4096, ONE_HALF = 0x3c00 };
enum { STATE_COMPLETED = 4, STATE_ABORT = 6, STATE_SUBMITTED, LOOK_US = 200, LOOKS = 1000000 };
enum { STREAM, WEIGHTS, ACTS, OUTPUT, N_BUFFERS };

static const struct xrt_module *module;
static void *buffers[N_BUFFERS];
static bool failed;

static void say(const char *what, bool right, const char *why)
{
	printf("%s: %s%s%s\n", right ? "ok" : "WRONG", what, *why ? ": " : "", why);
	failed = failed || !right;
}

static void *open_context(const char *program)
{
	char why[XRT_MODULE_WHY] = "";
	void *context = NULL;
	if (module->open(program, "SOFTNPU", &context, why) != 0) {
		say(program, false, why);
		exit(1);
	}
	return context;
}

static void send(int which)
{
	char why[XRT_MODULE_WHY] = "";
	if (module->sync(buffers[which], 1, 0, PAGE, why) != 0)
		say("sync", false, why);
}

/* One token's product of a matrix whose row n is n + 1 everywhere and activations of 1/2. */
static void fill_buffers(void *context)
{
	const struct product_words words = {.magic = PRODUCT_MAGIC,
					    .operation = 1,
					    .type = Q8_0,
					    .rows = ROWS,
					    .cols = COLS,
					    .tokens = 1,
					    .steps = 64,
					    .sums = 128,
					    .stride = ROWS};
	char why[XRT_MODULE_WHY] = "";
	for (int i = 0; i < N_BUFFERS; i++)
		if (module->buffer(context, i == STREAM, NULL, PAGE, &buffers[i], why) != 0)
			say("a buffer", false, why);
	memcpy(module->buffer_memory(buffers[STREAM]), &words, sizeof words);
	uint8_t *weights = module->buffer_memory(buffers[WEIGHTS]);
	for (int row = 0; row < ROWS; row++) {
		weights[2 * row] = ONE_HALF & 255;
		weights[2 * row + 1] = ONE_HALF >> 8;
		for (int col = 0; col < COLS; col++)
			weights[2 * ROWS + col / 4 * 64 + row * 4 + col % 4] = (uint8_t)(row + 1);
	}
	int16_t *codes = module->buffer_memory(buffers[ACTS]);
	for (int col = 0; col < COLS; col++)
		codes[col] = 1;
	((float *)(void *)codes)[16] = 0.5f;
	for (int i = STREAM; i < OUTPUT; i++)
		send(i);
}

/* The state in which it ended, or a negative errno. */
static int run_in(void *context, char *why)
{
	const struct xrt_module_run run = {
		buffers[STREAM], PRODUCT_WORDS, {buffers[WEIGHTS], buffers[ACTS], buffers[OUTPUT]}};
	int state = module->submit(context, &run, 1, why);
	for (int i = 0; state >= 0 && i < LOOKS; i++) {
		state = module->state(context, why);
		if (state >= STATE_COMPLETED && state != STATE_SUBMITTED)
			return state;
		usleep(LOOK_US);
	}
	return state;
}

static void try(const char *what, void *context, bool should_run)
{
	char why[XRT_MODULE_WHY] = "", line[XRT_MODULE_WHY + 100];
	float *y = module->buffer_memory(buffers[OUTPUT]);
	for (int row = 0; row < ROWS; row++)
		y[row] = -1.0f;
	send(OUTPUT);
	int state = run_in(context, why), right = 0, untouched = 0;
	if (module->sync(buffers[OUTPUT], 0, 0, PAGE, why) != 0)
		say("sync", false, why);
	for (int row = 0; row < ROWS; row++) {
		right += y[row] == (float)(COLS * (row + 1)) * 0.5f;
		untouched += y[row] == -1.0f;
	}
	snprintf(line, sizeof line, "state %d, %d of %d right, %d untouched %s", state, right, ROWS,
		 untouched, why);
	say(what,
	    should_run ? state == STATE_COMPLETED && right == ROWS
		       : state != STATE_COMPLETED && untouched == ROWS,
	    line);
}

static void set_fault(const char *path, const char *word)
{
	FILE *file = fopen(path, "we");
	if (!file || fputs(word, file) < 0 || fclose(file) != 0)
		say(path, false, "cannot be written");
}

int main(int argc, char **argv)
{
	void *library = argc == 5 ? dlopen(argv[1], RTLD_NOW) : NULL;
	xrt_module_get *get =
		library ? (xrt_module_get *)dlsym(library, "lockstep_xrt_module") : NULL;
	if (!get)
		return fprintf(stderr, "usage: contexts_test MODULE PROGRAM OTHER FAULTS\n"), 64;
	module = get();
	void *first = open_context(argv[2]), *second = open_context(argv[2]),
	     *other = open_context(argv[3]);
	fill_buffers(first);
	try("in the context that the buffers were made with", first, true);
	try("in another of the same program", second, true);
	try("in one of another program", other, false);
	try("in the first again", first, true);
	set_fault(argv[4], "lost");
	try("while all contexts are lost", first, false);
	set_fault(argv[4], "");
	try("in a context that is lost", first, false);
	try("in another that is lost", second, false);
	try("in a new one, with the buffers of before", open_context(argv[2]), true);
	fflush(stdout);
	/* XRT's destructors would ask for contexts that are gone. */
	_exit(failed);
}
