/* A draft into a file, resumable: draft_write of draft.h.
 *
 * The journal is { magic, XXH3-64 of head and source } and then one XXH3-64 per finished tensor,
 * appended after the tensor's bytes were synced. On a new start each journalled tensor is read
 * back; the first that differs, and all behind it, are made again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "model/draft.h"

#define MAGIC 0x314c4e4a4b434f4cu /* "LOCKJNL1" */

struct job {
	const struct draft *draft;
	const char *path;
	const struct draft_progress *progress;
	char partial[4096 + 16], journal[4096 + 32];
	int file, log;
	uint8_t *strip;
	struct svc_err *err;
};

static enum svc_code fail(struct job *job, const char *what, const char *path)
{
	return svc_fail_errno(job->err, "draft_write", "%s %s", what, path);
}

static enum svc_code write_all(struct job *job, const void *bytes, uint64_t size, uint64_t at)
{
	const char *from = bytes;
	while (size) {
		ssize_t n = pwrite(job->file, from, size, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fail(job, "cannot write to", job->partial);
		from += n;
		at += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return SVC_OK;
}

static bool read_all(int fd, void *bytes, uint64_t size, uint64_t at)
{
	char *to = bytes;
	while (size) {
		ssize_t n = pread(fd, to, size, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		to += n;
		at += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return true;
}

/* Whether the partial file holds the tensor as it was journalled. */
static bool holds(struct job *job, const struct draft_tensor *t, XXH3_state_t *state, uint64_t hash)
{
	XXH3_64bits_reset(state);
	for (uint32_t s = 0; s < draft_strip_count(t); s++) {
		uint64_t size = draft_strip_bytes(t, s);
		if (!read_all(job->file, job->strip, size, t->offset + s * t->strip_bytes))
			return false;
		XXH3_64bits_update(state, job->strip, size);
	}
	return XXH3_64bits_digest(state) == hash;
}

/* How many tensors from the first on are there already; the journal is cut behind them. */
static enum svc_code find_kept(struct job *job, uint64_t identity, XXH3_state_t *state,
			       size_t *ret_kept)
{
	uint64_t head[2] = {0}, hash;
	size_t kept = 0;
	const uint64_t wanted[2] = {MAGIC, identity};
	bool ours =
		read_all(job->log, head, sizeof head, 0) && memcmp(head, wanted, sizeof head) == 0;
	while (ours && kept < job->draft->n &&
	       read_all(job->log, &hash, sizeof hash, sizeof head + kept * sizeof hash) &&
	       holds(job, &job->draft->tensors[kept], state, hash))
		kept++;
	if (ftruncate(job->log, (off_t)(ours ? sizeof head + kept * sizeof hash : 0)) != 0 ||
	    (!ours && ftruncate(job->file, 0) != 0))
		return fail(job, "cannot truncate", job->journal);
	if (!ours && write(job->log, wanted, sizeof wanted) != (ssize_t)sizeof wanted)
		return fail(job, "cannot write to", job->journal);
	*ret_kept = kept;
	return SVC_OK;
}

static enum svc_code write_tensor(struct job *job, const struct draft_tensor *t,
				  XXH3_state_t *state)
{
	XXH3_64bits_reset(state);
	for (uint32_t s = 0; s < draft_strip_count(t); s++) {
		uint64_t size = draft_strip_bytes(t, s), at = t->offset + s * t->strip_bytes;
		enum svc_code code = t->make(t, s, job->strip, job->err);
		if (code == SVC_OK)
			code = write_all(job, job->strip, size, at);
		if (code != SVC_OK)
			return code;
		XXH3_64bits_update(state, job->strip, size);
		if (job->progress && job->progress->call)
			job->progress->call(job->progress->context, at + size,
					    job->draft->total_bytes);
	}
	uint64_t hash = XXH3_64bits_digest(state);
	if (fdatasync(job->file) != 0)
		return fail(job, "cannot sync", job->partial);
	if (write(job->log, &hash, sizeof hash) != (ssize_t)sizeof hash)
		return fail(job, "cannot write to", job->journal);
	return SVC_OK;
}

static enum svc_code write_file(struct job *job, uint64_t source, size_t *ret_kept)
{
	const struct draft *draft = job->draft;
	size_t kept = 0;
	XXH3_state_t *state = XXH3_createState();
	uint64_t identity = XXH3_64bits_withSeed(draft->head.ptr, draft->head.len, source);
	if (!state)
		return svc_fail(job->err, SVC_NO_MEMORY, __func__, "no memory for a hash");
	enum svc_code code = find_kept(job, identity, state, &kept);
	if (code == SVC_OK)
		code = write_all(job, draft->head.ptr, draft->head.len, 0);
	for (size_t i = kept; code == SVC_OK && i < draft->n; i++)
		code = write_tensor(job, &draft->tensors[i], state);
	XXH3_freeState(state);
	if (code == SVC_OK && ftruncate(job->file, (off_t)draft->total_bytes) != 0)
		code = fail(job, "cannot size", job->partial);
	if (code == SVC_OK && fsync(job->file) != 0)
		code = fail(job, "cannot sync", job->partial);
	if (code == SVC_OK && rename(job->partial, job->path) != 0)
		code = fail(job, "cannot rename to", job->path);
	if (code == SVC_OK)
		unlink(job->journal);
	*ret_kept = kept;
	return code;
}

static enum svc_code open_files(struct job *job)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (access(job->path, F_OK) == 0)
		return svc_fail(job->err, SVC_BAD_CONFIG, "draft_write",
				"%s is there already; name another file or remove it", job->path);
	job->file = open(job->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (job->file < 0)
		return fail(job, "cannot create", job->partial);
	if (fcntl(job->file, F_OFD_SETLK, &lock) != 0)
		return fail(job, "another process is writing", job->partial);
	job->log = open(job->journal, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
	return job->log < 0 ? fail(job, "cannot create", job->journal) : SVC_OK;
}

enum svc_code draft_write(const struct draft *draft, const char *path, uint64_t source,
			  const struct draft_progress *progress, size_t *ret_kept,
			  struct svc_err *err)
{
	struct job job = {.draft = draft,
			  .path = path,
			  .progress = progress,
			  .file = -1,
			  .log = -1,
			  .err = err};
	if (strlen(path) > 4096)
		return svc_fail(err, SVC_BAD_CONFIG, __func__, "a path of %zu bytes is too long",
				strlen(path));
	snprintf(job.partial, sizeof job.partial, "%s.partial", path);
	snprintf(job.journal, sizeof job.journal, "%s.journal", job.partial);
	job.strip = malloc(draft_longest_strip(draft));
	enum svc_code code = job.strip ? open_files(&job)
				       : svc_fail(err, SVC_NO_MEMORY, __func__,
						  "no memory for a strip of weights");
	if (code == SVC_OK)
		code = write_file(&job, source, ret_kept);
	if (job.file >= 0)
		close(job.file);
	if (job.log >= 0)
		close(job.log);
	free(job.strip);
	return code;
}
