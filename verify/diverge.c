#include "verify/diverge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "npu-worker/kernels/attention.h"
#include "verify/capture.h"

static const char *const FAULTS[VFY_FAULT_KIND_COUNT] = {"none",   "operator", "order",	   "rope",
							 "weight", "kv",       "unsteady", "probe"};

const char *vfy_fault_name(enum vfy_fault_kind kind)
{
	return FAULTS[kind];
}

void vfy_side_family(struct vfy_side *side, const char *family)
{
	side->variant.bf16_sums = strcmp(family, "bat16") == 0;
	side->is_bat = side->variant.bf16_sums || strcmp(family, "bat") == 0;
	side->config.family = side->is_bat || strcmp(family, "seq") == 0 ? "f32-v1" : family;
	side->variant.last_layer = UINT32_MAX;
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT && side->is_bat; p++)
		side->variant.sites[p] = variant_sites_of((enum variant_primitive)p);
}

struct vfy_duel {
	struct vfy_duel_options options;
	struct vfy_rig *a, *b;
	struct vfy_state *state_a, *state_b;
	int32_t *tokens; /* [n_prompt + n_forced + 1], the last one is never fed */
};

/* ---- opening */

static enum svc_code check_shapes(const struct vfy_duel *duel, struct svc_err *err)
{
	const struct model_config *a = &vfy_rig_info(duel->a)->config;
	const struct model_config *b = &vfy_rig_info(duel->b)->config;
	if (a->n_layers != b->n_layers || a->n_vocab != b->n_vocab || a->n_embd != b->n_embd ||
	    a->n_kv_heads != b->n_kv_heads || a->head_dim != b->head_dim)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"the two models have other shapes: %" PRIu32 " and %" PRIu32
				" layers, vocabularies of %" PRIu32 " and %" PRIu32,
				a->n_layers, b->n_layers, a->n_vocab, b->n_vocab);
	return SVC_OK;
}

/* The prompt through `rig` in its ordinary arithmetic, then its own greedy choices. */
static enum svc_code run_greedy(const struct vfy_duel *duel, struct vfy_rig *rig, uint32_t start,
				struct svc_err *err)
{
	struct vfy_pass pass = {.rig = rig,
				.tokens = duel->tokens,
				.start = start,
				.n_prompt = duel->options.n_prompt,
				.n_new = start ? duel->options.n_forced + 1 : 1,
				.answer_chunk = 1};
	return vfy_pass_run(&pass, NULL, err);
}

/* The common state is made by the side whose KV type is the narrower one, b if they are equal, so
 * that it is exact in both. */
static enum svc_code make_states(struct vfy_duel *duel, struct svc_err *err)
{
	uint32_t n = duel->options.n_prompt;
	bool a_is_narrower = vfy_rig_kv_bytes(duel->a) < vfy_rig_kv_bytes(duel->b);
	struct vfy_rig *maker = a_is_narrower ? duel->a : duel->b;
	struct vfy_rig *other = a_is_narrower ? duel->b : duel->a;
	enum svc_code code = run_greedy(duel, maker, 0, err);
	if (!code)
		code = vfy_rig_copy_kv(maker, other, n, err);
	if (!code)
		code = vfy_rig_save(duel->a, &duel->state_a, err);
	if (!code)
		code = vfy_rig_save(duel->b, &duel->state_b, err);
	return code;
}

static enum svc_code flip_fault(struct vfy_rig *rig, const struct vfy_fault *f, struct svc_err *err)
{
	if (f->kind == VFY_FAULT_ROPE)
		return vfy_rig_flip_rope(rig, f->layer, f->position, f->element, err);
	if (f->kind == VFY_FAULT_WEIGHT)
		return vfy_rig_flip_weight(rig, f->layer, (enum engine_checkpoint)f->checkpoint,
					   f->tile, f->element, err);
	if (f->kind == VFY_FAULT_KV)
		return vfy_rig_flip_kv(rig, f->layer, f->part, f->position, f->element, err);
	return SVC_OK;
}

