#include "verify/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "verify/exact_attention.h"
#include "verify/rig_private.h"

/* What each operator reads. Where a model lacks one of two, the other is meant: the later counts.
 */
static uint32_t sources_of(enum engine_checkpoint checkpoint, uint32_t layer)
{
	const struct {
		enum engine_checkpoint made;
		uint32_t from;
	} table[] = {
		{ENGINE_ATTN_NORM, layer == 0 ? 1u << ENGINE_EMBED : 1u << ENGINE_AFTER_FFN},
		{ENGINE_Q_PROJ, 1u << ENGINE_ATTN_NORM},
		{ENGINE_K_PROJ, 1u << ENGINE_ATTN_NORM},
		{ENGINE_V_PROJ, 1u << ENGINE_ATTN_NORM},
		{ENGINE_Q_NORM, 1u << ENGINE_Q_PROJ},
		{ENGINE_K_NORM, 1u << ENGINE_K_PROJ},
		{ENGINE_Q_ROPE, 1u << ENGINE_Q_PROJ | 1u << ENGINE_Q_NORM},
		{ENGINE_K_ROPE, 1u << ENGINE_K_PROJ | 1u << ENGINE_K_NORM},
		{ENGINE_HEADS, 1u << ENGINE_Q_PROJ | 1u << ENGINE_Q_NORM | 1u << ENGINE_Q_ROPE},
		{ENGINE_O_PROJ, 1u << ENGINE_HEADS},
		{ENGINE_POST_ATTN_NORM, 1u << ENGINE_O_PROJ},
		{ENGINE_FFN_NORM, 1u << ENGINE_AFTER_ATTN},
		{ENGINE_GATE, 1u << ENGINE_FFN_NORM},
		{ENGINE_UP, 1u << ENGINE_FFN_NORM},
		{ENGINE_ACT, 1u << ENGINE_GATE | 1u << ENGINE_UP},
		{ENGINE_DOWN, 1u << ENGINE_ACT},
		{ENGINE_POST_FFN_NORM, 1u << ENGINE_DOWN},
		{ENGINE_FINAL_NORM, 1u << ENGINE_AFTER_FFN},
		{ENGINE_LOGITS, 1u << ENGINE_FINAL_NORM},
	};
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].made == checkpoint)
			return table[i].from;
	return 0;
}

static const float *latest_input(const struct vfy_exact *e)
{
	uint32_t sources = sources_of(e->checkpoint, e->layer);
	const float *found = NULL;
	for (uint32_t c = 0; c < ENGINE_CHECKPOINT_COUNT; c++)
		if (sources >> c & 1 && e->inputs[c])
			found = e->inputs[c];
	return found;
}

static const float *floats_of(const struct vfy_rig *rig, enum part_role role, uint32_t layer)
{
	const struct plan_part *part = plan_find(rig->plan, role, layer);
	return part ? (const float *)(const void *)(rig->region + part->offset) : NULL;
}

/* ---- operators in double */

static const float *bias_of(const struct vfy_exact *e)
{
	switch ((int)e->checkpoint) {
	case ENGINE_Q_PROJ:
		return floats_of(e->rig, PART_Q_BIAS, e->layer);
	case ENGINE_K_PROJ:
		return floats_of(e->rig, PART_K_BIAS, e->layer);
	case ENGINE_V_PROJ:
		return floats_of(e->rig, PART_V_BIAS, e->layer);
	case ENGINE_O_PROJ:
		return floats_of(e->rig, PART_O_BIAS, e->layer);
	default:
		return NULL;
	}
}

/* The matrix, and the first of its rows: some models have several of them in one. */
static const struct plan_part *matrix_of(const struct vfy_exact *e, uint32_t *ret_first)
{
	const struct model_config *c = &engine_info(e->rig->engine)->config;
	const struct plan_part *part = vfy_rig_matrix(e->rig, e->layer, e->checkpoint);
	bool of_head = e->checkpoint == ENGINE_LOGITS;
	*ret_first = 0;
	if (of_head)
		part = plan_find(e->rig->plan, PART_OUTPUT, 0);
	if (part || of_head)
		return part ? part : plan_find(e->rig->plan, PART_EMBED, 0);
	if (e->checkpoint == ENGINE_UP)
		*ret_first = c->n_ffn;
	if (e->checkpoint == ENGINE_GATE || e->checkpoint == ENGINE_UP)
		return plan_find(e->rig->plan, PART_GATE_UP, e->layer);
	if (e->checkpoint != ENGINE_Q_PROJ)
		*ret_first = model_q_width(c);
	if (e->checkpoint == ENGINE_V_PROJ)
		*ret_first += model_kv_width(c);
	return plan_find(e->rig->plan, PART_QKV, e->layer);
}

