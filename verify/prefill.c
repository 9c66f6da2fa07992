#include "verify/prefill.h"

#include <stdlib.h>
#include <string.h>

#include "npu-worker/engine/hooks.h"
#include "verify/capture.h"

static enum svc_code run(struct vfy_pass *pass, uint32_t chunk, struct vfy_recorder *recorder,
			 double *ret_seconds, struct svc_err *err)
{
	pass->prompt_chunk = chunk;
	pass->recorder = recorder;
	vfy_rig_reset(pass->rig);
	double start = vfy_now();
	enum svc_code code = vfy_pass_run(pass, NULL, err);
	*ret_seconds = vfy_now() - start;
	return code;
}

static enum svc_code compare(struct vfy_pass *pass, uint32_t rows,
			     const struct vfy_match_options *options,
			     struct vfy_prefill_result *result, struct svc_err *err)
{
	const struct vfy_selection lean = {VFY_LEVEL_LEAN, 0, UINT32_MAX, 0, UINT32_MAX, false};
	struct vfy_recorder batched = {.selection = lean}, single = {.selection = lean};
	enum svc_code code = run(pass, rows, &batched, &result->seconds_batched, err);
	code = code ? code : run(pass, 1, &single, &result->seconds_single, err);
	if (!code) {
		struct vfy_match match = {.options = *options, .frame = batched};
		code = vfy_match_put(&match, &single, err);
		code = code ? code : vfy_match_finish(&match, err);
		result->verdict = match.verdict;
	}
	vfy_recorder_free(&batched);
	vfy_recorder_free(&single);
	return code;
}

enum svc_code vfy_prefill(const struct vfy_side *side, const int32_t *prompt, uint32_t n_prompt,
			  const struct vfy_match_options *match,
			  struct vfy_prefill_result *ret_result, struct svc_err *err)
{
	struct vfy_prefill_result result = {0};
	struct engine_hooks hooks = {.variant = side->is_bat ? &side->variant : NULL};
	struct vfy_pass pass = {.n_prompt = n_prompt,
				.forced = true,
				.all_logits = true,
				.alone = true,
				.answer_chunk = 1,
				.hooks = &hooks};
	enum svc_code code = vfy_rig_open(&side->config, &pass.rig, err);
	if (code)
		return code;
	int32_t *tokens = calloc(n_prompt, sizeof *tokens);
	pass.tokens = tokens;
	if (tokens) {
		memcpy(tokens, prompt, n_prompt * sizeof *tokens);
		code = compare(&pass, side->rows, match, &result, err);
	} else {
		code = svc_fail_errno(err, __func__, "no memory for tokens");
	}
	free(tokens);
	vfy_rig_close(pass.rig);
	if (!code)
		*ret_result = result;
	return code;
}
