/* Attention: the scalar form against plain double arithmetic, and every other form against the
 * scalar one, bit for bit: alone, in a chunk, with garbage at all places that are not visible. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "npu-worker/kernels/forms.h"
#include "npu-worker/kernels/testing.h"

/* A sequence's keys and values of one KV head, and pages that hold them. */
struct context {
	struct kernels_attention job;
	uint32_t length, kv_pages;
	uint8_t **pages;
	float *k, *v, *q; /* [length][head_dim]; q: [tokens][heads * head_dim] */
};

static float *random_rows(size_t count, float scale, uint64_t *random)
{
	float *rows = test_memory(count * sizeof *rows);
	for (size_t i = 0; i < count; i++)
		rows[i] = scale * test_normal(random);
	return rows;
}

/* Pages start as NaN (0xff..), so that a read of what isn't visible shows. */
static void context_setup(struct context *c, const struct kernels_attention *shape, float v_scale,
			  uint64_t *random)
{
	c->job = *shape;
	uint32_t dim = shape->head_dim;
	c->length = shape->position + shape->tokens;
	c->kv_pages = (c->length + KERNELS_PAGE_KEYS - 1) / KERNELS_PAGE_KEYS;
	c->k = random_rows((size_t)c->length * dim, 1.0f, random);
	c->v = random_rows((size_t)c->length * dim, v_scale, random);
	c->q = random_rows((size_t)shape->tokens * shape->heads * dim, 1.0f, random);
	size_t k_bytes = kernels_k_tile_bytes(shape->kv, dim);
	size_t bytes = 64 + k_bytes + kernels_v_tile_bytes(shape->kv, dim);
	c->job.k_offset = 64;
	c->job.v_offset = 64 + k_bytes;
	c->pages = test_memory(c->kv_pages * sizeof *c->pages);
	for (uint32_t i = 0; i < c->kv_pages; i++)
		c->pages[i] = memset(test_memory(bytes), 0xff, bytes);
	for (uint32_t i = 0; i < c->length; i++) {
		uint8_t *page = c->pages[i / KERNELS_PAGE_KEYS];
		struct kernels_kv_place to = {shape->kv, dim, page + c->job.k_offset,
					      page + c->job.v_offset, i % KERNELS_PAGE_KEYS};
		kernels_scalar.kv_write(&to, c->k + (size_t)i * dim, c->v + (size_t)i * dim);
	}
	c->job.pages = (const uint8_t *const *)c->pages;
	c->job.q = c->q;
	c->job.q_stride = (size_t)shape->heads * dim;
	c->job.out_stride = c->job.q_stride + 3;
}

static void context_free(struct context *c)
{
	for (uint32_t i = 0; i < c->kv_pages; i++)
		free(c->pages[i]);
	free(c->pages);
	free(c->k);
	free(c->v);
	free(c->q);
}

static size_t out_count(const struct context *c)
{
	return c->job.tokens * c->job.out_stride;
}

/* The scores stand behind the output. */
static size_t value_count(const struct context *c)
{
	return out_count(c) + (size_t)c->job.tokens * c->job.heads * c->length;
}

static float *attend(const struct context *c, const struct kernels *form)
{
	float *out = test_memory(value_count(c) * sizeof *out);
	memset(out, 0, value_count(c) * sizeof *out);
	struct kernels_attention job = c->job;
	job.out = out;
	job.scores = out + out_count(c);
	job.scores_stride = c->length;
	form->attention(&job);
	return out;
}

/* Element i of a key or value as a page holds it. */
static double kv_rounded(const struct context *c, const float *vector, uint32_t i)
{
	if (c->job.kv == KERNELS_KV_F32)
		return (double)vector[i];
	if (c->job.kv == KERNELS_KV_F16)
		return (double)f16_to_f32(f16_from_f32(vector[i]));
	float most = 0.0f;
	for (uint32_t j = 0; j < c->job.head_dim; j++)
		most = fabsf(vector[j]) > most ? fabsf(vector[j]) : most;
	float code = nearbyintf(vector[i] * (127.0f / most));
	return (double)code * (double)(most / 127.0f);
}

/* The plain formula, one softmax over all visible keys, whose scores are compared on the way. */
static void reference(const struct context *c, uint32_t token, uint32_t head, const float *scores,
		      double *ret_out)
{
	uint32_t dim = c->job.head_dim, position = c->job.position + token;
	uint32_t oldest =
		c->job.window && position >= c->job.window ? position - c->job.window + 1 : 0;
	const float *q = c->q + token * c->job.q_stride + (size_t)head * dim;
	double sum = 0;
	memset(ret_out, 0, dim * sizeof *ret_out);
	for (uint32_t key = oldest; key <= position; key++) {
		double score = 0;
		for (uint32_t i = 0; i < dim; i++)
			score += (double)q[i] * kv_rounded(c, c->k + (size_t)key * dim, i);
		score *= (double)c->job.scale;
		if (c->job.softcap != 0.0f)
			score = (double)c->job.softcap * tanh(score / (double)c->job.softcap);
		assert_true(fabs((double)scores[key - oldest] - score) < 1e-4);
		double weight = exp(score);
		sum += weight;
		for (uint32_t i = 0; i < dim; i++)
			ret_out[i] += weight * kv_rounded(c, c->v + (size_t)key * dim, i);
	}
	for (uint32_t i = 0; i < dim; i++)
		ret_out[i] /= sum;
}

