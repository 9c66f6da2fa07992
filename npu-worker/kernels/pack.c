/* GGUF's blocks into the packed form (layout.h): one row and 32 columns at a time. */
#include <string.h>

#include "model/gguf_block.h"
#include "npu-worker/kernels/layout.h"

/* Four codes a word: what the types' bits need is done on four bytes at once. The file's bytes and
 * the packed ones are little-endian, as the CPUs are. */
struct words {
	uint32_t at[8]; /* at[slot]: the codes of word slot % 2 of octet slot / 2, as layout_column
			 */
};

/* Bytes 0 1 2 3 to 0 . 1 . 2 . 3 . */
static uint64_t spread(uint32_t bytes)
{
	uint64_t wide = bytes;
	wide = (wide | wide << 16) & 0x0000ffff0000ffffu;
	return (wide | wide << 8) & 0x00ff00ff00ff00ffu;
}

static void order(const struct gguf_group *raw, struct words *ret)
{
	for (uint32_t octet = 0; octet < 4; octet++) {
		uint32_t half[2];
		memcpy(half, raw->code + (size_t)octet * 8, sizeof half);
		uint64_t both = spread(half[0]) | spread(half[1]) << 8;
		ret->at[2 * octet] = (uint32_t)both;
		ret->at[2 * octet + 1] = (uint32_t)(both >> 32);
	}
}

static void write_nibbles(const struct words *words, uint32_t row, uint8_t nibbles[4][16][4])
{
	for (uint32_t octet = 0; octet < 4; octet++) {
		uint32_t pair = (words->at[2 * octet] & 0x0f0f0f0fu) |
				(words->at[2 * octet + 1] & 0x0f0f0f0fu) << 4;
		memcpy(nibbles[octet][row], &pair, sizeof pair);
	}
}

static void write_ones(const struct words *words, uint32_t row, uint8_t ones[16][4])
{
	uint32_t bits = 0;
	for (uint32_t slot = 0; slot < 8; slot++)
		bits |= (words->at[slot] >> 4 & 0x01010101u) << slot;
	memcpy(ones[row], &bits, sizeof bits);
}

static void write_twos(const struct words *words, uint32_t row, uint8_t twos[2][16][4])
{
	for (uint32_t half = 0; half < 2; half++) {
		uint32_t bits = 0;
		for (uint32_t slot = 0; slot < 4; slot++)
			bits |= (words->at[4 * half + slot] >> 4 & 0x03030303u) << 2 * slot;
		memcpy(twos[half][row], &bits, sizeof bits);
	}
}

static void write_small(uint32_t type, const struct gguf_group *raw, uint32_t row, void *block)
{
	struct words words;
	order(raw, &words);
	if (type == GGUF_TENSOR_Q4_0) {
		struct block_q4_0 *b = block;
		b->d[row] = raw->d;
		write_nibbles(&words, row, b->nibbles);
	} else if (type == GGUF_TENSOR_Q4_1) {
		struct block_q4_1 *b = block;
		b->d[row] = raw->d;
		b->m[row] = raw->m;
		write_nibbles(&words, row, b->nibbles);
	} else if (type == GGUF_TENSOR_Q5_0) {
		struct block_q5_0 *b = block;
		b->d[row] = raw->d;
		write_nibbles(&words, row, b->nibbles);
		write_ones(&words, row, b->ones);
	} else if (type == GGUF_TENSOR_Q5_1) {
		struct block_q5_1 *b = block;
		b->d[row] = raw->d;
		b->m[row] = raw->m;
		write_nibbles(&words, row, b->nibbles);
		write_ones(&words, row, b->ones);
	} else {
		struct block_q8_0 *b = block;
		b->d[row] = raw->d;
		for (uint32_t slot = 0; slot < 8; slot++)
			memcpy(b->bytes[slot][row], &words.at[slot], sizeof words.at[slot]);
	}
}

static void write_k(uint32_t type, const struct gguf_group *raw, uint32_t row, uint32_t group,
		    void *block)
{
	struct words words;
	order(raw, &words);
	if (type == GGUF_TENSOR_Q4_K) {
		struct block_q4_k *b = block;
		struct group_q4_k *g = &b->group[group];
		b->d[row] = raw->d;
		b->dmin[row] = raw->m;
		g->sc[row] = raw->sc[0];
		g->mn[row] = raw->mn;
		write_nibbles(&words, row, g->nibbles);
	} else if (type == GGUF_TENSOR_Q5_K) {
		struct block_q5_k *b = block;
		struct group_q5_k *g = &b->group[group];
		b->d[row] = raw->d;
		b->dmin[row] = raw->m;
		g->sc[row] = raw->sc[0];
		g->mn[row] = raw->mn;
		write_nibbles(&words, row, g->nibbles);
		write_ones(&words, row, g->ones);
	} else {
		struct block_q6_k *b = block;
		struct group_q6_k *g = &b->group[group];
		b->d[row] = raw->d;
		g->sc[0][row] = (int8_t)raw->sc[0];
		g->sc[1][row] = (int8_t)raw->sc[1];
		write_nibbles(&words, row, g->nibbles);
		write_twos(&words, row, g->twos);
	}
}

