#include "verify/pass.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "npu-worker/engine/hooks.h"
#include "npu-worker/kernels/attention.h"

struct runner {
	const struct vfy_pass *pass;
	const struct engine_info *info;
	struct engine_hooks hooks;
	float *logits; /* [logits_rows][n_vocab] */
	struct vfy_trace trace;
	struct vfy_hash128 state;
};

void vfy_trace_free(struct vfy_trace *trace)
{
	free(trace->state);
	free(trace->logits);
	*trace = (struct vfy_trace){0};
}

bool vfy_gate_holds(const struct vfy_gate *gate)
{
	return gate->positions > 0 && gate->identical == gate->positions;
}

struct vfy_gate vfy_gate_of(const struct vfy_trace *a, const struct vfy_trace *b, uint32_t start)
{
	struct vfy_gate gate = {0};
	for (uint32_t i = start; i < a->n && i < b->n; i++) {
		gate.positions++;
		gate.identical += memcmp(&a->state[i], &b->state[i], sizeof *a->state) == 0 &&
				  memcmp(&a->logits[i], &b->logits[i], sizeof *a->logits) == 0;
	}
	return gate;
}

uint32_t vfy_pass_fed(const struct vfy_pass *pass)
{
	return pass->n_prompt + pass->n_new - (pass->n_new > 0);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Positions of the step that begins at pos. */
static uint32_t step_length(const struct vfy_pass *pass, uint32_t pos)
{
	uint32_t chunk = vfy_rig_config(pass->rig)->chunk;
	uint32_t prompt = pass->prompt_chunk ? min_u32(pass->prompt_chunk, chunk) : chunk;
	if (pos < pass->n_prompt)
		return min_u32(prompt, pass->n_prompt - pos);
	return min_u32(min_u32(chunk, pass->forced ? pass->answer_chunk : 1),
		       vfy_pass_fed(pass) - pos);
}

/* Of the positions pos .. pos + n - 1, how many at the end have logits. */
static uint32_t logits_wanted(const struct vfy_pass *pass, uint32_t pos, uint32_t n)
{
	uint32_t first = pass->all_logits ? 0 : pass->n_prompt - 1;
	return pos + n <= first ? 0 : pos >= first ? n : pos + n - first;
}

enum svc_code vfy_check_level(const struct vfy_rig *rig, enum vfy_level level, struct svc_err *err)
{
	if (!vfy_rig_is_whole(rig) || !vfy_level_probes(level))
		return SVC_OK;
	return svc_fail_param(
		err, SVC_UNSUPPORTED, "level",
		"level %s looks into the layers, which this NPU computes all at once: "
		"the levels hash, lean and state (keys and values of every layer) "
		"need nothing of theirs; or take --kernels with products alone",
		vfy_level_name(level));
}

static enum svc_code check_hooks(const struct vfy_pass *pass, struct svc_err *err)
{
	const struct engine_hooks *hooks = pass->hooks;
	if (vfy_rig_is_whole(pass->rig) && hooks && (hooks->seed || hooks->variant))
		return svc_fail_param(
			err, SVC_UNSUPPORTED, "fault",
			"an NPU that computes all layers at once takes no fault and no "
			"other arithmetic inside of them; rope, weight and kv faults it "
			"does");
	return pass->recorder ? vfy_check_level(pass->rig, pass->recorder->selection.level, err)
			      : SVC_OK;
}

static enum svc_code open_runner(const struct vfy_pass *pass, struct runner *r, struct svc_err *err)
{
	r->pass = pass;
	r->info = vfy_rig_info(pass->rig);
	enum svc_code code = check_hooks(pass, err);
	if (code)
		return code;
	uint32_t fed = vfy_pass_fed(pass);
	if (pass->n_prompt == 0 || fed > r->info->ctx)
		return svc_fail_param(
			err, SVC_TOO_LONG, "ctx",
			"%" PRIu32 " prompt and %" PRIu32
			" new tokens; there must be a prompt, and both must fit --ctx "
			"%" PRIu32,
			pass->n_prompt, pass->n_new, r->info->ctx);
	uint32_t rows = pass->all_logits ? vfy_rig_config(pass->rig)->chunk : pass->answer_chunk;
	rows = rows > 1 ? rows : 1;
	r->logits = malloc((size_t)rows * r->info->config.n_vocab * sizeof(float));
	r->trace.n = fed;
	r->trace.state = calloc(fed, sizeof *r->trace.state);
	r->trace.logits = calloc(fed, sizeof *r->trace.logits);
	if (!r->logits || !r->trace.state || !r->trace.logits)
		return svc_fail_errno(err, __func__, "no memory for logits");
	if (pass->hooks)
		r->hooks = *pass->hooks;
	r->hooks.probe = NULL;
	if (pass->recorder && vfy_level_probes(pass->recorder->selection.level)) {
		r->hooks.probe = vfy_recorder_probe;
		r->hooks.scores = pass->recorder->selection.scores;
		r->hooks.context = pass->recorder;
	}
	return SVC_OK;
}

enum svc_code vfy_hash_state(const struct vfy_rig *rig, uint32_t position,
			     struct vfy_hash128 *state, struct svc_err *err)
{
	const struct model_config *c = &vfy_rig_info(rig)->config;
	uint8_t vector[KERNELS_MAX_HEAD_DIM * 4];
	XXH3_state_t *hash = XXH3_createState();
	if (!hash)
		return svc_fail_errno(err, __func__, "no memory for a hash");
	XXH3_128bits_reset(hash);
	XXH3_128bits_update(hash, state, sizeof *state);
	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		for (uint32_t part = 0; part < 2 * c->n_kv_heads; part++) {
			vfy_rig_read_kv(rig, position, layer, part, vector);
			XXH3_128bits_update(hash, vector, c->head_dim * vfy_rig_kv_bytes(rig));
		}
	}
	XXH128_hash_t digest = XXH3_128bits_digest(hash);
	XXH3_freeState(hash);
	*state = (struct vfy_hash128){digest.low64, digest.high64};
	return SVC_OK;
}

