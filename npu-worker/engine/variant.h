/* npu-worker/engine/variant.h: other arithmetic for the same mathematics, site by site, for the
 * instruments that look for the cause of a divergence (docs/verification.md). Never served: the
 * worker sets none. Only with the f32 family, whose ordinary arithmetic is then one side ("seq")
 * and these primitives the other ("bat"). */
#pragma once
#include "npu-worker/engine/engine.h"
#include "npu-worker/engine/hooks.h"

enum variant_primitive {
	/* A product's columns are cut into ranges, each a chain of its own; their number depends on
	 * the rows of the pass, as in engines that choose a kernel by batch size. Ordinary: one
	 * chain. */
	VARIANT_MATMUL,
	/* The squares in one chain. Ordinary: 64 chains, and a tree. */
	VARIANT_NORM,
	/* Keys in blocks whose size depends on the rows of the pass. Ordinary: 64 at fixed places,
	 * and a tree. */
	VARIANT_ATTENTION,
	/* The exponential computed in double and rounded once. Ordinary: float32 throughout. */
	VARIANT_EXP,
	/* Both products of a rotation are rounded. Ordinary: one of them, then fma. */
	VARIANT_ROPE,
	/* branch + residual instead of residual + branch: a control, the same bits. */
	VARIANT_RESIDUAL,
	VARIANT_PRIMITIVE_COUNT
};
/* "matmul", ... */
const char *variant_primitive_name(enum variant_primitive primitive);
/* "column ranges by batch size vs one chain" */
const char *variant_primitive_pair(enum variant_primitive primitive);

struct variant {
	/* Bit c: at checkpoint c the other primitive makes the values. */
	uint32_t sites[VARIANT_PRIMITIVE_COUNT];
	uint32_t first_layer, last_layer; /* both included; the head counts as layer n_layers */
	/* VARIANT_MATMUL: where several rows share the pass, the sum of a range of columns is
	 * handed on in bfloat16, as by engines whose batched kernels keep partial sums so. */
	bool bf16_sums;
};
_Static_assert(ENGINE_CHECKPOINT_COUNT <= 32, "a bit for each");

/* Where a primitive can be at all: q_proj, k_proj, ... as bits. */
uint32_t variant_sites_of(enum variant_primitive primitive);

/* y of the 16-row blocks [first, last) of w, as kernels->matmul; `rows` share the pass. */
struct variant_product {
	const struct kernels *kernels;
	const struct kernels_matrix *w;
	const struct kernels_acts *acts; /* float32 */
	float *y;
	size_t y_stride;
	uint32_t rows;
	bool bf16_sums;
};
void variant_matmul(const struct variant_product *product, uint32_t first, uint32_t last);

/* As their namesakes of struct kernels. */
void variant_rms_norm(const float *x, const float *weight, float eps, uint32_t n, float *y);
void variant_rope(float *x, const float *cosines, const float *sines, uint32_t pairs,
		  bool interleaved);
void variant_silu_mul(const float *gate, const float *up, uint32_t n, float *y);
void variant_gelu_mul(const float *gate, const float *up, uint32_t n, float *y);
void variant_add(float *x, const float *y, uint32_t n);

struct kernels_attention;
/* key_blocks: VARIANT_ATTENTION, else the ordinary blocks; other_exp: VARIANT_EXP. Neither gives
 * the ordinary bits. Head dimensions up to KERNELS_MAX_HEAD_DIM, keys and values in float32. */
void variant_attention(const struct kernels_attention *job, uint32_t rows, bool key_blocks,
		       bool other_exp);
