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

/* Where a segment is and what it is. */
struct seg_place {
	const char *dir, *name;
	enum seg_kind kind;
	uint64_t run_id; /* seg_attach: 0 for any */
};

/* Creates `bytes` zero bytes in place->dir, mapped read-write, header filled in, not yet visible:
 * seg_unmap discards it. SVC_NO_MEMORY names the file system's or the memory cgroup's limit and how
 * much is missing. */
SVC_CHECKED enum svc_code seg_create(const struct seg_place *place, size_t bytes,
				     struct segment *ret_seg, struct svc_err *err);
/* Makes a created segment visible under its name, replacing nothing: false in *ret_won if another
 * was first (the caller then unmaps and attaches). */
SVC_CHECKED enum svc_code seg_publish(const struct seg_place *place, struct segment *seg,
				      bool *ret_won, struct svc_err *err);
/* Maps it. SVC_NOT_FOUND if it isn't there, SVC_CORRUPT (both values named) if magic, kind,
 * version, layout, size or run differ. */
SVC_CHECKED enum svc_code seg_attach(const struct seg_place *place, bool writable,
				     struct segment *ret_seg, struct svc_err *err);
void seg_unmap(struct segment *seg);

/* The one place where an offset becomes a pointer: NULL unless offset..offset+bytes lies inside the
 * segment. */
static inline void *seg_at(const struct segment *seg, uint64_t offset, uint64_t bytes)
{
	if (offset > seg->bytes || bytes > seg->bytes - offset)
		return NULL;
	return (char *)seg->base + offset;
}
