#include "verify/speculate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/lookup.h"
#include "verify/capture.h"

struct speculator {
	const struct vfy_speculation *job;
	uint32_t n_vocab, known; /* known: prompt and committed tokens; all but the last are fed */
	float *logits;		 /* [draft + 1][n_vocab] */
	int32_t *row;		 /* [draft + 1]: what a step feeds */
	struct vfy_hash128 state;
	struct vfy_speculation_result result;
};

static enum svc_code commit(struct speculator *s, uint32_t position, const float *logits,
			    struct svc_err *err)
{
	enum svc_code code = vfy_hash_state(s->job->rig, position, &s->state, err);
	s->result.trace.state[position] = s->state;
	if (logits)
		s->result.trace.logits[position] = vfy_hash_logits(logits, s->n_vocab);
	return code;
}

static enum svc_code prefill(struct speculator *s, struct svc_err *err)
{
	const struct vfy_speculation *job = s->job;
	uint32_t chunk = vfy_rig_config(job->rig)->chunk;
	enum svc_code code = SVC_OK;
	for (uint32_t pos = 0; pos < job->n_prompt && !code; pos += chunk) {
		uint32_t left = job->n_prompt - pos, n = left < chunk ? left : chunk;
		struct vfy_feed feed = {.tokens = job->tokens + pos,
					.pos = pos,
					.n = n,
					.n_logits = n == left,
					.logits = s->logits,
					.hooks = job->hooks,
					.alone = true};
		code = vfy_rig_feed(job->rig, &feed, err);
		for (uint32_t i = 0; i < n && !code; i++)
			code = commit(s, pos + i, pos + i + 1 == job->n_prompt ? s->logits : NULL,
				      err);
	}
	s->known = job->n_prompt + 1;
	return code ? code
		    : vfy_choose(job->chooser, job->tokens, job->n_prompt,
				 (struct vfy_logits){s->logits, s->n_vocab},
				 &job->tokens[job->n_prompt], err);
}

/* One step: the last known token and a draft behind it. */
static enum svc_code step(struct speculator *s, struct svc_err *err)
{
	const struct vfy_speculation *job = s->job;
	uint32_t end = job->n_prompt + job->n_new, pos = s->known - 1;
	uint32_t room = end - s->known - 1; /* the step itself gives one more */
	s->row[0] = job->tokens[pos];
	uint32_t n = lookup_draft(job->tokens, s->known, 1, job->match,
				  room < job->draft ? room : job->draft, s->row + 1);
	struct vfy_feed feed = {.tokens = s->row,
				.pos = pos,
				.n = n + 1,
				.n_logits = n + 1,
				.logits = s->logits,
				.hooks = job->hooks,
				.alone = true};
	enum svc_code code = vfy_rig_feed(job->rig, &feed, err);
	for (uint32_t i = 0; i <= n && !code; i++) {
		const float *logits = s->logits + (size_t)i * s->n_vocab;
		int32_t next = 0;
		code = commit(s, pos + i, logits, err);
		code = code ? code
			    : vfy_choose(job->chooser, job->tokens, s->known,
					 (struct vfy_logits){logits, s->n_vocab}, &next, err);
		job->tokens[s->known++] = next;
		if (i == n || next != s->row[i + 1])
			break;
		s->result.accepted++;
	}
	s->result.steps++;
	s->result.drafted += n;
	return code;
}

static enum svc_code open_speculator(struct speculator *s, struct svc_err *err)
{
	const struct vfy_speculation *job = s->job;
	uint32_t fed = job->n_prompt + job->n_new - 1;
	if (job->n_prompt == 0 || job->n_new == 0 || fed > vfy_rig_info(job->rig)->ctx ||
	    job->draft >= vfy_rig_config(job->rig)->chunk)
		return svc_fail_param(err, SVC_USAGE, "draft",
				      "%" PRIu32 " prompt and %" PRIu32 " new tokens, drafts of "
				      "%" PRIu32 ": there must be some of each, they must fit "
				      "--ctx, and a draft --chunk less one",
				      job->n_prompt, job->n_new, job->draft);
	s->n_vocab = vfy_rig_info(job->rig)->config.n_vocab;
	s->logits = malloc((size_t)(job->draft + 1) * s->n_vocab * sizeof(float));
	s->row = calloc(job->draft + 1, sizeof *s->row);
	s->result.trace.n = fed;
	s->result.trace.state = calloc(fed, sizeof *s->result.trace.state);
	s->result.trace.logits = calloc(fed, sizeof *s->result.trace.logits);
	if (!s->logits || !s->row || !s->result.trace.state || !s->result.trace.logits)
		return svc_fail_errno(err, __func__, "no memory for logits");
	return SVC_OK;
}

enum svc_code vfy_speculate(const struct vfy_speculation *job,
			    struct vfy_speculation_result *ret_result, struct svc_err *err)
{
	struct speculator s = {.job = job};
	vfy_rig_reset(job->rig);
	enum svc_code code = open_speculator(&s, err);
	code = code ? code : prefill(&s, err);
	double start = vfy_now();
	while (!code && s.known < job->n_prompt + job->n_new)
		code = step(&s, err);
	s.result.seconds = vfy_now() - start;
	free(s.logits);
	free(s.row);
	if (code)
		vfy_trace_free(&s.result.trace);
	else
		*ret_result = s.result;
	return code;
}
