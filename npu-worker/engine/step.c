/* One step: the layers' matrix products over all rows, and between them the work of rows.c and
 * attend.c. */
#include "npu-worker/engine/engine_private.h"
#include "npu-worker/engine/hooks.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/fault.h"

/* Multiply-adds that one dispatched item has, about: enough to be worth its taking, few enough to
 * share well. */
static const uint64_t ITEM_WORK = 1u << 20;
enum {
	TILE_ROWS = 64, /* rows per call of a kernel: their activations stay in the second-level
			   cache */
	LOGIT_COLUMNS = 16384, /* one item of handing logits out */
};

static const char *const checkpoint_names[ENGINE_CHECKPOINT_COUNT] = {
	"embed",  "attn_norm",	    "q_proj",	     "k_proj",	  "v_proj",	"q_norm",
	"k_norm", "q_rope",	    "k_rope",	     "kv_write",  "scores",	"heads",
	"o_proj", "post_attn_norm", "after_attn",    "ffn_norm",  "gate",	"up",
	"act",	  "down",	    "post_ffn_norm", "after_ffn", "final_norm", "logits",
};

const char *engine_checkpoint_name(enum engine_checkpoint checkpoint)
{
	return (unsigned)checkpoint < ENGINE_CHECKPOINT_COUNT ? checkpoint_names[checkpoint] : "?";
}

/* Row work for `count` items, spread over the threads unless a probe wants it in order. */
static void run_rows(struct step *step, pool_work *work, uint32_t count)
{
	uint32_t grain = count / (4 * step->engine->info.threads) + 1;
	if (step_is_probed(step))
		work(step, 0, count, 0);
	else
		pool_run(step->engine->pool, work, step, count, grain);
}

/* The input of the next product: row r at x + r * stride. */
static void set_acts(struct step *step, uint32_t rows, const float *x, uint32_t cols, size_t stride)
{
	kernels_acts_init(&step->acts, step->engine->info.family, rows, cols,
			  step->engine->acts_memory);
	step->acts.x = x;
	step->acts.x_stride = stride;
}

/* Products of the same activations with up to three matrices, whose outputs stand side by side in a
 * row of y. */
struct product {
	const struct step *step;
	const struct kernels_matrix *matrices;
	uint32_t n_matrices;
	enum engine_checkpoint site; /* of the first; the others' follow it */
	float *y;
	size_t y_stride;
	uint32_t grain; /* 16-row blocks */
};

/* Blocks [first, last) of one matrix, for all rows. */
static void multiply_rows(const struct product *p, uint32_t m, float *y, uint32_t first,
			  uint32_t last, uint32_t thread)
{
	const struct kernels_acts *acts = &p->step->acts;
	const struct kernels_matrix *w = &p->matrices[m];
	const struct kernels *kernels = p->step->engine->kernels;
	bool varies = step_varies(p->step, VARIANT_MATMUL, p->site + m);
	for (uint32_t row = 0; row < acts->rows; row += TILE_ROWS) {
		uint32_t count = acts->rows - row < TILE_ROWS ? acts->rows - row : TILE_ROWS;
		struct kernels_acts part = kernels_acts_part(acts, row, count);
		float *out = y + row * p->y_stride;
		if (varies)
			variant_matmul(
				&(struct variant_product){
					kernels, w, &part, out, p->y_stride, acts->rows,
					p->step->batch->hooks->variant->bf16_sums},
				first, last);
		else
			kernels->matmul(w, &part, out, p->y_stride, first, last);
		step_beat(p->step, thread);
	}
}

static void multiply_blocks(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct product *p = context;
	float *y = p->y;
	uint32_t start = 0;
	for (uint32_t m = 0; m < p->n_matrices; m++) {
		const struct kernels_matrix *w = &p->matrices[m];
		uint32_t end = start + kernels_block_count(w->rows);
		uint32_t from = first > start ? first : start, to = last < end ? last : end;
		for (uint32_t at = from; at < to; at += p->grain) {
			uint32_t stop = to - at < p->grain ? to : at + p->grain;
			multiply_rows(p, m, y, at - start, stop - start, thread);
		}
		y += w->rows;
		start = end;
	}
}

/* site: the first matrix' checkpoint. */
static void multiply(struct step *step, enum engine_checkpoint site,
		     const struct kernels_matrix *matrices, uint32_t n, float *y, size_t y_stride)
{
	struct product p = {.step = step,
			    .matrices = matrices,
			    .n_matrices = n,
			    .site = site,
			    .y_stride = y_stride};
	p.y = y;
	if (step->engine->executor.multiply) {
		const struct engine_product product = {matrices, n, &step->acts, y, y_stride};
		step->engine->executor.multiply(step->engine->executor.context, &product);
		return;
	}
	uint32_t blocks = 0;
	for (uint32_t m = 0; m < n; m++)
		blocks += kernels_block_count(matrices[m].rows);
	uint64_t block_work = (uint64_t)KERNELS_BLOCK_ROWS * step->acts.cols * step->acts.rows;
	uint64_t grain = ITEM_WORK / block_work;
	uint32_t share = blocks / (4 * step->engine->info.threads);
	p.grain = grain < 1 ? 1 : grain > share + 1 ? share + 1 : (uint32_t)grain;
	pool_run(step->engine->pool, multiply_blocks, &p, blocks, p.grain);
}