static struct kernels_attention random_shape(uint64_t *random)
{
	static const enum kernels_kv types[] = {KERNELS_KV_F16, KERNELS_KV_F32, KERNELS_KV_I8};
	static const uint32_t DIMS[] = {64, 128, 80, 96, 256, 16, 8, 20, 512};
	uint32_t dim = DIMS[test_below(random, sizeof DIMS / sizeof DIMS[0])];
	return (struct kernels_attention){
		.kv = types[test_below(random, 3)],
		.head_dim = dim,
		.position = test_below(random, 300),
		.tokens = 1 + test_below(random, 10),
		.heads = 1 + test_below(random, 7),
		.window = test_below(random, 2) ? 0 : 1 + test_below(random, 150),
		.scale = 1.0f / sqrtf((float)dim),
		.softcap = test_below(random, 3) ? 0.0f : 2.0f,
	};
}

static void scalar_against_double(void **state)
{
	(void)state;
	uint64_t random = test_seed("attention against double");
	for (int round = 0; round < 12; round++) {
		struct kernels_attention shape = random_shape(&random);
		struct context c;
		context_setup(&c, &shape, 1.0f, &random);
		float *out = attend(&c, &kernels_scalar);
		for (uint32_t row = 0; row < shape.tokens * shape.heads; row++) {
			double wanted[KERNELS_MAX_HEAD_DIM];
			uint32_t token = row / shape.heads, head = row % shape.heads;
			reference(&c, token, head, out + out_count(&c) + (size_t)row * c.length,
				  wanted);
			for (uint32_t i = 0; i < shape.head_dim; i++) {
				double y = (double)out[token * c.job.out_stride +
						       (size_t)head * shape.head_dim + i];
				if (!(fabs(y - wanted[i]) < 4e-6))
					fail_msg("head %u of token %u, dimension %u of %u: %g, "
						 "wanted %g",
						 head, token, i, shape.head_dim, y, wanted[i]);
			}
		}
		free(out);
		context_free(&c);
	}
}

static void forms_agree(void **state)
{
	(void)state;
	uint64_t random = test_seed("attention forms_agree");
	for (int round = 0; round < 60; round++) {
		struct kernels_attention shape = random_shape(&random);
		struct context c;
		/* every fourth: products that underflow */
		context_setup(&c, &shape, round % 4 == 2 ? 0x1p-146f : 1.0f, &random);
		if (round % 4 == 1) /* weights and sums that underflow */
			c.job.scale *= 300.0f;
		float *wanted = attend(&c, &kernels_scalar);
		bool runs;
		for (size_t f = 0; test_form(f, &runs); f++) {
			const struct kernels *form = test_form(f, &runs);
			if (!runs)
				continue;
			float *out = attend(&c, form);
			for (size_t i = 0; i < value_count(&c); i++) {
				if (fm_float_bits(out[i]) != fm_float_bits(wanted[i]))
					fail_msg("%s round %d (dim %u, %u heads, %u tokens at %u, "
						 "window %u): %zu is %a, "
						 "wanted %a",
						 form->name, round, shape.head_dim, shape.heads,
						 shape.tokens, shape.position, shape.window, i,
						 (double)out[i], (double)wanted[i]);
			}
			free(out);
		}
		free(wanted);
		context_free(&c);
	}
}

/* Token by token, each with nothing behind it, and with pages that fell out of the window gone. */
static void chunk_is_one_by_one(void **state)
{
	(void)state;
	uint64_t random = test_seed("chunk_is_one_by_one");
	bool runs;
	for (size_t f = 0; test_form(f, &runs); f++) {
		const struct kernels *form = test_form(f, &runs);
		for (int round = 0; runs && round < 20; round++) {
			struct kernels_attention shape = random_shape(&random);
			struct context c;
			context_setup(&c, &shape, 1.0f, &random);
			float *all = attend(&c, form);
			float *one = test_memory(c.job.out_stride * sizeof *one);
			for (uint32_t t = shape.tokens; t-- > 0;) {
				struct kernels_attention job = c.job;
				job.position += t;
				job.tokens = 1;
				job.q += t * job.q_stride;
				job.out = one;
				uint32_t oldest = job.window && job.position >= job.window
							  ? job.position - job.window + 1
							  : 0;
				const uint8_t *pages[8] = {NULL};
				for (uint32_t p = oldest / KERNELS_PAGE_KEYS;
				     p <= job.position / KERNELS_PAGE_KEYS; p++)
					pages[p] = c.pages[p];
				job.pages = pages;
				/* what comes later does not exist yet */
				for (uint32_t key = job.position + 1;
				     key < c.kv_pages * KERNELS_PAGE_KEYS; key++) {
					float nan[KERNELS_MAX_HEAD_DIM];
					memset(nan, 0xff, sizeof nan);
					uint8_t *page = c.pages[key / KERNELS_PAGE_KEYS];
					struct kernels_kv_place to = {
						job.kv, job.head_dim, page + job.k_offset,
						page + job.v_offset, key % KERNELS_PAGE_KEYS};
					form->kv_write(&to, nan, nan);
				}
				form->attention(&job);
				assert_memory_equal(one, all + t * c.job.out_stride,
						    shape.heads * shape.head_dim * sizeof *one);
			}
			free(one);
			free(all);
			context_free(&c);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scalar_against_double),
		cmocka_unit_test(forms_agree),
		cmocka_unit_test(chunk_is_one_by_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
