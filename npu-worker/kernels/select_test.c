/* Which form is chosen, on machines that have more or less than this one, and when its numbers are
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/testing.h"

static bool yes(void)
{
	return true;
}

static bool no(void)
{
	return false;
}

static bool all_proven(const struct kernels *form)
{
	(void)form;
	return true;
}

static bool amx_is_wrong(const struct kernels *form)
{
	return form != &kernels_amx;
}

static const struct kernels *chosen(const struct kernels_machine *machine, const char *name,
				    struct svc_err *err)
{
	const struct kernels *kernels = NULL;
	enum svc_code code = kernels_select_on(machine, name, &kernels, err);
	assert_int_equal(code, kernels ? SVC_OK : SVC_BAD_CONFIG);
	if (!kernels)
		assert_string_equal(err->param, "isa");
	return kernels;
}

static void says(const struct svc_err *err, const char *text)
{
	if (!strstr(err->msg, text))
		fail_msg("\"%s\" does not say \"%s\"", err->msg, text);
}

static void by_name(void **state)
{
	(void)state;
	struct svc_err err;
	struct kernels_machine all = {~0u, yes, all_proven}, none = {0, yes, all_proven};
	assert_ptr_equal(chosen(&all, "auto", &err), &kernels_amx);
	assert_ptr_equal(chosen(&all, "amx", &err), &kernels_amx);
	assert_ptr_equal(chosen(&all, "avx512", &err), &kernels_avx512_vnni);
	assert_ptr_equal(chosen(&none, "auto", &err), &kernels_scalar);
	assert_null(chosen(&none, "amx", &err));
	says(&err, "amx_tile, amx_int8; it can run auto scalar");
	assert_null(chosen(&all, "tiles-model", &err));
	says(&err, "there are auto amx avx512 avx2 scalar");
}

static void without_permission(void **state)
{
	(void)state;
	struct svc_err err;
	struct kernels_machine machine = {~0u, no, all_proven};
	assert_ptr_equal(chosen(&machine, "auto", &err), &kernels_avx512_vnni);
	assert_null(chosen(&machine, "amx", &err));
	says(&err, "amx needs what this machine lacks: Linux' permission for tiles; it can run");
}

static void wrong_numbers(void **state)
{
	(void)state;
	struct svc_err err;
	struct kernels_machine machine = {~0u, yes, amx_is_wrong};
	assert_ptr_equal(chosen(&machine, "auto", &err), &kernels_avx512_vnni);
	assert_null(chosen(&machine, "amx", &err));
	says(&err, "amx computes other numbers on this machine than the scalar form");
}

/* One bit of one sum, as from a tile that lost it. */
static const struct kernels *spoilt;
static uint32_t spoilt_at;
static void spoil(const struct kernels_matrix *w, const struct kernels_acts *acts, float *y,
		  size_t y_stride, uint32_t first, uint32_t last)
{
	spoilt->matmul(w, acts, y, y_stride, first, last);
	float *at = y + spoilt_at % acts->rows * y_stride + spoilt_at % w->rows;
	uint32_t bits;
	memcpy(&bits, at, sizeof bits);
	bits ^= 1;
	memcpy(at, &bits, sizeof bits);
}

/* Activations whose low bytes are lost, as from products that leave them out. */
static void lose_low_bytes(const struct kernels_matrix *w, const struct kernels_acts *acts,
			   float *y, size_t y_stride, uint32_t first, uint32_t last)
{
	for (size_t i = 0; acts->q16 && i < (size_t)acts->rows * acts->cols; i++)
		acts->q16[i] = (int16_t)(acts->q16[i] / 256 * 256);
	spoilt->matmul(w, acts, y, y_stride, first, last);
}

static void proof(void **state)
{
	(void)state;
	bool runs;
	for (size_t f = 0; test_form(f, &runs); f++) {
		const struct kernels *form = test_form(f, &runs);
		if (!runs)
			continue;
		assert_true(kernels_proven(form));
		struct kernels wrong = *form;
		spoilt = form;
		wrong.matmul = spoil;
		for (spoilt_at = 0; spoilt_at < 40; spoilt_at++)
			assert_false(kernels_proven(&wrong));
		wrong.matmul = lose_low_bytes;
		assert_false(kernels_proven(&wrong));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_name),
		cmocka_unit_test(without_permission),
		cmocka_unit_test(wrong_numbers),
		cmocka_unit_test(proof),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
