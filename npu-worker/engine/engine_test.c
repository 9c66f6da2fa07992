#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "npu-worker/engine/engine.h"
#include "npu-worker/engine/hooks.h"
#include "npu-worker/engine/model_file_test.h"

/* ---- an engine over a model file, and what a sequence gives */

struct fixture {
	void *region;
	size_t region_bytes;
	struct engine *engine;
	void *pages;
	uint32_t n_pages;
};

static void open_with(struct fixture *f, enum kernels_family family, uint32_t threads,
		      struct engine *threads_of)
{
	struct svc_err err;
	struct engine_options options = {.region = f->region,
					 .region_bytes = f->region_bytes,
					 .check_content = true,
					 .family = family,
					 .isa = "auto",
					 .threads = threads,
					 .threads_of = threads_of,
					 .max_rows = 100,
					 .max_seqs = 8};
	if (engine_open(&options, &f->engine, &err))
		fail_msg("%s", err.msg);
	const struct engine_info *info = engine_info(f->engine);
	f->n_pages = 32;
	f->pages = aligned_alloc(64, f->n_pages * info->page_bytes);
	assert_non_null(f->pages);
	memset(f->pages, 0xff, f->n_pages * info->page_bytes);
	assert_int_equal(engine_set_pages(f->engine, f->pages, info->page_bytes, f->n_pages, &err),
			 SVC_OK);
}

static void open_engine(struct fixture *f, enum kernels_family family, uint32_t threads)
{
	open_with(f, family, threads, NULL);
}

static void set_up(struct fixture *f, const struct model_file *file, enum kernels_family family,
		   uint32_t threads)
{
	f->region = model_file_pack(file, &f->region_bytes);
	open_engine(f, family, threads);
}

static void tear_down(struct fixture *f)
{
	engine_close(f->engine);
	free(f->pages);
	free(f->region);
}

enum { VOCAB = 70, LENGTH = 150, ROW = VOCAB + 2 };

static void draw_tokens(uint32_t seed, int32_t tokens[LENGTH])
{
	for (uint32_t i = 0; i < LENGTH; i++) {
		seed = seed * 1664525 + 1013904223;
		tokens[i] = (int32_t)(seed >> 8) % VOCAB;
	}
}

/* Logits of all positions, in chunks, alone; pages first_page, first_page + 2, ... */
static void run_alone(struct fixture *f, const int32_t *tokens, uint32_t chunk, uint32_t first_page,
		      float logits[LENGTH][ROW])
{
	uint32_t pages[3] = {first_page, first_page + 2, first_page + 4};
	memset(logits, 0, sizeof(float[LENGTH][ROW]));
	for (uint32_t pos = 0; pos < LENGTH; pos += chunk) {
		uint32_t count = LENGTH - pos < chunk ? LENGTH - pos : chunk;
		struct engine_seq seq = {.tokens = tokens + pos,
					 .n_tokens = count,
					 .pos = pos,
					 .pages = pages,
					 .n_pages = 3,
					 .n_logits = count,
					 .logits = logits[pos],
					 .logits_stride = ROW};
		struct engine_batch batch = {.seqs = &seq, .n_seqs = 1};
		assert_int_equal(engine_step(f->engine, &batch, NULL), SVC_OK);
		assert_int_equal(seq.status, SVC_OK);
	}
}

static struct model_file gemma_file(void)
{
	struct model_file file = model_file_default();
	file.arch = "gemma3";
	file.gemma = true;
	file.type = GGUF_TENSOR_F32;
	file.layers = 7;
	return file;
}

/* ---- fewer layers */

