/* cli/progress.h: a bar on a terminal, a line now and then elsewhere; both on stderr. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	uint64_t told_us;
	unsigned told_percent;
	bool on_terminal;
};

struct progress progress_start(const char *what);
/* A draft_progress callback; context is the struct progress. */
void progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes);
/* Ends the bar's line. */
void progress_end(struct progress *progress);
