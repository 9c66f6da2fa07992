#include "verify/capture_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- writing */

struct vfy_writer {
	char *folder;
	FILE *file;
	uint8_t *raw, *stored;
	size_t raw_room, stored_room;
	uint64_t n_frames, n_records, raw_bytes, stored_bytes;
};

enum svc_code vfy_writer_open(const char *folder, struct vfy_writer **ret_writer,
			      struct svc_err *err)
{
	char path[4096];
	if (mkdir(folder, 0777) && errno != EEXIST)
		return svc_fail_errno(err, __func__, "can't make the folder %s", folder);
	snprintf(path, sizeof path, "%s/records.lz4", folder);
	if (access(path, F_OK) == 0)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"%s is there already; captures are not overwritten: remove it or "
				"name another folder",
				path);
	struct vfy_writer *writer = calloc(1, sizeof *writer);
	if (writer)
		writer->folder = strdup(folder);
	if (!writer || !writer->folder) {
		vfy_writer_close(writer);
		return svc_fail_errno(err, __func__, "no memory");
	}
	writer->file = fopen(path, "wb");
	if (!writer->file) {
		vfy_writer_close(writer);
		return svc_fail_errno(err, __func__, "can't make %s", path);
	}
	*ret_writer = writer;
	return SVC_OK;
}

static bool grow(uint8_t **bytes, size_t *room, size_t need)
{
	if (need <= *room)
		return true;
	uint8_t *larger = realloc(*bytes, need);
	if (!larger)
		return false;
	*bytes = larger;
	*room = need;
	return true;
}

/* writer->raw[0 .. len) becomes a frame of the file. */
static enum svc_code put_frame(struct vfy_writer *w, size_t len, struct svc_err *err)
{
	LZ4F_preferences_t preferences = {
		.frameInfo = {.blockSizeID = LZ4F_max4MB,
			      .contentChecksumFlag = LZ4F_contentChecksumEnabled,
			      .blockChecksumFlag = LZ4F_blockChecksumEnabled,
			      .contentSize = len}};
	if (len > VFY_MAX_FRAME_BYTES)
		return svc_fail(err, SVC_TOO_LARGE, __func__,
				"one position's records take %zu bytes; at most %d are written: "
				"choose fewer --layers",
				len, VFY_MAX_FRAME_BYTES);
	if (!grow(&w->stored, &w->stored_room, LZ4F_compressFrameBound(len, &preferences)))
		return svc_fail_errno(err, __func__, "no memory for a frame");
	size_t n = LZ4F_compressFrame(w->stored, w->stored_room, w->raw, len, &preferences);
	if (LZ4F_isError(n))
		return svc_fail(err, SVC_INTERNAL, __func__, "LZ4: %s", LZ4F_getErrorName(n));
	if (fwrite(w->stored, 1, n, w->file) != n)
		return svc_fail_errno(err, __func__, "can't write the records in %s", w->folder);
	w->n_frames++;
	w->raw_bytes += len;
	w->stored_bytes += n;
	return SVC_OK;
}

enum svc_code vfy_writer_put(struct vfy_writer *w, const struct vfy_recorder *recorder,
			     struct svc_err *err)
{
	size_t len = 0;
	for (size_t i = 0; i < recorder->count; i++) {
		const void *data, *unused;
		const struct vfy_record *head = vfy_recorder_at(recorder, i, &data);
		size_t padded = (sizeof *head + head->bytes + 7) / 8 * 8;
		if (!grow(&w->raw, &w->raw_room, len + padded))
			return svc_fail_errno(err, __func__, "no memory for a frame");
		memset(w->raw + len + padded - 8, 0, 8);
		memcpy(w->raw + len, head, sizeof *head);
		memcpy(w->raw + len + sizeof *head, data, head->bytes);
		len += padded;
		w->n_records++;
		bool last = i + 1 == recorder->count ||
			    vfy_recorder_at(recorder, i + 1, &unused)->position != head->position;
		enum svc_code code = last ? put_frame(w, len, err) : SVC_OK;
		if (code)
			return code;
		len = last ? 0 : len;
	}
	return SVC_OK;
}

