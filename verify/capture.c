#include "verify/capture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double vfy_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void describe(const struct vfy_capture_job *job, const struct vfy_rig *rig,
		     struct vfy_manifest *m)
{
	const struct engine_info *info = vfy_rig_info(rig);
	const char *slash = strrchr(job->config.model, '/');
	m->selection = job->selection;
	if (m->selection.last_layer >= info->config.n_layers)
		m->selection.last_layer = info->config.n_layers - 1;
	snprintf(m->model_hash, sizeof m->model_hash, "%016" PRIx64 "%016" PRIx64, info->model.high,
		 info->model.low);
	snprintf(m->model_file, sizeof m->model_file, "%s", slash ? slash + 1 : job->config.model);
	snprintf(m->family, sizeof m->family, "%s", job->config.family);
	snprintf(m->isa, sizeof m->isa, "%s", vfy_rig_where(rig));
	snprintf(m->build, sizeof m->build, "%s", LOCKSTEP_VERSION);
	m->n_layers = info->config.n_layers;
	m->n_vocab = info->config.n_vocab;
	m->chunk = job->config.chunk;
	m->neighbours = job->config.neighbours;
	m->all_logits = job->all_logits;
	m->n_prompt = job->n_prompt;
	m->n_new = job->n_new;
}

static enum svc_code check_selection(const struct vfy_capture_job *job, const struct vfy_rig *rig,
				     struct svc_err *err)
{
	const struct vfy_selection *s = &job->selection;
	uint32_t layers = vfy_rig_info(rig)->config.n_layers;
	if (s->first_layer > s->last_layer || s->first_layer >= layers)
		return svc_fail_param(err, SVC_USAGE, "layers",
				      "--layers is %" PRIu32 "-%" PRIu32
				      "; an ascending range from 0 to %" PRIu32 " is needed",
				      s->first_layer, s->last_layer, layers - 1);
	if (s->first_position > s->last_position)
		return svc_fail_param(err, SVC_USAGE, "positions",
				      "--positions is %" PRIu32 "-%" PRIu32
				      "; an ascending range is needed",
				      s->first_position, s->last_position);
	if (s->scores && s->level != VFY_LEVEL_ALL)
		return svc_fail_param(err, SVC_USAGE, "scores",
				      "--scores goes with --level all; this is level %s",
				      vfy_level_name(s->level));
	return vfy_check_level(rig, s->level, err);
}

static enum svc_code emit_to_writer(void *context, struct vfy_recorder *recorder,
				    struct svc_err *err)
{
	enum svc_code code = vfy_writer_put(context, recorder, err);
	vfy_recorder_clear(recorder);
	return code;
}

static enum svc_code run_gate(struct vfy_pass pass, const struct vfy_trace *captured,
			      struct vfy_capture_result *result, struct svc_err *err)
{
	struct vfy_trace bare = {0};
	pass.recorder = NULL;
	pass.emit = NULL;
	pass.forced = true;
	vfy_rig_reset(pass.rig);
	double start = vfy_now();
	enum svc_code code = vfy_pass_run(&pass, &bare, err);
	result->gate_seconds = vfy_now() - start;
	if (!code)
		result->gate_identical = vfy_gate_of(captured, &bare, 0).identical;
	vfy_trace_free(&bare);
	return code;
}

static enum svc_code run_capture(const struct vfy_capture_job *job, struct vfy_rig *rig,
				 struct vfy_writer *writer, struct vfy_capture_result *result,
				 struct svc_err *err)
{
	struct vfy_manifest *m = &result->manifest;
	struct vfy_recorder recorder = {.selection = m->selection};
	struct vfy_trace trace = {0};
	struct vfy_pass pass = {.rig = rig,
				.tokens = m->tokens,
				.n_prompt = m->n_prompt,
				.n_new = m->n_new,
				.all_logits = m->all_logits,
				.answer_chunk = 1,
				.recorder = &recorder,
				.emit = emit_to_writer,
				.context = writer};
	double start = vfy_now();
	enum svc_code code = vfy_pass_run(&pass, &trace, err);
	if (!code)
		code = vfy_writer_finish(writer, m, err);
	result->seconds = vfy_now() - start;
	result->fed = trace.n;
	if (!code && job->gate)
		code = run_gate(pass, &trace, result, err);
	vfy_trace_free(&trace);
	vfy_recorder_free(&recorder);
	return code;
}

enum svc_code vfy_capture(const struct vfy_capture_job *job, struct vfy_capture_result *ret_result,
			  struct svc_err *err)
{
	struct vfy_rig *rig = NULL;
	struct vfy_writer *writer = NULL;
	struct vfy_capture_result result = {0};
	enum svc_code code = vfy_rig_open(&job->config, &rig, err);
	if (!code)
		code = check_selection(job, rig, err);
	if (!code)
		code = vfy_writer_open(job->folder, &writer, err);
	if (!code) {
		describe(job, rig, &result.manifest);
		int32_t *tokens = calloc(job->n_prompt + job->n_new, sizeof *tokens);
		result.manifest.tokens = tokens;
		if (tokens) {
			memcpy(tokens, job->prompt, job->n_prompt * sizeof *tokens);
			code = run_capture(job, rig, writer, &result, err);
		} else {
			code = svc_fail_errno(err, __func__, "no memory for the tokens");
		}
	}
	vfy_writer_close(writer);
	vfy_rig_close(rig);
	if (code)
		vfy_manifest_free(&result.manifest);
	else
		*ret_result = result;
	return code;
}

/* ---- replay, compare */

