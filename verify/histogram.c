#include "verify/histogram.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "verify/speculate.h"

static const char *const PATHS[VFY_PATH_COUNT] = {"plain", "batched", "speculative", "replayed"};

const char *vfy_path_name(enum vfy_path path)
{
	return PATHS[path];
}

struct teller {
	const struct vfy_histogram_job *job;
	struct vfy_rig *rig, *other; /* other: of another ordinary decode, or NULL */
	struct vfy_chooser *chooser; /* NULL: greedy */
	struct engine_hooks hooks, other_hooks;
	int32_t *tokens; /* [n_prompt + n_new], of the path at hand */
	int32_t *plain;	 /* likewise, of plain decoding */
	struct vfy_trace trace, plain_trace;
	struct vfy_histogram *now;
};

static struct vfy_pass pass_of(struct teller *t)
{
	return (struct vfy_pass){.rig = t->rig,
				 .tokens = t->tokens,
				 .n_prompt = t->job->n_prompt,
				 .n_new = t->job->n_new,
				 .chooser = t->chooser,
				 .alone = true,
				 .answer_chunk = 1,
				 .hooks = &t->hooks};
}

/* ---- the paths: each fills t->tokens and t->trace, from the empty state */

static enum svc_code run_pass(struct teller *t, bool alone, struct svc_err *err)
{
	struct vfy_pass pass = pass_of(t);
	pass.alone = alone;
	return vfy_pass_run(&pass, &t->trace, err);
}

static enum svc_code run_replayed(struct teller *t, struct svc_err *err)
{
	struct vfy_pass pass = pass_of(t);
	uint32_t half = t->job->n_new / 2;
	pass.n_new = half + 1;
	enum svc_code code = vfy_pass_run(&pass, NULL, err);
	vfy_rig_reset(t->rig);
	pass.n_prompt += half;
	pass.n_new = t->job->n_new - half;
	return code ? code : vfy_pass_run(&pass, &t->trace, err);
}

static enum svc_code run_speculative(struct teller *t, struct svc_err *err)
{
	struct vfy_speculation job = {.rig = t->rig,
				      .hooks = &t->hooks,
				      .tokens = t->tokens,
				      .chooser = t->chooser,
				      .n_prompt = t->job->n_prompt,
				      .n_new = t->job->n_new,
				      .draft = t->job->draft,
				      .match = 3};
	struct vfy_speculation_result result;
	enum svc_code code = vfy_speculate(&job, &result, err);
	if (code)
		return code;
	t->trace = result.trace;
	t->now->drafted = result.drafted;
	t->now->accepted = result.accepted;
	return SVC_OK;
}

static enum svc_code run_path(struct teller *t, enum vfy_path path, struct svc_err *err)
{
	vfy_rig_reset(t->rig);
	vfy_chooser_start(t->chooser, t->job->prompt, t->job->n_prompt);
	memcpy(t->tokens, t->job->prompt, t->job->n_prompt * sizeof *t->tokens);
	if (path == VFY_SPECULATIVE)
		return run_speculative(t, err);
	return path == VFY_REPLAYED ? run_replayed(t, err) : run_pass(t, path == VFY_PLAIN, err);
}

/* ---- feeding back */

static void count_gap(struct vfy_histogram *h, bool same, double gap, uint32_t position)
{
	h->positions++;
	if (same)
		return;
	h->nonzero++;
	h->up_to_0_1 += gap <= 0.1;
	h->up_to_0_5 += gap > 0.1 && gap <= 0.5;
	h->up_to_2 += gap > 0.5 && gap <= 2.0;
	h->above_2 += gap > 2.0;
	if (gap > h->worst) {
		h->worst = gap;
		h->worst_position = position;
	}
}

/* A pass's emit function. */
static enum svc_code take_gaps(void *context, struct vfy_recorder *recorder, struct svc_err *err)
{
	struct teller *t = context;
	enum svc_code code = SVC_OK;
	for (size_t i = 0; i < recorder->count && !code; i++) {
		const void *data;
		const struct vfy_record *record = vfy_recorder_at(recorder, i, &data);
		if (record->checkpoint != VFY_LOGITS)
			continue;
		const float *logits = data;
		uint32_t at = record->position + 1;
		int32_t committed = t->tokens[at], chosen = committed;
		code = vfy_choose(t->chooser, t->tokens, at,
				  (struct vfy_logits){logits, record->cols}, &chosen, err);
		count_gap(t->now, chosen == committed || logits[chosen] == logits[committed],
			  fabs((double)logits[chosen] - (double)logits[committed]), at);
	}
	vfy_recorder_clear(recorder);
	return code;
}