struct vfy_hash128 vfy_hash_logits(const float *logits, uint32_t n)
{
	XXH128_hash_t digest = XXH3_128bits(logits, n * sizeof *logits);
	return (struct vfy_hash128){digest.low64, digest.high64};
}

static void add_record(const struct runner *r, struct vfy_record head, const void *data)
{
	struct vfy_recorder *recorder = r->pass->recorder;
	if (!recorder ||
	    !vfy_selects(&recorder->selection, head.checkpoint, head.layer, head.position))
		return;
	head.step = recorder->step;
	static const uint32_t element[VFY_RECORD_TYPE_COUNT] = {4, 2, 1};
	head.bytes = head.rows * head.cols * element[head.type];
	vfy_recorder_add(recorder, &head, data);
}

/* Where no probe sees them written. */
static void add_kv(const struct runner *r, uint32_t position)
{
	const struct model_config *c = &r->info->config;
	uint8_t vector[KERNELS_MAX_HEAD_DIM * 4];
	for (uint32_t layer = 0; layer < c->n_layers; layer++) {
		for (uint32_t part = 0; part < 2 * c->n_kv_heads; part++) {
			vfy_rig_read_kv(r->pass->rig, position, layer, part, vector);
			add_record(r,
				   (struct vfy_record){.position = position,
						       .layer = layer,
						       .checkpoint = ENGINE_KV_WRITE,
						       .part = part,
						       .type = vfy_rig_kv_bytes(r->pass->rig) == 2
								       ? VFY_RECORD_F16
								       : VFY_RECORD_F32,
						       .rows = 1,
						       .cols = c->head_dim},
				   vector);
		}
	}
}

static void add_tables(const struct runner *r, uint32_t position)
{
	const float *before = NULL;
	for (uint32_t layer = 0; layer < r->info->config.n_layers; layer++) {
		uint32_t pairs;
		const float *row = vfy_rig_rope(r->pass->rig, layer, position, &pairs);
		/* Two tables at most: layers with a window may have their own. */
		if (row == before ||
		    (before && !r->info->config.windowed[layer] && !r->info->config.windowed[0]))
			continue;
		add_record(r,
			   (struct vfy_record){.position = position,
					       .layer = layer,
					       .checkpoint = VFY_ROPE_TABLE,
					       .type = VFY_RECORD_F32,
					       .rows = 2,
					       .cols = pairs},
			   row);
		if (before)
			return;
		before = row;
	}
}

static void top_of(const float *logits, uint32_t n, uint8_t ret_bytes[VFY_TOP_COUNT * 8])
{
	uint32_t ids[VFY_TOP_COUNT], count = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (count == VFY_TOP_COUNT && !(logits[i] > logits[ids[count - 1]]))
			continue;
		uint32_t at = count < VFY_TOP_COUNT ? count++ : count - 1;
		for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
			ids[at] = ids[at - 1];
		ids[at] = i;
	}
	memset(ret_bytes, 0xff, VFY_TOP_COUNT * 8);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(ret_bytes + (size_t)4 * i, &ids[i], 4);
		memcpy(ret_bytes + (size_t)4 * (VFY_TOP_COUNT + i), &logits[ids[i]], 4);
	}
}

