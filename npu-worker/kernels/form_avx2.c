/* The AVX2 form. */

#define SIMD_VNNI 0
#include "npu-worker/kernels/simd_avx2.inc"

#include "npu-worker/kernels/attention_simd.inc"
#include "npu-worker/kernels/elementwise.inc"
#include "npu-worker/kernels/matmul_simd.inc"

const struct kernels kernels_avx2 = {
	.name = "avx2-plain",
	.quantise = quantise,
	.matmul = matmul,
	.attention = attention,
	.kv_write = kv_write,
	.rms_norm = rms_norm,
	.rope = rope,
	.add = add,
	.scale = scale,
	.softcap = softcap,
	.silu_mul = silu_mul,
	.gelu_mul = gelu_mul,
	.finite = all_finite,
};