static void run_layer(struct step *step)
{
	struct engine *e = step->engine;
	const struct engine_layer *layer = &e->layers[step->layer];
	const struct model_config *c = &e->info.config;
	uint32_t rows = step->n_rows;

	set_acts(step, rows, e->h, c->n_embd, c->n_embd);
	run_rows(step, rows_enter_layer, rows);
	multiply(step, ENGINE_Q_PROJ, layer->qkv, layer->n_qkv, e->qkv, e->qkv_width);
	run_rows(step, rows_qkv, rows);
	attend_run(step);

	set_acts(step, rows, e->heads, e->q_width, e->q_width);
	run_rows(step, rows_heads, rows);
	multiply(step, ENGINE_O_PROJ, &layer->o, 1, e->h, c->n_embd);

	set_acts(step, rows, e->h, c->n_embd, c->n_embd);
	run_rows(step, rows_after_attention, rows);
	multiply(step, ENGINE_GATE, layer->gate_up, layer->n_gate_up, e->gate_up,
		 2 * (size_t)c->n_ffn);

	set_acts(step, rows, e->gate_up, c->n_ffn, 2 * (size_t)c->n_ffn);
	run_rows(step, rows_activate, rows);
	multiply(step, ENGINE_DOWN, &layer->down, 1, e->h, c->n_embd);
	run_rows(step, rows_leave_layer, rows);
}

/* Where the caller wants row r's logits; NULL: nowhere. */
static float *logits_of_row(const struct step *step, uint32_t r)
{
	const struct engine_row *row = &step->engine->rows[r];
	const struct engine_seq *seq = &step->batch->seqs[row->seq];
	uint32_t from_end = seq->n_tokens - (row->position - seq->pos);
	return from_end > seq->n_logits
		       ? NULL
		       : seq->logits + (seq->n_logits - from_end) * seq->logits_stride;
}

/* Hands out a run of columns of one row's logits: item = row of the pass * chunks + chunk. */
static void hand_out(void *context, uint32_t first, uint32_t last, uint32_t thread)
{
	const struct step *step = context;
	const struct engine *e = step->engine;
	uint32_t vocab = e->info.config.n_vocab,
		 chunks = (vocab + LOGIT_COLUMNS - 1) / LOGIT_COLUMNS;
	for (uint32_t item = first; item < last; item++) {
		uint32_t i = item / chunks, from = item % chunks * LOGIT_COLUMNS;
		uint32_t count = vocab - from < LOGIT_COLUMNS ? vocab - from : LOGIT_COLUMNS;
		float *x = e->logits + (size_t)i * vocab + from;
		if (e->info.config.final_softcap > 0.0f)
			e->kernels->softcap(x, e->info.config.final_softcap, count);
		if (!e->kernels->finite(x, count))
			atomic_store_explicit(&e->rows[step->logit_rows[i]].bad, true,
					      memory_order_relaxed);
		memcpy(logits_of_row(step, step->logit_rows[i]) + from, x, count * sizeof *x);
		step_beat(step, thread);
	}
}

/* The head for the rows gathered in step->logit_rows. */
static void run_head(struct step *step)
{
	struct engine *e = step->engine;
	uint32_t vocab = e->info.config.n_vocab, width = e->info.config.n_embd;
	uint32_t chunks = (vocab + LOGIT_COLUMNS - 1) / LOGIT_COLUMNS;
	set_acts(step, step->n_logit_rows, e->h, width, width);
	run_rows(step, rows_final_norm, step->n_logit_rows);
	multiply(step, ENGINE_LOGITS, &e->head, 1, e->logits, vocab);
	pool_run(e->pool, hand_out, step, step->n_logit_rows * chunks, 1);
	for (uint32_t i = 0; i < step->n_logit_rows; i++)
		rows_probe(step, step->logit_rows[i], ENGINE_LOGITS, e->logits + (size_t)i * vocab,
			   1);
	step->n_logit_rows = 0;
}

static void run_heads(struct step *step)
{
	step->n_logit_rows = 0;
	for (uint32_t r = 0; r < step->n_rows; r++) {
		if (logits_of_row(step, r))
			step->logit_rows[step->n_logit_rows++] = r;
		if (step->n_logit_rows == LOGIT_ROWS)
			run_head(step);
	}
	if (step->n_logit_rows)
		run_head(step);
}

