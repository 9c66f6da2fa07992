#include "services/why.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shm/incarnation.h"

/* The file is one of these: what another run left in the directory says nothing of this one. */
struct note {
	uint64_t run_id;
	char text[SVC_WHY_TEXT];
};

static void note_path(const struct shm_run *run, enum shm_role role, char *path, size_t size)
{
	snprintf(path, size, "%s/%s.why", run->dir, inc_role_name(role));
}

static bool another_is_ready(const struct shm_run *run, enum shm_role role)
{
	for (uint32_t i = 1; i < INC_COUNT; i++)
		if (i != run->me && inc_role(run, i) == role && inc_is_ready(run, i) &&
		    !inc_is_dead(run, i))
			return true;
	return false;
}

void svc_why_note(const struct shm_run *run, enum shm_role role, const char *text)
{
	struct note note = {.run_id = run->ctl->header.run_id};
	char path[300];
	if (another_is_ready(run, role))
		return;
	note_path(run, role, path, sizeof path);
	snprintf(note.text, sizeof note.text, "%s", text);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	/* One that was written in part reads as none. */
	ssize_t written = pwrite(fd, &note, sizeof note, 0);
	(void)written;
	close(fd);
}

void svc_why_forget(const struct shm_run *run, enum shm_role role)
{
	char path[300];
	note_path(run, role, path, sizeof path);
	unlink(path);
}

bool svc_why_read(const struct shm_run *run, enum shm_role role, char ret_text[SVC_WHY_TEXT])
{
	struct note note;
	char path[300];
	ret_text[0] = 0;
	note_path(run, role, path, sizeof path);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bool whole = pread(fd, &note, sizeof note, 0) == (ssize_t)sizeof note;
	close(fd);
	if (!whole || note.run_id != run->ctl->header.run_id ||
	    !memchr(note.text, 0, sizeof note.text) || !note.text[0])
		return false;
	memcpy(ret_text, note.text, sizeof note.text);
	return true;
}
