#include "shm/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number after `key` at a line's beginning ("": the file's only number); `fallback` if there is
 * none ("max" is none). */
static uint64_t read_number(const char *dir, const char *name, const char *key, uint64_t fallback)
{
	char path[1024], line[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *file = fopen(path, "re");
	uint64_t number = fallback;
	while (file && fgets(line, sizeof line, file)) {
		const char *text = line + strlen(key);
		if (strncmp(line, key, strlen(key)) != 0 || *text < '0' || *text > '9')
			continue;
		number = strtoull(text, NULL, 10);
		break;
	}
	if (file)
		fclose(file);
	return number;
}

static uint64_t room_of(const char *dir)
{
	uint64_t limit = read_number(dir, "memory.max", "", UINT64_MAX);
	if (limit == UINT64_MAX)
		return UINT64_MAX;
	uint64_t used = read_number(dir, "memory.current", "", 0);
	/* Of the page cache, shared memory can't be dropped. */
	uint64_t cache = read_number(dir, "memory.stat", "file ", 0),
		 shared = read_number(dir, "memory.stat", "shmem ", 0);
	uint64_t droppable = cache > shared ? cache - shared : 0;
	used = used > droppable ? used - droppable : 0;
	return limit > used ? limit - used : 0;
}

/* "0::/path", the only line of version 2. */
static void find_group(const char *membership, char *path, size_t size)
{
	FILE *file = fopen(membership, "re");
	char line[512];
	*path = 0;
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, "0::/", 4) == 0)
			snprintf(path, size, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	if (file)
		fclose(file);
}

uint64_t cgroup_room(const char *mount, const char *membership)
{
	char group[512], dir[1024];
	uint64_t room = UINT64_MAX;
	find_group(membership, group, sizeof group);
	for (;;) {
		snprintf(dir, sizeof dir, "%.256s%.512s", mount, group);
		uint64_t here = room_of(dir);
		if (here < room)
			room = here;
		char *slash = strrchr(group, '/');
		if (!slash)
			return room;
		*slash = 0;
	}
}
