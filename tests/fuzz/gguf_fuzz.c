/* tests/fuzz/gguf_fuzz.c: any bytes as a GGUF file; whatever opens is walked to its last byte. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum; /* so that the reads are not optimised away */

static void walk(const struct gguf *gguf)
{
	struct span key;
	enum gguf_type type;
	for (size_t i = 0; gguf_key_at(gguf, i, &key, &type); i++) {
		char name[256];
		struct gguf_array array;
		double number;
		snprintf(name, sizeof name, "%.*s", (int)(key.len < 255 ? key.len : 255), key.ptr);
		if (gguf_f64(gguf, name, &number))
			sum += number > 0;
		if (!gguf_array(gguf, name, &array))
			continue;
		for (uint64_t at = 0; at < array.count; at++) {
			if (gguf_array_f64(&array, at, &number))
				sum += number > 0;
			for (size_t byte = 0; array.strings && byte < array.strings[at].len; byte++)
				sum += (unsigned char)array.strings[at].ptr[byte];
		}
	}
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
		const unsigned char *bytes = tensor->data;
		for (uint64_t at = 0; at < tensor->size_bytes; at++)
			sum += bytes[at];
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	struct gguf *gguf;
	int fd = memfd_create("gguf", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size && gguf_open(path, &gguf, NULL) == SVC_OK) {
		walk(gguf);
		gguf_close(gguf);
	}
	close(fd);
	return 0;
}
