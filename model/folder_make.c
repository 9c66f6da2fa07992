/* Makes the bytes of a GGUF tensor out of a folder's: tiles to blocks, floats to floats. */
#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "model/folder_private.h"

enum { GROUP = 32, CACHED = 4 };

/* Which row of the source a row of the GGUF tensor is: llama files have the two halves of a head
 * interleaved, checkpoints and Q4NX have them one behind the other. */
static uint32_t source_row(const struct folder_recipe *r, uint32_t row)
{
	if (!r->heads)
		return row;
	uint32_t width = r->rows / r->heads, in_head = row % width;
	return row - in_head + in_head % 2 * (width / 2) + in_head / 2;
}

static enum svc_code bad_scale(const struct draft_tensor *t, const char *what, float value,
			       uint32_t row, struct svc_err *err)
{
	return svc_fail(err, SVC_UNSUPPORTED, "folder_make",
			"%s: row %u has the %s %g, which a float16 cannot hold; GGUF's blocks have "
			"float16 scales",
			t->name, row, what, (double)value);
}

/* A bf16 scale as float16, exactly or not at all. */
static bool to_f16(uint16_t bf16, uint16_t *ret)
{
	float value = bf16_to_f32(bf16);
	*ret = f16_from_f32(value);
	return isfinite(value) && f16_to_f32(*ret) == value;
}

static void put_nibbles(const uint8_t q[GROUP], uint8_t *out)
{
	for (uint32_t j = 0; j < 16; j++)
		out[j] = (uint8_t)((q[j] & 15) | q[j + 16] << 4);
}

/* d*(q - z) with whole z from 0 to 15 is Q5_0's d*(code - 16) exactly. */
static bool put_q5_0(const uint8_t q[GROUP], float zero, uint8_t *out)
{
	uint32_t high = 0;
	uint8_t codes[GROUP];
	if (!(zero >= 0.0f && zero <= 15.0f && zero == floorf(zero)))
		return false;
	for (uint32_t j = 0; j < GROUP; j++) {
		codes[j] = (uint8_t)(q[j] - (int)zero + 16);
		high |= (uint32_t)(codes[j] >> 4) << j;
	}
	memcpy(out, &high, 4);
	put_nibbles(codes, out + 4);
	return true;
}

/* Group g of a tile's row as one GGUF block. */
static enum svc_code put_block(const struct draft_tensor *t, const struct tile *tile,
			       const uint32_t at[3], uint8_t *out, struct svc_err *err)
{
	const struct folder_recipe *r = t->recipe;
	uint32_t row = at[0], lane = at[1], g = at[2];
	uint16_t d, m;
	uint8_t codes[GROUP];
	const uint8_t *q = &tile->q[lane][(size_t)g * GROUP];
	if (!to_f16(tile->d[g][lane], &d))
		return bad_scale(t, "scale", bf16_to_f32(tile->d[g][lane]), row, err);
	memcpy(out, &d, 2);
	switch (r->type) {
	case GGUF_TENSOR_Q4_1:
		if (!to_f16(tile->m[g][lane], &m))
			return bad_scale(t, "offset", bf16_to_f32(tile->m[g][lane]), row, err);
		memcpy(out + 2, &m, 2);
		put_nibbles(q, out + 4);
		return SVC_OK;
	case GGUF_TENSOR_Q4_0:
		for (uint32_t j = 0; j < GROUP; j++)
			codes[j] = q[j] ^ 8;
		put_nibbles(codes, out + 2);
		return SVC_OK;
	case GGUF_TENSOR_Q5_0:
		if (put_q5_0(q, bf16_to_f32(tile->m[g][lane]), out + 2))
			return SVC_OK;
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"%s: row %u has the zero point %g; whole ones from 0 to 15 are "
				"supported",
				t->name, row, (double)bf16_to_f32(tile->m[g][lane]));
	default:
		memcpy(out + 2, q, GROUP);
		return SVC_OK;
	}
}

/* Columns that only fill up the last tile must weigh nothing. */
static enum svc_code check_padding(const struct draft_tensor *t, const struct tile *tile,
				   uint32_t lane, uint32_t g, struct svc_err *err)
{
	uint32_t seen = (tile->d[g][lane] | tile->m[g][lane]) & 0x7fffu;
	if (seen)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"%s: the columns that fill up its last tile are not zero: "
				"config.json's sizes don't belong to this file",
				t->name);
	return SVC_OK;
}

