/* npu-worker/kernels/matmul_simd.h: the matrix products over the vectors of a simd_*.h. Lanes are
 * rows of weights, so no sum ever crosses lanes; a tile of tokens shares the unpacked codes and is
 * otherwise the same chain per token. Every function is inlined into one tile function per type,
 * family and token count, where `type` and the like are constants. */
#pragma once
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/layout.h"

/* What one tile function works on: LANES rows of a block and the activations from its first token
 * on. */
struct tile {
	const void *block;
	uint32_t lane, cols;
	size_t groups; /* of 32 columns; in the arrays below, from one token to the next */
	const int16_t *q16;
	const int8_t *q8;
	const float *dx, *sx;
	const int32_t *sum;
	const float *x;
	size_t x_stride;
};

/* Where a group's parts begin for the first lane in use. */
struct parts {
	const uint8_t *nibbles, *ones, *twos;
	const int8_t *bytes;
	const uint16_t *d, *m;
	const uint8_t *sc, *mn; /* Q4_K, Q5_K */
	const int8_t *sc6;	/* Q6_K: [2][16] */
};

#define SMALL_PARTS(struct_name, ...)                                                \
	do {                                                                         \
		const struct struct_name *b = (const struct struct_name *)block + g; \
		p = (struct parts){.d = b->d + lane, __VA_ARGS__};                   \
	} while (0)
