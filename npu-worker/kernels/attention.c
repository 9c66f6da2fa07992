#include "npu-worker/kernels/attention.h"

static size_t element_bytes(enum kernels_kv kv)
{
	return kv == KERNELS_KV_F32 ? 4 : kv == KERNELS_KV_F16 ? 2 : 1;
}

static size_t steps_bytes(enum kernels_kv kv)
{
	return kv == KERNELS_KV_I8 ? KERNELS_STEPS_BYTES : 0;
}

size_t kernels_k_tile_bytes(enum kernels_kv kv, uint32_t head_dim)
{
	return (size_t)head_dim * KERNELS_PAGE_KEYS * element_bytes(kv) + steps_bytes(kv);
}

size_t kernels_v_tile_bytes(enum kernels_kv kv, uint32_t head_dim)
{
	return (size_t)(head_dim + 15) / 16 * 16 * KERNELS_PAGE_KEYS * element_bytes(kv) +
	       steps_bytes(kv);
}
