/* gateway/file_stamp.h: has a file changed? Renamed into place, written anew, or written to. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

struct file_stamp {
	struct timespec modified;
	ino_t inode;
	off_t bytes;
};

/* All zero if there is no such file. */
static inline struct file_stamp file_stamp_of(const char *path)
{
	struct stat now;
	if (stat(path, &now) != 0)
		return (struct file_stamp){0};
	return (struct file_stamp){now.st_mtim, now.st_ino, now.st_size};
}

static inline bool file_stamp_same(struct file_stamp a, struct file_stamp b)
{
	return a.modified.tv_sec == b.modified.tv_sec && a.modified.tv_nsec == b.modified.tv_nsec &&
	       a.inode == b.inode && a.bytes == b.bytes;
}
