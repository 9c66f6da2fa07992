/* verify/capture_file.h: a capture's records on disk: FOLDER/records.lz4, LZ4 frames with block and
 * content checksums and content size, one frame per position, in ascending order of positions; in
 * it the position's records in execution order, each a struct vfy_record, its data, and zeros up to
 * a multiple of 8. `lz4 -d` reads it. FOLDER/manifest.json says that it is finished. */
#pragma once
#include "verify/manifest.h"
#include "verify/record.h"

enum { VFY_MAX_FRAME_BYTES = 1 << 30 };

struct vfy_writer;
/* Makes the folder. SVC_IO if it can't; SVC_CONFLICT if it holds a capture already. */
SVC_CHECKED enum svc_code vfy_writer_open(const char *folder, struct vfy_writer **ret_writer,
					  struct svc_err *err);
/* The recorder's records, in execution order, of positions behind all written so far. */
SVC_CHECKED enum svc_code vfy_writer_put(struct vfy_writer *writer,
					 const struct vfy_recorder *recorder, struct svc_err *err);
/* Puts what was written into the manifest and writes it. */
SVC_CHECKED enum svc_code vfy_writer_finish(struct vfy_writer *writer,
					    struct vfy_manifest *manifest, struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_writer *vfy_writer_close(struct vfy_writer *writer);

struct vfy_reader;
SVC_CHECKED enum svc_code vfy_reader_open(const char *folder, struct vfy_reader **ret_reader,
					  struct svc_err *err);
const struct vfy_manifest *vfy_reader_manifest(const struct vfy_reader *reader);
/* The next frame's records replace what recorder holds; none are left: recorder->count is 0.
 * SVC_CORRUPT says what is wrong: LZ4's own checks, a length, an order, a checksum. */
SVC_CHECKED enum svc_code vfy_reader_next(struct vfy_reader *reader, struct vfy_recorder *recorder,
					  struct svc_err *err);
/* NULL is fine. Returns NULL. */
struct vfy_reader *vfy_reader_close(struct vfy_reader *reader);

/* One frame at the beginning of `stored`: its records replace what recorder holds; *ret_used bytes
 * of `stored` belong to it. */
SVC_CHECKED enum svc_code vfy_frame_read(const uint8_t *stored, size_t len,
					 struct vfy_recorder *recorder, size_t *ret_used,
					 struct svc_err *err);
