/* lockstep verify floats, capture, replay, compare. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_side.h"
#include "verify/capture.h"
#include "verify/report.h"

/* ---- floats */

static const struct opt floats_options[] = {
	{"dtype", OPT_CHOICE, "f32", 0, 0, "f32|bf16|f16", "type of the numbers, little-endian"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

/* The whole file; the caller frees. */
static enum svc_code read_file(const char *path, size_t element, void **ret_bytes,
			       uint64_t *ret_count, struct svc_err *err)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		return svc_fail_errno(err, __func__, "can't open %s", path);
	enum svc_code code = SVC_OK;
	long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
	void *bytes = size < 0 ? NULL : malloc((size_t)size + 1);
	rewind(file);
	if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
		code = svc_fail_errno(err, __func__, "can't read %s", path);
	else if ((size_t)size % element)
		code = svc_fail(err, SVC_INVALID, __func__,
				"%s has %ld bytes, which isn't a multiple of %zu", path, size,
				element);
	fclose(file);
	if (code) {
		free(bytes);
		return code;
	}
	*ret_bytes = bytes;
	*ret_count = (size_t)size / element;
	return SVC_OK;
}

static enum svc_code compare_files(const char *path_a, const char *path_b, enum vfy_dtype dtype,
				   struct vfy_diff *ret_diff, struct svc_err *err)
{
	void *a = NULL, *b = NULL;
	struct vfy_array left = {.dtype = dtype, .n_dims = 1}, right = left;
	size_t element = vfy_dtype_bytes(dtype);
	enum svc_code code = read_file(path_a, element, &a, &left.dims[0], err);
	if (!code)
		code = read_file(path_b, element, &b, &right.dims[0], err);
	left.data = a;
	right.data = b;
	if (!code)
		code = vfy_compare(&left, &right, ret_diff, err);
	free(a);
	free(b);
	return code;
}

int verify_floats(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify floats A B",
					  "compares two files of raw numbers; B is the reference",
					  {floats_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_diff diff = {0};
	enum vfy_dtype dtype = VFY_F32;
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	const char *a = opt_positional(options, 0), *b = opt_positional(options, 1);
	enum svc_code code;
	if (!a || !b || !vfy_dtype_parse(opt_string(options, "dtype"), &dtype))
		code = svc_fail(&err, SVC_USAGE, __func__, "usage: lockstep verify floats A B");
	else
		code = compare_files(a, b, dtype, &diff, &err);
	if (!code && opt_bool(options, "json"))
		verify_print_json(vfy_diff_json(&diff, dtype));
	else if (!code)
		vfy_diff_print(&diff, dtype, "", stdout);
	opt_free(options);
	if (code)
		return cli_fail(&err);
	return diff.mismatches ? VERIFY_DIFFERENT : VERIFY_SAME;
}

/* ---- capture */

static const struct opt capture_options[] = {
	{"tokens", OPT_INT, "32", 0, 1 << 22, NULL, "greedy tokens behind the prompt"},
	{"level", OPT_CHOICE, "lean", 0, 0, "hash|lean|state|layers|all", "how much is recorded"},
	{"layers", OPT_STRING, "all", 0, 0, NULL, "layers to record: 3, 0-5 or all"},
	{"positions", OPT_STRING, "all", 0, 0, NULL, "positions to record: 3, 0-5 or all"},
	{"all-logits", OPT_BOOL, "false", 0, 0, NULL, "logits of prompt positions, too"},
	{"scores", OPT_BOOL, "false", 0, 0, NULL, "level all: attention's scores, too"},
	{"gate", OPT_BOOL, "true", 0, 0, NULL,
	 "run again without recording and compare all states and logits"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static enum svc_code read_capture(const struct opt_set *options, struct vfy_capture_job *job,
				  int32_t **ret_prompt, struct svc_err *err)
{
	struct vfy_selection *s = &job->selection;
	job->folder = opt_positional(options, 0);
	if (!job->folder || opt_positional_count(options) > 1)
		return svc_fail(err, SVC_USAGE, __func__,
				"usage: lockstep verify capture FOLDER --model FILE ...");
	vfy_level_parse(opt_string(options, "level"), &s->level);
	enum svc_code code = verify_read_config(options, &job->config, err);
	code = code ? code
		    : verify_read_range("layers", opt_string(options, "layers"), &s->first_layer,
					&s->last_layer, err);
	code = code ? code
		    : verify_read_range("positions", opt_string(options, "positions"),
					&s->first_position, &s->last_position, err);
	code = code ? code
		    : verify_read_prompt(options, job->config.model, ret_prompt, &job->n_prompt,
					 err);
	if (code)
		return code;
	job->prompt = *ret_prompt;
	job->n_new = (uint32_t)opt_int(options, "tokens");
	job->all_logits = opt_bool(options, "all-logits");
	s->scores = opt_bool(options, "scores");
	job->gate = opt_bool(options, "gate");
	if (job->config.ctx == 0)
		job->config.ctx = job->n_prompt + job->n_new;
	return SVC_OK;
}

static bool gate_holds(const struct vfy_capture_job *job, const struct vfy_capture_result *r)
{
	return !job->gate || r->gate_identical == r->fed;
}

static void print_capture(const struct vfy_capture_job *job, const struct vfy_capture_result *r)
{
	const struct vfy_manifest *m = &r->manifest;
	printf("%s: %" PRIu32 " prompt and %" PRIu32 " new tokens, %s, %s on %s, level %s\n",
	       job->folder, m->n_prompt, m->n_new, m->model_file, m->family, m->isa,
	       vfy_level_name(m->selection.level));
	printf("%" PRIu64 " records in %" PRIu64 " frames: %" PRIu64 " bytes, %" PRIu64
	       " stored; %.1f s\n",
	       m->n_records, m->n_frames, m->raw_bytes, m->stored_bytes, r->seconds);
	if (job->gate)
		printf("PROBE: %" PRIu32 "/%" PRIu32
		       " positions have the same state and logits without recording: %s\n",
		       r->gate_identical, r->fed, gate_holds(job, r) ? "PASS" : "FAIL");
}

static json_t *capture_json(const struct vfy_capture_job *job, const struct vfy_capture_result *r)
{
	json_t *gate = job->gate ? json_pack("{s:b, s:I, s:I}", "pass", gate_holds(job, r),
					     "positions", (json_int_t)r->fed, "identical",
					     (json_int_t)r->gate_identical)
				 : json_null();
	return json_pack("{s:o, s:o, s:o}", "manifest", vfy_manifest_json(&r->manifest), "probe",
			 gate, "seconds", vfy_json_real(r->seconds));
}

int verify_capture(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify capture FOLDER",
		"runs a prompt and records what was computed",
		{verify_engine_options, verify_prompt_options, capture_options},
		true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_capture_job job = {0};
	struct vfy_capture_result result = {0};
	int32_t *prompt = NULL;
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = read_capture(options, &job, &prompt, &err);
	if (!code)
		code = vfy_capture(&job, &result, &err);
	if (!code && opt_bool(options, "json"))
		verify_print_json(capture_json(&job, &result));
	else if (!code)
		print_capture(&job, &result);
	bool holds = gate_holds(&job, &result);
	vfy_manifest_free(&result.manifest);
	free(prompt);
	opt_free(options);
	if (code)
		return cli_fail(&err);
	return holds ? VERIFY_SAME : VERIFY_DIFFERENT;
}

/* ---- replay, compare */

static const struct opt replay_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file"},
	{"family", OPT_STRING, "", 0, 0, NULL, "arithmetic family; none: the capture's"},
	{"isa", OPT_STRING, "auto", 0, 0, NULL, "instruction set"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "compute threads; 0: one per core"},
	{"ctx", OPT_INT, "0", 0, 1 << 22, NULL, "positions; 0: as many as the capture needs"},
	{"chunk", OPT_INT, "0", 0, 512, NULL, "prompt positions per step; 0: the capture's"},
	{"answer-chunk", OPT_INT, "1", 1, 512, NULL, "positions behind the prompt per step"},
	{"neighbours", OPT_INT, "0", 0, 63, NULL, "other sequences that share every step"},
	VERIFY_DEVICE_OPTIONS,
	{0},
};

static const struct opt match_options[] = {
	{"layers", OPT_STRING, "all", 0, 0, NULL, "compare only the first N layers; or all"},
	{"rel", OPT_REAL, "0", 0, 1e9, NULL,
	 "name the first record whose relative L2 exceeds this, too; 0: don't"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static enum svc_code read_match(const struct opt_set *options, struct vfy_match_options *ret,
				struct svc_err *err)
{
	ret->rel = opt_real(options, "rel");
	return verify_read_depth(opt_string(options, "layers"), &ret->depth, err);
}

static int show_verdict(const struct vfy_verdict *verdict, const char *title, bool json)
{
	if (json)
		verify_print_json(vfy_verdict_json(verdict));
	else
		vfy_verdict_print(verdict, title, stdout);
	return vfy_verdict_is_identical(verdict) ? VERIFY_SAME : VERIFY_DIFFERENT;
}

static enum svc_code read_replay(const struct opt_set *options, struct vfy_replay_job *job,
				 struct svc_err *err)
{
	job->folder = opt_positional(options, 0);
	if (!job->folder || opt_positional_count(options) > 1)
		return svc_fail(err, SVC_USAGE, __func__,
				"usage: lockstep verify replay CAPTURE --model FILE ...");
	enum svc_code code = verify_read_config(options, &job->config, err);
	if (!*opt_string(options, "family"))
		job->config.family = NULL;
	job->answer_chunk = (uint32_t)opt_int(options, "answer-chunk");
	return code ? code : read_match(options, &job->match, err);
}

int verify_replay(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify replay CAPTURE",
					  "runs a capture's tokens again and compares every record",
					  {replay_options, match_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_replay_job job = {0};
	struct vfy_replay_result result = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	enum svc_code code = read_replay(options, &job, &err);
	if (!code)
		code = vfy_replay(&job, &result, &err);
	if (!code)
		status = show_verdict(&result.verdict, "replay", opt_bool(options, "json"));
	opt_free(options);
	return code ? cli_fail(&err) : status;
}

int verify_compare(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify compare A B",
					  "two captures of the same tokens",
					  {match_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct vfy_match_options match = {0};
	struct vfy_verdict verdict = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	const char *a = opt_positional(options, 0), *b = opt_positional(options, 1);
	enum svc_code code =
		a && b ? read_match(options, &match, &err)
		       : svc_fail(&err, SVC_USAGE, __func__, "usage: lockstep verify compare A B");
	if (!code)
		code = vfy_compare_captures(a, b, &match, &verdict, &err);
	if (!code)
		status = show_verdict(&verdict, "compare", opt_bool(options, "json"));
	opt_free(options);
	return code ? cli_fail(&err) : status;
}