/* Made where the next position will be computed. */
static void a_guess_by_fewer_layers_leaves_no_trace(void **state)
{
	(void)state;
	static float base[LENGTH][ROW], other[LENGTH][ROW];
	int32_t tokens[LENGTH];
	uint32_t pages[3] = {1, 3, 5}, differ = 0;
	struct fixture f, guest;
	const struct model_file file = gemma_file();
	draw_tokens(5, tokens);
	set_up(&f, &file, KERNELS_A16, 2);
	run_alone(&f, tokens, 1, 0, base);
	memset(other, 0, sizeof other);
	for (uint32_t pos = 0; pos < LENGTH; pos++) {
		float guess[ROW];
		struct engine_seq seq = {.tokens = tokens + pos,
					 .n_tokens = pos + 2 <= LENGTH ? 2 : 1,
					 .pos = pos,
					 .pages = pages,
					 .n_pages = 3,
					 .n_logits = 1,
					 .logits = guess,
					 .logits_stride = ROW};
		struct engine_batch batch = {.seqs = &seq, .n_seqs = 1, .n_layers = 3};
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		seq.n_tokens = 1;
		seq.logits = other[pos];
		batch.n_layers = pos % 2 ? 0 : file.layers;
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		differ += guess[0] < other[pos][0] || guess[0] > other[pos][0];
		batch.n_layers = file.layers + 1;
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_INVALID);
	}
	assert_memory_equal(base, other, sizeof base);
	assert_int_equal(differ, LENGTH);
	guest = (struct fixture){.region = f.region, .region_bytes = f.region_bytes};
	open_with(&guest, KERNELS_A16, 0, f.engine);
	run_alone(&guest, tokens, 7, 0, other);
	assert_memory_equal(base, other, sizeof base);
	engine_close(guest.engine);
	free(guest.pages);
	tear_down(&f);
}

/* ---- the same bits */

static void chunks_threads_and_company_change_nothing(void **state)
{
	(void)state;
	static float base[LENGTH][ROW], other[LENGTH][ROW];
	int32_t tokens[LENGTH], more[LENGTH];
	draw_tokens(1, tokens);
	draw_tokens(2, more);
	const struct model_file files[] = {model_file_default(), gemma_file()};
	const enum kernels_family families[] = {KERNELS_F32, KERNELS_A16, KERNELS_A16_KV8,
						KERNELS_B16};
	for (unsigned i = 0; i < 8; i++) {
		struct fixture f;
		enum kernels_family family = families[i / 2];
		set_up(&f, &files[i % 2], family, 1);
		run_alone(&f, tokens, 100, 0, base);
		assert_memory_not_equal(base[0], base[1], VOCAB * sizeof(float));
		engine_close(f.engine);
		free(f.pages);
		open_engine(&f, family, 3);
		for (uint32_t chunk = 1; chunk < 80; chunk += 26) {
			run_alone(&f, tokens, chunk, 1, other);
			assert_memory_equal(base, other, sizeof base);
		}
		/* A second sequence in the same steps, always 10 tokens ahead. */
		uint32_t pages[2][3] = {{9, 3, 5}, {2, 0, 4}};
		memset(other, 0, sizeof other);
		for (uint32_t pos = 0; pos < LENGTH; pos += 10) {
			struct engine_seq seqs[2] = {
				{.tokens = more, .n_tokens = 23, .pages = pages[0], .n_pages = 3},
				{.tokens = tokens + pos,
				 .n_tokens = 10,
				 .pos = pos,
				 .pages = pages[1],
				 .n_pages = 3,
				 .n_logits = 10,
				 .logits = other[pos],
				 .logits_stride = ROW}};
			struct engine_batch batch = {.seqs = seqs, .n_seqs = 2};
			assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		}
		assert_memory_equal(base, other, sizeof base);
		tear_down(&f);
	}
}

/* ---- sums of hidden states */

static void add_record(void *context, const struct engine_record *record)
{
	double *sum = context;
	const float *h = record->data;
	if (record->checkpoint == ENGINE_FINAL_NORM)
		for (uint32_t i = 0; i < record->cols; i++)
			sum[i] += h[i];
}

