/* The scalar form: what every other form is compared with, bit for bit. Written to be read beside
 * docs/arithmetic.md. */
#include "npu-worker/kernels/elementwise.inc"
#include "npu-worker/kernels/forms.h"

enum { TOKENS = 8 }; /* that share one reading of the weights */

/* Column c of the group's rounded activations. */
static int32_t act_at(const struct kernels_acts *acts, size_t group_at, uint32_t c)
{
	if (acts->family == KERNELS_A16)
		return acts->q16[group_at * KERNELS_GROUP + c];
	uint32_t octet = c / 8, place = c % 8;
	for (uint32_t i = 0; i < 8; i++) {
		if (layout_column(i / 4, i % 4) == place)
			return acts->q8[group_at * KERNELS_GROUP + octet * 8 + i];
	}
	return 0;
}

static int32_t dot(const struct layout_group *w, const struct kernels_acts *acts, size_t group_at,
		   uint32_t first, uint32_t last)
{
	int32_t s = 0;
	for (uint32_t c = first; c < last; c++)
		s += w->w[c] * act_at(acts, group_at, c);
	return s;
}

static float rounded_step(const struct layout_group *w, const struct kernels_acts *acts,
			  size_t group_at, float acc)
{
	float dx = acts->dx[group_at];
	if (w->has_halves) {
		acc = fmaf((float)dot(w, acts, group_at, 0, 16), w->d[0] * dx, acc);
		return fmaf((float)dot(w, acts, group_at, 16, 32), w->d[1] * dx, acc);
	}
	acc = fmaf((float)dot(w, acts, group_at, 0, 32), w->d[0] * dx, acc);
	return w->has_offset ? fmaf(w->m, acts->sx[group_at], acc) : acc;
}

/* y of one row of weights and the tokens [first, first + count). */
static void rounded_row(const struct kernels_matrix *w, const void *block, uint32_t lane,
			const struct kernels_acts *acts, uint32_t first, float y[TOKENS])
{
	size_t groups = acts->cols / KERNELS_GROUP;
	for (size_t g = 0; g < groups; g++) {
		struct layout_group group;
		layout_group_read(w->type, block, lane, (uint32_t)g, &group);
		for (uint32_t t = 0; t < TOKENS && first + t < acts->rows; t++)
			y[t] = rounded_step(&group, acts, (first + t) * groups + g, y[t]);
	}
}

static void float_row(const struct kernels_matrix *w, const void *block, uint32_t lane,
		      const struct kernels_acts *acts, uint32_t first, float y[TOKENS])
{
	bool quantised = !layout_is_float(w->type);
	float values[KERNELS_GROUP];
	for (uint32_t col = 0; col < w->cols; col++) {
		if (quantised && col % KERNELS_GROUP == 0) {
			struct layout_group group;
			layout_group_read(w->type, block, lane, col / KERNELS_GROUP, &group);
			layout_group_values(&group, values);
		}
		float value = quantised ? values[col % KERNELS_GROUP]
					: layout_float(w->type, block, lane, col);
		for (uint32_t t = 0; t < TOKENS && first + t < acts->rows; t++)
			y[t] = fmaf(value, acts->x[(first + t) * acts->x_stride + col], y[t]);
	}
}

static void matmul(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
		   size_t y_stride, uint32_t first, uint32_t last)
{
	bool floats = acts->family == KERNELS_F32 || layout_is_float(w->type);
	for (size_t n = (size_t)first * KERNELS_BLOCK_ROWS;
	     n < (size_t)last * KERNELS_BLOCK_ROWS && n < w->rows; n++) {
		const uint8_t *block = (const uint8_t *)w->data +
				       n / KERNELS_BLOCK_ROWS * layout_stride(w->type, w->cols);
		for (uint32_t t0 = 0; t0 < acts->rows; t0 += TOKENS) {
			float acc[TOKENS] = {0};
			(floats ? float_row : rounded_row)(w, block, n % KERNELS_BLOCK_ROWS, acts,
							   t0, acc);
			for (uint32_t t = 0; t < TOKENS && t0 + t < acts->rows; t++)
				y[(t0 + t) * y_stride + n] = acc[t];
		}
	}
}

const struct kernels kernels_scalar = {
	.name = "scalar",
	.quantise = quantise,
	.matmul = matmul,
	.attention = kernels_scalar_attention,
	.kv_write = kernels_scalar_kv_write,
	.rms_norm = rms_norm,
	.rope = rope,
	.add = add,
	.scale = scale,
	.softcap = softcap,
	.silu_mul = silu_mul,
	.gelu_mul = gelu_mul,
	.finite = all_finite,
};
