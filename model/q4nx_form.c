#include "model/q4nx_form.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/f16.h"

enum { PROBE_STRIPS = 4 };

uint32_t q4nx_tile_columns(uint32_t k)
{
	return (k + TILE_COLS - 1) / TILE_COLS;
}

static uint64_t tile_bytes_of(const struct safetensors_tensor *t)
{
	return t->n_dims ? t->dims[t->n_dims - 1] : 0;
}

/* Tiles of sizes that are known and not supported. */
static const char *foreign_tile(const struct safetensors_tensor *t, uint64_t n_tiles, uint32_t rows,
				uint32_t cols)
{
	switch (tile_bytes_of(t)) {
	case TILE_Q4_BYTES:
		return n_tiles == (uint64_t)(rows / TILE_ROWS) * (cols / 128) && cols % 128 == 0
			       ? "Q8-c (8-bit tiles of 32 x 128)"
			       : NULL;
	case 9216:
		return "Q8-d (8-bit tiles with a placeholder)";
	case 2560:
		return "32 x 128 tiles of 4 bits or MXFP4 (gpt-oss)";
	case 1280:
		return "1280-byte chunks (Gemma3-1B)";
	default:
		return NULL;
	}
}

static enum svc_code check_shape(const struct safetensors_tensor *t, uint32_t rows, uint32_t cols,
				 struct svc_err *err)
{
	uint64_t columns = q4nx_tile_columns(cols), strips = rows / TILE_ROWS;
	uint64_t size = tile_bytes_of(t), n = size ? t->size_bytes / size : 0;
	const char *foreign = foreign_tile(t, n, rows, cols);
	if (rows % TILE_ROWS)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"%.*s: %" PRIu32 " rows are not a multiple of a tile's 32",
				(int)t->name.len, t->name.ptr, rows);
	if (foreign && (size != TILE_Q4_BYTES || n != strips * columns))
		return svc_fail(err, SVC_UNSUPPORTED, __func__, "%.*s: %s are not supported",
				(int)t->name.len, t->name.ptr, foreign);
	bool flat = t->n_dims == 2 && t->dims[0] == strips * columns;
	bool grid = t->n_dims == 3 && t->dims[0] == strips && t->dims[1] == columns;
	if (flat || grid)
		return SVC_OK;
	return svc_fail(err, SVC_BAD_MODEL, __func__,
			"%.*s: %" PRIu64 " tiles of %" PRIu64 " bytes; [%" PRIu32 ", %" PRIu32
			"] as config.json has it needs %" PRIu64,
			(int)t->name.len, t->name.ptr, n, size, rows, cols, strips * columns);
}

static enum svc_code find_q8(const struct safetensors_tensor *t, const struct q4nx_hints *hints,
			     enum tile_form *ret_form, struct svc_err *err)
{
	if (hints->q8 == Q4NX_UNKNOWN)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"%.*s: nothing in this folder tells whether its 8-bit tiles are "
				"Q8-a or Q8-b; say so with --q8 a or --q8 b",
				(int)t->name.len, t->name.ptr);
	*ret_form = hints->q8 == Q4NX_FIRST ? TILE_Q8A : TILE_Q8B;
	return SVC_OK;
}

enum svc_code q4nx_form_find(const struct safetensors_tensor *tensor, uint32_t rows, uint32_t cols,
			     const struct q4nx_hints *hints, enum tile_form *ret_form,
			     struct svc_err *err)
{
	const struct safetensors_tensor *t = tensor;
	if (t->dtype == ST_Q4NX) {
		if (t->dims[0] != rows ||
		    t->dims[1] != (uint64_t)q4nx_tile_columns(cols) * TILE_COLS)
			return svc_fail(err, SVC_BAD_MODEL, __func__,
					"%.*s: its shape [%" PRIu64 ", %" PRIu64
					"] is not config.json's [%" PRIu32 ", %" PRIu32 "]",
					(int)t->name.len, t->name.ptr, t->dims[0], t->dims[1], rows,
					cols);
		*ret_form = TILE_C;
		return SVC_OK;
	}
	enum svc_code code = check_shape(t, rows, cols, err);
	if (code != SVC_OK)
		return code;
	if (tile_bytes_of(t) == TILE_Q8_BYTES)
		return find_q8(t, hints, ret_form, err);
	if (tile_bytes_of(t) == TILE_Q4K_BYTES) {
		*ret_form = TILE_Q4K;
		return SVC_OK;
	}
	if (tile_bytes_of(t) != TILE_Q4_BYTES)
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"%.*s: tiles of %" PRIu64 " bytes are not known", (int)t->name.len,
				t->name.ptr, tile_bytes_of(t));
	const uint8_t *bytes = t->data;
	for (uint64_t at = 0; at < t->size_bytes; at += TILE_Q4_BYTES) {
		if (!tile_has_no_offset(bytes + at)) {
			*ret_form = TILE_A;
			return SVC_OK;
		}
	}
	*ret_form = hints->scales == Q4NX_SECOND ? TILE_D : TILE_B;
	return SVC_OK;
}

