#include "keeper/threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The third field of "ID (NAME) STATE ..."; a name may hold anything, parentheses too. */
static char state_of(int tasks_fd, const char *id)
{
	char path[300], text[256];
	snprintf(path, sizeof path, "%s/stat", id);
	int fd = openat(tasks_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	const char *end = strrchr(text, ')');
	return end && end[1] == ' ' ? end[2] : 0;
}

bool threads_any_is(pid_t pid, char state)
{
	char path[32];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);
	if (!tasks)
		return false;
	for (const struct dirent *task; !found && (task = readdir(tasks));)
		found = task->d_name[0] != '.' && state_of(dirfd(tasks), task->d_name) == state;
	closedir(tasks);
	return found;
}
