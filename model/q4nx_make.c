#include "model/q4nx_make.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "model/gguf_block.h"
#include "model/q4nx_form.h"

/* Which row of the GGUF tensor a row of the Q4NX tensor is: the inverse of folder_make.c's. */
static uint32_t source_row(const struct q4nx_recipe *r, uint32_t row)
{
	if (!r->heads)
		return row;
	uint32_t width = r->rows / r->heads, in_head = row % width, half = width / 2;
	return row - in_head + in_head % half * 2 + in_head / half;
}

static const uint8_t *row_at(const struct q4nx_recipe *r, uint32_t row)
{
	return (const uint8_t *)r->source->data +
	       r->source->size_bytes / r->rows * source_row(r, row);
}

/* Where a group goes: row of the tile and group of its columns. */
struct place {
	struct tile *tile;
	uint32_t row, group;
};

static void put(const struct place *at, float d, float m, const uint8_t q[GGUF_GROUP])
{
	at->tile->d[at->group][at->row] = bf16_from_f32(d);
	at->tile->m[at->group][at->row] = bf16_from_f32(m);
	memcpy(&at->tile->q[at->row][(size_t)at->group * GGUF_GROUP], q, GGUF_GROUP);
}

/* The types whose codes are kept. false: another. */
static bool put_codes(const struct q4nx_recipe *r, const struct gguf_group *g,
		      const struct place *at)
{
	uint8_t q[GGUF_GROUP];
	float d = f16_to_f32(g->d);
	memcpy(q, g->code, sizeof q);
	switch (r->source->type) {
	case GGUF_TENSOR_Q4_1:
		put(at, d, f16_to_f32(g->m), q);
		return true;
	case GGUF_TENSOR_Q4_K:
		put(at, d * (float)g->sc[0], -(f16_to_f32(g->m) * (float)g->mn), q);
		return true;
	case GGUF_TENSOR_Q4_0:
		for (uint32_t i = 0; i < GGUF_GROUP; i++)
			q[i] ^= 8;
		put(at, d, 0.0f, q);
		return true;
	case GGUF_TENSOR_Q5_0:
		for (uint32_t i = 0; i < GGUF_GROUP; i++)
			q[i] = (uint8_t)(q[i] - 16);
		put(at, d, 0.0f, q);
		return r->form == TILE_Q8A;
	case GGUF_TENSOR_Q8_0:
		put(at, d, 0.0f, q);
		return r->form == TILE_Q8A;
	default:
		return false;
	}
}

static uint8_t clamp(float x, float low, float high)
{
	return (uint8_t)(int)(x < low ? low : x > high ? high : x);
}

/* d is rounded to bf16 first, so that the codes are the best ones for what is stored. */
static void round_q8(const float x[GGUF_GROUP], const struct place *at)
{
	uint8_t q[GGUF_GROUP];
	float most = 0.0f;
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		most = fmaxf(most, fabsf(x[i]));
	float d = bf16_to_f32(bf16_from_f32(most / 127.0f));
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		q[i] = clamp(d > 0.0f ? rintf(x[i] / d) : 0.0f, -127.0f, 127.0f);
	put(at, d, 0.0f, q);
}

/* As ggml's own quantisers: Q4_0 spans from the value farthest from zero, Q4_1 from the lowest to
 * the highest; the scale goes through float16 on its way to bf16. */
static void round_q4_0(const float x[GGUF_GROUP], const struct place *at)
{
	uint8_t q[GGUF_GROUP];
	float most = 0.0f;
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	float d = most / -8.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		q[i] = clamp(x[i] * inverse + 8.5f, 0.0f, 15.0f) ^ 8;
	put(at, f16_to_f32(f16_from_f32(d)), 0.0f, q);
}

static void round_q4_1(const float x[GGUF_GROUP], const struct place *at)
{
	uint8_t q[GGUF_GROUP];
	float low = x[0], high = x[0];
	for (uint32_t i = 1; i < GGUF_GROUP; i++) {
		low = fminf(low, x[i]);
		high = fmaxf(high, x[i]);
	}
	float d = (high - low) / 15.0f, inverse = d != 0.0f ? 1.0f / d : 0.0f;
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		q[i] = clamp((x[i] - low) * inverse + 0.5f, 0.0f, 15.0f);
	put(at, f16_to_f32(f16_from_f32(d)), f16_to_f32(f16_from_f32(low)), q);
}

