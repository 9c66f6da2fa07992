/* tests/fuzz/reference_fuzz.c: a reference's .npz file as a stranger wrote it: it is refused, or
 * all of it can be read. The first byte chooses: 0 an archive as it is; else the content of one
 * array, in an archive whose checksum is right, so that the search isn't kept outside by it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "verify/reference.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_archive(const uint8_t *bytes, size_t size)
{
	struct npz *npz = NULL;
	struct vfy_reference *reference = NULL;
	struct vfy_row_distance distance;
	struct svc_err err;
	if (npz_parse(bytes, size, &npz, &err) != SVC_OK)
		return;
	if (vfy_reference_take(npz, &reference, &err) != SVC_OK)
		return;
	for (uint32_t row = 0; row < reference->rows.n; row++)
		vfy_row_compare_rows(&reference->rows, &reference->rows, row, &distance);
	vfy_reference_close(reference);
}

static uint8_t *put(uint8_t *at, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		*at++ = (uint8_t)(value >> 8 * i);
	return at;
}

/* One member "tokens.npy". */
static void wrap_and_read(const uint8_t *data, size_t size)
{
	static const char name[] = "tokens.npy";
	enum { NAME = sizeof name - 1, LOCAL = 30, MEMBER = 46, END = 22 };
	uint8_t *bytes = calloc(1, LOCAL + NAME + size + MEMBER + NAME + END), *at = bytes;
	if (!bytes)
		abort();
	at = put(at, 0x04034b50, 4) + 22;
	at = put(put(at, NAME, 2), 0, 2);
	memcpy(at, name, NAME);
	memcpy(at + NAME, data, size);
	uint8_t *directory = at + NAME + size;
	at = put(directory, 0x02014b50, 4) + 12;
	at = put(put(put(at, npz_crc32(data, size), 4), size, 4), size, 4);
	at = put(at, NAME, 2) + 16;
	memcpy(at, name, NAME);
	at = put(at + NAME, 0x06054b50, 4) + 6;
	at = put(put(at, 1, 2), MEMBER + NAME, 4);
	at = put(put(at, (uint64_t)(directory - bytes), 4), 0, 2);
	read_archive(bytes, (size_t)(at - bytes));
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 0)
		read_archive(data + 1, size - 1);
	else
		wrap_and_read(data + 1, size - 1);
	return 0;
}
