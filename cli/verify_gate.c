/* lockstep verify greedy, same-prefix, attribution: the engine against a reference's logits. */
#include <inttypes.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_pages.h"
#include "cli/verify_side.h"
#include "model/folder.h"
#include "model/gguf.h"
#include "verify/gate.h"
#include "verify/report.h"

enum gate_kind { GATE_GREEDY, GATE_SAME_PREFIX, GATE_ATTRIBUTION };

static const struct opt gate_options[] = {
	{"model", OPT_STRING, "", 0, 0, NULL, "GGUF file, or folder"},
	{"family", OPT_STRING, "a16-v1", 0, 0, NULL, "arithmetic family"},
	{"isa", OPT_STRING, "auto", 0, 0, NULL, "instruction set"},
	{"threads", OPT_INT, "0", 0, 256, NULL, "compute threads; 0: one per core"},
	{"ctx", OPT_INT, "0", 0, 1 << 22, NULL, "positions; 0: as many as the tokens need"},
	{"chunk", OPT_INT, "64", 1, 512, NULL, "positions per step"},
	{"neighbours", OPT_INT, "0", 0, 0, NULL, "none here"},
	VERIFY_DEVICE_OPTIONS,
	{"any-model", OPT_BOOL, "false", 0, 0, NULL,
	 "don't hold the model file's SHA-256 against the reference's"},
	{"html", OPT_STRING, "", 0, 0, NULL, "write a page with plots to this file, too"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

static const struct opt limit_options[] = {
	{"mean-kl", OPT_REAL, "0.00085", 0, 1e9, NULL, "largest mean KL, in nats, that passes"},
	{"max-kl", OPT_REAL, "1e9", 0, 1e9, NULL, "largest KL of a row that passes"},
	{"correlation", OPT_REAL, "0.999", -1, 1, NULL, "least correlation of a row that passes"},
	{"gap", OPT_REAL, "0", 0, 1e9, NULL,
	 "other argmaxes pass where the reference's two largest logits are this near"},
	{"container-kl", OPT_REAL, "1e9", 0, 1e9, NULL,
	 "attribution: largest mean KL between the source and the container"},
	{0},
};

struct gate_run {
	enum gate_kind kind;
	const struct opt_set *options;
	struct vfy_reference *reference;
	struct vfy_gate_result result;
	bool passes;
};

/* ---- the reference is of this model */

static void hash_model(struct span bytes, char ret_hex[65])
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	SHA256((const unsigned char *)bytes.ptr, bytes.len, digest);
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(ret_hex + 2 * i, 3, "%02x", digest[i]);
}

/* A folder has no file of its own whose hash a reference could name. */
static enum svc_code check_model(const char *path, const char *wanted, struct svc_err *err)
{
	struct gguf *gguf = NULL;
	char hex[65];
	if (!*wanted || folder_is(path))
		return SVC_OK;
	enum svc_code code = gguf_open(path, &gguf, err);
	if (code)
		return code;
	hash_model(gguf_bytes(gguf), hex);
	gguf_close(gguf);
	return strcmp(hex, wanted) == 0
		       ? SVC_OK
		       : svc_fail(err, SVC_CONFLICT, "reference",
				  "the reference was made from a model with SHA-256 %s; %s has %s "
				  "(--any-model goes on all the same)",
				  wanted, path, hex);
}

/* ---- verdict */

static bool within(const struct opt_set *options, const struct vfy_fidelity *f)
{
	return f->rows > 0 && f->undefined == 0 && f->kl_mean <= opt_real(options, "mean-kl") &&
	       f->kl_max <= opt_real(options, "max-kl") &&
	       f->correlation_min >= opt_real(options, "correlation") &&
	       (f->flips == 0 || f->gap_max <= opt_real(options, "gap"));
}

static void judge(struct gate_run *run)
{
	const struct vfy_gate_result *r = &run->result;
	run->passes = within(run->options, &r->engine);
	for (uint32_t i = 0; i < r->n_splits; i++)
		run->passes &= r->splits[i].gap <= opt_real(run->options, "gap");
	if (run->kind == GATE_ATTRIBUTION)
		run->passes &= r->container.kl_mean <= opt_real(run->options, "container-kl");
}

static void print_fidelity(const char *title, const struct vfy_fidelity *f)
{
	printf("%s: %" PRIu32 " rows, KL mean %.3e, median %.3e, max %.3e; correlation mean %.9f, "
	       "min %.9f; %" PRIu32 " argmax differences",
	       title, f->rows, f->kl_mean, f->kl_median, f->kl_max, f->correlation_mean,
	       f->correlation_min, f->flips);
	if (f->flips)
		printf(" (largest gap %.3g, row %" PRIu32 ")", f->gap_max, f->gap_row);
	if (f->undefined)
		printf("; %" PRIu64 " undefined elements left out", f->undefined);
	if (f->outside_mean > 0)
		printf("; the rows hold all but %.1e of the probability", f->outside_mean);
	printf("\n");
}

static void print_splits(const struct gate_run *run)
{
	const struct vfy_gate_result *r = &run->result;
	const struct vfy_reference *reference = run->reference;
	if (r->n_splits == 0)
		printf("no split: %" PRIu32 " prompts, %" PRIu32 " greedy tokens each\n",
		       reference->n_prompts, reference->steps);
	for (uint32_t i = 0; i < r->n_splits; i++)
		printf("prompt %" PRIu32 " splits at step %" PRIu32 ": %" PRId32 " here, %" PRId32
		       " there (the reference's gap %.3g)\n",
		       r->splits[i].prompt, r->splits[i].step, r->splits[i].ours,
		       r->splits[i].reference, r->splits[i].gap);
	if (r->not_compared)
		printf("%" PRIu32 " steps behind a split stand on other contexts: not compared\n",
		       r->not_compared);
}

static void print_run(const struct gate_run *run)
{
	const struct vfy_gate_result *r = &run->result;
	print_fidelity(run->kind == GATE_ATTRIBUTION ? "engine fidelity (reference || engine)"
						     : "reference || engine",
		       &r->engine);
	if (run->kind == GATE_GREEDY)
		print_splits(run);
	if (run->kind == GATE_ATTRIBUTION) {
		print_fidelity("container distance (source || reference)", &r->container);
		print_fidelity("both (source || engine)", &r->whole);
	}
	printf("RESULT %s\n", run->passes ? "PASS" : "FAIL");
}

static json_t *fidelity_json(const struct vfy_fidelity *f)
{
	json_t *kl = json_pack("{s:o, s:o, s:o, s:o}", "mean", vfy_json_real(f->kl_mean), "median",
			       vfy_json_real(f->kl_median), "max", vfy_json_real(f->kl_max), "min",
			       vfy_json_real(f->kl_min));
	json_t *correlation = json_pack("{s:o, s:o}", "mean", vfy_json_real(f->correlation_mean),
					"min", vfy_json_real(f->correlation_min));
	return json_pack("{s:I, s:o, s:o, s:I, s:o, s:o, s:I}", "rows", (json_int_t)f->rows, "kl",
			 kl, "correlation", correlation, "argmax_differences", (json_int_t)f->flips,
			 "largest_gap", vfy_json_real(f->gap_max), "outside",
			 vfy_json_real(f->outside_mean), "undefined", (json_int_t)f->undefined);
}

static json_t *run_json(const struct gate_run *run)
{
	const struct vfy_gate_result *r = &run->result;
	json_t *root = json_pack("{s:b, s:o, s:o}", "pass", run->passes, "engine",
				 fidelity_json(&r->engine), "seconds", vfy_json_real(r->seconds));
	if (run->kind == GATE_ATTRIBUTION) {
		json_object_set_new(root, "container", fidelity_json(&r->container));
		json_object_set_new(root, "both", fidelity_json(&r->whole));
	}
	if (run->kind != GATE_GREEDY)
		return root;
	json_t *splits = json_array();
	for (uint32_t i = 0; i < r->n_splits; i++)
		json_array_append_new(splits, json_pack("{s:I, s:I, s:I, s:I, s:o}", "prompt",
							(json_int_t)r->splits[i].prompt, "step",
							(json_int_t)r->splits[i].step, "ours",
							(json_int_t)r->splits[i].ours, "reference",
							(json_int_t)r->splits[i].reference, "gap",
							vfy_json_real(r->splits[i].gap)));
	json_object_set_new(root, "splits", splits);
	json_object_set_new(root, "not_compared", json_integer(r->not_compared));
	return root;
}

/* ---- running */

static enum svc_code execute(struct gate_run *run, struct svc_err *err)
{
	const struct opt_set *options = run->options;
	struct vfy_gate_job job = {.free_running = run->kind == GATE_GREEDY};
	const char *path = opt_positional(options, 0);
	if (!path || opt_positional_count(options) > 1)
		return svc_fail(err, SVC_USAGE, __func__,
				"one REFERENCE.npz is needed (docs/verification.md says what is "
				"in it)");
	enum svc_code code = verify_read_config(options, &job.config, err);
	code = code ? code : vfy_reference_open(path, &run->reference, err);
	if (code)
		return code;
	job.config.logits_only = true;
	job.reference = run->reference;
	if (run->kind == GATE_ATTRIBUTION && run->reference->source.n == 0)
		return svc_fail(err, SVC_USAGE, __func__,
				"%s has no source_logits or source_top; attribution needs the "
				"source's rows beside the container's",
				path);
	if (!opt_bool(options, "any-model"))
		code = check_model(job.config.model, run->reference->model_sha256, err);
	return code ? code : vfy_gate_run(&job, &run->result, err);
}

static enum svc_code show(const struct gate_run *run, struct svc_err *err)
{
	static const char *const verbs[] = {"greedy", "same-prefix", "attribution"};
	const char *html = opt_string(run->options, "html");
	json_t *json = run_json(run);
	enum svc_code code =
		*html ? verify_page_gate(html, verbs[run->kind], json, &run->result, err) : SVC_OK;
	if (opt_bool(run->options, "json"))
		verify_print_json(json_incref(json));
	else
		print_run(run);
	json_decref(json);
	return code;
}

static int run_gate(enum gate_kind kind, const struct opt_source *source, int argc, char **argv)
{
	struct gate_run run = {.kind = kind};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	int status;
	if (!cli_options(source, argc, argv, &options, &status))
		return status;
	run.options = options;
	enum svc_code code = execute(&run, &err);
	if (!code) {
		judge(&run);
		code = show(&run, &err);
	}
	vfy_gate_result_free(&run.result);
	vfy_reference_close(run.reference);
	opt_free(options);
	return code ? cli_fail(&err) : run.passes ? VERIFY_SAME : VERIFY_DIFFERENT;
}

int verify_greedy(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify greedy REFERENCE.npz",
		"own greedy tokens behind the reference's prompts, until they part from its own",
		{gate_options, limit_options},
		true};
	return run_gate(GATE_GREEDY, &source, argc, argv);
}

int verify_same_prefix(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify same-prefix REFERENCE.npz",
		"logits on the reference's own tokens: the gate that judges an engine",
		{gate_options, limit_options},
		true};
	return run_gate(GATE_SAME_PREFIX, &source, argc, argv);
}

int verify_attribution(int argc, char **argv)
{
	const struct opt_source source = {
		"lockstep verify attribution REFERENCE.npz",
		"what the engine changes, and what the model's container has changed before",
		{gate_options, limit_options},
		true};
	return run_gate(GATE_ATTRIBUTION, &source, argc, argv);
}
