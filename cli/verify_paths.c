/* lockstep verify histogram, prefill. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_pages.h"
#include "cli/verify_side.h"
#include "sampler/params.h"
#include "verify/histogram.h"
#include "verify/prefill.h"
#include "verify/report.h"

static const struct opt path_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file"},
	{"family", OPT_STRING, "a16-v1", 0, 0, NULL, "arithmetic family; seq and bat, too"},
	{"isa", OPT_STRING, "auto", 0, 0, NULL, "instruction set"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "compute threads; 0: one per core"},
	{"ctx", OPT_INT, "0", 0, 1 << 22, NULL, "positions; 0: as many as the tokens need"},
	{"chunk", OPT_INT, "64", 1, 512, NULL, "prompt positions per step"},
	VERIFY_DEVICE_OPTIONS,
	{0},
};

static const struct opt histogram_options[] = {
	{"tokens", OPT_INT, "64", 2, 1 << 20, NULL, "tokens behind the prompt"},
	{"neighbours", OPT_INT, "7", 1, 63, NULL, "of the batched path"},
	{"ordinary", OPT_STRING, "", 0, 0, NULL,
	 "what tokens are fed back through, if not the same: NAME=VALUE,... of family, isa, model, "
	 "threads"},
	{"temperature", OPT_REAL, "0", 0, 100, NULL, "0: greedy; else tokens are sampled"},
	{"top-k", OPT_INT, "0", 0, 1 << 30, NULL, "of sampling; 0: off"},
	{"top-p", OPT_REAL, "1", 0, 1, NULL, "of sampling; 1: off"},
	{"min-p", OPT_REAL, "0", 0, 1, NULL, "of sampling; 0: off"},
	{"repetition-penalty", OPT_REAL, "1", 0.01, 100, NULL, "of sampling; 1: off"},
	{"seed", OPT_INT, "0", 0, 0x1p53, NULL, "of sampling"},
	{"draft", OPT_INT, "8", 1, 63, NULL, "tokens of a draft, at most, on the speculative path"},
	{"html", OPT_STRING, "", 0, 0, NULL, "write a page with plots to this file, too"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static const struct opt prefill_options[] = {
	{"neighbours", OPT_INT, "0", 0, 0, NULL, "none here"},
	{"html", OPT_STRING, "", 0, 0, NULL, "write a page with plots to this file, too"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

/* ---- histogram */

static void print_histogram(const struct opt_set *options, const struct vfy_histogram *paths)
{
	const char *ordinary = opt_string(options, "ordinary");
	printf("%s, fed back through ordinary decode%s%s:\n"
	       "  %-12s %9s %8s %7s %10s %6s %6s %6s %6s  %s\n",
	       opt_string(options, "family"), *ordinary ? " of " : "", ordinary, "path",
	       "positions", "nonzero", "rate", "worst gap", "<=0.1", "<=0.5", "<=2.0", ">2.0",
	       "state and logits of plain decoding");
	for (int p = 0; p < VFY_PATH_COUNT; p++) {
		const struct vfy_histogram *h = &paths[p];
		printf("  %-12s %9" PRIu32 " %8" PRIu32 " %6.2f%% %10.4g %6" PRIu32 " %6" PRIu32
		       " %6" PRIu32 " %6" PRIu32,
		       vfy_path_name((enum vfy_path)p), h->positions, h->nonzero,
		       h->positions ? 100.0 * h->nonzero / h->positions : 0.0, h->worst,
		       h->up_to_0_1, h->up_to_0_5, h->up_to_2, h->above_2);
		if (h->identical == UINT32_MAX)
			printf("  other tokens");
		else
			printf("  %" PRIu32 "/%" PRIu32, h->identical, paths[VFY_PLAIN].identical);
		if (h->drafted)
			printf("  (%" PRIu32 " of %" PRIu32 " drafted tokens accepted)",
			       h->accepted, h->drafted);
		printf("\n");
	}
}

static json_t *histogram_json(const struct vfy_histogram *paths)
{
	json_t *object = json_object();
	for (int p = 0; p < VFY_PATH_COUNT; p++) {
		const struct vfy_histogram *h = &paths[p];
		bool same = h->identical != UINT32_MAX;
		json_object_set_new(
			object, vfy_path_name((enum vfy_path)p),
			json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o}",
				  "positions", (json_int_t)h->positions, "nonzero",
				  (json_int_t)h->nonzero, "worst", vfy_json_real(h->worst),
				  "worst_position", (json_int_t)h->worst_position, "up_to_0.1",
				  (json_int_t)h->up_to_0_1, "up_to_0.5", (json_int_t)h->up_to_0_5,
				  "up_to_2.0", (json_int_t)h->up_to_2, "above_2.0",
				  (json_int_t)h->above_2, "drafted", (json_int_t)h->drafted,
				  "accepted", (json_int_t)h->accepted, "same_tokens_as_plain", same,
				  "identical_positions",
				  same ? json_integer(h->identical) : json_null()));
	}
	return object;
}

static enum svc_code read_side(const struct opt_set *options, struct vfy_side *side,
			       int32_t **ret_prompt, uint32_t *ret_count, struct svc_err *err)
{
	enum svc_code code = verify_read_config(options, &side->config, err);
	code = code ? code
		    : verify_read_prompt(options, side->config.model, ret_prompt, ret_count, err);
	vfy_side_family(side, opt_string(options, "family"));
	return code;
}