static void add_logits(struct runner *r, uint32_t position, const float *logits)
{
	uint32_t vocab = r->info->config.n_vocab;
	struct vfy_hash128 *hash = &r->trace.logits[position];
	*hash = vfy_hash_logits(logits, vocab);
	if (!r->pass->recorder)
		return;
	struct vfy_record head = {
		.position = position, .rows = 1, .layer = r->info->config.n_layers};
	if (!vfy_level_probes(r->pass->recorder->selection.level)) {
		head.checkpoint = VFY_LOGITS;
		head.type = VFY_RECORD_F32;
		head.cols = vocab;
		add_record(r, head, logits);
	}
	uint8_t top[VFY_TOP_COUNT * 8];
	top_of(logits, vocab, top);
	head.type = VFY_RECORD_BYTES;
	head.checkpoint = VFY_TOP;
	head.cols = sizeof top;
	add_record(r, head, top);
	head.checkpoint = VFY_LOGITS_HASH;
	head.cols = sizeof *hash;
	add_record(r, head, hash);
}

/* After the step of positions pos .. pos + n - 1. */
static enum svc_code take_step(struct runner *r, uint32_t pos, uint32_t n, uint32_t n_logits,
			       struct svc_err *err)
{
	const struct vfy_pass *pass = r->pass;
	for (uint32_t position = pos; position < pos + n; position++) {
		enum svc_code code = vfy_hash_state(pass->rig, position, &r->state, err);
		if (code)
			return code;
		r->trace.state[position] = r->state;
		struct vfy_record head = {.position = position,
					  .layer = r->info->config.n_layers,
					  .checkpoint = VFY_STATE_HASH,
					  .type = VFY_RECORD_BYTES,
					  .rows = 1,
					  .cols = sizeof r->state};
		add_record(r, head, &r->state);
		if (pass->recorder && pass->recorder->selection.level == VFY_LEVEL_STATE)
			add_kv(r, position);
		add_tables(r, position);
	}
	for (uint32_t i = 0; i < n_logits; i++)
		add_logits(r, pos + n - n_logits + i,
			   r->logits + (size_t)i * r->info->config.n_vocab);
	if (!pass->recorder || !pass->emit)
		return SVC_OK;
	enum svc_code code = vfy_recorder_finish(pass->recorder, err);
	return code ? code : pass->emit(pass->context, pass->recorder, err);
}

static enum svc_code run_step(struct runner *r, uint32_t pos, uint32_t n, struct svc_err *err)
{
	const struct vfy_pass *pass = r->pass;
	struct vfy_feed feed = {.tokens = pass->tokens + pos,
				.pos = pos,
				.n = n,
				.n_logits = logits_wanted(pass, pos, n),
				.logits = r->logits,
				.hooks = &r->hooks,
				.alone = pass->alone};
	enum svc_code code = vfy_rig_feed(pass->rig, &feed, err);
	if (!code)
		code = take_step(r, pos, n, feed.n_logits, err);
	if (!code && !pass->forced && pos + n >= pass->n_prompt &&
	    pos + n < pass->n_prompt + pass->n_new)
		code = vfy_choose(pass->chooser, pass->tokens, pos + n,
				  (struct vfy_logits){r->logits + (size_t)(feed.n_logits - 1) *
									  r->info->config.n_vocab,
						      r->info->config.n_vocab},
				  &pass->tokens[pos + n], err);
	return code;
}

enum svc_code vfy_pass_run(const struct vfy_pass *pass, struct vfy_trace *ret_trace,
			   struct svc_err *err)
{
	struct runner r = {0};
	enum svc_code code = open_runner(pass, &r, err);
	uint32_t fed = code ? 0 : vfy_pass_fed(pass);
	for (uint32_t pos = pass->start, n; pos < fed && !code; pos += n) {
		n = step_length(pass, pos);
		code = run_step(&r, pos, n, err);
		if (pass->recorder)
			pass->recorder->step++;
	}
	if (!code && pass->recorder && !pass->emit)
		code = vfy_recorder_finish(pass->recorder, err);
	free(r.logits);
	if (!code && ret_trace)
		*ret_trace = r.trace;
	else
		vfy_trace_free(&r.trace);
	return code;
}