#define K_PARTS(type_name, ...)                                                                    \
	do {                                                                                       \
		const struct block_##type_name *b =                                                \
			(const struct block_##type_name *)block + g / 8;                           \
		const struct group_##type_name *k = &b->group[g % 8];                              \
		p = (struct parts){.d = b->d + lane, .nibbles = k->nibbles[0][lane], __VA_ARGS__}; \
	} while (0)

FM_INLINE struct parts parts_of(uint32_t type, const void *block, size_t g, uint32_t lane)
{
	struct parts p = {0};
	if (type == GGUF_TENSOR_Q4_0)
		SMALL_PARTS(block_q4_0, .nibbles = b->nibbles[0][lane]);
	else if (type == GGUF_TENSOR_Q4_1)
		SMALL_PARTS(block_q4_1, .nibbles = b->nibbles[0][lane], .m = b->m + lane);
	else if (type == GGUF_TENSOR_Q5_0)
		SMALL_PARTS(block_q5_0, .nibbles = b->nibbles[0][lane], .ones = b->ones[lane]);
	else if (type == GGUF_TENSOR_Q5_1)
		SMALL_PARTS(block_q5_1, .nibbles = b->nibbles[0][lane], .ones = b->ones[lane],
			    .m = b->m + lane);
	else if (type == GGUF_TENSOR_Q8_0)
		SMALL_PARTS(block_q8_0, .bytes = b->bytes[0][lane]);
	else if (type == GGUF_TENSOR_Q4_K)
		K_PARTS(q4_k, .sc = k->sc + lane, .mn = k->mn + lane, .m = b->dmin + lane);
	else if (type == GGUF_TENSOR_Q5_K)
		K_PARTS(q5_k, .sc = k->sc + lane, .mn = k->mn + lane, .m = b->dmin + lane,
			.ones = k->ones[lane]);
	else
		K_PARTS(q6_k, .sc6 = k->sc[0] + lane, .twos = k->twos[0][lane]);
	return p;
}

struct scales {
	vf d[2]; /* of columns 0-15 and 16-31 */
	vf m;
};

FM_INLINE bool has_offset(uint32_t type)
{
	return type == GGUF_TENSOR_Q4_1 || type == GGUF_TENSOR_Q5_1 || type == GGUF_TENSOR_Q4_K ||
	       type == GGUF_TENSOR_Q5_K;
}

FM_INLINE bool has_ones(uint32_t type)
{
	return type == GGUF_TENSOR_Q5_0 || type == GGUF_TENSOR_Q5_1 || type == GGUF_TENSOR_Q5_K;
}

/* log2 of what is taken off the codes; 0: nothing. */
FM_INLINE unsigned bias_bits(uint32_t type)
{
	return type == GGUF_TENSOR_Q4_0	  ? 3
	       : type == GGUF_TENSOR_Q5_0 ? 4
	       : type == GGUF_TENSOR_Q6_K ? 5
					  : 0;
}

FM_INLINE struct scales scales_of(uint32_t type, const struct parts *p)
{
	struct scales s;
	vf d = vf_load_f16(p->d);
	s.d[0] = s.d[1] = d;
	s.m = d;
	if (type == GGUF_TENSOR_Q6_K) {
		s.d[0] = vf_mul(d, vf_from_int(vi_load_s8(p->sc6)));
		s.d[1] = vf_mul(d, vf_from_int(vi_load_s8(p->sc6 + KERNELS_BLOCK_ROWS)));
	} else if (type == GGUF_TENSOR_Q4_K || type == GGUF_TENSOR_Q5_K) {
		s.d[0] = s.d[1] = vf_mul(d, vf_from_int(vi_load_u8(p->sc)));
		s.m = vf_negate(vf_mul(vf_load_f16(p->m), vf_from_int(vi_load_u8(p->mn))));
	} else if (has_offset(type)) {
		s.m = vf_load_f16(p->m);
	}
	return s;
}

/* The bytes A and B of an octet, high bits included; signed for Q8_0. */
FM_INLINE void octet_bytes(uint32_t type, const struct parts *p, uint32_t octet, vi ret[2])
{
	if (type == GGUF_TENSOR_Q8_0) {
		ret[0] = vi_load(p->bytes + (2 * octet) * 64);
		ret[1] = vi_load(p->bytes + (2 * octet + 1) * 64);
		return;
	}
	const vi low = vi_set1(0x0f0f0f0f);
	vi v = vi_load(p->nibbles + octet * 64);
	ret[0] = vi_and(v, low);
	ret[1] = vi_and(vi_right16(v, 4), low);
	if (has_ones(type)) {
		vi h = vi_load(p->ones);
		const vi bit = vi_set1(0x10101010);
		vi a = octet <= 2 ? vi_left16(h, (4 - 2 * octet) & 7) : vi_right16(h, 2);
		vi b = octet <= 1 ? vi_left16(h, (3 - 2 * octet) & 7)
				  : vi_right16(h, (2 * octet - 3) & 7);
		ret[0] = vi_or_and(ret[0], a, bit);
		ret[1] = vi_or_and(ret[1], b, bit);
	}
	if (type == GGUF_TENSOR_Q6_K) {
		vi h = vi_load(p->twos + octet / 2 * 64);
		const vi bits = vi_set1(0x30303030);
		ret[0] = vi_or_and(ret[0], octet % 2 ? h : vi_left16(h, 4), bits);
		ret[1] = vi_or_and(ret[1], octet % 2 ? vi_right16(h, 2) : vi_left16(h, 2), bits);
	}
}

/* The pairs of columns (0,1), (2,3), (4,5), (6,7) of an octet as int16. */
FM_INLINE void octet_pairs(uint32_t type, const struct parts *p, uint32_t octet, vi ret[4])
{
	const vi low = vi_set1(0x000f000f), byte = vi_set1(0x00ff00ff);
	if (type != GGUF_TENSOR_Q8_0 && type != GGUF_TENSOR_Q6_K && !has_ones(type)) {
		vi v = vi_load(p->nibbles + octet * 64);
		ret[0] = vi_and(v, low);
		ret[1] = vi_and(vi_right16(v, 4), low);
		ret[2] = vi_and(vi_right16(v, 8), low);
		ret[3] = vi_right16(v, 12);
		return;
	}
	vi v[2];
	octet_bytes(type, p, octet, v);
	for (uint32_t i = 0; i < 2; i++) {
		bool is_signed = type == GGUF_TENSOR_Q8_0;
		ret[i] = is_signed ? vi_right16_signed(vi_left16(v[i], 8), 8) : vi_and(v[i], byte);
		ret[i + 2] = is_signed ? vi_right16_signed(v[i], 8) : vi_right16(v[i], 8);
	}
}

FM_INLINE vi broadcast4(const void *p)
{
	int32_t bytes;
	memcpy(&bytes, p, sizeof bytes);
	return vi_set1(bytes);
}

/* Adds an octet's products to each token's integer sum. */
FM_INLINE void octet_dot(uint32_t type, bool wide, uint32_t tokens, const struct parts *p,
			 uint32_t octet, const struct tile *x, size_t g, vi sum[])
{
	vi w[4];
	if (wide)
		octet_pairs(type, p, octet, w);
	else
		octet_bytes(type, p, octet, w);
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++) {
		size_t at = (t * x->groups + g) * KERNELS_GROUP + octet * 8;
		if (wide) {
#pragma GCC unroll 4
			for (uint32_t i = 0; i < 4; i++)
				sum[t] = vi_dot16(sum[t], w[i], broadcast4(x->q16 + at + 2 * i));
		} else {
#pragma GCC unroll 2
			for (uint32_t i = 0; i < 2; i++) {
				vi q = broadcast4(x->q8 + at + 4 * i);
				sum[t] = type == GGUF_TENSOR_Q8_0 ? vi_dot8_signed(sum[t], w[i], q)
								  : vi_dot8(sum[t], w[i], q);
			}
		}
	}
}