enum svc_code vfy_writer_finish(struct vfy_writer *w, struct vfy_manifest *manifest,
				struct svc_err *err)
{
	FILE *file = w->file;
	w->file = NULL;
	if (fclose(file))
		return svc_fail_errno(err, __func__, "can't write the records in %s", w->folder);
	manifest->n_frames = w->n_frames;
	manifest->n_records = w->n_records;
	manifest->raw_bytes = w->raw_bytes;
	manifest->stored_bytes = w->stored_bytes;
	return vfy_manifest_write(manifest, w->folder, err);
}

struct vfy_writer *vfy_writer_close(struct vfy_writer *w)
{
	if (!w)
		return NULL;
	if (w->file)
		fclose(w->file);
	free(w->folder);
	free(w->raw);
	free(w->stored);
	free(w);
	return NULL;
}

/* ---- reading */

struct vfy_reader {
	struct vfy_manifest manifest;
	uint8_t *map;
	size_t len, at;
	uint64_t frames, records;
	bool begun;
	uint32_t position; /* of the last frame */
};

static enum svc_code corrupt(struct svc_err *err, const char *what)
{
	return svc_fail(err, SVC_CORRUPT, "capture", "the records are damaged: %s", what);
}

/* Whether the numbers of a head can be true, and its data fit into `left` bytes. */
static bool head_is_sound(const struct vfy_record *head, size_t left)
{
	static const uint32_t sizes[VFY_RECORD_TYPE_COUNT] = {4, 2, 1};
	if (head->type >= VFY_RECORD_TYPE_COUNT || left < sizeof *head ||
	    head->bytes > left - sizeof *head)
		return false;
	uint64_t elements = (uint64_t)head->rows * head->cols;
	return elements <= UINT32_MAX && elements * sizes[head->type] == head->bytes;
}

/* The records of a frame whose bytes are in recorder->bytes[0 .. len). */
static enum svc_code index_frame(struct vfy_recorder *r, struct svc_err *err)
{
	struct vfy_record before = {0};
	for (size_t at = 0; at < r->len;) {
		struct vfy_record head;
		if (r->len - at < sizeof head)
			return corrupt(err, "a record's head is cut");
		memcpy(&head, r->bytes + at, sizeof head);
		if (!head_is_sound(&head, r->len - at))
			return corrupt(err, "a record's type, shape and length don't agree");
		if (r->count &&
		    (vfy_record_order(&before, &head) >= 0 || before.position != head.position))
			return corrupt(err, "records are out of order");
		if (XXH3_64bits(r->bytes + at + sizeof head, head.bytes) != head.xxh3)
			return corrupt(err, "a record's checksum is wrong");
		if (r->count == r->offsets_room) {
			size_t room = r->count * 2 + 64;
			size_t *offsets = realloc(r->offsets, room * sizeof *offsets);
			if (!offsets)
				return svc_fail_errno(err, __func__, "no memory");
			r->offsets = offsets;
			r->offsets_room = room;
		}
		r->offsets[r->count++] = at;
		before = head;
		at += (sizeof head + (size_t)head.bytes + 7) / 8 * 8;
	}
	return r->count ? SVC_OK : corrupt(err, "a frame is empty");
}

/* Room for a frame's content. `len` bytes of LZ4 make at most 255 times as many. */
static enum svc_code make_room(LZ4F_dctx *context, const uint8_t *stored, size_t len,
			       struct vfy_recorder *r, size_t *ret_head, struct svc_err *err)
{
	LZ4F_frameInfo_t info = {0};
	*ret_head = len;
	size_t hint = LZ4F_getFrameInfo(context, &info, stored, ret_head);
	if (LZ4F_isError(hint))
		return svc_fail(err, SVC_CORRUPT, "capture", "the records are damaged: LZ4: %s",
				LZ4F_getErrorName(hint));
	if (info.contentSize == 0 || info.contentSize > VFY_MAX_FRAME_BYTES ||
	    info.contentSize / 255 > len)
		return corrupt(err, "a frame's size is impossible");
	if (!grow(&r->bytes, &r->room, (size_t)info.contentSize))
		return svc_fail_errno(err, __func__, "no memory for a frame of %llu bytes",
				      info.contentSize);
	r->len = (size_t)info.contentSize;
	return SVC_OK;
}