/* Beside another sequence, which has a sum of its own. */
static void sum_up(struct fixture *f, const int32_t *tokens, uint32_t chunk,
		   const struct engine_hooks *hooks, double *sum)
{
	uint32_t pages[2][3] = {{9, 3, 5}, {2, 0, 4}};
	double company[ROW] = {0};
	memset(sum, 0, ROW * sizeof *sum);
	for (uint32_t pos = 0; pos < LENGTH; pos += chunk) {
		uint32_t count = LENGTH - pos < chunk ? LENGTH - pos : chunk;
		struct engine_seq seqs[2] = {{.tokens = tokens,
					      .n_tokens = 3,
					      .pages = pages[0],
					      .n_pages = 3,
					      .pooled = company,
					      .n_pooled = 1},
					     {.tokens = tokens + pos,
					      .n_tokens = count,
					      .pos = pos,
					      .pages = pages[1],
					      .n_pages = 3,
					      .pooled = sum,
					      .n_pooled = count}};
		/* With hooks alone, so that only its records are seen. */
		struct engine_batch batch = {.seqs = seqs + (hooks != NULL),
					     .n_seqs = 2 - (hooks != NULL),
					     .hooks = hooks};
		assert_int_equal(engine_step(f->engine, &batch, NULL), SVC_OK);
		assert_int_equal(seqs[1].status, SVC_OK);
	}
}

static void sums_are_of_the_final_norms_however_cut(void **state)
{
	(void)state;
	int32_t tokens[LENGTH];
	draw_tokens(4, tokens);
	const struct model_file files[] = {model_file_default(), gemma_file()};
	for (unsigned i = 0; i < 2; i++) {
		struct fixture f;
		double sum[ROW], seen[ROW] = {0}, other[ROW];
		struct engine_hooks hooks = {.context = seen, .probe = add_record};
		set_up(&f, &files[i], KERNELS_A16, 3);
		sum_up(&f, tokens, 100, &hooks, sum);
		assert_memory_equal(sum, seen, sizeof sum);
		assert_true(sum[0] != 0);
		for (uint32_t chunk = 1; chunk < 97; chunk += 33) {
			sum_up(&f, tokens, chunk, NULL, other);
			assert_memory_equal(sum, other, sizeof sum);
		}
		struct engine_seq bad = {.tokens = tokens, .n_tokens = 1, .n_pooled = 1};
		struct engine_batch batch = {.seqs = &bad, .n_seqs = 1};
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		assert_int_equal(bad.status, SVC_INVALID);
		tear_down(&f);
	}
}

/* ---- hooks */

struct seen {
	uint32_t beats, counts[ENGINE_CHECKPOINT_COUNT];
	enum engine_checkpoint last;
	uint32_t last_layer;
	bool in_order;
	float logit;
};

static void see_beat(void *context)
{
	((struct seen *)context)->beats++;
}

static void see_record(void *context, const struct engine_record *record)
{
	struct seen *seen = context;
	bool later = record->layer > seen->last_layer || record->checkpoint >= seen->last ||
		     record->checkpoint == ENGINE_KV_WRITE;
	seen->in_order &= later;
	seen->last = record->checkpoint;
	seen->last_layer = record->layer;
	seen->counts[record->checkpoint]++;
	if (record->checkpoint == ENGINE_LOGITS)
		memcpy(&seen->logit, record->data, sizeof seen->logit);
}

static void probes_see_every_checkpoint_and_disturb_nothing(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = gemma_file();
	set_up(&f, &file, KERNELS_A16, 2);
	int32_t tokens[LENGTH];
	float logits[2][ROW];
	struct seen seen = {.in_order = true};
	struct engine_hooks hooks = {.beat = see_beat, .probe = see_record, .scores = true};
	hooks.context = &seen;
	draw_tokens(3, tokens);
	struct engine_seq seq = {.tokens = tokens,
				 .n_tokens = 1,
				 .pages = &(uint32_t){7},
				 .n_pages = 1,
				 .n_logits = 1,
				 .logits = logits[0],
				 .logits_stride = ROW};
	struct engine_batch batch = {.seqs = &seq, .n_seqs = 1};
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
	batch.hooks = &hooks;
	seq.logits = logits[1];
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
	assert_memory_equal(logits[0], logits[1], VOCAB * sizeof(float));
	assert_true(seen.in_order && seen.beats > file.layers && seen.logit == logits[1][0]);
	for (uint32_t c = 0; c < ENGINE_CHECKPOINT_COUNT; c++) {
		uint32_t per_step = c == ENGINE_EMBED || c >= ENGINE_FINAL_NORM ? 1 : file.layers;
		if (c == ENGINE_KV_WRITE || c == ENGINE_SCORES)
			per_step *= c == ENGINE_SCORES ? file.heads : 2 * file.kv_heads;
		if (seen.counts[c] != per_step)
			fail_msg("%s was seen %u times", engine_checkpoint_name(c), seen.counts[c]);
	}
	tear_down(&f);
}