/* Integer sums start at -bias times the sum of the activations, so that the codes need not be made
 * signed. */
FM_INLINE void start_sums(uint32_t type, uint32_t tokens, const struct tile *x, size_t g,
			  uint32_t half, vi sum[])
{
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++) {
		if (bias_bits(type) == 0) {
			sum[t] = vi_zero();
			continue;
		}
		const int32_t *at = x->sum + 2 * (t * x->groups + g);
		int32_t of_acts = type == GGUF_TENSOR_Q6_K ? at[half] : at[0] + at[1];
		sum[t] = vi_sub32(vi_zero(), vi_left32(vi_set1(of_acts), bias_bits(type)));
	}
}

FM_INLINE void add_sums(uint32_t tokens, const struct tile *x, size_t g, vf d, const vi sum[],
			vf acc[])
{
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++) {
		vf step = vf_mul(d, vf_set1(x->dx[t * x->groups + g]));
		acc[t] = vf_fma(vf_from_int(sum[t]), step, acc[t]);
	}
}

FM_INLINE void rounded_group(uint32_t type, bool wide, uint32_t tokens, const struct parts *p,
			     const struct tile *x, size_t g, vf acc[])
{
	struct scales s = scales_of(type, p);
	vi sum[TOKENS_MOST];
	start_sums(type, tokens, x, g, 0, sum);
	octet_dot(type, wide, tokens, p, 0, x, g, sum);
	octet_dot(type, wide, tokens, p, 1, x, g, sum);
	if (type == GGUF_TENSOR_Q6_K) {
		add_sums(tokens, x, g, s.d[0], sum, acc);
		start_sums(type, tokens, x, g, 1, sum);
	}
	octet_dot(type, wide, tokens, p, 2, x, g, sum);
	octet_dot(type, wide, tokens, p, 3, x, g, sum);
	add_sums(tokens, x, g, s.d[1], sum, acc);
	if (has_offset(type)) {
#pragma GCC unroll 8
		for (uint32_t t = 0; t < tokens; t++)
			acc[t] = vf_fma(s.m, vf_set1(x->sx[t * x->groups + g]), acc[t]);
	}
}

/* One tile of `tokens` tokens. ret: [tokens][LANES]. */
FM_INLINE void rounded_tile(uint32_t type, bool wide, uint32_t tokens, const struct tile *tile,
			    float *ret)
{
	const struct tile x = *tile;
	vf acc[TOKENS_MOST];
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++)
		acc[t] = vf_set1(0.0f);
	for (size_t g = 0; g < x.groups; g++) {
		struct parts p = parts_of(type, x.block, g, x.lane);
		rounded_group(type, wide, tokens, &p, &x, g, acc);
	}
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++)
		vf_store(ret + t * LANES, acc[t]);
}

FM_INLINE void float_step(uint32_t tokens, const struct tile *x, size_t col, vf w, vf acc[])
{
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++)
		acc[t] = vf_fma(w, vf_set1(x->x[t * x->x_stride + col]), acc[t]);
}