enum svc_code vfy_duel_open(const struct vfy_duel_options *options, struct vfy_duel **ret_duel,
			    struct svc_err *err)
{
	struct vfy_duel *duel = calloc(1, sizeof *duel);
	if (!duel)
		return svc_fail_errno(err, __func__, "no memory for a duel");
	duel->options = *options;
	int32_t *tokens = calloc((size_t)options->n_prompt + options->n_forced + 1, sizeof *tokens);
	duel->tokens = tokens;
	if (!tokens) {
		vfy_duel_close(duel);
		return svc_fail_errno(err, __func__, "no memory for tokens");
	}
	memcpy(tokens, options->prompt, options->n_prompt * sizeof *tokens);
	enum svc_code code = vfy_check_devices(&options->a.config, &options->b.config, err);
	code = code ? code : vfy_rig_open(&options->a.config, &duel->a, err);
	code = code ? code : vfy_rig_open(&options->b.config, &duel->b, err);
	code = code ? code : check_shapes(duel, err);
	code = code ? code : make_states(duel, err);
	code = code ? code : run_greedy(duel, duel->b, options->n_prompt, err);
	/* The first forced token comes from the state's maker, the others from b. */
	if (!code)
		*ret_duel = duel;
	else
		vfy_duel_close(duel);
	return code;
}

struct vfy_duel *vfy_duel_close(struct vfy_duel *duel)
{
	if (!duel)
		return NULL;
	vfy_rig_close(duel->a);
	vfy_rig_close(duel->b);
	vfy_state_free(duel->state_a);
	vfy_state_free(duel->state_b);
	free(duel->tokens);
	free(duel);
	return NULL;
}

const int32_t *vfy_duel_tokens(const struct vfy_duel *duel)
{
	return duel->tokens + duel->options.n_prompt;
}

const struct vfy_rig *vfy_duel_rig(const struct vfy_duel *duel)
{
	return duel->a;
}

const struct vfy_rig *vfy_duel_other_rig(const struct vfy_duel *duel)
{
	return duel->b;
}

const struct vfy_duel_options *vfy_duel_options(const struct vfy_duel *duel)
{
	return &duel->options;
}

/* ---- one pass */

static void seed(void *context, const struct engine_record *record, float *data)
{
	const struct vfy_fault *fault = context;
	uint32_t bits;
	if (record->seq != 0 || (uint32_t)record->checkpoint != fault->checkpoint ||
	    record->layer != fault->layer || record->position != fault->position ||
	    fault->element >= record->rows * record->cols)
		return;
	memcpy(&bits, data + fault->element, sizeof bits);
	bits ^= 1;
	memcpy(data + fault->element, &bits, sizeof bits);
}

/* The other primitive that can stand at a checkpoint, at that one and layer alone. */
static struct variant order_variant(const struct vfy_fault *fault)
{
	struct variant variant = {.first_layer = fault->layer, .last_layer = fault->layer};
	for (int p = 0; p < VARIANT_PRIMITIVE_COUNT; p++)
		variant.sites[p] =
			variant_sites_of((enum variant_primitive)p) & 1u << fault->checkpoint;
	return variant;
}

struct one_pass {
	struct vfy_rig *rig;
	const struct vfy_state *state;
	const struct vfy_side *side;
	uint32_t n_forced;
	bool is_second;		       /* of the side's three passes */
	struct vfy_recorder *recorder; /* NULL: no probes */
};

/* Whether the fault changes an operator's result in this pass. */
static bool seeds(const struct one_pass *one)
{
	enum vfy_fault_kind kind = one->side->fault.kind;
	return kind == VFY_FAULT_OPERATOR || (kind == VFY_FAULT_UNSTEADY && one->is_second) ||
	       (kind == VFY_FAULT_PROBE && one->recorder);
}

