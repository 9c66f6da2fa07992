/* The AVX-512 with VNNI form; and the AMX form, which has products of its own (form_amx.c). */
#define SIMD_VNNI 1
#include "npu-worker/kernels/simd_avx512.inc"

#include "npu-worker/kernels/attention_simd.inc"
#include "npu-worker/kernels/elementwise.inc"
#include "npu-worker/kernels/matmul_simd.inc"

#define FORM(form_name, product)                                                                  \
	{                                                                                         \
		.name = (form_name), .quantise = quantise, .matmul = (product),                   \
		.attention = attention, .kv_write = kv_write, .rms_norm = rms_norm, .rope = rope, \
		.add = add, .scale = scale, .softcap = softcap, .silu_mul = silu_mul,             \
		.gelu_mul = gelu_mul, .finite = all_finite,                                       \
	}
const struct kernels kernels_avx512_vnni = FORM("avx512", matmul);
const struct kernels kernels_amx = FORM("amx", kernels_amx_matmul);
