#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "services/service.h"

enum { WIDTH = 30, BAR_US = 100000, LINE_PERCENT = 10 };

struct progress progress_start(const char *what)
{
	return (struct progress){.what = what, .on_terminal = isatty(STDERR_FILENO) == 1};
}

void progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
	struct progress *p = context;
	char bar[WIDTH + 1];
	uint64_t now = svc_now_us();
	unsigned percent = total_bytes ? (unsigned)(done_bytes * 100 / total_bytes) : 100;
	bool due = p->on_terminal ? now - p->told_us >= BAR_US || done_bytes == total_bytes
				  : percent >= p->told_percent + LINE_PERCENT;
	if (!due)
		return;
	p->told_us = now;
	p->told_percent = percent - percent % LINE_PERCENT;
	unsigned filled = percent * WIDTH / 100;
	memset(bar, '.', WIDTH);
	memset(bar, '#', filled < WIDTH ? filled : WIDTH);
	bar[WIDTH] = 0;
	fprintf(stderr, "%s%s [%s] %3u%% %.1f of %.1f MiB%s", p->on_terminal ? "\r" : "", p->what,
		bar, percent, (double)done_bytes / 1048576.0, (double)total_bytes / 1048576.0,
		p->on_terminal ? "" : "\n");
}

void progress_end(struct progress *progress)
{
	if (progress->on_terminal && progress->told_us)
		fprintf(stderr, "\n");
}