static enum svc_code run_pass(const struct vfy_duel *duel, const struct one_pass *one,
			      struct vfy_trace *ret_trace, double *ret_seconds, struct svc_err *err)
{
	struct vfy_fault fault = one->side->fault;
	struct variant order = order_variant(&fault);
	struct engine_hooks hooks = {.variant = one->side->is_bat ? &one->side->variant : NULL,
				     .seed_context = &fault};
	if (seeds(one))
		hooks.seed = seed;
	if (fault.kind == VFY_FAULT_ORDER)
		hooks.variant = &order;
	struct vfy_pass pass = {.rig = one->rig,
				.tokens = duel->tokens,
				.start = duel->options.n_prompt,
				.n_prompt = duel->options.n_prompt,
				.n_new = one->n_forced + 1,
				.forced = true,
				.answer_chunk = one->side->rows,
				.recorder = one->recorder,
				.hooks = &hooks};
	vfy_rig_restore(one->rig, one->state);
	enum svc_code code = flip_fault(one->rig, &fault, err);
	if (code)
		return code;
	double start = vfy_now();
	code = vfy_pass_run(&pass, ret_trace, err);
	*ret_seconds = vfy_now() - start;
	/* KV stays damaged until the state is put back. */
	if (fault.kind == VFY_FAULT_ROPE || fault.kind == VFY_FAULT_WEIGHT) {
		enum svc_code again = flip_fault(one->rig, &fault, err);
		code = code ? code : again;
	}
	return code;
}

/* Three passes of one side; the records of the third. */
static enum svc_code run_side(const struct vfy_duel *duel, struct one_pass one,
			      struct vfy_recorder *recorder, struct vfy_gate ret_gates[2],
			      double *ret_seconds, struct svc_err *err)
{
	struct vfy_trace first = {0}, second = {0}, probed = {0};
	double unused;
	enum svc_code code = run_pass(duel, &one, &first, &unused, err);
	one.is_second = true;
	code = code ? code : run_pass(duel, &one, &second, ret_seconds, err);
	one.is_second = false;
	one.recorder = recorder;
	code = code ? code : run_pass(duel, &one, &probed, &unused, err);
	if (!code) {
		ret_gates[0] = vfy_gate_of(&first, &second, duel->options.n_prompt);
		ret_gates[1] = vfy_gate_of(&first, &probed, duel->options.n_prompt);
	}
	vfy_trace_free(&first);
	vfy_trace_free(&second);
	vfy_trace_free(&probed);
	return code;
}

/* ---- comparing */

/* The prompt's KV after the passes, where both have the same type. */
static struct vfy_rest compare_rest(const struct vfy_duel *duel)
{
	const struct model_config *c = &vfy_rig_info(duel->a)->config;
	size_t bytes = vfy_rig_kv_bytes(duel->a);
	uint8_t x[KERNELS_MAX_HEAD_DIM * 4], y[sizeof x];
	struct vfy_rest rest = {0};
	if (bytes != vfy_rig_kv_bytes(duel->b))
		return rest;
	for (uint32_t position = 0; position < duel->options.n_prompt; position++)
		for (uint32_t layer = 0; layer < c->n_layers; layer++)
			for (uint32_t part = 0; part < 2 * c->n_kv_heads; part++) {
				vfy_rig_read_kv(duel->a, position, layer, part, x);
				vfy_rig_read_kv(duel->b, position, layer, part, y);
				size_t i = 0, n = c->head_dim * bytes;
				while (i < n && x[i] == y[i])
					i++;
				if (i < n)
					return (struct vfy_rest){true, position, layer, part,
								 (uint32_t)(i / bytes)};
			}
	return rest;
}