static bool multiply(const struct vfy_exact *e, const struct vfy_record *record)
{
	uint32_t first, n = record->rows * record->cols;
	const struct plan_part *part = matrix_of(e, &first);
	const float *x = latest_input(e), *bias = bias_of(e);
	double cap = (double)engine_info(e->rig->engine)->config.final_softcap;
	bool is_capped = e->checkpoint == ENGINE_LOGITS && cap > 0;
	if (!part || !x || first + n > part->rows)
		return false;
	struct kernels_matrix w = {part->type, part->rows, part->cols,
				   e->rig->region + part->offset};
	float *weights = malloc(part->cols * sizeof *weights);
	for (uint32_t row = 0; row < n && weights; row++) {
		double sum = bias ? (double)bias[row] : 0;
		kernels_dequantise_row(&w, first + row, weights);
		for (uint32_t i = 0; i < part->cols; i++)
			sum += (double)weights[i] * (double)x[i];
		e->value[row] = is_capped ? cap * tanh(sum / cap) : sum;
	}
	free(weights);
	return weights != NULL;
}

static bool normalise(const struct vfy_exact *e, const struct vfy_record *record)
{
	static const enum part_role roles[ENGINE_CHECKPOINT_COUNT] = {
		[ENGINE_ATTN_NORM] = PART_ATTN_NORM,
		[ENGINE_Q_NORM] = PART_Q_NORM,
		[ENGINE_K_NORM] = PART_K_NORM,
		[ENGINE_POST_ATTN_NORM] = PART_POST_ATTN_NORM,
		[ENGINE_FFN_NORM] = PART_FFN_NORM,
		[ENGINE_POST_FFN_NORM] = PART_POST_FFN_NORM,
		[ENGINE_FINAL_NORM] = PART_OUTPUT_NORM,
	};
	uint32_t layer = e->checkpoint == ENGINE_FINAL_NORM ? 0 : e->layer;
	const float *x = latest_input(e), *w = floats_of(e->rig, roles[e->checkpoint], layer);
	double eps = (double)engine_info(e->rig->engine)->config.norm_eps;
	if (!x || !w)
		return false;
	for (uint32_t row = 0; row < record->rows; row++) {
		const float *in = x + (size_t)row * record->cols;
		double square = 0;
		for (uint32_t i = 0; i < record->cols; i++)
			square += (double)in[i] * (double)in[i];
		double r = 1 / sqrt(square / record->cols + eps);
		for (uint32_t i = 0; i < record->cols; i++)
			e->value[(size_t)row * record->cols + i] = (double)in[i] * r * (double)w[i];
	}
	return true;
}

static bool rotate(const struct vfy_exact *e, const struct vfy_record *record)
{
	uint32_t pairs;
	const float *x = latest_input(e);
	const float *cosines = vfy_rig_rope(e->rig, e->layer, record->position, &pairs);
	bool interleaved = engine_info(e->rig->engine)->config.interleaved;
	uint32_t step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
	if (!x)
		return false;
	for (uint32_t row = 0; row < record->rows; row++) {
		const float *in = x + (size_t)row * record->cols;
		double *out = e->value + (size_t)row * record->cols;
		for (uint32_t i = 0; i < record->cols; i++)
			out[i] = (double)in[i];
		for (uint32_t i = 0; i < pairs; i++) {
			double a = (double)in[i * step], b = (double)in[i * step + other];
			double c = (double)cosines[i], s = (double)cosines[pairs + i];
			out[i * step] = a * c - b * s;
			out[i * step + other] = b * c + a * s;
		}
	}
	return true;
}

