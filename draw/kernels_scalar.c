#define DRAW_KERNELS	  draw_kernels_scalar
#define DRAW_KERNELS_NAME "scalar"
#include "draw/kernels_body.h"
