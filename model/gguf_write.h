/* model/gguf_write.h: makes the part of a GGUF file that lies before its tensors' data. */
#pragma once
#include <stdint.h>

#include "base/buf.h"
#include "model/gguf.h"

struct gguf_writer {
	struct buf pairs; /* as they lie in the file */
	uint64_t n_pairs;
};

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, float value);
void gguf_put_string(struct gguf_writer *w, const char *key, struct span value);
void gguf_put_bools(struct gguf_writer *w, const char *key, const uint8_t *values, uint64_t n);
/* Every pair of a file, byte for byte. */
void gguf_put_all(struct gguf_writer *w, const struct gguf *gguf);

/* Appends header, pairs and directory, padded to the alignment that the pairs state (32 if they
 * don't); tensors' data fields are not looked at. ret_offsets: [n], where each begins, counted
 * from the end of what was appended. Returns the bytes of all data with its padding. */
uint64_t gguf_write_head(const struct gguf_writer *w, const struct gguf_tensor *tensors, size_t n,
			 uint32_t alignment, uint64_t *ret_offsets, struct buf *out);
void gguf_writer_free(struct gguf_writer *w);
