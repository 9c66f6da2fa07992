/* The products of the AMX form: on tiles from a batch of some tokens on, else with AVX-512 and
 * VNNI. All else of the form is that one's (form_avx512_vnni.c). */
#define SIMD_VNNI 1
#include "npu-worker/kernels/simd_avx512.inc"

#include "npu-worker/kernels/tiles_amx.inc"

#define TILES_REST kernels_avx512_vnni
#include "npu-worker/kernels/matmul_tiles.inc"

void kernels_amx_matmul(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
			size_t y_stride, uint32_t first, uint32_t last)
{
	matmul(w, acts, y, y_stride, first, last);
}