static enum svc_code feed_back(struct teller *t, struct svc_err *err)
{
	struct vfy_recorder recorder = {
		.selection = {VFY_LEVEL_LEAN, 0, UINT32_MAX, 0, UINT32_MAX, false}};
	struct vfy_pass pass = pass_of(t);
	if (t->other) {
		pass.rig = t->other;
		pass.hooks = &t->other_hooks;
	}
	pass.forced = true;
	pass.recorder = &recorder;
	pass.emit = take_gaps;
	pass.context = t;
	vfy_rig_reset(pass.rig);
	vfy_chooser_start(t->chooser, t->job->prompt, t->job->n_prompt);
	enum svc_code code = vfy_pass_run(&pass, NULL, err);
	vfy_recorder_free(&recorder);
	return code;
}

/* Positions with plain decoding's own state and, where both have some, logits. */
static uint32_t count_identical(const struct teller *t)
{
	const struct vfy_hash128 none = {0, 0};
	uint32_t n = 0;
	for (uint32_t i = 0; i < t->trace.n && i < t->plain_trace.n; i++) {
		const struct vfy_hash128 *a = &t->trace.logits[i], *b = &t->plain_trace.logits[i];
		bool both =
			memcmp(a, &none, sizeof none) != 0 && memcmp(b, &none, sizeof none) != 0;
		n += memcmp(&t->trace.state[i], &t->plain_trace.state[i], sizeof none) == 0 &&
		     (!both || memcmp(a, b, sizeof none) == 0);
	}
	return n;
}

static enum svc_code tell(struct teller *t, enum vfy_path path, struct svc_err *err)
{
	size_t bytes = (t->job->n_prompt + t->job->n_new) * sizeof *t->tokens;
	enum svc_code code = run_path(t, path, err);
	if (code)
		return code;
	if (path == VFY_PLAIN) {
		memcpy(t->plain, t->tokens, bytes);
		t->plain_trace = t->trace;
	}
	bool same_stream = memcmp(t->plain, t->tokens, bytes) == 0;
	t->now->identical = same_stream ? count_identical(t) : UINT32_MAX;
	if (path != VFY_PLAIN)
		vfy_trace_free(&t->trace);
	return feed_back(t, err);
}

static enum svc_code open_engines(struct teller *t, struct svc_err *err)
{
	const struct vfy_side *side = &t->job->side, *other = t->job->ordinary;
	enum svc_code code = other ? vfy_check_devices(&side->config, &other->config, err) : SVC_OK;
	code = code ? code : vfy_rig_open(&side->config, &t->rig, err);
	if (!code && other)
		code = vfy_rig_open(&other->config, &t->other, err);
	if (code)
		return code;
	uint32_t n_vocab = vfy_rig_info(t->rig)->config.n_vocab;
	t->hooks.variant = side->is_bat ? &side->variant : NULL;
	t->other_hooks.variant = other && other->is_bat ? &other->variant : NULL;
	if (other && vfy_rig_info(t->other)->config.n_vocab != n_vocab)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"%s has %" PRIu32 " logits, %s %" PRIu32
				": tokens of one can't be fed to the other",
				side->config.model, n_vocab, other->config.model,
				vfy_rig_info(t->other)->config.n_vocab);
	return t->job->sampling ? vfy_chooser_open(t->job->sampling, n_vocab, &t->chooser, err)
				: SVC_OK;
}

static void close_teller(struct teller *t)
{
	vfy_trace_free(&t->plain_trace);
	vfy_chooser_close(t->chooser);
	vfy_rig_close(t->rig);
	vfy_rig_close(t->other);
	free(t->tokens);
	free(t->plain);
}

enum svc_code vfy_histogram_run(const struct vfy_histogram_job *job,
				struct vfy_histogram ret_paths[VFY_PATH_COUNT], struct svc_err *err)
{
	struct vfy_histogram paths[VFY_PATH_COUNT] = {{0}};
	size_t n = (size_t)job->n_prompt + job->n_new;
	struct teller t = {.job = job,
			   .tokens = calloc(n, sizeof *t.tokens),
			   .plain = calloc(n, sizeof *t.plain)};
	if (!t.tokens || !t.plain) {
		close_teller(&t);
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for %zu tokens", n);
	}
	enum svc_code code = open_engines(&t, err);
	for (int path = 0; path < VFY_PATH_COUNT && !code; path++) {
		t.now = &paths[path];
		code = tell(&t, (enum vfy_path)path, err);
	}
	if (!code)
		memcpy(ret_paths, paths, sizeof paths);
	close_teller(&t);
	return code;
}
