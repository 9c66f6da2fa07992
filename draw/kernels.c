#include "draw/kernels.h"

#include <string.h>

static bool cpu_has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool cpu_has_avx512(void)
{
	return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}

const struct draw_kernels *draw_kernels_get(enum draw_isa isa)
{
	switch (isa) {
	case DRAW_ISA_SCALAR:
		return &draw_kernels_scalar;
	case DRAW_ISA_AVX2:
		return cpu_has_avx2() ? &draw_kernels_avx2 : NULL;
	case DRAW_ISA_AVX512:
		return cpu_has_avx512() ? &draw_kernels_avx512 : NULL;
	case DRAW_ISA_AUTO:
		break;
	}
	if (cpu_has_avx512())
		return &draw_kernels_avx512;
	return cpu_has_avx2() ? &draw_kernels_avx2 : &draw_kernels_scalar;
}

bool draw_isa_parse(const char *name, enum draw_isa *ret_isa)
{
	static const struct {
		const char *name;
		enum draw_isa isa;
	} names[] = {{"auto", DRAW_ISA_AUTO},
		     {"scalar", DRAW_ISA_SCALAR},
		     {"avx2", DRAW_ISA_AVX2},
		     {"avx512", DRAW_ISA_AVX512},
		     {"amx", DRAW_ISA_AVX512}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strcmp(name, names[i].name) == 0) {
			*ret_isa = names[i].isa;
			return true;
		}
	return false;
}
