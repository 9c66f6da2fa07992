/* lockstep verify tensors: a container's dequantised matrices against a checkpoint's. */
#include "verify/tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/verify.h"
#include "cli/verify_side.h"
#include "model/open.h"
#include "verify/report.h"

static const struct opt tensors_options[] = {
	{"tensor", OPT_STRING, "", 0, 0, NULL, "this one alone; none: every matrix"},
	{"correlation", OPT_REAL, "0.99", -1, 1, NULL,
	 "least correlation, after the fit of input channels, that passes"},
	{"row", OPT_REAL, "0.8", -1, 1, NULL, "an output row below this is counted"},
	{"rows-below", OPT_INT, "0", 0, 1 << 30, NULL, "as many such rows of a tensor pass"},
	{"control", OPT_REAL, "0.2", 0, 1, NULL,
	 "largest correlation of the transposed read that passes"},
	{"json", OPT_BOOL, "false", 0, 0, NULL, "as JSON"},
	{0},
};

struct tensors_run {
	const struct opt_set *options;
	struct gguf *container, *checkpoint;
	json_t *list; /* NULL: text */
	uint64_t checked, failed, alone;
};

static bool passes(const struct tensors_run *run, const struct vfy_tensor_check *c)
{
	return c->corr_f >= opt_real(run->options, "correlation") &&
	       c->rows_below <= (uint64_t)opt_int(run->options, "rows-below") &&
	       !(fabs(c->corr_t) > opt_real(run->options, "control"));
}

static void show(struct tensors_run *run, const struct gguf_tensor *t,
		 const struct vfy_tensor_check *c)
{
	bool good = passes(run, c);
	run->checked++;
	run->failed += !good;
	if (run->list) {
		json_array_append_new(
			run->list,
			json_pack("{s:s%, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:I}",
				  "tensor", t->name.ptr, t->name.len, "pass", good, "rows",
				  (json_int_t)c->rows, "columns", (json_int_t)c->cols, "corr",
				  vfy_json_real(c->corr), "corrF", vfy_json_real(c->corr_f),
				  "corr.T", vfy_json_real(c->corr_t), "row_min",
				  vfy_json_real(c->row_min), "row_worst", (json_int_t)c->row_worst,
				  "row_median", vfy_json_real(c->row_median), "rows_below",
				  (json_int_t)c->rows_below, "undefined",
				  (json_int_t)c->undefined));
		return;
	}
	if (run->checked == 1)
		printf("  %-32s %-13s %9s %9s %9s %9s %9s %6s\n", "tensor", "rows x cols", "corr",
		       "corrF", "corr.T", "row min", "row med", "below");
	printf("  %-32.*s %6" PRIu64 "x%-6" PRIu64 " %9.6f %9.6f %9.6f %9.6f %9.6f %6" PRIu64
	       "%s%s\n",
	       (int)t->name.len, t->name.ptr, c->rows, c->cols, c->corr, c->corr_f, c->corr_t,
	       c->row_min, c->row_median, c->rows_below, c->undefined ? "  undefined weights" : "",
	       good ? "" : "  FAIL");
}

static bool is_matrix(const struct gguf_tensor *t)
{
	return t->n_dims == 2 && t->dims[1] > 1;
}

static enum svc_code check_all(struct tensors_run *run, struct svc_err *err)
{
	const char *wanted = opt_string(run->options, "tensor");
	for (size_t i = 0; i < gguf_tensor_count(run->container); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(run->container, i);
		char name[128];
		struct vfy_tensor_check check;
		snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.ptr);
		if ((*wanted && strcmp(wanted, name) != 0) || !is_matrix(t))
			continue;
		const struct gguf_tensor *other = gguf_tensor_find(run->checkpoint, name);
		if (!other) {
			run->alone++;
			continue;
		}
		enum svc_code code =
			vfy_tensor_compare(t, other, opt_real(run->options, "row"), &check, err);
		if (code)
			return code;
		show(run, t, &check);
	}
	if (run->checked == 0)
		return svc_fail(err, SVC_NOT_FOUND, "tensors",
				"%s%s is no matrix that both models have",
				*wanted ? "tensor " : "there", wanted);
	return SVC_OK;
}

static enum svc_code open_models(struct tensors_run *run, struct svc_err *err)
{
	const char *a = opt_positional(run->options, 0), *b = opt_positional(run->options, 1);
	if (!a || !b || opt_positional_count(run->options) > 2)
		return svc_fail(err, SVC_USAGE, __func__,
				"usage: lockstep verify tensors CONTAINER CHECKPOINT (each a GGUF "
				"file or a folder)");
	enum svc_code code = model_open(a, NULL, &run->container, err);
	return code ? code : model_open(b, NULL, &run->checkpoint, err);
}

static void print_result(struct tensors_run *run)
{
	if (run->list) {
		verify_print_json(json_pack("{s:b, s:I, s:I, s:I, s:O}", "pass", run->failed == 0,
					    "checked", (json_int_t)run->checked, "failed",
					    (json_int_t)run->failed, "without_counterpart",
					    (json_int_t)run->alone, "tensors", run->list));
		return;
	}
	printf("%" PRIu64 " matrices, %" PRIu64 " outside of the limits, %" PRIu64
	       " without a counterpart\nRESULT %s\n",
	       run->checked, run->failed, run->alone, run->failed ? "FAIL" : "PASS");
}

int verify_tensors(int argc, char **argv)
{
	const struct opt_source source = {"lockstep verify tensors CONTAINER CHECKPOINT",
					  "a container's dequantised matrices and a checkpoint's",
					  {tensors_options},
					  true};
	struct opt_set *options = NULL;
	struct svc_err err = {0};
	struct tensors_run run = {0};
	int status;
	if (!cli_options(&source, argc, argv, &options, &status))
		return status;
	run.options = options;
	run.list = opt_bool(options, "json") ? json_array() : NULL;
	enum svc_code code = open_models(&run, &err);
	code = code ? code : check_all(&run, &err);
	if (!code)
		print_result(&run);
	json_decref(run.list);
	gguf_close(run.container);
	gguf_close(run.checkpoint);
	opt_free(options);
	return code ? cli_fail(&err) : run.failed ? VERIFY_DIFFERENT : VERIFY_SAME;
}