/* ---- one bad sequence leaves the others alone */

static void bad_arguments_fail_their_sequence_only(void **state)
{
	(void)state;
	struct fixture f;
	struct model_file file = model_file_default();
	set_up(&f, &file, KERNELS_A16, 1);
	int32_t tokens[LENGTH], negative = -1, past = VOCAB;
	float good[2][ROW], sink[ROW];
	draw_tokens(4, tokens);
	uint32_t pages[4] = {3, 1, 8, 5}, stray = f.n_pages;
	const struct engine_seq right = {.tokens = tokens,
					 .n_tokens = 5,
					 .pages = pages,
					 .n_pages = 4,
					 .n_logits = 1,
					 .logits = good[0],
					 .logits_stride = ROW};
	struct engine_seq seqs[8];
	for (unsigned i = 0; i < 8; i++)
		seqs[i] = right;
	struct engine_batch batch = {.seqs = seqs, .n_seqs = 1};
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
	uint32_t other = 9;
	for (unsigned i = 1; i < 8; i++) {
		seqs[i].pages = &other;
		seqs[i].n_pages = 1;
		seqs[i].logits = sink;
	}
	seqs[0].logits = good[1];
	seqs[1].tokens = &negative;
	seqs[1].n_tokens = 1;
	seqs[2].tokens = &past;
	seqs[2].n_tokens = 1;
	seqs[3].pos = UINT32_MAX;
	seqs[4].pages = &stray;
	seqs[5].pos = 60; /* reaches the second page */
	seqs[6].n_logits = 6;
	seqs[7].logits_stride = VOCAB - 1;
	batch.n_seqs = 8;
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
	assert_int_equal(seqs[0].status, SVC_OK);
	assert_memory_equal(good[0], good[1], VOCAB * sizeof(float));
	for (unsigned i = 1; i < 8; i++)
		assert_int_equal(seqs[i].status, i == 3 ? SVC_TOO_LONG : SVC_INVALID);
	batch.n_seqs = 9;
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_INVALID);
	seqs[0].n_tokens = 101;
	batch.n_seqs = 1;
	assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_INVALID);
	tear_down(&f);
}

static void nan_fails_its_sequence_only(void **state)
{
	(void)state;
	struct model_file file = model_file_default();
	file.type = GGUF_TENSOR_F32;
	file.untied = true;
	file.nan_token = 13;
	const enum kernels_family families[] = {KERNELS_F32, KERNELS_A16, KERNELS_A16_KV8,
						KERNELS_B16};
	for (unsigned i = 0; i < sizeof families / sizeof *families; i++) {
		struct fixture f;
		set_up(&f, &file, families[i], 2);
		const int32_t sound[3] = {1, 2, 3}, sick[3] = {4, 13, 5};
		float logits[3][ROW];
		uint32_t pages[2] = {0, 1};
		struct engine_seq seqs[2] = {{.tokens = sound,
					      .n_tokens = 3,
					      .pages = &pages[0],
					      .n_pages = 1,
					      .n_logits = 1,
					      .logits = logits[0],
					      .logits_stride = ROW},
					     {.tokens = sick,
					      .n_tokens = 3,
					      .pages = &pages[1],
					      .n_pages = 1,
					      .n_logits = 1,
					      .logits = logits[1],
					      .logits_stride = ROW}};
		struct engine_batch batch = {.seqs = seqs, .n_seqs = 1};
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		seqs[0].logits = logits[2];
		batch.n_seqs = 2;
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		assert_int_equal(seqs[0].status, SVC_OK);
		assert_int_equal(seqs[1].status, SVC_NUMERIC);
		assert_memory_equal(logits[0], logits[2], VOCAB * sizeof(float));
		tear_down(&f);
	}
}

