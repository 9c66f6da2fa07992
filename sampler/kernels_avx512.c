#define SMP_KERNELS	 smp_kernels_avx512
#define SMP_KERNELS_NAME "avx512"
#include "sampler/kernels_body.h"
