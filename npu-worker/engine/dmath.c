#include "npu-worker/engine/dmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t bits_of(double x)
{
	uint64_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

static double of_bits(uint64_t bits)
{
	double x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* ln 2 in two parts: the first has 21 low zero bits, so that its product with an exponent is exact.
 */
static const double ln2_high = 0x1.62e42feep-1;
static const double ln2_low = 0x1.a39ef35793c76p-33;

/* x = m 2^e with m in [sqrt 1/2, sqrt 2); ln m = 2 atanh(s) with s = (m-1)/(m+1), |s| < 0.172,
 * whose series in s^2 is cut where a term is under 2^-60 of the first. */
double dm_log(double x)
{
	uint64_t bits = bits_of(x);
	int exponent = (int)(bits >> 52) - 1023;
	double m = of_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
	if (m > 0x1.6a09e667f3bcdp0) {
		m *= 0.5;
		exponent++;
	}
	double s = (m - 1.0) / (m + 1.0);
	double square = s * s;
	double sum = 0.0;
	for (int k = 23; k >= 3; k -= 2)
		sum = fma(sum, square, 1.0 / k);
	double mantissa = fma(2.0 * s, sum * square, 2.0 * s);
	double e = (double)exponent;
	return fma(e, ln2_high, fma(e, ln2_low, mantissa));
}

/* x = n ln 2 + r with |r| < 0.347; Taylor to r^14 (the next term is under 2^-62), then times 2^n.
 */
double dm_exp(double x)
{
	double n = rint(x * 0x1.71547652b82fep0);
	double r = fma(-n, ln2_low, fma(-n, ln2_high, x));
	double sum = 1.0;
	for (int k = 14; k >= 1; k--)
		sum = fma(sum, r / k, 1.0);
	return sum * of_bits((uint64_t)((int64_t)n + 1023) << 52);
}

double dm_pow(double base, double exponent)
{
	return dm_exp(exponent * dm_log(base));
}

/* x = n pi/2 + r, |r| <= pi/4, with pi/2 in two parts: after the first fma the error is half an ulp
 * of r, and the second part brings n * 6e-17 back in. Taylor series to r^18 and r^17. */
void dm_sincos(double x, double *ret_sine, double *ret_cosine)
{
	double n = rint(x * 0x1.45f306dc9c883p-1);
	double r = fma(-n, 0x1.1a62633145c07p-54, fma(-n, 0x1.921fb54442d18p0, x));
	double square = r * r;
	static const double sine_terms[] = {0x1.952c77030ad4ap-49, -0x1.ae7f3e733b81fp-41,
					    0x1.6124613a86d09p-33, -0x1.ae64567f544e4p-26,
					    0x1.71de3a556c734p-19, -0x1.a01a01a01a01ap-13,
					    0x1.1111111111111p-7,  -0x1.5555555555555p-3};
	static const double cosine_terms[] = {-0x1.6827863b97d97p-53, 0x1.ae7f3e733b81fp-45,
					      -0x1.93974a8c07c9dp-37, 0x1.1eed8eff8d898p-29,
					      -0x1.27e4fb7789f5cp-22, 0x1.a01a01a01a01ap-16,
					      -0x1.6c16c16c16c17p-10, 0x1.5555555555555p-5};
	double s = 0.0, c = 0.0;
	for (unsigned k = 0; k < 8; k++) {
		s = fma(s, square, sine_terms[k]);
		c = fma(c, square, cosine_terms[k]);
	}
	s = fma(r * square, s, r);
	c = fma(square * square, c, fma(-0.5, square, 1.0));
	unsigned quadrant = (unsigned)(int64_t)n & 3u;
	double sine = quadrant & 1u ? c : s;
	double cosine = quadrant & 1u ? s : c;
	*ret_sine = quadrant & 2u ? -sine : sine;
	*ret_cosine = (quadrant + 1u) & 2u ? -cosine : cosine;
}
