#define DRAW_KERNELS	  draw_kernels_avx512
#define DRAW_KERNELS_NAME "avx512"
#include "draw/kernels_body.h"