static enum svc_code decompress(LZ4F_dctx *context, const uint8_t *stored, size_t len,
				struct vfy_recorder *r, size_t *ret_used, struct svc_err *err)
{
	size_t used, made = 0, hint = 1;
	enum svc_code code = make_room(context, stored, len, r, &used, err);
	while (!code && hint) {
		size_t in = len - used, out = r->len - made;
		hint = LZ4F_decompress(context, r->bytes + made, &out, stored + used, &in, NULL);
		if (LZ4F_isError(hint))
			return svc_fail(err, SVC_CORRUPT, "capture",
					"the records are damaged: LZ4: %s",
					LZ4F_getErrorName(hint));
		used += in;
		made += out;
		if (hint && in == 0 && out == 0)
			return corrupt(err, "a frame is cut");
	}
	if (!code && made != r->len)
		return corrupt(err, "a frame's size is wrong");
	*ret_used = used;
	return code;
}

enum svc_code vfy_frame_read(const uint8_t *stored, size_t len, struct vfy_recorder *recorder,
			     size_t *ret_used, struct svc_err *err)
{
	LZ4F_dctx *context = NULL;
	vfy_recorder_clear(recorder);
	if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for LZ4");
	enum svc_code code = decompress(context, stored, len, recorder, ret_used, err);
	LZ4F_freeDecompressionContext(context);
	if (!code)
		code = index_frame(recorder, err);
	if (code)
		vfy_recorder_clear(recorder);
	return code;
}

static enum svc_code map_records(struct vfy_reader *reader, const char *folder, struct svc_err *err)
{
	char path[4096];
	struct stat about;
	snprintf(path, sizeof path, "%s/records.lz4", folder);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return svc_fail_errno(err, __func__, "can't open %s", path);
	enum svc_code code = SVC_OK;
	if (fstat(fd, &about))
		code = svc_fail_errno(err, __func__, "can't look at %s", path);
	else if ((uint64_t)about.st_size != reader->manifest.stored_bytes)
		code = svc_fail(err, SVC_CORRUPT, __func__,
				"%s has %jd bytes; its manifest says %" PRIu64, path,
				(intmax_t)about.st_size, reader->manifest.stored_bytes);
	reader->len = code ? 0 : (size_t)about.st_size;
	if (!code && reader->len) {
		void *map = mmap(NULL, reader->len, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map == MAP_FAILED)
			code = svc_fail_errno(err, __func__, "can't map %s", path);
		else
			reader->map = map;
	}
	close(fd);
	return code;
}

enum svc_code vfy_reader_open(const char *folder, struct vfy_reader **ret_reader,
			      struct svc_err *err)
{
	struct vfy_reader *reader = calloc(1, sizeof *reader);
	if (!reader)
		return svc_fail_errno(err, __func__, "no memory");
	enum svc_code code = vfy_manifest_read(folder, &reader->manifest, err);
	if (!code)
		code = map_records(reader, folder, err);
	if (code)
		vfy_reader_close(reader);
	else
		*ret_reader = reader;
	return code;
}

const struct vfy_manifest *vfy_reader_manifest(const struct vfy_reader *reader)
{
	return &reader->manifest;
}

enum svc_code vfy_reader_next(struct vfy_reader *reader, struct vfy_recorder *recorder,
			      struct svc_err *err)
{
	vfy_recorder_clear(recorder);
	if (reader->at == reader->len) {
		bool all = reader->frames == reader->manifest.n_frames &&
			   reader->records == reader->manifest.n_records;
		return all ? SVC_OK : corrupt(err, "frames are missing or too many");
	}
	size_t used = 0;
	enum svc_code code = vfy_frame_read(reader->map + reader->at, reader->len - reader->at,
					    recorder, &used, err);
	if (code)
		return code;
	const void *data;
	uint32_t position = vfy_recorder_at(recorder, 0, &data)->position;
	if (reader->begun && position <= reader->position)
		return corrupt(err, "frames are out of order");
	reader->begun = true;
	reader->position = position;
	reader->at += used;
	reader->frames++;
	reader->records += recorder->count;
	return SVC_OK;
}

struct vfy_reader *vfy_reader_close(struct vfy_reader *reader)
{
	if (!reader)
		return NULL;
	if (reader->map)
		munmap(reader->map, reader->len);
	vfy_manifest_free(&reader->manifest);
	free(reader);
	return NULL;
}
