#define SMP_KERNELS	 smp_kernels_scalar
#define SMP_KERNELS_NAME "scalar"
#include "sampler/kernels_body.h"
