/* npu-worker/kernels/kernels.h: the host engine's arithmetic (docs/arithmetic.md). One struct
 * kernels per instruction set; every one gives the scalar form's bits, for any row range, batch
 * size and thread count. Nothing here allocates, locks or fails at run time; all functions may be
 * called from several threads, with the floating-point environment of pool_thread_setup() (round to
 * nearest, subnormals kept).
 *
 * Weights: a matrix of `rows` outputs by `cols` inputs is packed once (pack.c) into blocks of 16
 * rows, the lanes of one register, each a run of 32-column groups; layout.h has the block of every
 * type. The last block is filled up with zero rows, which are computed but never stored.
 * Activations: rows of float32. For a family that rounds them, quantise() first makes the int16 or
 * int8 form. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/gguf.h" /* enum gguf_tensor_type: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K */

enum { KERNELS_BLOCK_ROWS = 16, KERNELS_GROUP = 32 };

enum kernels_family {
	KERNELS_F32, /* "f32-v1": float32 activations, dequantised weights: one fma chain over the
			columns */
	KERNELS_A16, /* "a16-v1": activations as int16 per group of 32 */
	KERNELS_A8,  /* "a8-v1": as int8 */
	KERNELS_A16_KV8, /* "a16-kv8-v1": int16 like a16, and keys and values as int8 */
	KERNELS_B16,	 /* "b16-v1": bfloat16; weights and chain as in f32 */
};
const char *kernels_family_name(enum kernels_family family);

struct kernels_matrix {
	uint32_t type; /* enum gguf_tensor_type */
	uint32_t rows, cols;
	const void *data; /* packed; 64-byte aligned */
};

/* Refuses, naming the tensor: a type without kernels, zero sizes, columns that don't fill the
 * type's blocks (32 or 256; any number for float types), sizes whose packed form would pass 2^47
 * bytes. name: the tensor's name for the message. */
SVC_CHECKED enum svc_code kernels_check_matrix(const char *name, uint32_t type, uint64_t rows,
					       uint64_t cols, struct svc_err *err);
/* Bytes of the packed form of a checked matrix (a multiple of 64): the file's size within 3 %. */
size_t kernels_packed_bytes(uint32_t type, uint32_t rows, uint32_t cols);
static inline uint32_t kernels_block_count(uint32_t rows)
{
	return (rows + KERNELS_BLOCK_ROWS - 1) / KERNELS_BLOCK_ROWS;
}
/* Packs the 16-row blocks [first, last) of the matrix `shape` (whose data is not used) from `gguf`,
 * the tensor's bytes in the file (row-major, unaligned), into `packed`, the whole matrix's memory.
 * Ranges may be packed in parallel. */
void kernels_pack(const struct kernels_matrix *shape, const void *gguf, void *packed,
		  uint32_t first, uint32_t last);
/* One row as float32, for embedding look-up: ret_row[cols]; the very values the f32 family
 * multiplies with. */
void kernels_dequantise_row(const struct kernels_matrix *w, uint32_t row, float *ret_row);

/* The activations of one matrix multiplication: x is borrowed, the rest points into one block of
 * memory. */
struct kernels_acts {
	enum kernels_family family; /* F32, A16 or A8: what holds for activations (B16: F32) */
	uint32_t rows, cols;
	const float *x;	 /* [rows][x_stride] */
	size_t x_stride; /* floats */
	int16_t *q16;	 /* A16: [rows][cols] */
	int8_t *q8;	 /* A8: [rows][cols], inside every 8 columns in the order 0 4 1 5 2 6 3 7
			    (layout.h) */
	float *dx,
		*sx;  /* [rows][cols/32]: step, and step times the sum of the rounded activations */
	int32_t *sum; /* [rows][cols/16]: sums of the rounded activations */
	float *b16;   /* F32 that stands for B16: [rows][cols], x rounded to bfloat16; else NULL */
};
/* Bytes of the memory for acts of up to rows x cols (0 for F32). */
size_t kernels_acts_bytes(enum kernels_family family, uint32_t rows, uint32_t cols);
/* Lays acts out in memory (64-byte aligned, kernels_acts_bytes; may be NULL for F32), with x_stride
 * = cols. The caller then sets x, and x_stride if it is another. Needs no undoing; the same memory
 * may be laid out again. */
