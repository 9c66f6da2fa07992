/* The loops: the scalar form against double arithmetic, every other form against the scalar one,
 * bit for bit, over all lengths and over every kind of float. LOCKSTEP_LONG=1 walks all 2^32 floats
 * through silu, gelu and softcap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "npu-worker/kernels/attention.h"
#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/testing.h"

enum { MOST = 700 };

/* Normal numbers, or any bits at all. */
static void fill(float *x, uint32_t n, bool any, uint64_t *random)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = any ? fm_bits_float((uint32_t)test_random(random)) : test_normal(random);
}

static void expect_same(const struct kernels *form, const char *what, const float *got,
			const float *wanted, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fm_float_bits(got[i]) != fm_float_bits(wanted[i]) &&
		    !(isnan(got[i]) && isnan(wanted[i])))
			fail_msg("%s %s: element %zu of %zu is %a, wanted %a", form->name, what, i,
				 n, (double)got[i], (double)wanted[i]);
	}
}

/* Runs operation `which` of a form on copies of the inputs. */
static const char *run(const struct kernels *form, int which, float *x, const float *y, uint32_t n)
{
	switch (which) {
	case 0:
		form->rms_norm(x, y, 1e-5f, n, x);
		return "rms_norm";
	case 1:
		form->rms_norm(x, NULL, 0.0f, n, x);
		return "rms_norm without weight";
	case 2:
		form->rope(x, y, y + n / 2, n / 2, true);
		return "rope interleaved";
	case 3:
		form->rope(x, y, y + n / 2, n / 2, false);
		return "rope halves";
	case 4:
		form->add(x, y, n);
		return "add";
	case 5:
		form->scale(x, y[0], n);
		return "scale";
	case 6:
		form->softcap(x, 30.0f, n);
		return "softcap";
	case 7:
		form->silu_mul(x, y, n, x);
		return "silu_mul";
	default:
		form->gelu_mul(x, y, n, x);
		return "gelu_mul";
	}
}

enum { OPERATIONS = 9 };

static void forms_agree(void **state)
{
	(void)state;
	uint64_t random = test_seed("elementwise forms_agree");
	bool runs;
	for (uint32_t round = 0; round < 2000; round++) {
		float x[MOST], y[MOST], wanted[MOST], got[MOST];
		uint32_t n = 2 + (round < 400 ? round / 2 : test_below(&random, MOST - 2));
		int which = (int)test_below(&random, OPERATIONS);
		fill(x, n, round % 4 == 3, &random);
		fill(y, n, round % 4 == 3, &random);
		memcpy(wanted, x, sizeof x);
		run(&kernels_scalar, which, wanted, y, n);
		for (size_t f = 0; test_form(f, &runs); f++) {
			if (!runs)
				continue;
			memcpy(got, x, sizeof x);
			const char *what = run(test_form(f, &runs), which, got, y, n);
			expect_same(test_form(f, &runs), what, got, wanted, n);
		}
	}
}

static void all_floats(void **state)
{
	(void)state;
	uint64_t stride = getenv("LOCKSTEP_LONG") ? 1 : 4001;
	bool runs;
	for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += stride * 256) {
		float x[256], one[256], wanted[256], got[256];
		for (uint32_t i = 0; i < 256; i++) {
			x[i] = fm_bits_float((uint32_t)(bits + i * stride));
			one[i] = 1.0f;
		}
		for (int which = 6; which < OPERATIONS; which++) {
			memcpy(wanted, x, sizeof x);
			run(&kernels_scalar, which, wanted, one, 256);
			for (size_t f = 0; test_form(f, &runs); f++) {
				if (!runs)
					continue;
				memcpy(got, x, sizeof x);
				const char *what = run(test_form(f, &runs), which, got, one, 256);
				expect_same(test_form(f, &runs), what, got, wanted, 256);
			}
		}
	}
}