static void read_values(const struct q4nx_recipe *r, const uint8_t *row, uint32_t group,
			float ret_values[GGUF_GROUP])
{
	struct gguf_group g;
	uint32_t type = r->source->type, width = type == GGUF_TENSOR_F32 ? 4 : 2;
	if (gguf_block_is_known(type)) {
		gguf_group_read(type, row, group, &g);
		gguf_group_values(type, &g, ret_values);
	} else {
		gguf_row_values(type, row + (size_t)group * GGUF_GROUP * width, GGUF_GROUP,
				ret_values);
	}
}

static void put_group(const struct q4nx_recipe *r, const uint8_t *row, uint32_t group,
		      const struct place *at)
{
	struct gguf_group g;
	float x[GGUF_GROUP];
	if (gguf_block_is_known(r->source->type)) {
		gguf_group_read(r->source->type, row, group, &g);
		if (put_codes(r, &g, at))
			return;
	}
	read_values(r, row, group, x);
	if (r->form == TILE_Q8A) {
		round_q8(x, at);
		return;
	}
	/* The published converter goes through bf16. */
	for (uint32_t i = 0; i < GGUF_GROUP; i++)
		x[i] = bf16_to_f32(bf16_from_f32(x[i]));
	(r->form == TILE_B ? round_q4_0 : round_q4_1)(x, at);
}

static bool is_finite(const struct tile *tile, uint32_t g, uint32_t r)
{
	return isfinite(bf16_to_f32(tile->d[g][r])) && isfinite(bf16_to_f32(tile->m[g][r]));
}

static enum svc_code make_tiles(const struct draft_tensor *t, uint32_t strip, uint8_t *out,
				struct svc_err *err)
{
	const struct q4nx_recipe *r = t->recipe;
	uint32_t groups = r->cols / GGUF_GROUP;
	struct tile tile;
	for (uint32_t column = 0; column < q4nx_tile_columns(r->cols); column++) {
		memset(&tile, 0, sizeof tile);
		for (uint32_t lane = 0; lane < TILE_ROWS; lane++) {
			uint32_t row = strip * TILE_ROWS + lane;
			const uint8_t *bytes = row_at(r, row);
			for (uint32_t g = 0; g < TILE_GROUPS; g++) {
				const struct place at = {&tile, lane, g};
				uint32_t group = column * TILE_GROUPS + g;
				if (group >= groups)
					break;
				put_group(r, bytes, group, &at);
				if (!is_finite(&tile, g, lane))
					return svc_fail(err, SVC_BAD_MODEL, __func__,
							"%s: row %u has a weight or scale that is "
							"not finite",
							t->name, row);
			}
		}
		tile_write((enum tile_form)r->form, &tile, out);
		out += tile_form_bytes((enum tile_form)r->form);
	}
	return SVC_OK;
}

static void put_float(const struct q4nx_recipe *r, float value, uint8_t *out)
{
	uint16_t half = bf16_from_f32(value);
	if (r->dtype == ST_F32)
		memcpy(out, &value, 4);
	else
		memcpy(out, &half, 2);
}

static enum svc_code make_floats(const struct draft_tensor *t, uint32_t strip, uint8_t *out,
				 struct svc_err *err)
{
	const struct q4nx_recipe *r = t->recipe;
	uint32_t width = safetensors_dtype_bytes(r->dtype), first = strip * DRAFT_STRIP_ROWS;
	float *values = malloc((size_t)r->cols * sizeof *values);
	if (!values)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "%s: no memory for a row", t->name);
	for (uint32_t row = first; row < first + DRAFT_STRIP_ROWS && row < r->rows; row++) {
		gguf_row_values(r->source->type, row_at(r, row), r->cols, values);
		for (uint32_t c = 0; c < r->cols; c++, out += width)
			put_float(r, (values[c] - r->subtract) * r->multiply, out);
	}
	free(values);
	return SVC_OK;
}

enum svc_code q4nx_make(const struct draft_tensor *tensor, uint32_t strip, uint8_t *out,
			struct svc_err *err)
{
	const struct q4nx_recipe *r = tensor->recipe;
	return r->form == Q4NX_PLAIN ? make_floats(tensor, strip, out, err)
				     : make_tiles(tensor, strip, out, err);
}