/* Nothing differs: all gaps are 0, all streams the same with the same states and logits. */
static bool is_flat(const struct vfy_histogram *paths)
{
	bool flat = true;
	for (int p = 0; p < VFY_PATH_COUNT; p++)
		flat &= paths[p].nonzero == 0 && paths[p].identical == paths[VFY_PLAIN].identical;
	return flat;
}

/* NULL: greedy. */
static const struct body_params *read_sampling(const struct opt_set *options,
					       struct body_params *params)
{
	if (!(opt_real(options, "temperature") > 0))
		return NULL;
	smp_params_default(params);
	params->temperature = (float)opt_real(options, "temperature");
	params->top_k = (uint32_t)opt_int(options, "top-k");
	params->top_p = (float)opt_real(options, "top-p");
	params->min_p = (float)opt_real(options, "min-p");
	params->repetition_penalty = (float)opt_real(options, "repetition-penalty");
	params->seed = (uint64_t)opt_int(options, "seed");
	return params;
}

static enum svc_code show_histogram(const struct opt_set *options,
				    const struct vfy_histogram *paths, struct svc_err *err)
{
	const char *family = opt_string(options, "family"), *html = opt_string(options, "html");
	json_t *json = histogram_json(paths);
	enum svc_code code = *html ? verify_page_histogram(html, family, json, paths, err) : SVC_OK;
	if (opt_bool(options, "json"))
		verify_print_json(json_incref(json));
	else
		print_histogram(options, paths);
	json_decref(json);
	return code;
}

/* --ordinary over the side that commits; ret_text: what its strings point into. */
static enum svc_code read_ordinary(const struct opt_set *options, struct vfy_histogram_job *job,
				   struct vfy_side *ordinary, char **ret_text, struct svc_err *err)
{
	const char *text = opt_string(options, "ordinary");
	if (!*text)
		return SVC_OK;
	*ordinary = job->side;
	ordinary->config.family = opt_string(options, "family");
	job->ordinary = ordinary;
	*ret_text = strdup(text);
	return *ret_text ? verify_read_side("ordinary", *ret_text, ordinary, err)
			 : svc_fail_errno(err, __func__, "no memory for options");
}

int verify_histogram(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify histogram",
		"how far would ordinary decode have chosen otherwise, by path",
		{path_options, verify_prompt_options, histogram_options},
		false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_histogram_job job = {0};
	struct vfy_side ordinary = {0};
	struct body_params sampling = {0};
	struct vfy_histogram paths[VFY_PATH_COUNT] = {{0}};
	int32_t *prompt = NULL;
	char *text = NULL;
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = read_side(options, &job.side, &prompt, &job.n_prompt, &err);
	job.prompt = prompt;
	job.n_new = (uint32_t)opt_int(options, "tokens");
	job.draft = (uint32_t)opt_int(options, "draft");
	job.sampling = read_sampling(options, &sampling);
	if (job.side.config.ctx == 0)
		job.side.config.ctx = job.n_prompt + job.n_new;
	if (job.side.config.chunk <= job.draft)
		job.side.config.chunk = job.draft + 1;
	code = code ? code : read_ordinary(options, &job, &ordinary, &text, &err);
	code = code ? code : vfy_histogram_run(&job, paths, &err);
	code = code ? code : show_histogram(options, paths, &err);
	free(prompt);
	free(text);
	opt_free(options);
	return code ? cli_fail(&err) : is_flat(paths) ? VERIFY_SAME : VERIFY_DIFFERENT;
}

/* ---- prefill */

static enum svc_code show_prefill(const struct opt_set *options,
				  const struct vfy_prefill_result *result,
				  const struct verify_positions *positions, struct svc_err *err)
{
	const char *html = opt_string(options, "html");
	json_t *root = vfy_verdict_json(&result->verdict);
	json_object_set_new(root, "seconds_batched", vfy_json_real(result->seconds_batched));
	json_object_set_new(root, "seconds_single", vfy_json_real(result->seconds_single));
	enum svc_code code =
		*html ? verify_page_prefill(html, root, result, positions, err) : SVC_OK;
	if (opt_bool(options, "json")) {
		verify_print_json(json_incref(root));
	} else {
		vfy_verdict_print(&result->verdict, "batched vs one by one", stdout);
		printf("%" PRIu32 " positions: %.3f s batched, %.3f s one by one\n",
		       positions->room, result->seconds_batched, result->seconds_single);
	}
	json_decref(root);
	return code;
}

int verify_prefill(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify prefill",
					  "a prompt in batches of --chunk against one by one",
					  {path_options, verify_prompt_options, prefill_options},
					  false};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_side side = {0};
	struct vfy_prefill_result result = {0};
	struct verify_positions positions = {0};
	int32_t *prompt = NULL;
	uint32_t n_prompt = 0;
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = read_side(options, &side, &prompt, &n_prompt, &err);
	side.rows = side.config.chunk;
	if (side.config.ctx == 0)
		side.config.ctx = n_prompt;
	positions = (struct verify_positions){.room = n_prompt,
					      .at = calloc(n_prompt + 1u, sizeof *positions.at)};
	if (!code && !positions.at)
		code = svc_fail_errno(&err, __func__, "no memory for the positions");
	const struct vfy_match_options match = {.visit = verify_positions_visit,
						.visit_context = &positions};
	code = code ? code : vfy_prefill(&side, prompt, n_prompt, &match, &result, &err);
	code = code ? code : show_prefill(options, &result, &positions, &err);
	free(positions.at);
	free(prompt);
	opt_free(options);
	if (code)
		return cli_fail(&err);
	return vfy_verdict_is_identical(&result.verdict) ? VERIFY_SAME : VERIFY_DIFFERENT;
}
