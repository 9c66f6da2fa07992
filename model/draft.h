/* model/draft.h: a file as it will be: its head, then tensors that are made strip by strip when
 * they are asked for. So a model can be converted into a file, into memory or into a hash without
 * ever being there twice. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

enum { DRAFT_NAME_BYTES = 96, DRAFT_STRIP_ROWS = 32 };

struct draft_tensor;

/* Makes strip number `strip` of a tensor (rows 32*strip and on, or all of a vector) at out: exactly
 * draft_strip_bytes(). A source that cannot be brought into the target's type without loss that
 * the format page doesn't grant is an error that names tensor and place. */
typedef enum svc_code draft_make(const struct draft_tensor *tensor, uint32_t strip, uint8_t *out,
				 struct svc_err *err);

struct draft_tensor {
	char name[DRAFT_NAME_BYTES];
	uint64_t offset, size_bytes;
	uint64_t strip_bytes; /* of every strip but the last, which may be shorter */
	draft_make *make;
	const void *recipe; /* make's own; lives in the draft's arena */
};

struct draft {
	struct buf head;
	struct draft_tensor *tensors; /* [n], by offset; gaps are zero bytes */
	size_t n;
	uint64_t total_bytes;
	struct arena arena;
};

struct draft_progress {
	void (*call)(void *context, uint64_t done_bytes, uint64_t total_bytes); /* NULL: none */
	void *context;
};

uint32_t draft_strip_count(const struct draft_tensor *tensor);
uint64_t draft_strip_bytes(const struct draft_tensor *tensor, uint32_t strip);

/* At least 1: the memory that one make() needs. */
uint64_t draft_longest_strip(const struct draft *draft);

/* Makes the whole file at memory, draft->total_bytes of zero bytes. */
SVC_CHECKED enum svc_code draft_fill(const struct draft *draft, uint8_t *memory,
				     const struct draft_progress *progress, struct svc_err *err);
/* XXH3-128 of the file's bytes: high, low. */
SVC_CHECKED enum svc_code draft_hash(const struct draft *draft,
				     const struct draft_progress *progress, uint64_t ret_hash[2],
				     struct svc_err *err);

/* Writes the file to path, under path.partial until it is whole. If an earlier run of the same
 * conversion was cut short (same head, same source: XXH3 of whatever identifies the source), what
 * it finished is checked against its journal (path.partial.journal) and kept. ret_kept: tensors
 * that were. Refuses an existing path. After the last byte the file is synced, then renamed. */
SVC_CHECKED enum svc_code draft_write(const struct draft *draft, const char *path, uint64_t source,
				      const struct draft_progress *progress, size_t *ret_kept,
				      struct svc_err *err);
void draft_free(struct draft *draft);