void kernels_acts_init(struct kernels_acts *acts, enum kernels_family family, uint32_t rows,
		       uint32_t cols, void *memory);
/* Rows [first, first + count) of acts that quantise() has filled, for a product of these alone. In
 * B16 x is what it filled. */
struct kernels_acts kernels_acts_part(const struct kernels_acts *acts, uint32_t first,
				      uint32_t count);

/* I8: codes of -127..127 and one float32 step for each key and each value vector. */
enum kernels_kv { KERNELS_KV_F16, KERNELS_KV_F32, KERNELS_KV_I8 };
enum kernels_kv kernels_family_kv(enum kernels_family family);
struct kernels_attention; /* attention.h */
struct kernels_kv_place;

struct kernels {
	const char *name; /* "scalar", "avx2", "avx512", "amx", "avx2-plain", "avx512-plain"
			     (without VNNI) */

	/* Fills rows [first, last) of acts from acts->x. false if one of them holds a NaN or an
	 * infinity: that group's dx is then NaN and so is every product with it. A no-op but for
	 * the check in F32. In B16 what it fills, b16, has to be put in the place of x. */
	bool (*quantise)(const struct kernels_acts *acts, uint32_t first, uint32_t last);
	/* y[t][n] = sum over k of w[n][k] x[t][k], for all acts->rows and the rows n of the 16-row
	 * blocks [first, last) of w; y_stride in floats, >= w->rows. F32, F16 and BF16 weights take
	 * the float activations in every family. */
	void (*matmul)(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
		       size_t y_stride, uint32_t first, uint32_t last);
	void (*attention)(const struct kernels_attention *job);

	/* One position's key and value vectors, rounded to the KV type, into its page. */
	void (*kv_write)(const struct kernels_kv_place *to, const float *k, const float *v);
	/* y = x / sqrt(mean(x^2) + eps) * weight; weight NULL: without. y may be x. */
	void (*rms_norm)(const float *x, const float *weight, float eps, uint32_t n, float *y);
	/* Rotates the first 2*pairs of x by the angles whose cosines and sines are given. Pairs are
	 * (2i, 2i+1) if interleaved ("norm"), else (i, i+pairs) ("neox"). */
	void (*rope)(float *x, const float *cosines, const float *sines, uint32_t pairs,
		     bool interleaved);
	void (*add)(float *x, const float *y, uint32_t n); /* x += y: residual, bias */
	void (*scale)(float *x, float factor, uint32_t n); /* x *= factor */
	void (*softcap)(float *x, float cap, uint32_t n);  /* x = cap tanh(x / cap) */
	void (*silu_mul)(const float *gate, const float *up, uint32_t n,
			 float *y); /* y = silu(gate) up; y may be either */
	void (*gelu_mul)(const float *gate, const float *up, uint32_t n,
			 float *y); /* tanh form of gelu */
	bool (*finite)(const float *x, uint32_t n);
};

/* "auto": the best this machine has; else "amx", "avx512" (with or without VNNI), "avx2" (with FMA
 * and F16C), "scalar". SVC_BAD_CONFIG for an unknown name and for one this machine lacks, naming
 * what it lacks and what can be chosen; and for one that computes other numbers than the scalar
 * form in a small product that is tried first: auto then takes the next. Before threads are made
 * that compute: it may have to ask the operating system for their registers. */
SVC_CHECKED enum svc_code kernels_select(const char *name, const struct kernels **ret_kernels,
					 struct svc_err *err);
