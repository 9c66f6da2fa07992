#include "base/cores.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How many numbers the file begins with, of at most two; a negative one is a huge one. */
static int read_numbers(const char *folder, const char *name, uint64_t numbers[2])
{
	char path[4200], line[64];
	int n = 0;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "re");
	char *at = file ? fgets(line, sizeof line, file) : NULL;
	for (char *end; at && n < 2; n++, at = end) {
		numbers[n] = strtoull(at, &end, 10);
		if (end == at)
			break;
	}
	if (file)
		fclose(file);
	return n;
}

/* Without a limit the files say "max 100000" and -1. */
static uint32_t limit_in(const char *folder)
{
	uint64_t v2[2], quota[2], period[2];
	if (read_numbers(folder, "cpu.max", v2) == 2)
		quota[0] = v2[0], period[0] = v2[1];
	else if (read_numbers(folder, "cpu.cfs_quota_us", quota) != 1 ||
		 read_numbers(folder, "cpu.cfs_period_us", period) != 1)
		return UINT32_MAX;
	if (quota[0] == 0 || period[0] == 0 || quota[0] / period[0] >= UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)(quota[0] / period[0] + (quota[0] % period[0] != 0));
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

/* The lines of /proc/self/cgroup are NUMBER:CONTROLLERS:GROUP; version 2 names no controllers. */
static uint32_t limit_of_line(char *line)
{
	char *controllers = strchr(line, ':');
	char *group = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!group)
		return UINT32_MAX;
	*group++ = 0;
	if (!*++controllers)
		return cores_of_group("/sys/fs/cgroup", group);
	bool is_cpu = strcmp(controllers, "cpu") == 0 || strncmp(controllers, "cpu,", 4) == 0;
	return is_cpu ? cores_of_group("/sys/fs/cgroup/cpu", group) : UINT32_MAX;
}

static uint32_t group_limit(void)
{
	char line[4100];
	uint32_t least = UINT32_MAX;
	FILE *file = fopen("/proc/self/cgroup", "re");
	while (file && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		uint32_t limit = limit_of_line(line);
		least = limit < least ? limit : least;
	}
	if (file)
		fclose(file);
	return least;
}

uint32_t cores_usable(void)
{
	cpu_set_t set;
	long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
							     : sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t limit = group_limit(), cores = n < 1 ? 1 : (uint32_t)n;
	return limit < cores ? limit : cores;
}

/* Whether no processor of a lower number shares its core. Where nothing tells, each is its own. */
static bool is_first_of_core(uint32_t core)
{
	char folder[96];
	uint64_t numbers[2] = {core};
	snprintf(folder, sizeof folder, "/sys/devices/system/cpu/cpu%u/topology", core);
	return read_numbers(folder, "thread_siblings_list", numbers) == 0 || numbers[0] == core;
}

uint32_t cores_list(uint32_t most, uint32_t *ret_cores)
{
	cpu_set_t set;
	uint32_t n = 0;
	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 0;
	for (int first = 1; first >= 0; first--)
		for (uint32_t core = 0; core < CPU_SETSIZE && n < most; core++)
			if (CPU_ISSET(core, &set) && is_first_of_core(core) == first)
				ret_cores[n++] = core;
	return n;
}