static bool activate(const struct vfy_exact *e, const struct vfy_record *record)
{
	const float *gate = e->inputs[ENGINE_GATE], *up = e->inputs[ENGINE_UP];
	bool gelu = engine_info(e->rig->engine)->config.gelu;
	if (!gate || !up)
		return false;
	for (uint32_t i = 0; i < record->cols; i++) {
		double x = (double)gate[i];
		double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
		e->value[i] = (gelu ? 0.5 * x * (1 + tanh(u)) : x / (1 + exp(-x))) * (double)up[i];
	}
	return true;
}

static bool attend(struct vfy_exact *e, const struct vfy_record *record)
{
	const float *q = latest_input(e);
	return q && vfy_exact_attention(e, record, q);
}

static bool evaluate(struct vfy_exact *e, const struct vfy_record *record)
{
	switch ((int)e->checkpoint) {
	case ENGINE_ATTN_NORM:
	case ENGINE_Q_NORM:
	case ENGINE_K_NORM:
	case ENGINE_POST_ATTN_NORM:
	case ENGINE_FFN_NORM:
	case ENGINE_POST_FFN_NORM:
	case ENGINE_FINAL_NORM:
		return normalise(e, record);
	case ENGINE_Q_ROPE:
	case ENGINE_K_ROPE:
		return rotate(e, record);
	case ENGINE_HEADS:
		return attend(e, record);
	case ENGINE_ACT:
		return activate(e, record);
	case ENGINE_Q_PROJ:
	case ENGINE_K_PROJ:
	case ENGINE_V_PROJ:
	case ENGINE_O_PROJ:
	case ENGINE_GATE:
	case ENGINE_UP:
	case ENGINE_DOWN:
	case ENGINE_LOGITS:
		return multiply(e, record);
	default:
		return false;
	}
}

/* ---- the judgement */

static void judge(struct vfy_exact *e, const struct vfy_record *record, const float *a,
		  const float *b)
{
	for (uint32_t i = 0; i < record->rows * record->cols; i++) {
		double error_a = fabs((double)a[i] - e->value[i]);
		double error_b = fabs((double)b[i] - e->value[i]);
		e->elements++;
		e->rms_error_a += error_a * error_a;
		e->rms_error_b += error_b * error_b;
		if (a[i] == b[i])
			continue;
		e->differ++;
		e->a_nearer += error_a < error_b;
		e->b_nearer += error_b < error_a;
		e->ties += error_a == error_b;
	}
}

static void keep_input(struct vfy_exact *e, const struct vfy_record *record, const void *a,
		       const void *b)
{
	float *copy = realloc(e->inputs[record->checkpoint], record->bytes);
	if (!copy) {
		e->failed = true;
		return;
	}
	memcpy(copy, a, record->bytes);
	e->inputs[record->checkpoint] = copy;
	e->same_inputs &= memcmp(a, b, record->bytes) == 0;
}

void vfy_exact_visit(void *context, const struct vfy_record *record, const void *a, const void *b)
{
	struct vfy_exact *e = context;
	if (record->checkpoint >= ENGINE_CHECKPOINT_COUNT || record->type != VFY_RECORD_F32)
		return;
	/* A layer's output is read by the next one. */
	uint32_t reader = record->layer + (record->checkpoint == ENGINE_AFTER_FFN);
	if (reader == e->layer && sources_of(e->checkpoint, e->layer) >> record->checkpoint & 1)
		keep_input(e, record, a, b);
	if (record->checkpoint != (uint32_t)e->checkpoint || record->layer != e->layer)
		return;
	double *value = realloc(e->value, (size_t)record->rows * record->cols * sizeof *value);
	if (!value) {
		e->failed = true;
		return;
	}
	e->value = value;
	if (!evaluate(e, record))
		return;
	e->decided = true;
	judge(e, record, a, b);
}

enum svc_code vfy_exact_finish(struct vfy_exact *e, struct svc_err *err)
{
	if (e->failed)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for the exact values");
	if (e->elements) {
		e->rms_error_a = sqrt(e->rms_error_a / (double)e->elements);
		e->rms_error_b = sqrt(e->rms_error_b / (double)e->elements);
	}
	return SVC_OK;
}

void vfy_exact_free(struct vfy_exact *e)
{
	for (int c = 0; c < ENGINE_CHECKPOINT_COUNT; c++)
		free(e->inputs[c]);
	free(e->value);
}
