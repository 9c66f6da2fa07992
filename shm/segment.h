/* shm/segment.h: files that are mapped. A segment is built without a name, its space reserved (so
 * that a full tmpfs is an error here and never a SIGBUS later), and gets its name when it is
 * complete. What a builder that died has left goes with it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "shm/layout.h"

struct segment {
	void *base; /* page aligned; NULL: not mapped */
	size_t bytes;
	bool writable;
	int unnamed_fd; /* between seg_create and seg_publish; 0: none */
};

/* Hash over sizes and offsets of everything in layout.h. */
uint64_t seg_layout_hash(void);

/* Creates `bytes` zero bytes in dir, mapped read-write, header filled in, not yet visible:
 * seg_unmap discards it. `name` is for messages. SVC_NO_MEMORY names the file system's or the
 * memory cgroup's limit and how much is missing. */
SVC_CHECKED enum svc_code seg_create(const char *dir, const char *name, enum seg_kind kind,
				     size_t bytes, uint64_t run_id, struct segment *ret_seg,
				     struct svc_err *err);
/* Makes a created segment visible as dir/name, replacing nothing: false in *ret_won if another was
 * first (the caller then unmaps and attaches). */
SVC_CHECKED enum svc_code seg_publish(const char *dir, const char *name, struct segment *seg,
				      bool *ret_won, struct svc_err *err);
/* Maps dir/name. SVC_NOT_FOUND if it isn't there, SVC_CORRUPT (both values named) if magic, kind,
 * version, layout, size or run (0: any) differ. */
SVC_CHECKED enum svc_code seg_attach(const char *dir, const char *name, enum seg_kind kind,
				     bool writable, uint64_t run_id, struct segment *ret_seg,
				     struct svc_err *err);
void seg_unmap(struct segment *seg);

/* The one place where an offset becomes a pointer: NULL unless offset..offset+bytes lies inside the
 * segment. */
static inline void *seg_at(const struct segment *seg, uint64_t offset, uint64_t bytes)
{
	if (offset > seg->bytes || bytes > seg->bytes - offset)
		return NULL;
	return (char *)seg->base + offset;
}
