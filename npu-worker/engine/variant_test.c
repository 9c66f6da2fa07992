#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "npu-worker/engine/hooks.h"
#include "npu-worker/engine/model_file_test.h"
#include "npu-worker/engine/variant.h"
#include "npu-worker/kernels/attention.h"

enum { VOCAB = 70, LENGTH = 70 };

/* ---- an engine, and what a variant changes at each checkpoint */

struct fixture {
	void *region, *pages;
	struct engine *engine;
};

static void set_up(struct fixture *f, const struct model_file *file, enum kernels_family family)
{
	struct svc_err err;
	size_t region_bytes = 0;
	f->region = model_file_pack(file, &region_bytes);
	struct engine_options options = {.region = f->region,
					 .region_bytes = region_bytes,
					 .family = family,
					 .isa = "auto",
					 .threads = 1,
					 .max_rows = LENGTH,
					 .max_seqs = 1};
	assert_int_equal(engine_open(&options, &f->engine, &err), SVC_OK);
	size_t bytes = engine_info(f->engine)->page_bytes;
	f->pages = aligned_alloc(64, 2 * bytes);
	assert_non_null(f->pages);
	memset(f->pages, 0xff, 2 * bytes);
	assert_int_equal(engine_set_pages(f->engine, f->pages, bytes, 2, &err), SVC_OK);
}

static void tear_down(struct fixture *f)
{
	engine_close(f->engine);
	free(f->pages);
	free(f->region);
}

/* Sums of bits per checkpoint in layer 0, over all positions. */
struct sums {
	uint64_t of[ENGINE_CHECKPOINT_COUNT];
};

static void add_bits(void *context, const struct engine_record *record)
{
	struct sums *sums = context;
	if (record->layer > 0)
		return;
	for (uint32_t i = 0; i < record->rows * record->cols; i++) {
		uint32_t bits = 0;
		memcpy(&bits, (const uint8_t *)record->data + i * (record->is_f16 ? 2u : 4u),
		       record->is_f16 ? 2 : 4);
		sums->of[record->checkpoint] = sums->of[record->checkpoint] * 31 + bits;
	}
}

/* The last position's logits, `rows` positions per step. */
static struct sums run(struct fixture *f, const struct variant *variant, uint32_t rows,
		       float logits[VOCAB])
{
	int32_t tokens[LENGTH];
	uint32_t pages[2] = {0, 1};
	struct sums sums = {{0}};
	struct engine_hooks hooks = {.context = &sums, .probe = add_bits, .variant = variant};
	for (uint32_t i = 0; i < LENGTH; i++)
		tokens[i] = (int32_t)(i * 37 % VOCAB);
	for (uint32_t pos = 0; pos < LENGTH; pos += rows) {
		struct engine_seq seq = {.tokens = tokens + pos,
					 .n_tokens = rows,
					 .pos = pos,
					 .pages = pages,
					 .n_pages = 2,
					 .n_logits = 1,
					 .logits_stride = VOCAB};
		struct engine_batch batch = {.seqs = &seq, .n_seqs = 1, .hooks = &hooks};
		seq.logits = logits;
		assert_int_equal(engine_step(f->engine, &batch, NULL), SVC_OK);
		assert_int_equal(seq.status, SVC_OK);
	}
	return sums;
}

static double distance(const float *a, const float *b)
{
	double square = 0, norm = 0;
	for (uint32_t i = 0; i < VOCAB; i++) {
		double d = (double)a[i] - (double)b[i];
		square += d * d;
		norm += (double)b[i] * (double)b[i];
	}
	return sqrt(square / norm);
}

/* ---- tests */

/* Each primitive at each of its sites, alone: it changes that site's bits in layer 0 and nothing
 * before it, and the result stays near. The control changes nothing. */
