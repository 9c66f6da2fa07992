/* npu-worker/kernels/forms.h: the forms that are compiled in, for select.c and the tests; and what
 * their files share. */
#pragma once
#include "base/fmath.h"
#include "npu-worker/kernels/attention.h"

extern const struct kernels kernels_scalar, kernels_avx2, kernels_avx2_vnni, kernels_avx512,
	kernels_avx512_vnni, kernels_amx;
void kernels_amx_matmul(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
			size_t y_stride, uint32_t first, uint32_t last);
/* The form `index`, best first; NULL past the end. *ret_runs: whether this CPU can run it. */
const struct kernels *kernels_form(size_t index, bool *ret_runs);

/* Whether a form, which must be one that runs here, gives the scalar one's bits in products of both
 * kinds of rounded activations; one that does not is never chosen. In 3 ms and without memory:
 * enough of a product that every instruction of its loops works on numbers of all sizes. */
bool kernels_proven(const struct kernels *form);

/* What select.c asks of the machine; the tests give other answers. */
struct kernels_machine {
	unsigned features; /* select.c's; all bits: a CPU that has everything */
	bool (*permit_tiles)(void);
	bool (*proven)(const struct kernels *form);
};
struct kernels_machine kernels_machine(void);
SVC_CHECKED enum svc_code kernels_select_on(const struct kernels_machine *machine, const char *name,
					    const struct kernels **ret_kernels,
					    struct svc_err *err);

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