/* What doesn't fit into a page of halves is an error, not an infinity that hides in there. */
static void overflow_of_a_page_is_told(void **state)
{
	(void)state;
	const char *const huge[] = {"blk.0.attn_k.weight", "blk.1.attn_v.weight"};
	for (unsigned i = 0; i < 4; i++) {
		struct model_file file = model_file_default();
		file.type = GGUF_TENSOR_F32;
		file.huge_tensor = huge[i / 2];
		bool halves = i % 2;
		struct fixture f;
		set_up(&f, &file, halves ? KERNELS_A16 : KERNELS_F32, 1);
		const int32_t tokens[3] = {1, 2, 3};
		float logits[ROW];
		uint32_t page = 0;
		struct engine_seq seq = {.tokens = tokens,
					 .n_tokens = 3,
					 .pages = &page,
					 .n_pages = 1,
					 .n_logits = 1,
					 .logits = logits,
					 .logits_stride = ROW};
		struct engine_batch batch = {.seqs = &seq, .n_seqs = 1};
		assert_int_equal(engine_step(f.engine, &batch, NULL), SVC_OK);
		assert_int_equal(seq.status, halves ? SVC_NUMERIC : SVC_OK);
		tear_down(&f);
	}
}

/* ---- the region */

static void region_is_checked(void **state)
{
	(void)state;
	struct model_file file = model_file_default();
	size_t size = 0, again_size = 0;
	struct region_header *header = model_file_pack(&file, &size),
			     *again = model_file_pack(&file, &again_size);
	assert_int_equal(size, again_size);
	assert_memory_equal(header, again, size);
	struct plan *plan = NULL;
	struct svc_err err;
	struct model_hash other = header->model;
	other.low ^= 1;
	assert_int_equal(region_attach(header, size, &header->model, true, &plan, &err), SVC_OK);
	plan = plan_close(plan);
	assert_int_equal(region_attach(header, size, &other, false, &plan, &err), SVC_CORRUPT);
	assert_int_equal(region_attach(header, size - 64, NULL, false, &plan, &err), SVC_CORRUPT);
	assert_int_equal(region_attach(header, 100, NULL, false, &plan, &err), SVC_CORRUPT);
	/* Every byte of header and directory counts. */
	size_t checked = offsetof(struct region_header, header_hash);
	for (size_t i = 0; i < checked + header->n_parts * sizeof(struct plan_part); i++) {
		uint8_t *byte =
			(uint8_t *)header + (i < checked ? i : REGION_HEADER_BYTES + i - checked);
		*byte ^= 0x11;
		assert_int_equal(region_attach(header, size, NULL, false, &plan, &err),
				 SVC_CORRUPT);
		*byte ^= 0x11;
	}
	((uint8_t *)header)[size - 1] ^= 1;
	assert_int_equal(region_attach(header, size, NULL, true, &plan, &err), SVC_CORRUPT);
	assert_null(plan);
	free(header);
	free(again);
}

/* ---- what is refused, and that the message names it */

