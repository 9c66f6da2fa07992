/* npu-worker/kernels/f16.h: the 16-bit float types are everyone's. */
#pragma once
#include "base/f16.h"
