#include "base/cores.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint32_t limit_in(const char *folder)
{
	char path[4200];
	uint64_t quota, period;
	snprintf(path, sizeof path, "%s/cpu.max", folder);
	FILE *file = fopen(path, "re");
	if (!file)
		return UINT32_MAX;
	/* "max 100000": no limit. */
	int n = fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period);
	fclose(file);
	if (n != 2 || quota == 0 || period == 0 || quota / period >= UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)(quota / period + (quota % period != 0));
}

uint32_t cores_of_group(const char *root, const char *group)
{
	char folder[4100];
	int len = snprintf(folder, sizeof folder, "%s%s", root, group);
	if (len < 0 || (size_t)len >= sizeof folder)
		return UINT32_MAX;
	size_t root_len = strlen(root);
	uint32_t least = limit_in(folder);
	for (char *end; (end = strrchr(folder + root_len, '/'));) {
		*end = 0;
		uint32_t limit = limit_in(folder);
		least = limit < least ? limit : least;
	}
	return least;
}

static uint32_t group_limit(void)
{
	char line[4100];
	uint32_t limit = UINT32_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, "0::", 3) == 0)
			limit = cores_of_group("/sys/fs/cgroup", line + 3);
	}
	if (file)
		fclose(file);
	return limit;
}

uint32_t cores_usable(void)
{
	cpu_set_t set;
	long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
							     : sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t limit = group_limit(), cores = n < 1 ? 1 : (uint32_t)n;
	return limit < cores ? limit : cores;
}
