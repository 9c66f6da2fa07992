#include "npu-worker/device/backoff.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The last failures, oldest first. */
struct failures {
	uint64_t at_us[BACKOFF_FAILURES];
};

static int open_file(const char *dir, int flags)
{
	char path[4200];
	int n = snprintf(path, sizeof path, "%s/npu-failures", dir);
	return n > 0 && n < (int)sizeof path ? open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600)
					     : -1;
}

static struct failures read_file(int fd)
{
	struct failures f = {{0}};
	if (pread(fd, &f, sizeof f, 0) != (ssize_t)sizeof f)
		memset(&f, 0, sizeof f);
	return f;
}

void backoff_note(const char *dir, uint64_t now_us)
{
	int fd = open_file(dir, O_RDWR | O_CREAT);
	if (fd < 0)
		return;
	struct failures f = read_file(fd);
	memmove(f.at_us, f.at_us + 1, sizeof f.at_us - sizeof f.at_us[0]);
	f.at_us[BACKOFF_FAILURES - 1] = now_us;
	/* One that was written in part reads as none. */
	ssize_t written = pwrite(fd, &f, sizeof f, 0);
	(void)written;
	close(fd);
}

uint64_t backoff_until(const char *dir, uint64_t now_us, uint64_t pause_us)
{
	int fd = open_file(dir, O_RDONLY);
	if (fd < 0)
		return 0;
	const struct failures f = read_file(fd);
	close(fd);
	uint64_t first = f.at_us[0], last = f.at_us[BACKOFF_FAILURES - 1];
	/* Of another boot, or damaged. */
	if (!first || first > last || last > now_us)
		return 0;
	return last - first <= BACKOFF_WINDOW_US && now_us < last + pause_us ? last + pause_us : 0;
}