static void scalar_against_double(void **state)
{
	(void)state;
	uint64_t random = test_seed("elementwise against double");
	float x[MOST], w[MOST], y[MOST];
	double squares = 0;
	fill(x, MOST, false, &random);
	fill(w, MOST, false, &random);
	for (uint32_t i = 0; i < MOST; i++)
		squares += (double)x[i] * (double)x[i];
	kernels_scalar.rms_norm(x, w, 1e-3f, MOST, y);
	for (uint32_t i = 0; i < MOST; i++) {
		double wanted = (double)x[i] / sqrt(squares / MOST + 1e-3) * (double)w[i];
		assert_true(fabs((double)y[i] - wanted) <= 4e-7 * fabs(wanted));
	}
	memcpy(y, x, sizeof y);
	kernels_scalar.rope(y, w, w + 100, 50, true); /* "cosines" and "sines" may be anything */
	for (uint32_t i = 0; i < 50; i++) {
		double a = (double)x[2 * i], b = (double)x[2 * i + 1], c = (double)w[i],
		       s = (double)w[100 + i];
		assert_true(fabs((double)y[2 * i] - (a * c - b * s)) < 2e-6);
		assert_true(fabs((double)y[2 * i + 1] - (b * c + a * s)) < 2e-6);
	}
	assert_memory_equal(y + 100, x + 100, (MOST - 100) * sizeof *y);
	memcpy(y, x, sizeof y);
	kernels_scalar.rope(y, w, w + 100, 50, false);
	for (uint32_t i = 0; i < 50; i++) {
		double a = (double)x[i], b = (double)x[i + 50], c = (double)w[i],
		       s = (double)w[100 + i];
		assert_true(fabs((double)y[i] - (a * c - b * s)) < 2e-6);
		assert_true(fabs((double)y[i + 50] - (b * c + a * s)) < 2e-6);
	}
}

/* The conversions are the CPU's own: the other forms use those. */
static void halves(void **state)
{
	(void)state;
	bool runs;
	for (uint32_t h = 0; h < 0x10000; h++) {
		float x = f16_to_f32((uint16_t)h);
		bool nan = (h & 0x7fff) > 0x7c00;
		assert_true(nan == (isnan(x) != 0));
		assert_int_equal(f16_from_f32(x), nan ? h | 0x200 : h);
	}
	for (size_t f = 0; test_form(f, &runs); f++) {
		uint64_t random = test_seed("halves");
		for (int i = 0; runs && i < 3000; i++) {
			float k[16], v[16];
			uint16_t k_tile[2][16 * 64], v_tile[2][16 * 64];
			fill(k, 16, true, &random);
			for (int j = 0; j < 16;
			     j++) /* near the ends of the half's range, and ties */
				v[j] = fm_bits_float(0x33000000u +
						     test_below(&random, 0x15000) * 0x1000u);
			for (int j = 0; j < 2; j++) {
				struct kernels_kv_place to = {KERNELS_KV_F16, 16, k_tile[j],
							      v_tile[j], 5};
				(j ? test_form(f, &runs) : &kernels_scalar)->kv_write(&to, k, v);
			}
			for (int j = 0; j < 16; j++)
				assert_int_equal(k_tile[0][j * 64 + 5], k_tile[1][j * 64 + 5]);
			assert_memory_equal(v_tile[0] + 5 * 16, v_tile[1] + 5 * 16, 32);
		}
	}
}

static void finite_or_not(void **state)
{
	(void)state;
	bool runs;
	for (size_t f = 0; test_form(f, &runs); f++) {
		for (uint32_t n = 1; runs && n < 70; n++) {
			float x[70] = {0};
			x[0] = 0x1.fffffep127f;
			assert_true(test_form(f, &runs)->finite(x, n));
			x[n - 1] = n % 2 ? INFINITY : NAN;
			assert_false(test_form(f, &runs)->finite(x, n));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms_agree),		 cmocka_unit_test(all_floats),
		cmocka_unit_test(scalar_against_double), cmocka_unit_test(halves),
		cmocka_unit_test(finite_or_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