static void each_site_is_the_first_to_change(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	float base[VOCAB], other[VOCAB];
	set_up(&f, &file, KERNELS_F32);
	struct sums plain = run(&f, NULL, 10, base);
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT; p++) {
		uint32_t sites = variant_sites_of((enum variant_primitive)p);
		for (uint32_t site = 0; site < ENGINE_FINAL_NORM; site++) {
			/* What this model has no such checkpoint for keeps its sum of 0. */
			if (!(sites >> site & 1) || plain.of[site] == 0)
				continue;
			struct variant variant = {.sites = {0}};
			variant.sites[p] = 1u << site;
			struct sums varied = run(&f, &variant, 10, other);
			uint32_t first = 0;
			while (first < ENGINE_FINAL_NORM && varied.of[first] == plain.of[first])
				first++;
			assert_int_equal(first, p == VARIANT_RESIDUAL ? ENGINE_FINAL_NORM : site);
			assert_true(distance(other, base) < 1e-4);
			if (p == VARIANT_RESIDUAL)
				assert_memory_equal(other, base, sizeof base);
		}
	}
	tear_down(&f);
}

static void no_sites_change_nothing_and_layers_limit(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	float base[VOCAB], other[VOCAB];
	set_up(&f, &file, KERNELS_F32);
	run(&f, NULL, 10, base);
	struct variant none = {.last_layer = UINT32_MAX};
	run(&f, &none, 10, other);
	assert_memory_equal(base, other, sizeof base);
	struct variant beyond = {.first_layer = 90, .last_layer = 99};
	memset(beyond.sites, 0xff, sizeof beyond.sites);
	run(&f, &beyond, 10, other);
	assert_memory_equal(base, other, sizeof base);
	tear_down(&f);
}

/* As in engines that choose a kernel by batch size: the same position's bits depend on its company.
 */
static void rows_of_the_pass_matter(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	float one[VOCAB], ten[VOCAB];
	struct variant all = {.last_layer = UINT32_MAX};
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT; p++)
		all.sites[p] = variant_sites_of((enum variant_primitive)p);
	set_up(&f, &file, KERNELS_F32);
	run(&f, &all, 1, one);
	run(&f, &all, 10, ten);
	assert_memory_not_equal(one, ten, sizeof one);
	assert_true(distance(one, ten) < 1e-4);
	run(&f, &all, 10, one);
	assert_memory_equal(one, ten, sizeof one);
	tear_down(&f);
}

/* Coarse sums: the same bits for one row, and much further away for several. */
static void bf16_sums_are_for_several_rows(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	float fine[VOCAB], coarse[VOCAB];
	struct variant v = {.last_layer = UINT32_MAX};
	v.sites[VARIANT_MATMUL] = variant_sites_of(VARIANT_MATMUL);
	struct variant rounded = v;
	rounded.bf16_sums = true;
	set_up(&f, &file, KERNELS_F32);
	run(&f, &v, 1, fine);
	run(&f, &rounded, 1, coarse);
	assert_memory_equal(fine, coarse, sizeof fine);
	run(&f, &v, 10, fine);
	run(&f, &rounded, 10, coarse);
	assert_true(distance(fine, coarse) > 1e-4 && distance(fine, coarse) < 0.1);
	tear_down(&f);
}

/* Without either change the written-out attention is the kernels', bit for bit: so what a variant
 * changes is the named thing alone. */