/* The 8 weights of each row in an octet's columns, one after the other. */
FM_INLINE void float_octet(uint32_t type, uint32_t tokens, const struct parts *p,
			   const struct scales *s, uint32_t octet, const struct tile *x, size_t g,
			   vf acc[])
{
	vi bytes[2];
	octet_bytes(type, p, octet, bytes);
#pragma GCC unroll 8
	for (uint32_t c = 0; c < 8; c++) {
		const unsigned at =
			8 * (2 * (c % 2) + c / 4); /* bit of column c in its word: layout_column */
		vi code = vi_left32(bytes[c % 4 / 2], 24 - at);
		code = type == GGUF_TENSOR_Q8_0 ? vi_right32_signed(code, 24)
						: vi_right32(code, 24);
		if (bias_bits(type))
			code = vi_sub32(code, vi_set1(1 << bias_bits(type)));
		vf d = s->d[octet / 2], w = vf_from_int(code);
		w = has_offset(type) ? vf_fma(d, w, s->m) : vf_mul(d, w);
		float_step(tokens, x, g * KERNELS_GROUP + octet * 8 + c, w, acc);
	}
}

FM_INLINE void float_columns(uint32_t type, uint32_t tokens, const struct tile *x, vf acc[])
{
	for (size_t col = 0; col < x->cols; col++) {
		size_t at = col * KERNELS_BLOCK_ROWS + x->lane;
		vf w;
		if (type == GGUF_TENSOR_F32)
			w = vf_load((const float *)x->block + at);
		else if (type == GGUF_TENSOR_F16)
			w = vf_load_f16((const uint16_t *)x->block + at);
		else
			w = vf_load_bf16((const uint16_t *)x->block + at);
		float_step(tokens, x, col, w, acc);
	}
}

/* As rounded_tile, on float activations. */
FM_INLINE void float_tile(uint32_t type, uint32_t tokens, const struct tile *tile, float *ret)
{
	const struct tile x = *tile;
	vf acc[TOKENS_MOST];
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++)
		acc[t] = vf_set1(0.0f);
	if (layout_is_float(type)) {
		float_columns(type, tokens, &x, acc);
	} else {
		for (size_t g = 0; g < x.groups; g++) {
			struct parts p = parts_of(type, x.block, g, x.lane);
			struct scales s = scales_of(type, &p);
			float_octet(type, tokens, &p, &s, 0, &x, g, acc);
			float_octet(type, tokens, &p, &s, 1, &x, g, acc);
			float_octet(type, tokens, &p, &s, 2, &x, g, acc);
			float_octet(type, tokens, &p, &s, 3, &x, g, acc);
		}
	}
#pragma GCC unroll 8
	for (uint32_t t = 0; t < tokens; t++)
		vf_store(ret + t * LANES, acc[t]);
}

typedef void tile_function(const struct tile *tile, float *ret);

/* One function per type, family and power-of-two token count. */
#define TILE(type, family, tokens, call)                                                   \
	static void tile_##type##_##family##_##tokens(const struct tile *tile, float *ret) \
	{                                                                                  \
		call;                                                                      \
	}