static const struct refusal {
	struct model_file change; /* fields that are set replace the default's */
	enum svc_code code;
	const char *names;
} refusals[] = {
	{{.arch = "mamba"}, SVC_UNSUPPORTED, "'mamba'"},
	{{.arch = "qwen2"}, SVC_BAD_MODEL, "blk.0.attn_q.bias is missing"},
	{{.omit_key = "llama.block_count"}, SVC_BAD_MODEL, "llama.block_count is missing"},
	{{.omit_key = "llama.attention.layer_norm_rms_epsilon"}, SVC_BAD_MODEL, "rms_epsilon"},
	{{.omit_tensor = "blk.1.ffn_up.weight"}, SVC_BAD_MODEL, "blk.1.ffn_up.weight is missing"},
	{{.omit_tensor = "token_embd.weight"}, SVC_BAD_MODEL, "token_embd.weight"},
	{{.wide_tensor = "blk.0.attn_k.weight"},
	 SVC_BAD_MODEL,
	 "blk.0.attn_k.weight has the shape [96, 32]"},
	{{.wide_tensor = "output_norm.weight"}, SVC_BAD_MODEL, "output_norm.weight has the shape"},
	{{.extra_tensor = "blk.0.attn_sinks.weight"}, SVC_UNSUPPORTED, "blk.0.attn_sinks.weight"},
	{{.extra_tensor = "rope_factors_long.weight"}, SVC_BAD_MODEL, "rope_factors_long.weight"},
	{{.extra_key = "attention.q_lora_rank", .extra_value = 8},
	 SVC_UNSUPPORTED,
	 "llama.attention.q_lora_rank"},
	{{.extra_key = "expert_count", .extra_value = 8}, SVC_UNSUPPORTED, "llama.expert_count"},
	{{.extra_key = "attention.sliding_window", .extra_value = 64},
	 SVC_UNSUPPORTED,
	 "sliding_window"},
	{{.extra_key = "vocab_size", .extra_value = 71}, SVC_BAD_MODEL, "llama.vocab_size is 71"},
	{{.extra_key = "rope.dimension_count", .extra_value = 15},
	 SVC_BAD_MODEL,
	 "rope.dimension_count is 15"},
	{{.extra_key = "rope.dimension_count", .extra_value = 18},
	 SVC_BAD_MODEL,
	 "rope.dimension_count is 18"},
	{{.extra_key = "attention.value_length", .extra_value = 8},
	 SVC_UNSUPPORTED,
	 "value_length 8"},
	{{.extra_key = "rope.scaling.type", .extra_value = 1},
	 SVC_BAD_MODEL,
	 "rope.scaling.type' isn't a string"},
	{{.text_key = "rope.scaling.type", .text = "mrope"}, SVC_UNSUPPORTED, "'mrope'"},
	{{.text_key = "rope.scaling.type", .text = "yarn"}, SVC_BAD_MODEL, "rope.scaling.factor"},
	{{.text_key = "rope.scaling.type", .text = "longrope"},
	 SVC_BAD_MODEL,
	 "rope_factors_long.weight"},
	{{.text_key = "attention.scale", .text = "wide"},
	 SVC_BAD_MODEL,
	 "attention.scale' isn't a number"},
	{{.kv_heads = 3}, SVC_BAD_MODEL, "isn't a multiple of head_count_kv 3"},
	{{.ffn = 100}, SVC_BAD_MODEL, "ffn_down.weight"},
	{{.ctx = 255}, SVC_BAD_CONFIG, "this model's is 1 to 255"},
};

static struct model_file changed(const struct model_file *change)
{
	struct model_file file = model_file_default();
	file.arch = change->arch ? change->arch : file.arch;
	file.kv_heads = change->kv_heads ? change->kv_heads : file.kv_heads;
	file.ffn = change->ffn ? change->ffn : file.ffn;
	file.ctx = change->ctx ? change->ctx : file.ctx;
	file.omit_key = change->omit_key;
	file.omit_tensor = change->omit_tensor;
	file.wide_tensor = change->wide_tensor;
	file.extra_tensor = change->extra_tensor;
	file.extra_key = change->extra_key;
	file.extra_value = change->extra_value;
	file.text_key = change->text_key;
	file.text = change->text;
	return file;
}

static void what_is_unknown_or_wrong_is_refused_by_name(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
		struct model_file file = changed(&refusals[i].change);
		char path[32];
		struct gguf *gguf = NULL;
		struct plan *plan = NULL;
		struct svc_err err = {0};
		model_file_write(&file, path);
		enum svc_code code = gguf_open(path, &gguf, &err);
		unlink(path);
		code = code ? code : plan_open(gguf, 256, &plan, &err);
		if (code != refusals[i].code || !strstr(err.msg, refusals[i].names))
			fail_msg("case %u: %d '%s', not '%s'", i, code, err.msg, refusals[i].names);
		assert_null(plan);
		gguf_close(gguf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guess_by_fewer_layers_leaves_no_trace),
		cmocka_unit_test(chunks_threads_and_company_change_nothing),
		cmocka_unit_test(sums_are_of_the_final_norms_however_cut),
		cmocka_unit_test(probes_see_every_checkpoint_and_disturb_nothing),
		cmocka_unit_test(bad_arguments_fail_their_sequence_only),
		cmocka_unit_test(nan_fails_its_sequence_only),
		cmocka_unit_test(overflow_of_a_page_is_told),
		cmocka_unit_test(region_is_checked),
		cmocka_unit_test(what_is_unknown_or_wrong_is_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