/* One row of a quantised matrix into its (zeroed) 16-row block. */
static void pack_row(uint32_t type, uint32_t cols, const uint8_t *file_row, uint32_t row,
		     uint8_t *block)
{
	const struct layout_info *info = layout_info(type);
	for (uint32_t group = 0; group < cols / KERNELS_GROUP; group++) {
		struct gguf_group raw;
		gguf_group_read(type, file_row, group, &raw);
		if (info->columns == KERNELS_GROUP)
			write_small(type, &raw, row, block + (size_t)group * info->block_bytes);
		else
			write_k(type, &raw, row, group % 8,
				block + (size_t)(group / 8) * info->block_bytes);
	}
}

static void pack_float_row(uint32_t type, uint32_t cols, const uint8_t *file_row, uint32_t row,
			   uint8_t *block)
{
	size_t width = layout_info(type)->file_bytes;
	for (size_t col = 0; col < cols; col++)
		memcpy(block + (col * KERNELS_BLOCK_ROWS + row) * width, file_row + col * width,
		       width);
}

void kernels_pack(const struct kernels_matrix *shape, const void *gguf, void *packed,
		  uint32_t first, uint32_t last)
{
	uint32_t type = shape->type, cols = shape->cols;
	const struct layout_info *info = layout_info(type);
	size_t stride = layout_stride(type, cols);
	size_t row_bytes = (size_t)(cols / info->columns) * info->file_bytes;
	for (uint32_t b = first; b < last; b++) {
		uint8_t *block = (uint8_t *)packed + b * stride;
		memset(block, 0, stride);
		for (uint32_t r = 0; r < KERNELS_BLOCK_ROWS; r++) {
			size_t row = (size_t)b * KERNELS_BLOCK_ROWS + r;
			if (row >= shape->rows)
				break;
			const uint8_t *file_row = (const uint8_t *)gguf + row * row_bytes;
			(info->columns == 1 ? pack_float_row : pack_row)(type, cols, file_row, r,
									 block);
		}
	}
}

enum svc_code kernels_check_matrix(const char *name, uint32_t type, uint64_t rows, uint64_t cols,
				   struct svc_err *err)
{
	const struct layout_info *info = layout_info(type);
	if (!info) {
		const char *type_name = gguf_tensor_type_name(type);
		return svc_fail(err, SVC_UNSUPPORTED, __func__,
				"tensor %s: type %s (%u) has no kernels; supported are F32 F16 "
				"BF16 Q4_0 Q4_1 "
				"Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K",
				name, type_name ? type_name : "unknown", type);
	}
	const uint64_t most = UINT64_C(1) << 31;
	if (rows == 0 || cols == 0 || rows > most || cols > most)
		return svc_fail(
			err, SVC_BAD_MODEL, __func__,
			"tensor %s: a matrix of %llu rows and %llu columns; both must be 1..2^31",
			name, (unsigned long long)rows, (unsigned long long)cols);
	if (cols % info->columns)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"tensor %s: %llu columns, but type %s needs a multiple of %u", name,
				(unsigned long long)cols, gguf_tensor_type_name(type),
				info->columns);
	if (rows > (UINT64_C(1) << 47) / (cols / info->columns * info->block_bytes))
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"tensor %s: %llu x %llu elements take more than 2^47 bytes", name,
				(unsigned long long)rows, (unsigned long long)cols);
	return SVC_OK;
}

size_t kernels_packed_bytes(uint32_t type, uint32_t rows, uint32_t cols)
{
	size_t bytes = layout_stride(type, cols) * kernels_block_count(rows);
	return (bytes + 63) / 64 * 64;
}

void kernels_dequantise_row(const struct kernels_matrix *w, uint32_t row, float *ret_row)
{
	const uint8_t *block = (const uint8_t *)w->data +
			       row / KERNELS_BLOCK_ROWS * layout_stride(w->type, w->cols);
	uint32_t lane = row % KERNELS_BLOCK_ROWS;
	if (layout_is_float(w->type)) {
		for (uint32_t col = 0; col < w->cols; col++)
			ret_row[col] = layout_float(w->type, block, lane, col);
		return;
	}
	for (uint32_t group = 0; group < w->cols / KERNELS_GROUP; group++) {
		struct layout_group g;
		layout_group_read(w->type, block, lane, group, &g);
		layout_group_values(&g, ret_row + (size_t)group * KERNELS_GROUP);
	}
}