#define ROUNDED_TILES(type, tokens)                                                        \
	TILE(type, f32, tokens, float_tile(GGUF_TENSOR_##type, tokens, tile, ret))         \
	TILE(type, a16, tokens, rounded_tile(GGUF_TENSOR_##type, true, tokens, tile, ret)) \
	TILE(type, a8, tokens, rounded_tile(GGUF_TENSOR_##type, false, tokens, tile, ret))
#define FLOAT_TILES(type, tokens) \
	TILE(type, f32, tokens, float_tile(GGUF_TENSOR_##type, tokens, tile, ret))
#ifdef __AVX512F__
#define TOKEN_COUNTS(tiles, type) tiles(type, 1) tiles(type, 2) tiles(type, 4) tiles(type, 8)
#define TILE_8(name)		  name
#else
#define TOKEN_COUNTS(tiles, type) tiles(type, 1) tiles(type, 2) tiles(type, 4)
#define TILE_8(name)		  NULL
#endif
TOKEN_COUNTS(FLOAT_TILES, F32)
TOKEN_COUNTS(FLOAT_TILES, F16)
TOKEN_COUNTS(FLOAT_TILES, BF16)
TOKEN_COUNTS(ROUNDED_TILES, Q4_0)
TOKEN_COUNTS(ROUNDED_TILES, Q4_1)
TOKEN_COUNTS(ROUNDED_TILES, Q5_0)
TOKEN_COUNTS(ROUNDED_TILES, Q5_1)
TOKEN_COUNTS(ROUNDED_TILES, Q8_0)
TOKEN_COUNTS(ROUNDED_TILES, Q4_K)
TOKEN_COUNTS(ROUNDED_TILES, Q5_K)
TOKEN_COUNTS(ROUNDED_TILES, Q6_K)

#define TILE_COUNTS(type, family)                                                      \
	{                                                                              \
		tile_##type##_##family##_1, tile_##type##_##family##_2,                \
			tile_##type##_##family##_4, TILE_8(tile_##type##_##family##_8) \
	}
#define FLOAT_ROW(type) \
	[GGUF_TENSOR_## \
		type] = {TILE_COUNTS(type, f32), TILE_COUNTS(type, f32), TILE_COUNTS(type, f32)}
#define ROUNDED_ROW(type) \
	[GGUF_TENSOR_##   \
		type] = {TILE_COUNTS(type, f32), TILE_COUNTS(type, a16), TILE_COUNTS(type, a8)}

/* By type, enum kernels_family and log2 of the token count. */
static tile_function *const TILES[][3][4] = {
	FLOAT_ROW(F32),	   FLOAT_ROW(F16),    FLOAT_ROW(BF16),	 ROUNDED_ROW(Q4_0),
	ROUNDED_ROW(Q4_1), ROUNDED_ROW(Q5_0), ROUNDED_ROW(Q5_1), ROUNDED_ROW(Q8_0),
	ROUNDED_ROW(Q4_K), ROUNDED_ROW(Q5_K), ROUNDED_ROW(Q6_K),
};

static struct tile tile_at(const struct kernels_acts *acts, uint32_t token)
{
	size_t groups = acts->cols / KERNELS_GROUP, at = token * groups;
	struct tile tile = {.cols = acts->cols,
			    .groups = groups,
			    .x = acts->x + token * acts->x_stride,
			    .x_stride = acts->x_stride};
	if (acts->family == KERNELS_F32)
		return tile;
	if (acts->family == KERNELS_A16)
		tile.q16 = acts->q16 + at * KERNELS_GROUP;
	else
		tile.q8 = acts->q8 + at * KERNELS_GROUP;
	tile.dx = acts->dx + at;
	tile.sx = acts->sx + at;
	tile.sum = acts->sum + 2 * at;
	return tile;
}

/* All tokens of LANES rows: the largest power of two that is left, again and again. The padding
 * rows of the last block have no place in y. */
static void matmul_lanes(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
			 size_t y_stride, size_t row)
{
	const uint8_t *block = (const uint8_t *)w->data +
			       row / KERNELS_BLOCK_ROWS * layout_stride(w->type, w->cols);
	size_t count = w->rows - row < LANES ? w->rows - row : LANES;
	float sums[TOKENS_MOST * LANES];
	for (uint32_t t = 0, tokens; t < acts->rows; t += tokens) {
		uint32_t left = acts->rows - t, log = 0;
		while (log < 3 && 2u << log <= left && 2u << log <= TOKENS_MOST)
			log++;
		tokens = 1u << log;
		struct tile tile = tile_at(acts, t);
		tile.block = block;
		tile.lane = row % KERNELS_BLOCK_ROWS;
		TILES[w->type][acts->family][log](&tile, sums);
		for (uint32_t i = 0; i < tokens; i++)
			memcpy(y + (t + i) * y_stride + row, sums + i * LANES, count * sizeof *y);
	}
}

static void matmul(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
		   size_t y_stride, uint32_t first, uint32_t last)
{
	size_t end = (size_t)last * KERNELS_BLOCK_ROWS;
	for (size_t row = (size_t)first * KERNELS_BLOCK_ROWS; row < end && row < w->rows;
	     row += LANES)
		matmul_lanes(w, acts, y, y_stride, row);
}
