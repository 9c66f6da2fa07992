#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16, GROUP = 32 };
enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q8_0 = 8 };

/* Columns of an octet in the order of the bytes of its two words. */
static const uint8_t column_of[2][4] = {{0, 4, 1, 5}, {2, 6, 3, 7}};

struct form {
	uint32_t bytes;	  /* of 16 rows and 32 columns */
	uint32_t d, m;	  /* offsets; m 0: none */
	uint32_t nibbles; /* or bytes, of Q8_0 */
	uint32_t ones;	  /* Q5_0's fifth bits; 0: none */
	int bias;
};

static const struct form *form_of(uint32_t type)
{
	static const struct form forms[] = {
		[Q4_0] = {288, 0, 0, 32, 0, 8},
		[Q4_1] = {320, 256, 288, 0, 0, 0},
		[Q5_0] = {352, 0, 0, 96, 32, 16},
		[Q8_0] = {544, 0, 0, 32, 0, 0},
	};
	return type < sizeof forms / sizeof *forms && forms[type].bytes ? &forms[type] : NULL;
}

size_t product_weight_bytes(const struct product_words *w)
{
	const struct form *f = form_of(w->type);
	return f ? ((size_t)w->rows + LANES - 1) / LANES * (w->cols / GROUP) * f->bytes : 0;
}

static float from_half(const uint8_t *p)
{
	uint32_t h = (uint32_t)(p[0] | p[1] << 8), e = h >> 10 & 31, f = h & 1023;
	float v = e ? ldexpf((float)(f | 1024), (int)e - 25) : ldexpf((float)f, -24);
	return h >> 15 ? -v : v;
}

static void read_codes(uint32_t type, const struct form *f, const uint8_t *block, uint32_t lane,
		       int32_t w[GROUP])
{
	for (uint32_t slot = 0; slot < 8; slot++) {
		for (uint32_t byte = 0; byte < 4; byte++) {
			uint32_t column = slot / 2 * 8 + column_of[slot % 2][byte];
			if (type == Q8_0) {
				w[column] = (int8_t)block[f->nibbles + slot * 64 + lane * 4 + byte];
				continue;
			}
			uint32_t b = block[f->nibbles + slot / 2 * 64 + lane * 4 + byte];
			uint32_t code = slot % 2 ? b >> 4 : b & 15;
			if (f->ones)
				code |= (block[f->ones + lane * 4 + byte] >> slot & 1u) << 4;
			w[column] = (int32_t)code - f->bias;
		}
	}
}

void product_run(const struct product_words *w, const uint8_t *weights, const uint8_t *acts,
		 uint8_t *output)
{
	const struct form *f = form_of(w->type);
	const int16_t *codes = (const int16_t *)(const void *)acts;
	const float *steps = (const float *)(const void *)(acts + w->steps);
	const float *sums = (const float *)(const void *)(acts + w->sums);
	float *y = (float *)(void *)(output + w->output);
	uint32_t groups = w->cols / GROUP;
	weights += (uint64_t)w->weights_high << 32 | w->weights_low;
	for (uint32_t n = 0; n < w->rows; n++) {
		const uint8_t *block = weights + (size_t)(n / LANES) * groups * f->bytes;
		for (uint32_t t = 0; t < w->tokens; t++)
			y[(size_t)t * w->stride + n] = 0.0f;
		for (uint32_t g = 0; g < groups; g++, block += f->bytes) {
			int32_t q[GROUP];
			float d = from_half(block + f->d + 2 * (n % LANES));
			float m = f->m ? from_half(block + f->m + 2 * (n % LANES)) : 0.0f;
			read_codes(w->type, f, block, n % LANES, q);
			for (uint32_t t = 0; t < w->tokens; t++) {
				size_t at = (size_t)t * groups + g;
				int32_t s = 0;
				for (uint32_t i = 0; i < GROUP; i++)
					s += q[i] * codes[at * GROUP + i];
				float *acc = &y[(size_t)t * w->stride + n];
				*acc = fmaf((float)s, d * steps[at], *acc);
				if (f->m)
					*acc = fmaf(m, sums[at], *acc);
			}
		}
	}
}

/* One chain over the columns for each row and token; a weight is rounded once. Sixteen rows side by
 * side, so that the chains don't wait for themselves. */
static void run_block_b16(const struct product_words *w, const struct form *f, const uint8_t *block,
			  const float *x, float *acc)
{
	for (uint32_t g = 0; g < w->cols / GROUP; g++, block += f->bytes) {
		float weights[GROUP][LANES];
		for (uint32_t lane = 0; lane < LANES; lane++) {
			int32_t q[GROUP];
			float d = from_half(block + f->d + 2 * lane);
			float m = f->m ? from_half(block + f->m + 2 * lane) : 0.0f;
			read_codes(w->type, f, block, lane, q);
			for (uint32_t i = 0; i < GROUP; i++)
				weights[i][lane] = f->m ? fmaf(d, (float)q[i], m) : d * (float)q[i];
		}
		for (uint32_t t = 0; t < w->tokens; t++) {
			const float *in = x + (size_t)t * w->cols + (size_t)g * GROUP;
			float *out = acc + (size_t)t * LANES;
			for (uint32_t i = 0; i < GROUP; i++)
				for (uint32_t lane = 0; lane < LANES; lane++)
					out[lane] = fmaf(weights[i][lane], in[i], out[lane]);
		}
	}
}

void product_run_b16(const struct product_words *w, const uint8_t *weights, const uint8_t *acts,
		     uint8_t *output)
{
	const struct form *f = form_of(w->type);
	float *y = (float *)(void *)(output + w->output);
	float *acc = malloc((size_t)w->tokens * LANES * sizeof *acc);
	if (!acc)
		abort();
	weights += (uint64_t)w->weights_high << 32 | w->weights_low;
	for (uint32_t n = 0; n < w->rows; n += LANES, weights += w->cols / GROUP * f->bytes) {
		memset(acc, 0, (size_t)w->tokens * LANES * sizeof *acc);
		run_block_b16(w, f, weights, (const float *)(const void *)acts, acc);
		for (uint32_t t = 0; t < w->tokens; t++)
			for (uint32_t lane = 0; lane < LANES && n + lane < w->rows; lane++)
				y[(size_t)t * w->stride + n + lane] = acc[t * LANES + lane];
	}
	free(acc);
}
