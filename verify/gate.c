#include "verify/gate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "verify/capture.h"

struct judge {
	const struct vfy_gate_job *job;
	const struct vfy_reference *reference;
	struct vfy_rig *rig;
	uint32_t n_vocab;
	float *logits;			/* [chunk][n_vocab] */
	struct vfy_row_distance *whole; /* the source's rows with ours */
	double *scratch;
	uint32_t rows;
	struct vfy_gate_result result;
};

/* ---- summaries */

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return a < b ? -1 : a > b;
}

struct vfy_fidelity vfy_fidelity_of(const struct vfy_row_distance *distances, uint32_t rows,
				    double *scratch)
{
	struct vfy_fidelity f = {.rows = rows, .correlation_min = INFINITY};
	double *kl = scratch;
	for (uint32_t i = 0; i < rows; i++) {
		const struct vfy_row_distance *d = &distances[i];
		kl[i] = d->kl;
		f.kl_mean += d->kl / rows;
		/* A row without variance, or with a NaN, correlates with nothing. */
		double correlation = isnan(d->correlation) ? -1 : d->correlation;
		f.correlation_mean += correlation / rows;
		f.correlation_min = fmin(f.correlation_min, correlation);
		f.outside_mean += d->outside / rows;
		f.undefined += d->undefined;
		if (d->best == d->other_best)
			continue;
		if (f.flips++ == 0 || d->gap > f.gap_max) {
			f.gap_max = d->gap;
			f.gap_row = i;
		}
	}
	qsort(kl, rows, sizeof *kl, ascending);
	f.kl_min = rows ? kl[0] : 0;
	f.kl_median = rows ? kl[(rows - 1) / 2] : 0;
	f.kl_max = rows ? kl[rows - 1] : 0;
	return f;
}

/* ---- tokens through the engine */

static void take_row(struct judge *j, uint32_t row, const float *logits)
{
	const struct vfy_reference *r = j->reference;
	vfy_row_compare(&r->rows, row, logits, j->n_vocab, &j->result.engine_rows[j->rows]);
	if (r->source.n) {
		vfy_row_compare_rows(&r->source, &r->rows, row, &j->result.container_rows[j->rows]);
		vfy_row_compare(&r->source, row, logits, j->n_vocab, &j->whole[j->rows]);
	}
	j->rows++;
}

/* Position of the i-th row of a prompt. */
static uint32_t position_of(const struct judge *j, uint32_t prompt, uint32_t i)
{
	const struct vfy_reference *r = j->reference;
	return r->positions ? (uint32_t)r->positions[i] : (uint32_t)r->lengths[prompt] - 1 + i;
}

