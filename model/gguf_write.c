#include "model/gguf_write.h"

#include <string.h>

enum { MAGIC = 0x46554747, VERSION = 3 };

static void put(struct buf *out, const void *bytes, size_t size)
{
	buf_append(out, bytes, size);
}

static void put_u32(struct buf *out, uint32_t value)
{
	put(out, &value, sizeof value);
}

static void put_u64(struct buf *out, uint64_t value)
{
	put(out, &value, sizeof value);
}

static void put_text(struct buf *out, struct span text)
{
	put_u64(out, text.len);
	put(out, text.ptr, text.len);
}

static struct buf *begin(struct gguf_writer *w, const char *key, enum gguf_type type)
{
	w->n_pairs++;
	put_text(&w->pairs, span_of(key));
	put_u32(&w->pairs, type);
	return &w->pairs;
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
	put_u32(begin(w, key, GGUF_U32), value);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float value)
{
	put(begin(w, key, GGUF_F32), &value, sizeof value);
}

void gguf_put_string(struct gguf_writer *w, const char *key, struct span value)
{
	put_text(begin(w, key, GGUF_STRING), value);
}

void gguf_put_bools(struct gguf_writer *w, const char *key, const uint8_t *values, uint64_t n)
{
	struct buf *out = begin(w, key, GGUF_ARRAY);
	put_u32(out, GGUF_BOOL);
	put_u64(out, n);
	put(out, values, n);
}

void gguf_put_all(struct gguf_writer *w, const struct gguf *gguf)
{
	uint64_t count = 0;
	struct span pairs = gguf_pairs(gguf, &count);
	put(&w->pairs, pairs.ptr, pairs.len);
	w->n_pairs += count;
}

static uint64_t aligned(uint64_t at, uint64_t alignment)
{
	return (at + alignment - 1) / alignment * alignment;
}

uint64_t gguf_write_head(const struct gguf_writer *w, const struct gguf_tensor *tensors, size_t n,
			 uint32_t alignment, uint64_t *ret_offsets, struct buf *out)
{
	uint64_t offset = 0;
	size_t start = out->len;
	put_u32(out, MAGIC);
	put_u32(out, VERSION);
	put_u64(out, n);
	put_u64(out, w->n_pairs);
	put(out, w->pairs.ptr, w->pairs.len);
	for (size_t i = 0; i < n; i++) {
		const struct gguf_tensor *t = &tensors[i];
		put_text(out, t->name);
		put_u32(out, t->n_dims);
		put(out, t->dims, t->n_dims * sizeof *t->dims);
		put_u32(out, t->type);
		put_u64(out, offset);
		ret_offsets[i] = offset;
		offset = aligned(offset + t->size_bytes, alignment);
	}
	static const char zeros[32];
	for (size_t left = aligned(out->len - start, alignment) - (out->len - start), some; left;
	     left -= some) {
		some = left < sizeof zeros ? left : sizeof zeros;
		put(out, zeros, some);
	}
	out->failed |= w->pairs.failed;
	return offset;
}

void gguf_writer_free(struct gguf_writer *w)
{
	buf_free(&w->pairs);
}
