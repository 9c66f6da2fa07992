#define DRAW_KERNELS	  draw_kernels_avx2
#define DRAW_KERNELS_NAME "avx2"
#include "draw/kernels_body.h"
