/* Accuracy against the C library in higher precision, special values, and the array form against
 * the single one. LOCKSTEP_LONG=1 walks all 2^32 floats instead of every 1009th. Prints what it
 * measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/fmath.h"

static uint64_t stride(uint64_t usual, uint64_t thorough)
{
	return getenv("LOCKSTEP_LONG") ? thorough : usual;
}

/* Distance in units of the last place that a float of the true value's binade has. */
static double ulps_off(float y, double wanted)
{
	if (isnan(wanted) || isnan(y))
		return isnan(wanted) && isnan(y) ? 0.0 : INFINITY;
	if (fabs(wanted) >= 0x1.ffffffp127) /* rounds to infinity */
		return isinf(y) && (y > 0) == (wanted > 0) ? 0.0 : INFINITY;
	int exponent;
	frexp(wanted, &exponent);
	double ulp = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
	return fabs((double)y - wanted) / ulp;
}

static float exp_of(float x)
{
	return fm_expf(x);
}

static float log_of(float x)
{
	return fm_logf(x);
}

static float tanh_of(float x)
{
	return fm_tanhf(x);
}

static float silu_of(float x)
{
	return fm_siluf(x);
}

static float gelu_of(float x)
{
	return fm_geluf(x);
}

static float rsqrt_of(float x)
{
	return fm_rsqrtf(x);
}

static double silu_wanted(double x)
{
	return x / (1.0 + exp(-x));
}