static enum svc_code feed(struct judge *j, const int32_t *tokens, uint32_t pos, uint32_t n,
			  uint32_t n_logits, struct svc_err *err)
{
	struct vfy_feed step = {.tokens = tokens + pos,
				.pos = pos,
				.n = n,
				.n_logits = n_logits,
				.logits = j->logits,
				.alone = true};
	return vfy_rig_feed(j->rig, &step, err);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* All rows of a prompt, on the reference's own tokens. */
static enum svc_code run_forced(struct judge *j, uint32_t prompt, const int32_t *tokens,
				uint32_t n_rows, struct svc_err *err)
{
	uint32_t chunk = j->job->config.chunk, first = prompt * j->reference->steps;
	enum svc_code code = SVC_OK;
	for (uint32_t pos = 0, i = 0; i < n_rows && !code;) {
		uint32_t next = position_of(j, prompt, i), n = 0;
		if (pos < next) {
			n = min_u32(next - pos, chunk);
			code = feed(j, tokens, pos, n, 0, err);
			pos += n;
			continue;
		}
		while (n < chunk && i + n < n_rows && position_of(j, prompt, i + n) == pos + n)
			n++;
		code = feed(j, tokens, pos, n, n, err);
		for (uint32_t k = 0; k < n && !code; k++, i++)
			take_row(j, first + i, j->logits + (size_t)k * j->n_vocab);
		pos += n;
	}
	return code;
}

/* Own choices behind the prompt, as long as they are the reference's. */
static enum svc_code run_free(struct judge *j, uint32_t prompt, const int32_t *tokens,
			      struct svc_err *err)
{
	const struct vfy_reference *r = j->reference;
	uint32_t chunk = j->job->config.chunk, length = (uint32_t)r->lengths[prompt];
	enum svc_code code = SVC_OK;
	for (uint32_t pos = 0, n; pos + 1 < length && !code; pos += n) {
		n = min_u32(length - 1 - pos, chunk);
		code = feed(j, tokens, pos, n, 0, err);
	}
	for (uint32_t step = 0; step < r->steps && !code; step++) {
		uint32_t row = prompt * r->steps + step;
		code = feed(j, tokens, length - 1 + step, 1, 1, err);
		if (code)
			break;
		take_row(j, row, j->logits);
		int32_t wanted = tokens[length + step], ours = vfy_argmax(j->logits, j->n_vocab);
		if (ours == wanted)
			continue;
		j->result.splits[j->result.n_splits++] = (struct vfy_split){
			prompt, step, wanted, ours, j->result.engine_rows[j->rows - 1].gap};
		j->result.not_compared += r->steps - 1 - step;
		break;
	}
	return code;
}

static enum svc_code run_prompts(struct judge *j, struct svc_err *err)
{
	const struct vfy_reference *r = j->reference;
	const int32_t *at = r->prompts;
	enum svc_code code = SVC_OK;
	for (uint32_t prompt = 0; prompt < r->n_prompts && !code; prompt++) {
		uint32_t length = (uint32_t)r->lengths[prompt];
		int32_t *tokens = calloc((size_t)length + r->steps, sizeof *tokens);
		if (!tokens)
			return svc_fail_errno(err, __func__, "no memory for tokens");
		memcpy(tokens, at, length * sizeof *tokens);
		if (r->steps)
			memcpy(tokens + length, r->tokens + (size_t)prompt * r->steps,
			       r->steps * sizeof *tokens);
		vfy_rig_reset(j->rig);
		code = j->job->free_running ? run_free(j, prompt, tokens, err)
					    : run_forced(j, prompt, tokens,
							 r->positions ? r->rows.n : r->steps, err);
		free(tokens);
		at += length;
	}
	return code;
}

/* ---- the whole */

static uint32_t positions_needed(const struct vfy_reference *r)
{
	uint32_t most = 0;
	for (uint32_t i = 0; i < r->n_prompts; i++)
		most = (uint32_t)r->lengths[i] > most ? (uint32_t)r->lengths[i] : most;
	return most + r->steps;
}

static enum svc_code check(const struct judge *j, struct svc_err *err)
{
	const struct vfy_reference *r = j->reference;
	const struct vfy_rows *rows = &r->rows;
	if (!rows->ids && rows->width != j->n_vocab)
		return svc_fail(err, SVC_CONFLICT, "reference",
				"the reference's rows have %" PRIu32 " logits, the model's %" PRIu32
				": it was made with another model",
				rows->width, j->n_vocab);
	for (size_t i = 0; rows->ids && i < (size_t)rows->n * rows->width; i++)
		if (rows->ids[i] >= j->n_vocab)
			return svc_fail(err, SVC_CONFLICT, "reference",
					"the reference has token id %" PRIu32 ", the model %" PRIu32
					" tokens: it was made with another model",
					rows->ids[i], j->n_vocab);
	if (j->job->free_running && (r->positions || r->steps == 0))
		return svc_fail(err, SVC_USAGE, "reference",
				"this reference holds rows of a given text, no greedy tokens; "
				"lockstep verify same-prefix takes it");
	return SVC_OK;
}

static enum svc_code open_judge(struct judge *j, struct svc_err *err)
{
	struct vfy_config config = j->job->config;
	const struct vfy_rows *rows = &j->reference->rows;
	if (config.ctx == 0)
		config.ctx = positions_needed(j->reference);
	enum svc_code code = vfy_rig_open(&config, &j->rig, err);
	if (code)
		return code;
	j->n_vocab = vfy_rig_info(j->rig)->config.n_vocab;
	code = check(j, err);
	if (code)
		return code;
	j->logits = malloc((size_t)config.chunk * j->n_vocab * sizeof *j->logits);
	j->whole = calloc(rows->n + 1u, sizeof *j->whole);
	j->scratch = calloc(rows->n + 1u, sizeof *j->scratch);
	struct vfy_gate_result *r = &j->result;
	r->engine_rows = calloc(rows->n + 1u, sizeof *r->engine_rows);
	r->container_rows = calloc(rows->n + 1u, sizeof *r->container_rows);
	r->splits = calloc(j->reference->n_prompts, sizeof *r->splits);
	if (j->logits && j->whole && j->scratch && r->engine_rows && r->container_rows && r->splits)
		return SVC_OK;
	(void)!svc_fail_errno(err, __func__, "no memory for rows");
	return SVC_NO_MEMORY;
}

static void summarise(struct judge *j)
{
	uint32_t of_source = j->reference->source.n ? j->rows : 0;
	j->result.engine = vfy_fidelity_of(j->result.engine_rows, j->rows, j->scratch);
	j->result.container = vfy_fidelity_of(j->result.container_rows, of_source, j->scratch);
	j->result.whole = vfy_fidelity_of(j->whole, of_source, j->scratch);
}

enum svc_code vfy_gate_run(const struct vfy_gate_job *job, struct vfy_gate_result *ret_result,
			   struct svc_err *err)
{
	struct judge j = {.job = job, .reference = job->reference};
	enum svc_code code = open_judge(&j, err);
	double start = vfy_now();
	code = code ? code : run_prompts(&j, err);
	j.result.seconds = vfy_now() - start;
	if (!code)
		summarise(&j);
	vfy_rig_close(j.rig);
	free(j.logits);
	free(j.whole);
	free(j.scratch);
	if (code)
		vfy_gate_result_free(&j.result);
	else
		*ret_result = j.result;
	return code;
}

void vfy_gate_result_free(struct vfy_gate_result *result)
{
	free(result->engine_rows);
	free(result->container_rows);
	free(result->splits);
	*result = (struct vfy_gate_result){0};
}