enum svc_code vfy_duel_pass_a(struct vfy_duel *duel, const struct vfy_side *side_a,
			      struct vfy_duel_passes *passes, struct svc_err *err)
{
	struct vfy_divergence *d = &passes->gates;
	struct vfy_gate gates[2];
	struct one_pass a = {.rig = duel->a,
			     .state = duel->state_a,
			     .side = side_a ? side_a : &duel->options.a,
			     .n_forced = passes->n_forced};
	vfy_recorder_clear(&passes->a);
	passes->a.step = 0;
	enum svc_code code = run_side(duel, a, &passes->a, gates, &d->seconds_a, err);
	if (code)
		return code;
	d->control_a = gates[0];
	d->probe_a = gates[1];
	d->valid = vfy_gate_holds(&d->control_a) && vfy_gate_holds(&d->probe_a) &&
		   vfy_gate_holds(&d->control_b) && vfy_gate_holds(&d->probe_b);
	d->rest = d->valid ? compare_rest(duel) : (struct vfy_rest){0};
	return SVC_OK;
}

enum svc_code vfy_duel_pass(struct vfy_duel *duel, const struct vfy_side *side_a, uint32_t n_forced,
			    struct vfy_duel_passes *ret_passes, struct svc_err *err)
{
	/* Of whole layers there is what they leave behind. */
	bool whole = vfy_rig_is_whole(duel->a) || vfy_rig_is_whole(duel->b);
	const struct vfy_selection every = {.level = whole ? VFY_LEVEL_STATE : VFY_LEVEL_ALL,
					    .last_layer = UINT32_MAX,
					    .last_position = UINT32_MAX,
					    .scores = duel->options.scores};
	struct vfy_gate gates[2];
	struct one_pass b = {.rig = duel->b,
			     .state = duel->state_b,
			     .side = &duel->options.b,
			     .n_forced = n_forced};
	*ret_passes = (struct vfy_duel_passes){
		.n_forced = n_forced,
		.a.selection = every,
		.b.selection = every,
		.gates = {.level = every.level,
			  .on_npu = vfy_rig_is_on_npu(duel->a) || vfy_rig_is_on_npu(duel->b),
			  .where_a = vfy_rig_where(duel->a),
			  .where_b = vfy_rig_where(duel->b)}};
	if (whole && every.scores)
		return svc_fail_param(err, SVC_UNSUPPORTED, "scores",
				      "--scores looks into attention, which this NPU computes with "
				      "all the rest at once; take --kernels with products alone");
	enum svc_code code =
		run_side(duel, b, &ret_passes->b, gates, &ret_passes->gates.seconds_b, err);
	if (code)
		return code;
	ret_passes->gates.control_b = gates[0];
	ret_passes->gates.probe_b = gates[1];
	return vfy_duel_pass_a(duel, side_a, ret_passes, err);
}

enum svc_code vfy_duel_compare(const struct vfy_duel_passes *passes,
			       const struct vfy_match_options *match,
			       struct vfy_divergence *ret_divergence, struct svc_err *err)
{
	struct vfy_match m = {
		.options = *match, .frame = passes->a, .drained = passes->a.count == 0};
	struct vfy_recorder b = passes->b; /* matching empties it */
	*ret_divergence = passes->gates;
	if (!passes->gates.valid)
		return SVC_OK;
	enum svc_code code = vfy_match_put(&m, &b, err);
	if (!code)
		code = vfy_match_finish(&m, err);
	ret_divergence->verdict = m.verdict;
	return code;
}

void vfy_duel_passes_free(struct vfy_duel_passes *passes)
{
	vfy_recorder_free(&passes->a);
	vfy_recorder_free(&passes->b);
}

enum svc_code vfy_duel_run(struct vfy_duel *duel, const struct vfy_side *side_a, uint32_t n_forced,
			   const struct vfy_match_options *match,
			   struct vfy_divergence *ret_divergence, struct svc_err *err)
{
	struct vfy_duel_passes passes;
	enum svc_code code = vfy_duel_pass(duel, side_a, n_forced, &passes, err);
	code = code ? code : vfy_duel_compare(&passes, match, ret_divergence, err);
	vfy_duel_passes_free(&passes);
	return code;
}
