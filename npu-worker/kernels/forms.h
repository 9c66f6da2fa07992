/* npu-worker/kernels/forms.h: the forms that are compiled in, for select.c and the tests; and what
 * their files share. */
#pragma once
#include "base/fmath.h"
#include "npu-worker/kernels/attention.h"

extern const struct kernels kernels_scalar, kernels_avx2, kernels_avx2_vnni, kernels_avx512,
	kernels_avx512_vnni;
/* The form `index`, best first; NULL past the end. *ret_runs: whether this CPU can run it. */
const struct kernels *kernels_form(size_t index, bool *ret_runs);
void kernels_scalar_attention(const struct kernels_attention *job);
void kernels_scalar_kv_write(const struct kernels_kv_place *to, const float *k, const float *v);

/* The fixed tree of 64: halves are added until one is left. Destroys lane. */
FM_INLINE float tree_sum(float lane[64])
{
	for (uint32_t width = 32; width > 0; width /= 2) {
		for (uint32_t i = 0; i < width; i++)
			lane[i] += lane[i + width];
	}
	return lane[0];
}