/* Adds the final norms of the rows gathered in step->logit_rows to their sequences' sums: by one
 * thread, in the order of rows, so that a sum doesn't depend on what shares the step. */
static void run_sums(struct step *step)
{
	struct engine *e = step->engine;
	uint32_t width = e->info.config.n_embd;
	set_acts(step, step->n_logit_rows, e->h, width, width);
	run_rows(step, rows_final_norm, step->n_logit_rows);
	for (uint32_t i = 0; i < step->n_logit_rows; i++) {
		const float *h = e->h + (size_t)i * width;
		double *sum = step->batch->seqs[e->rows[step->logit_rows[i]].seq].pooled;
		for (uint32_t j = 0; j < width; j++)
			sum[j] += h[j];
	}
	step->n_logit_rows = 0;
}

static bool is_pooled(const struct step *step, uint32_t r)
{
	const struct engine_row *row = &step->engine->rows[r];
	const struct engine_seq *seq = &step->batch->seqs[row->seq];
	return seq->n_tokens - (row->position - seq->pos) <= seq->n_pooled;
}

static void run_pooling(struct step *step)
{
	for (uint32_t r = 0; r < step->n_rows; r++) {
		if (is_pooled(step, r))
			step->logit_rows[step->n_logit_rows++] = r;
		if (step->n_logit_rows == LOGIT_ROWS)
			run_sums(step);
	}
	if (step->n_logit_rows)
		run_sums(step);
}

static const float *table_of(const struct engine_layer *layer, uint32_t position)
{
	return layer->rope + (size_t)position * 2 * layer->rope_pairs;
}

/* All layers and the head where the executor does them at once. */
static void run_pass(struct step *step)
{
	struct engine *e = step->engine;
	const struct engine_layer *wide = &e->layers[0], *windowed = NULL;
	uint32_t vocab = e->info.config.n_vocab;
	for (uint32_t i = 0; i < e->info.config.n_layers; i++)
		*(e->layers[i].window ? &windowed : &wide) = &e->layers[i];
	for (uint32_t r = 0; r < step->n_rows; r++) {
		struct engine_row *row = &e->rows[r];
		bool local = windowed && windowed->rope != wide->rope;
		e->pass_rows[r] = (struct engine_pass_row){
			.position = row->position,
			.pages = (const uint8_t *const *)e->spans[row->seq].pages,
			.settled = step->batch->seqs[row->seq].settled,
			.table = table_of(wide, row->position),
			.local_table = local ? table_of(windowed, row->position) : NULL,
			.x = e->x + (size_t)r * e->info.config.n_embd,
			.keeps_x = is_pooled(step, r),
			.logits = logits_of_row(step, r),
			.bad = &row->bad,
		};
	}
	const struct engine_pass pass = {e->pass_rows, step->n_rows, e->info.ctx};
	e->executor.layers(e->executor.context, &pass);
	for (uint32_t r = 0; r < step->n_rows; r++) {
		float *logits = e->pass_rows[r].logits;
		if (logits && e->info.config.final_softcap > 0.0f)
			e->kernels->softcap(logits, e->info.config.final_softcap, vocab);
		if (logits && !e->kernels->finite(logits, vocab))
			atomic_store_explicit(&e->rows[r].bad, true, memory_order_relaxed);
	}
}

/* SVC_OK: may run. Tokens and block tables may come out of shared memory: each element is read
 * once, then checked, then used. */
static enum svc_code check_seq(const struct engine *e, const struct engine_seq *seq,
			       struct engine_span *span)
{
	uint64_t end = (uint64_t)seq->pos + seq->n_tokens;
	if (end > e->info.ctx)
		return SVC_TOO_LONG;
	if (seq->n_tokens == 0 || seq->n_logits > seq->n_tokens ||
	    (seq->n_logits && (!seq->logits || seq->logits_stride < e->info.config.n_vocab)) ||
	    seq->n_pooled > seq->n_tokens || (seq->n_pooled && !seq->pooled))
		return SVC_INVALID;
	uint32_t pages = (uint32_t)((end + ENGINE_PAGE_TOKENS - 1) / ENGINE_PAGE_TOKENS);
	if (seq->n_pages < pages)
		return SVC_INVALID;
	for (uint32_t i = 0; i < pages; i++) {
		uint32_t page = seq->pages[i];
		if (page >= e->page_count)
			return SVC_INVALID;
		span->pages[i] = e->page_base + (size_t)page * e->page_stride;
	}
	return SVC_OK;
}

