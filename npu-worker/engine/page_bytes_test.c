#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/shape.h"
#include "npu-worker/kernels/attention.h"

/* The keeper makes them, and doesn't know the engine. */
static void pages_are_as_large_as_the_run_plans(void **state)
{
	static const struct {
		enum kernels_kv kv;
		uint32_t element_bytes, vector_bytes;
	} forms[] = {{KERNELS_KV_F16, 2, 0}, {KERNELS_KV_F32, 4, 0}, {KERNELS_KV_I8, 1, 4}};
	(void)state;
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		for (uint32_t dim = 2; dim <= 512; dim += 2) {
			const struct model_shape shape = {
				.n_layer = 3, .n_kv_head = 2, .head_dim = dim};
			size_t tiles = kernels_k_tile_bytes(forms[i].kv, dim) +
				       kernels_v_tile_bytes(forms[i].kv, dim);
			assert_int_equal(model_page_bytes(&shape, forms[i].element_bytes,
							  forms[i].vector_bytes),
					 6 * tiles);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(pages_are_as_large_as_the_run_plans)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