static void attention_without_a_change_is_the_kernels(void **state)
{
	(void)state;
	enum { DIM = 24, KEYS = 130, HEADS = 2 };
	const struct kernels *kernels = NULL;
	assert_int_equal(kernels_select("auto", &kernels, NULL), SVC_OK);
	size_t k = kernels_k_tile_bytes(KERNELS_KV_F32, DIM);
	size_t page_bytes = k + kernels_v_tile_bytes(KERNELS_KV_F32, DIM);
	uint8_t *memory = aligned_alloc(64, 3 * page_bytes);
	assert_non_null(memory);
	const uint8_t *pages[3] = {memory, memory + page_bytes, memory + 2 * page_bytes};
	float q[5 * HEADS * DIM], out[2][5 * HEADS * DIM], scores[2][5 * HEADS * KEYS] = {0};
	for (size_t i = 0; i < sizeof q / sizeof q[0]; i++)
		q[i] = (float)((int)(i * 7919 % 2001) - 1000) / 500.0f;
	for (uint32_t key = 0; key < KEYS; key++) {
		float vectors[2][DIM];
		for (uint32_t i = 0; i < 2 * DIM; i++)
			vectors[i / DIM][i % DIM] =
				(float)((int)((key * 48 + i) * 104729 % 2003) - 1001) / 700.0f;
		struct kernels_kv_place to = {.kv = KERNELS_KV_F32,
					      .head_dim = DIM,
					      .k_tile = memory + key / 64 * page_bytes,
					      .v_tile = memory + key / 64 * page_bytes + k,
					      .key = key % 64};
		kernels->kv_write(&to, vectors[0], vectors[1]);
	}
	struct kernels_attention job = {.kv = KERNELS_KV_F32,
					.head_dim = DIM,
					.pages = pages,
					.v_offset = k,
					.position = KEYS - 5,
					.tokens = 5,
					.heads = HEADS,
					.scale = 0.3f,
					.q = q,
					.q_stride = HEADS * DIM,
					.out = out[0],
					.out_stride = HEADS * DIM,
					.scores_stride = KEYS};
	for (uint32_t window = 0; window < 100; window += 33) {
		job.window = window;
		job.out = out[0];
		job.scores = scores[0];
		kernels->attention(&job);
		job.out = out[1];
		job.scores = scores[1];
		variant_attention(&job, 5, false, false);
		assert_memory_equal(out[0], out[1], sizeof out[0]);
		assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
		variant_attention(&job, 5, true, false);
		assert_memory_not_equal(out[0], out[1], sizeof out[0]);
		assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
		variant_attention(&job, 5, false, true);
		assert_memory_not_equal(out[0], out[1], sizeof out[0]);
	}
	free(memory);
}

static void only_with_float_activations(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	struct svc_err err;
	struct variant none = {.last_layer = UINT32_MAX};
	struct engine_hooks hooks = {.variant = &none};
	int32_t token = 1;
	uint32_t page = 0;
	struct engine_seq seq = {.tokens = &token, .n_tokens = 1, .pages = &page, .n_pages = 1};
	struct engine_batch batch = {.seqs = &seq, .n_seqs = 1, .hooks = &hooks};
	set_up(&f, &file, KERNELS_A16);
	assert_int_equal(engine_step(f.engine, &batch, &err), SVC_INVALID);
	assert_non_null(strstr(err.msg, "f32-v1"));
	tear_down(&f);
}

static void never_called(void *context, const struct engine_pass *pass)
{
	(void)context;
	(void)pass;
	fail_msg("an executor of layers was asked for a step that is looked into");
}

static void seed_sign(void *context, const struct engine_record *record, float *data)
{
	(void)context;
	(void)record;
	data[0] = -data[0];
}

/* Whoever looks must not be shown the host's arithmetic instead. */
static void layers_at_once_are_not_looked_into(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	struct svc_err err;
	struct sums sums = {{0}};
	struct variant none = {.last_layer = UINT32_MAX};
	const struct engine_executor executor = {.layers = never_called};
	const struct engine_hooks looks[] = {
		{.context = &sums, .probe = add_bits}, {.seed = seed_sign}, {.variant = &none}};
	int32_t token = 1;
	uint32_t page = 0;
	struct engine_seq seq = {.tokens = &token, .n_tokens = 1, .pages = &page, .n_pages = 1};
	set_up(&f, &file, KERNELS_F32);
	for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
		struct engine_batch batch = {.seqs = &seq, .n_seqs = 1, .hooks = &looks[i]};
		engine_set_executor(f.engine, &executor);
		assert_int_equal(engine_step(f.engine, &batch, &err), SVC_INVALID);
		assert_non_null(strstr(err.msg, "all at once"));
		engine_set_executor(f.engine, NULL);
		assert_int_equal(engine_step(f.engine, &batch, &err), SVC_OK);
	}
	tear_down(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_site_is_the_first_to_change),
		cmocka_unit_test(no_sites_change_nothing_and_layers_limit),
		cmocka_unit_test(rows_of_the_pass_matter),
		cmocka_unit_test(bf16_sums_are_for_several_rows),
		cmocka_unit_test(attention_without_a_change_is_the_kernels),
		cmocka_unit_test(only_with_float_activations),
		cmocka_unit_test(layers_at_once_are_not_looked_into),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
