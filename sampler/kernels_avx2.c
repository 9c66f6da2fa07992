#define SMP_KERNELS	 smp_kernels_avx2
#define SMP_KERNELS_NAME "avx2"
#include "sampler/kernels_body.h"
