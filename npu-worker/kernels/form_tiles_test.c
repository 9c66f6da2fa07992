/* The tiles' products on the software model of the instructions, for CPUs without AMX. The vectors
 * are AVX2's; all else is that form. */
#define SIMD_VNNI 0
#include "npu-worker/kernels/simd_avx2.inc"

#include "npu-worker/kernels/testing.h"
#include "npu-worker/kernels/tiles_model.inc"

#define TILES_REST kernels_avx2
#include "npu-worker/kernels/matmul_tiles.inc"

/* A product leaves no tiles behind in its thread. */
static void matmul_and_release(const struct kernels_matrix *w, const struct kernels_acts *acts,
			       float *y, size_t y_stride, uint32_t first, uint32_t last)
{
	matmul(w, acts, y, y_stride, first, last);
	model_require(model.palette == 0);
}

const struct kernels *test_form(size_t index, bool *ret_runs)
{
	static struct kernels tiles;
	size_t count = 0;
	bool runs, runs_avx2 = false;
	for (const struct kernels *form; (form = kernels_form(count, &runs)); count++) {
		if (form == &kernels_avx2)
			runs_avx2 = runs;
	}
	if (index != count)
		return kernels_form(index, ret_runs);
	tiles = kernels_avx2;
	tiles.name = "tiles-model";
	tiles.matmul = matmul_and_release;
	*ret_runs = runs_avx2;
	return &tiles;
}

void test_print_forms(void)
{
	bool runs;
	printf("forms:");
	for (size_t f = 0; test_form(f, &runs); f++) {
		const struct kernels *form = test_form(f, &runs);
		if (runs)
			printf(" %s", form->name);
	}
	printf("\n");
}
