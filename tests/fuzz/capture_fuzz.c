/* tests/fuzz/capture_fuzz.c: a capture's files as a stranger wrote them: they are refused, or what
 * was read is whole. The first byte chooses: 0 a manifest, 1 a stored frame, else a frame's
 * content, which is compressed first, so that the search isn't kept outside by LZ4's checksums. */
#include <lz4frame.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "verify/capture_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_manifest(const uint8_t *data, size_t size)
{
	struct vfy_manifest manifest;
	struct svc_err err;
	if (vfy_manifest_parse((const char *)data, size, &manifest, &err) == SVC_OK) {
		json_decref(vfy_manifest_json(&manifest));
		vfy_manifest_free(&manifest);
	}
}

static void read_frame(const uint8_t *stored, size_t size)
{
	struct vfy_recorder recorder = {0};
	struct svc_err err;
	size_t used = 0;
	unsigned sum = 0;
	if (vfy_frame_read(stored, size, &recorder, &used, &err) == SVC_OK) {
		if (used > size || recorder.count == 0)
			abort();
		for (size_t i = 0; i < recorder.count; i++) {
			const void *bytes;
			const struct vfy_record *record = vfy_recorder_at(&recorder, i, &bytes);
			for (uint32_t b = 0; b < record->bytes; b++)
				sum += ((const uint8_t *)bytes)[b];
		}
	}
	if (sum == UINT32_MAX)
		abort(); /* the sum is used */
	vfy_recorder_free(&recorder);
}

static void compress_and_read(const uint8_t *data, size_t size)
{
	LZ4F_preferences_t preferences = {
		.frameInfo = {.contentChecksumFlag = LZ4F_contentChecksumEnabled,
			      .contentSize = size}};
	size_t room = LZ4F_compressFrameBound(size, &preferences);
	uint8_t *stored = malloc(room);
	if (!stored)
		abort();
	size_t n = LZ4F_compressFrame(stored, room, data, size, &preferences);
	if (LZ4F_isError(n))
		abort();
	read_frame(stored, n);
	free(stored);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 0)
		read_manifest(data + 1, size - 1);
	else if (data[0] == 1)
		read_frame(data + 1, size - 1);
	else
		compress_and_read(data + 1, size - 1);
	return 0;
}