static double gelu_wanted(double x)
{
	return x / (1.0 + exp(-2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double rsqrt_wanted(double x)
{
	return 1.0 / sqrt(x);
}

/* Largest error for |x| <= reach, with the place where it occurs. */
static void check_float(const char *name, float (*f)(float), double (*wanted)(double), float reach,
			double limit)
{
	double worst = 0.0, at = 0.0;
	for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += stride(1009, 13)) {
		float x = fm_bits_float((uint32_t)bits);
		if (fabsf(x) > reach)
			continue;
		double off = ulps_off(f(x), wanted((double)x));
		if (off > worst) {
			worst = off;
			at = (double)x;
		}
	}
	print_message("%s: at most %.3f ulp (at %a), |x| <= %g\n", name, worst, at, (double)reach);
	assert_true(worst <= limit);
}

static void float_accuracy(void **state)
{
	(void)state;
	check_float("exp", exp_of, exp, INFINITY, 1.0);
	check_float("log", log_of, log, INFINITY, 1.0);
	check_float("tanh", tanh_of, tanh, INFINITY, 2.5);
	check_float("silu", silu_of, silu_wanted, 80.0f, 3.5);
	/* The exponent's rounding grows with the exponent: far out in the tail the last bits are
	 * lost. */
	check_float("gelu", gelu_of, gelu_wanted, 2.0f, 8.0);
	check_float("gelu", gelu_of, gelu_wanted, 9.0f, 200.0);
	check_float("rsqrt", rsqrt_of, rsqrt_wanted, INFINITY, 1.5);
}

static void specials(void **state)
{
	(void)state;
	assert_true(fm_expf(INFINITY) == INFINITY && fm_expf(-INFINITY) == 0.0f &&
		    fm_expf(0.0f) == 1.0f);
	assert_true(fm_expf(-103.5f) == 0x1p-149f && fm_expf(-104.0f) == 0.0f);
	assert_true(isnan(fm_expf(NAN)) && isnan(fm_logf(NAN)) && isnan(fm_tanhf(NAN)) &&
		    isnan(fm_siluf(NAN)) && isnan(fm_geluf(NAN)));
	assert_true(fm_logf(0.0f) == -INFINITY && fm_logf(-0.0f) == -INFINITY &&
		    fm_logf(INFINITY) == INFINITY && isnan(fm_logf(-1.0f)) &&
		    fm_logf(1.0f) == 0.0f);
	assert_true(fm_tanhf(INFINITY) == 1.0f && fm_tanhf(-INFINITY) == -1.0f);
	assert_true(signbit(fm_tanhf(-0.0f)) && signbit(fm_siluf(-0.0f)));
	assert_true(fm_siluf(200.0f) == 200.0f && fm_siluf(-200.0f) == 0.0f &&
		    fm_geluf(30.0f) == 30.0f);
	assert_true(fm_exp(0.0) == 1.0 && fm_exp(800.0) == INFINITY && fm_exp(-800.0) == 0.0 &&
		    isnan(fm_exp(NAN)) && fm_exp(INFINITY) == INFINITY && fm_exp(-INFINITY) == 0.0);
	assert_true(fm_log(1.0) == 0.0 && fm_log(0.0) == -INFINITY && isnan(fm_log(-1.0)) &&
		    isnan(fm_log(NAN)) && fm_log(INFINITY) == INFINITY);
	assert_true(isnan(fm_sin(INFINITY)) && isnan(fm_cos(NAN)) && isnan(fm_sin(0x1p31)) &&
		    fm_cos(0.0) == 1.0 && fm_sin(0.0) == 0.0);
	assert_true(fm_pow(10000.0, 0.0) == 1.0 && fm_pow(1e6, 0.5) == 1000.0 &&
		    fm_pow(2.0, 10.0) == 1024.0);
}

/* Every length up to a few vectors, and every float class, in all forms the CPU has. */
static void array_form(void **state)
{
	(void)state;
	for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += stride(9973, 1) * 67) {
		float x[67] = {0};
		size_t n = bits % 68;
		for (size_t i = 0; i < n; i++)
			x[i] = fm_bits_float((uint32_t)(bits + i * stride(9973, 1)));
		float y[67];
		memcpy(y, x, sizeof y);
		fm_exp_array(y, n, 0.25f);
		for (size_t i = 0; i < n; i++) {
			float wanted = fm_expf(x[i] - 0.25f);
			assert_true(isnan(wanted) ? isnan(y[i])
						  : fm_float_bits(wanted) == fm_float_bits(y[i]));
		}
	}
}

static uint64_t next_random(uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return *random >> 11;
}

static double relative(double y, long double wanted)
{
	return fabs((double)((y - wanted) / wanted)) / 0x1p-53;
}

/* In units of 2^-53 of the result, against 80-bit arithmetic. */
static void double_accuracy(void **state)
{
	(void)state;
	uint64_t random = 1;
	double exp_off = 0, log_off = 0, pow_off = 0, sin_off = 0, cos_off = 0;
	for (int i = 0; i < 400000; i++) {
		double u = (double)next_random(&random) * 0x1p-53,
		       v = (double)next_random(&random) * 0x1p-53;
		double x = (u - 0.5) * 1400.0, base = exp((v - 0.5) * 60.0), theta = exp(u * 20.0);
		float angle = (float)(v * 1e6);
		exp_off = fmax(exp_off, relative(fm_exp(x), expl((long double)x)));
		log_off = fmax(log_off, relative(fm_log(base), logl((long double)base)));
		pow_off = fmax(pow_off, relative(fm_pow(theta, -v),
						 powl((long double)theta, (long double)-v)));
		sin_off = fmax(sin_off, relative(fm_sin((double)angle), sinl((long double)angle)));
		cos_off = fmax(cos_off, relative(fm_cos((double)angle), cosl((long double)angle)));
	}
	print_message(
		"double, in 2^-53 of the value: exp %.2f log %.2f pow %.2f sin %.2f cos %.2f\n",
		exp_off, log_off, pow_off, sin_off, cos_off);
	assert_true(exp_off < 2.0 && log_off < 2.0 && pow_off < 2.0 && sin_off < 2.0 &&
		    cos_off < 2.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(float_accuracy),
		cmocka_unit_test(specials),
		cmocka_unit_test(array_form),
		cmocka_unit_test(double_accuracy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
