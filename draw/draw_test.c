/* The random number's known answers; which numbers are refused; what a draw is made of. Filters and
 * draws against independent implementations: tests/unit/test_sampler.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <cmocka.h>

#include "draw/draw.h"
#include "draw/philox.h"

#define N_VOCAB 1500u

static const struct body_params neutral = {
	.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .seed = 77};

/* The known answers that Random123 publishes, for the library's header as this compiler builds it.
 */
static void philox_known_answers(void **state)
{
	(void)state;
	assert_int_equal(draw_fraction(0, 0, 0), 0xE169C58D6627E8D5u >> 11);
	philox4x32_ctr_t pi = {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}};
	philox4x32_key_t key = {{0xA4093822, 0x299F31D0}};
	philox4x32_ctr_t random = philox4x32_R(10, pi, key);
	assert_int_equal(random.v[0], 0xD16CFE09);
	assert_int_equal(random.v[3], 0x24126EA1);
}

static void numbers_are_checked(void **state)
{
	(void)state;
	static const struct {
		size_t offset;
		float bad;
	} wrong[] = {
		{offsetof(struct body_params, temperature), -1},
		{offsetof(struct body_params, temperature), NAN},
		{offsetof(struct body_params, temperature), INFINITY},
		{offsetof(struct body_params, top_p), 1.5f},
		{offsetof(struct body_params, min_p), NAN},
		{offsetof(struct body_params, typical_p), -0.5f},
		{offsetof(struct body_params, repetition_penalty), 0},
		{offsetof(struct body_params, presence_penalty), 3},
		{offsetof(struct body_params, frequency_penalty), -INFINITY},
	};
	assert_int_equal(draw_params_check(&neutral, NULL), SVC_OK);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct body_params params = neutral;
		struct svc_err err;
		memcpy((char *)&params + wrong[i].offset, &wrong[i].bad, sizeof(float));
		assert_int_equal(draw_params_check(&params, &err), SVC_INVALID);
		assert_true(err.param[0]);
	}
}

static void plain_means_without_history(void **state)
{
	(void)state;
	struct body_params params = neutral;
	params.top_k = 5, params.min_p = 0.1f, params.min_tokens = 3;
	assert_true(draw_is_plain(&params));
	assert_false(draw_is_penalized(&params));
	params.n_bias = 1;
	assert_false(draw_is_plain(&params));
	params = neutral, params.presence_penalty = 0.1f;
	assert_true(draw_is_penalized(&params) && !draw_is_plain(&params));
	params = neutral, params.frequency_penalty = -0.1f;
	assert_true(draw_is_penalized(&params) && !draw_is_plain(&params));
	params = neutral, params.repetition_penalty = 1.1f;
	assert_true(draw_is_penalized(&params) && !draw_is_plain(&params));
}

/* Each of what a draw is a function of makes it another; nothing else does. */
static void draws_depend_on_their_place(void **state)
{
	(void)state;
	float logits[N_VOCAB];
	struct draw_work *work = NULL;
	unsigned same_seed = 0, same_choice = 0, same_position = 0;
	assert_int_equal(draw_work_open(N_VOCAB, DRAW_ISA_AUTO, &work, NULL), SVC_OK);
	for (uint32_t i = 0; i < N_VOCAB; i++)
		logits[i] = (float)(i * 2654435761u >> 8) * 0x1p-24f;
	for (uint32_t at = 0; at < 64; at++) {
		struct body_params params = neutral;
		assert_int_equal(draw_row_load(&work->row, logits, NULL), SVC_OK);
		uint32_t token = draw_pick(&params, at, work);
		assert_true(token < N_VOCAB);
		assert_int_equal(draw_row_load(&work->row, logits, NULL), SVC_OK);
		assert_int_equal(draw_pick(&params, at, work), token);
		same_position += draw_pick(&params, at + 1, work) == token;
		params.seed++;
		same_seed += draw_pick(&params, at, work) == token;
		params = neutral, params.choice = 1;
		same_choice += draw_pick(&params, at, work) == token;
		params = neutral, params.temperature = 0;
		assert_int_equal(draw_pick(&params, at, work), draw_row_argmax(&work->row));
	}
	assert_true(same_seed < 4 && same_choice < 4 && same_position < 4);
	draw_work_free(work);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_known_answers),
		cmocka_unit_test(numbers_are_checked),
		cmocka_unit_test(plain_means_without_history),
		cmocka_unit_test(draws_depend_on_their_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