struct sums {
	double n, x, y, xx, yy, xy;
};

static double float_at(const struct safetensors_tensor *t, uint64_t index)
{
	const uint8_t *bytes = t->data;
	uint16_t half;
	float value;
	if (t->dtype == ST_F32) {
		memcpy(&value, bytes + index * 4, 4);
		return (double)value;
	}
	memcpy(&half, bytes + index * 2, 2);
	return (double)(t->dtype == ST_F16 ? f16_to_f32(half) : bf16_to_f32(half));
}

/* Where a tile's floats lie: [TILE_ROWS] rows of `width` numbers, `stride` apart. */
struct window {
	const struct safetensors_tensor *floats;
	uint64_t first;
	uint32_t width, stride;
};

static void add_tile(struct sums *s, const struct tile *tile, enum tile_form form,
		     const struct window *w)
{
	for (uint32_t r = 0; r < TILE_ROWS; r++) {
		for (uint32_t c = 0; c < w->width; c++) {
			double x = (double)tile_value(form, tile, r, c);
			double y = float_at(w->floats, w->first + (uint64_t)r * w->stride + c);
			if (!isfinite(x) || !isfinite(y))
				continue; /* read as another form, anything may stand there */
			s->n += 1;
			s->x += x;
			s->y += y;
			s->xx += x * x;
			s->yy += y * y;
			s->xy += x * y;
		}
	}
}

double q4nx_form_correlation(const struct safetensors_tensor *tiles, enum tile_form form,
			     const struct safetensors_tensor *floats, uint32_t rows, uint32_t cols)
{
	struct sums s = {0};
	struct tile tile;
	uint32_t columns = q4nx_tile_columns(cols), strips = rows / TILE_ROWS;
	for (uint32_t i = 0; i < PROBE_STRIPS && i < strips; i++) {
		uint64_t strip = (uint64_t)i * strips / PROBE_STRIPS;
		strip = strips <= PROBE_STRIPS ? i : strip;
		for (uint32_t k = 0; k < columns; k++) {
			uint32_t left = cols - k * TILE_COLS;
			tile_read(form,
				  (const uint8_t *)tiles->data +
					  (strip * columns + k) * tile_form_bytes(form),
				  &tile);
			const struct window window = {
				floats, strip * TILE_ROWS * cols + (uint64_t)k * TILE_COLS,
				left < TILE_COLS ? left : TILE_COLS, cols};
			add_tile(&s, &tile, form, &window);
		}
	}
	double vx = s.n * s.xx - s.x * s.x, vy = s.n * s.yy - s.y * s.y;
	return vx > 0 && vy > 0 ? (s.n * s.xy - s.x * s.y) / sqrt(vx) / sqrt(vy) : 0.0;
}

static void ask(const struct safetensors_tensor *head, const enum tile_form forms[2],
		const struct safetensors_tensor *embed, const uint32_t shape[2],
		enum q4nx_answer *answer)
{
	double first = q4nx_form_correlation(head, forms[0], embed, shape[0], shape[1]);
	double second = q4nx_form_correlation(head, forms[1], embed, shape[0], shape[1]);
	if (*answer != Q4NX_UNKNOWN)
		return;
	/* 4 bits alone give some 0.99; misplaced scales of like size still give 0.9. */
	if (first > 0.98 && 1.0 - second > 4.0 * (1.0 - first))
		*answer = Q4NX_FIRST;
	else if (second > 0.98 && 1.0 - first > 4.0 * (1.0 - second))
		*answer = Q4NX_SECOND;
}

void q4nx_hints_probe(const struct safetensors_tensor *head, const struct safetensors_tensor *embed,
		      uint32_t rows, uint32_t cols, struct q4nx_hints *hints)
{
	static const enum tile_form q8[2] = {TILE_Q8A, TILE_Q8B}, q4[2] = {TILE_B, TILE_D};
	const uint32_t shape[2] = {rows, cols};
	struct svc_err unread;
	enum tile_form form = TILE_A;
	/* Only to learn that the shape is right and the codes have four bits and no offset. */
	struct q4nx_hints any = {Q4NX_FIRST, Q4NX_FIRST};
	if (q4nx_form_find(head, rows, cols, &any, &form, &unread) != SVC_OK)
		return;
	if (form == TILE_Q8A)
		ask(head, q8, embed, shape, &hints->q8);
	if (form == TILE_B)
		ask(head, q4, embed, shape, &hints->scales);
}
