/* tests/fuzz/safetensors_fuzz.c: any bytes as a safetensors file; whatever opens is read to its
 * last byte, and a header made of its entries is read back as the same entries. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned sum; /* so that the reads are not optimised away */

static struct safetensors *open_bytes(const void *data, size_t size, size_t more)
{
	char path[64];
	struct safetensors *file = NULL;
	int fd = memfd_create("safetensors", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (write(fd, data, size) == (ssize_t)size && ftruncate(fd, (off_t)(size + more)) == 0 &&
	    safetensors_open(path, &file, NULL) != SVC_OK)
		file = NULL;
	close(fd);
	return file;
}

static int order(const void *a, const void *b)
{
	return safetensors_file_order(a, b);
}

static void rewrite(const struct safetensors *file)
{
	size_t n = safetensors_count(file), bytes = 0;
	struct safetensors_tensor *tensors = calloc(n + 1, sizeof *tensors);
	struct buf head = {0};
	if (!tensors)
		abort();
	for (size_t i = 0; i < n; i++) {
		tensors[i] = *safetensors_at(file, i);
		bytes += tensors[i].size_bytes;
	}
	qsort(tensors, n, sizeof *tensors, order);
	safetensors_header(tensors, n, &head);
	struct safetensors *again = open_bytes(head.ptr, head.len, bytes);
	/* A file without data is shorter than any reader takes. */
	if (!again && head.len + bytes >= 10)
		abort();
	for (size_t i = 0; again && i < n; i++) {
		const struct safetensors_tensor *t = safetensors_find(again, tensors[i].name);
		if (!t || t->dtype != tensors[i].dtype || t->size_bytes != tensors[i].size_bytes)
			abort();
	}
	safetensors_close(again);
	buf_free(&head);
	free(tensors);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors *file = open_bytes(data, size, 0);
	if (!file)
		return 0;
	for (size_t i = 0; i < safetensors_count(file); i++) {
		const struct safetensors_tensor *t = safetensors_at(file, i);
		for (uint64_t at = 0; at < t->size_bytes; at++)
			sum += ((const unsigned char *)t->data)[at];
	}
	rewrite(file);
	safetensors_close(file);
	return 0;
}