static enum svc_code add_rows(struct step *step, uint32_t s)
{
	struct engine *e = step->engine;
	const struct engine_seq *seq = &step->batch->seqs[s];
	e->spans[s].row = step->n_rows;
	for (uint32_t i = 0; i < seq->n_tokens; i++) {
		int32_t token = seq->tokens[i];
		if (token < 0 || (uint32_t)token >= e->info.config.n_vocab)
			return SVC_INVALID;
		struct engine_row *row = &e->rows[step->n_rows + i];
		row->seq = s;
		row->position = seq->pos + i;
		row->token = token;
		atomic_store_explicit(&row->bad, false, memory_order_relaxed);
	}
	step->n_rows += seq->n_tokens;
	return SVC_OK;
}

static enum svc_code check_batch(const struct engine *e, const struct engine_batch *batch,
				 struct svc_err *err)
{
	uint64_t rows = 0;
	for (uint32_t s = 0; s < batch->n_seqs && s < e->info.max_seqs; s++)
		rows += batch->seqs[s].n_tokens;
	if (batch->n_seqs > e->info.max_seqs || rows > e->info.max_rows)
		return svc_fail(err, SVC_INVALID, __func__,
				"a step of %" PRIu32 " sequences and %" PRIu64
				" tokens; the limits are %" PRIu32 " and %" PRIu32,
				batch->n_seqs, rows, e->info.max_seqs, e->info.max_rows);
	if (!e->page_base)
		return svc_fail(err, SVC_INVALID, __func__, "no KV pages were set");
	if (batch->n_layers > e->info.config.n_layers || (batch->n_layers && e->executor.layers))
		return svc_fail(err, SVC_INVALID, __func__,
				"a step through %" PRIu32 " layers; the model has %" PRIu32 "%s",
				batch->n_layers, e->info.config.n_layers,
				e->executor.layers ? ", which run all at once here" : "");
	if (e->executor.layers && batch->hooks &&
	    (batch->hooks->probe || batch->hooks->seed || batch->hooks->variant))
		return svc_fail(err, SVC_INVALID, __func__,
				"a step that is looked into; its layers run all at once here");
	if (batch->hooks && batch->hooks->variant && e->info.family != KERNELS_F32)
		return svc_fail(err, SVC_INVALID, __func__,
				"other arithmetic is for the family f32-v1; this one is %s",
				kernels_family_name(e->info.family));
	return SVC_OK;
}

static enum svc_code run_layers(struct step *step, struct svc_err *err)
{
	const struct engine_hooks *hooks = step->batch->hooks;
	uint32_t n_layers =
		step->batch->n_layers ? step->batch->n_layers : step->engine->info.config.n_layers;
	for (step->layer = 0; step->layer < n_layers; step->layer++) {
		run_layer(step);
		if (hooks && hooks->goes_on && !hooks->goes_on(hooks->context))
			return svc_fail(err, SVC_CANCELLED, "engine_step",
					"the step was abandoned");
	}
	run_heads(step);
	return SVC_OK;
}

enum svc_code engine_step(struct engine *engine, const struct engine_batch *batch,
			  struct svc_err *err)
{
	enum svc_code code = check_batch(engine, batch, err);
	if (code)
		return code;
	struct step step = {.engine = engine, .batch = batch};
	for (uint32_t s = 0; s < batch->n_seqs; s++) {
		struct engine_seq *seq = &batch->seqs[s];
		seq->status = check_seq(engine, seq, &engine->spans[s]);
		if (!seq->status)
			seq->status = add_rows(&step, s);
	}
	if (step.n_rows == 0)
		return SVC_OK;
	code = attend_plan(&step, err);
	if (code)
		return code;
	run_rows(&step, rows_embed, step.n_rows);
	if (fault_hit("engine.embed", "nan"))
		engine->x[0] = NAN;
	if (engine->executor.layers)
		run_pass(&step);
	else
		code = run_layers(&step, err);
	if (code)
		return code;
	run_pooling(&step);
	for (uint32_t r = 0; r < step.n_rows; r++) {
		if (atomic_load_explicit(&engine->rows[r].bad, memory_order_relaxed))
			batch->seqs[engine->rows[r].seq].status = SVC_NUMERIC;
	}
	return SVC_OK;
}

int32_t engine_likeliest(const float *logits, uint32_t n)
{
	enum { LANES = 16 };
	float best[LANES];
	for (uint32_t l = 0; l < LANES; l++)
		best[l] = l < n ? logits[l] : logits[0];
	for (uint32_t i = 0; i + LANES <= n; i += LANES)
		for (uint32_t l = 0; l < LANES; l++)
			best[l] = logits[i + l] > best[l] ? logits[i + l] : best[l];
	float most = best[0];
	for (uint32_t l = 1; l < LANES; l++)
		most = best[l] > most ? best[l] : most;
	for (uint32_t i = n / LANES * LANES; i < n; i++)
		most = logits[i] > most ? logits[i] : most;
	for (uint32_t i = 0; i < n; i++)
		if (logits[i] == most)
			return (int32_t)i;
	return 0;
}