static enum svc_code check_model(const struct vfy_manifest *m, const struct vfy_rig *rig,
				 struct svc_err *err)
{
	const struct engine_info *info = vfy_rig_info(rig);
	char hash[33];
	snprintf(hash, sizeof hash, "%016" PRIx64 "%016" PRIx64, info->model.high, info->model.low);
	if (m->n_layers != info->config.n_layers || m->n_vocab != info->config.n_vocab)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"the capture is of a model with %" PRIu32
				" layers and a vocabulary of %" PRIu32 "; this one has %" PRIu32
				" and %" PRIu32,
				m->n_layers, m->n_vocab, info->config.n_layers,
				info->config.n_vocab);
	if (*m->model_hash && strcmp(hash, m->model_hash) != 0)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"the capture is of the model with XXH3-128 %s (%s); this one's is "
				"%s",
				m->model_hash, m->model_file, hash);
	return SVC_OK;
}

static struct vfy_config complete_config(const struct vfy_replay_job *job,
					 const struct vfy_manifest *m)
{
	struct vfy_config config = job->config;
	config.family = config.family ? config.family : m->family;
	config.chunk = config.chunk ? config.chunk : m->chunk;
	config.ctx = config.ctx ? config.ctx : m->n_prompt + m->n_new;
	if (config.chunk < job->answer_chunk)
		config.chunk = job->answer_chunk;
	return config;
}

/* Twice without recording, and then as the caller wants it, each time from the empty state. */
static enum svc_code run_gated(const struct vfy_pass *pass, struct vfy_replay_result *result,
			       struct svc_err *err)
{
	struct vfy_trace first = {0}, second = {0}, probed = {0};
	struct vfy_pass bare = *pass;
	bare.recorder = NULL;
	bare.emit = NULL;
	enum svc_code code = vfy_pass_run(&bare, &first, err);
	vfy_rig_reset(pass->rig);
	code = code ? code : vfy_pass_run(&bare, &second, err);
	vfy_rig_reset(pass->rig);
	code = code ? code : vfy_pass_run(pass, &probed, err);
	result->control = vfy_gate_of(&first, &second, 0);
	result->probe = vfy_gate_of(&first, &probed, 0);
	vfy_trace_free(&first);
	vfy_trace_free(&second);
	vfy_trace_free(&probed);
	return code;
}

static enum svc_code run_replay(const struct vfy_replay_job *job, struct vfy_reader *reader,
				struct vfy_rig *rig, struct vfy_replay_result *result,
				struct svc_err *err)
{
	const struct vfy_manifest *m = vfy_reader_manifest(reader);
	struct vfy_recorder recorder = {.selection = m->selection};
	struct vfy_match match = {.options = job->match, .a = reader};
	struct vfy_pass pass = {.rig = rig,
				.tokens = m->tokens,
				.n_prompt = m->n_prompt,
				.n_new = m->n_new,
				.forced = true,
				.all_logits = m->all_logits,
				.answer_chunk = job->answer_chunk,
				.recorder = &recorder,
				.emit = vfy_match_put,
				.context = &match};
	enum svc_code code =
		job->gates ? run_gated(&pass, result, err) : vfy_pass_run(&pass, NULL, err);
	if (!code)
		code = vfy_match_finish(&match, err);
	result->verdict = match.verdict;
	vfy_match_free(&match);
	vfy_recorder_free(&recorder);
	return code;
}

enum svc_code vfy_replay(const struct vfy_replay_job *job, struct vfy_replay_result *ret_result,
			 struct svc_err *err)
{
	struct vfy_reader *reader = NULL;
	struct vfy_rig *rig = NULL;
	struct vfy_replay_result result = {0};
	enum svc_code code = vfy_reader_open(job->folder, &reader, err);
	if (code)
		return code;
	const struct vfy_manifest *m = vfy_reader_manifest(reader);
	result.config = complete_config(job, m);
	result.n_new = m->n_new;
	code = vfy_rig_open(&result.config, &rig, err);
	if (!code)
		code = check_model(m, rig, err);
	if (!code)
		code = run_replay(job, reader, rig, &result, err);
	if (!code) {
		snprintf(result.where, sizeof result.where, "%s", vfy_rig_where(rig));
		*ret_result = result;
	}
	vfy_rig_close(rig);
	vfy_reader_close(reader);
	return code;
}

static enum svc_code check_tokens(const struct vfy_manifest *a, const struct vfy_manifest *b,
				  struct svc_err *err)
{
	uint32_t n = a->n_prompt + a->n_new;
	if (n != b->n_prompt + b->n_new || memcmp(a->tokens, b->tokens, n * sizeof *a->tokens) != 0)
		return svc_fail(err, SVC_CONFLICT, __func__,
				"the captures are of different tokens (%" PRIu32 " and %" PRIu32
				"): force one's tokens in the other",
				n, b->n_prompt + b->n_new);
	return SVC_OK;
}

enum svc_code vfy_compare_captures(const char *a, const char *b,
				   const struct vfy_match_options *options,
				   struct vfy_verdict *ret_verdict, struct svc_err *err)
{
	struct vfy_reader *left = NULL, *right = NULL;
	struct vfy_recorder frame = {0};
	enum svc_code code = vfy_reader_open(a, &left, err);
	if (!code)
		code = vfy_reader_open(b, &right, err);
	if (!code)
		code = check_tokens(vfy_reader_manifest(left), vfy_reader_manifest(right), err);
	if (!code) {
		struct vfy_match match = {.options = *options, .a = left};
		do {
			code = vfy_reader_next(right, &frame, err);
			if (code || frame.count == 0)
				break;
			code = vfy_match_put(&match, &frame, err);
		} while (!code);
		if (!code)
			code = vfy_match_finish(&match, err);
		*ret_verdict = match.verdict;
		vfy_match_free(&match);
	}
	vfy_recorder_free(&frame);
	vfy_reader_close(left);
	vfy_reader_close(right);
	return code;
}
