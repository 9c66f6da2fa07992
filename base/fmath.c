#include "base/fmath.h"

/* The same loop for three instruction sets; the compiler's vectors can't change its bits (fmath.h).
 */
FM_INLINE void exp_loop(float *x, size_t n, float shift)
{
	for (size_t i = 0; i < n; i++)
		x[i] = fm_expf(x[i] - shift);
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma"))) static void
exp_array_avx512(float *x, size_t n, float shift)
{
	exp_loop(x, n, shift);
}

__attribute__((target("avx2,fma"))) static void exp_array_avx2(float *x, size_t n, float shift)
{
	exp_loop(x, n, shift);
}

void fm_exp_array(float *x, size_t n, float shift)
{
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
		exp_array_avx512(x, n, shift);
	else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		exp_array_avx2(x, n, shift);
	else
		exp_loop(x, n, shift);
}

static uint64_t double_bits(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static double bits_double(uint64_t bits)
{
	double x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static double power2(int64_t k)
{
	return bits_double((uint64_t)(k + 1023) << 52);
}

static const double LN2_HI = 0x1.62e42fefa39efp-1, LN2_LO = 0x1.abc9e3b39803fp-56;
static const double MAGIC = 0x1.8p52; /* x + MAGIC has round(x) in its low mantissa bits */

/* sum of c[i] x^i */
static double polynomial(const double *c, int degree, double x)
{
	double y = c[degree];
	for (int i = degree - 1; i >= 0; i--)
		y = fma(y, x, c[i]);
	return y;
}

/* e^(x + low), |low| far below an ulp of x. */
static double exp_extended(double x, double low)
{
	static const double C[] = {1.0 / 2,	   1.0 / 6,	    1.0 / 24,
				   1.0 / 120,	   1.0 / 720,	    1.0 / 5040,
				   1.0 / 40320,	   1.0 / 362880,    1.0 / 3628800,
				   1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
	if (!(x < 710.0))
		return x >= 710.0 ? INFINITY : NAN;
	if (x < -746.0)
		return 0.0;
	double k = fma(x, 0x1.71547652b82fep0, MAGIC) - MAGIC;
	double r = fma(k, -LN2_HI, x);
	r = fma(k, -LN2_LO, r) + low;
	double m = fma(polynomial(C, 11, r), r * r, r);
	int64_t half = (int64_t)k / 2;
	return (1.0 + m) * power2(half) * power2((int64_t)k - half);
}

double fm_exp(double x)
{
	return exp_extended(x, 0.0);
}

/* log x = hi + *ret_lo for positive finite x: x = 2^k (1 + f), s = f / (2 + f), log(1 + f) = 2
 * atanh s. What the division and the additions round away is kept in ret_lo. */
static double log_extended(double x, double *ret_lo)
{
	static const double C[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,	 2.0 / 9,  2.0 / 11,
				   2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
	const uint64_t sqrt_half = 0x3fe6a09e667f3bcdu, mantissa = 0xfffffffffffffu;
	double k = x < 0x1p-1022 ? -54.0 : 0.0;
	uint64_t bits = double_bits(x < 0x1p-1022 ? x * 0x1p54 : x) - sqrt_half;
	k += (double)((int64_t)bits >> 52);
	double f = bits_double((bits & mantissa) + sqrt_half) - 1.0;
	double below = 2.0 + f, below_lo = f - (below - 2.0);
	double s = f / below;
	double s_lo = fma(-s, below_lo, fma(-s, below, f)) / below;
	double z = s * s;
	double tail = fma(polynomial(C, 9, z), z * s, 2.0 * s_lo);
	double k_hi = k * LN2_HI, k_lo = fma(k, LN2_HI, -k_hi) + k * LN2_LO;
	double sum = k_hi + 2.0 * s;
	double sum_lo = k != 0.0 ? 2.0 * s - (sum - k_hi) : 0.0; /* |k_hi| > |2s| */
	double low = sum_lo + (k_lo + tail);
	double hi = sum + low;
	*ret_lo = low - (hi - sum);
	return hi;
}

double fm_log(double x)
{
	double lo;
	if (!(x > 0.0))
		return x == 0.0 ? -INFINITY : NAN;
	return x == INFINITY ? x : log_extended(x, &lo);
}

double fm_pow(double x, double y)
{
	double lo, hi = log_extended(x, &lo);
	double product = hi * y;
	return exp_extended(product, fma(hi, y, -product) + lo * y);
}

/* x = quarter pi/2 + r + low, |r| <= pi/4. pi/2 in three parts; each product is exact inside its
 * fma. */
static int64_t reduce_quarter(double x, double *ret_r)
{
	double k = fma(x, 0x1.45f306dc9c883p-1, MAGIC) - MAGIC;
	double r = fma(k, -0x1.921fb54442d18p0, x);
	r = fma(k, -0x1.1a62633145c07p-54, r);
	*ret_r = fma(k, 0x1.f1976b7ed8fbcp-110, r);
	return (int64_t)k;
}

static double sine_kernel(double r)
{
	static const double C[] = {
		-1.0 / 6,	 1.0 / 120,	   -1.0 / 5040,		 1.0 / 362880,
		-1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
	double z = r * r;
	return fma(polynomial(C, 7, z), z * r, r);
}

static double cosine_kernel(double r)
{
	static const double C[] = {
		1.0 / 24,	 -1.0 / 720,	     1.0 / 40320,	   -1.0 / 3628800,
		1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
	double z = r * r, half = 0.5 * z, w = 1.0 - half;
	double lost = (1.0 - w) - half;
	return w + fma(polynomial(C, 7, z), z * z, lost);
}

/* sin(x + quarters pi/2) */
static double sine_of(double x, int64_t quarters)
{
	if (!(fabs(x) <= 0x1p30))
		return NAN;
	double r;
	quarters += reduce_quarter(x, &r);
	double y = quarters & 1 ? cosine_kernel(r) : sine_kernel(r);
	return quarters & 2 ? -y : y;
}

double fm_sin(double x)
{
	return sine_of(x, 0);
}

double fm_cos(double x)
{
	return sine_of(x, 1);
}