/* The few tiles of one column of tiles that a strip of rows comes from. */
struct cache {
	const struct folder_recipe *r;
	uint32_t column;
	uint32_t held[CACHED]; /* tile row + 1 */
	struct tile tiles[CACHED];
};

static const struct tile *cached(struct cache *cache, uint32_t tile_row)
{
	const struct folder_recipe *r = cache->r;
	uint32_t slot = tile_row % CACHED;
	if (cache->held[slot] != tile_row + 1) {
		size_t index = (size_t)tile_row * q4nx_tile_columns(r->cols) + cache->column;
		tile_read((enum tile_form)r->form,
			  (const uint8_t *)r->source->data +
				  index * tile_form_bytes((enum tile_form)r->form),
			  &cache->tiles[slot]);
		cache->held[slot] = tile_row + 1;
	}
	return &cache->tiles[slot];
}

static enum svc_code make_blocks(const struct draft_tensor *t, uint32_t strip, uint8_t *out,
				 struct svc_err *err)
{
	const struct folder_recipe *r = t->recipe;
	struct cache cache = {.r = r};
	uint32_t elements = 0, bytes = 0, first = strip * DRAFT_STRIP_ROWS;
	uint32_t groups = r->cols / GROUP;
	gguf_tensor_type_block(r->type, &elements, &bytes);
	for (; cache.column < q4nx_tile_columns(r->cols); cache.column++) {
		memset(cache.held, 0, sizeof cache.held);
		for (uint32_t row = first; row < first + DRAFT_STRIP_ROWS && row < r->rows; row++) {
			uint32_t from = source_row(r, row), lane = from % TILE_ROWS;
			const struct tile *tile = cached(&cache, from / TILE_ROWS);
			for (uint32_t g = 0; g < TILE_GROUPS; g++) {
				uint32_t group = cache.column * TILE_GROUPS + g;
				const uint32_t at[3] = {row, lane, g};
				uint8_t *to =
					out + ((size_t)(row - first) * groups + group) * bytes;
				enum svc_code code = group < groups
							     ? put_block(t, tile, at, to, err)
							     : check_padding(t, tile, lane, g, err);
				if (code != SVC_OK)
					return code;
			}
		}
	}
	return SVC_OK;
}

static float plain_value(const struct folder_recipe *r, size_t index)
{
	const uint8_t *bytes;
	float value;
	uint16_t half;
	if (r->values)
		return r->values[index];
	bytes = r->source->data;
	if (r->source->dtype == ST_F32) {
		memcpy(&value, bytes + index * 4, 4);
		return value;
	}
	memcpy(&half, bytes + index * 2, 2);
	return r->source->dtype == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static enum svc_code make_floats(const struct draft_tensor *t, uint32_t strip, uint8_t *out,
				 struct svc_err *err)
{
	const struct folder_recipe *r = t->recipe;
	uint32_t width = r->type == GGUF_TENSOR_F32 ? 4 : 2, first = strip * DRAFT_STRIP_ROWS;
	bool copies = !r->values && r->add == 0.0f && r->divide == 1.0f &&
		      r->type == folder_type_of(FOLDER_PLAIN, r->source->dtype, true);
	for (uint32_t row = first; row < first + DRAFT_STRIP_ROWS && row < r->rows; row++) {
		/* A vector is a matrix of one column here. */
		size_t from = (size_t)source_row(r, row) * r->cols;
		if (copies) {
			memcpy(out, (const uint8_t *)r->source->data + from * width,
			       (size_t)r->cols * width);
			out += (size_t)r->cols * width;
			continue;
		}
		for (uint32_t c = 0; c < r->cols; c++, out += width) {
			float value = plain_value(r, from + c) / r->divide + r->add;
			uint16_t half = f16_from_f32(value);
			if (width == 4)
				memcpy(out, &value, 4);
			else
				memcpy(out, &half, 2);
			if (width == 2 && isinf(f16_to_f32(half)))
				return bad_scale(t, "weight", value, row, err);
		}
	}
	return SVC_OK;
}

enum svc_code folder_make(const struct draft_tensor *tensor, uint32_t strip, uint8_t *out,
			  struct svc_err *err)
{
	const struct folder_recipe *r = tensor->recipe;
	return r->form == FOLDER_PLAIN ? make_floats(tensor, strip, out, err)
				       : make_blocks(tensor, strip, out, err);
}
