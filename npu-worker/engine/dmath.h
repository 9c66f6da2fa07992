/* npu-worker/engine/dmath.h: the double-precision functions behind the position tables. The C
 * library's differ between versions and machines; these are a fixed sequence of IEEE operations and
 * fma, so a table has the same bits everywhere. Errors stay under 2 ulp of double over the stated
 * ranges, 2^28 times finer than the float32 values that are made of them. */
#pragma once

/* Natural logarithm of a finite x > 0, normal. */
double dm_log(double x);
/* |x| <= 700. */
double dm_exp(double x);
/* base^exponent for base > 0 and |exponent ln base| <= 700. */
double dm_pow(double base, double exponent);
/* |x| < 2^26. */
void dm_sincos(double x, double *ret_sine, double *ret_cosine);
