/* lockstep model verify PATH [OTHER]: every weight is read and must be finite; with OTHER, the two
 * models' weights are compared tensor by tensor. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_private.h"
#include "cli/progress.h"
#include "model/gguf_block.h"
#include "model/open.h"
#include "npu-worker/engine/plan.h"

struct sums {
	uint64_t n, bad; /* weights; not finite */
	double worst;	 /* |a - b| */
	double aa, bb, ab, dd;
};

static void add_row(struct sums *s, const float *a, const float *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		double x = (double)a[i], y = b ? (double)b[i] : x;
		s->n++;
		if (!isfinite(x) || !isfinite(y)) {
			s->bad++;
			continue;
		}
		s->worst = fmax(s->worst, fabs(x - y));
		s->aa += x * x;
		s->bb += y * y;
		s->ab += x * y;
		s->dd += (x - y) * (x - y);
	}
}

static const uint8_t *row_of(const struct gguf_tensor *t, uint64_t row)
{
	return (const uint8_t *)t->data + t->size_bytes / t->dims[1] * row;
}

/* other: NULL, or a tensor of the same shape. */
static enum svc_code read_tensor(const struct gguf_tensor *t, const struct gguf_tensor *other,
				 struct sums *ret_sums, struct svc_err *err)
{
	uint32_t cols = (uint32_t)t->dims[0];
	float *rows = malloc(2 * (size_t)cols * sizeof *rows);
	struct sums sums = {0};
	if (!rows)
		return svc_fail(err, SVC_NO_MEMORY, __func__, "no memory for a row");
	for (uint64_t row = 0; row < t->dims[1]; row++) {
		gguf_row_values(t->type, row_of(t, row), cols, rows);
		if (other)
			gguf_row_values(other->type, row_of(other, row), cols, rows + cols);
		add_row(&sums, rows, other ? rows + cols : NULL, cols);
	}
	free(rows);
	*ret_sums = sums;
	if (sums.bad)
		return svc_fail(err, SVC_BAD_MODEL, __func__,
				"tensor %.*s has %" PRIu64 " of %" PRIu64
				" weights that are not finite",
				(int)t->name.len, t->name.ptr, sums.bad, sums.n);
	return SVC_OK;
}

static const struct gguf_tensor *counterpart(const struct gguf *other, const struct gguf_tensor *t)
{
	char name[128];
	snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.ptr);
	const struct gguf_tensor *found = gguf_tensor_find(other, name);
	/* A tied head is the embedding. */
	if (!found && strcmp(name, "output.weight") == 0)
		found = gguf_tensor_find(other, "token_embd.weight");
	return found && memcmp(found->dims, t->dims, sizeof t->dims) == 0 ? found : NULL;
}

static void print_sums(const struct gguf_tensor *t, const struct gguf_tensor *other,
		       const struct sums *s)
{
	printf("  %-36.*s %-5s %-5s max %.3g  relative L2 %.3g  cosine %.9f\n", (int)t->name.len,
	       t->name.ptr, gguf_tensor_type_name(t->type), gguf_tensor_type_name(other->type),
	       s->worst, s->bb > 0 ? sqrt(s->dd / s->bb) : 0.0,
	       s->aa > 0 && s->bb > 0 ? s->ab / sqrt(s->aa) / sqrt(s->bb) : 0.0);
}

static enum svc_code read_all(const struct gguf *gguf, const struct gguf *other, bool every,
			      struct svc_err *err)
{
	struct sums sums = {0}, all = {0};
	uint64_t alone = 0;
	for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
		const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
		const struct gguf_tensor *same = other ? counterpart(other, t) : NULL;
		enum svc_code code = read_tensor(t, same, &sums, err);
		if (code != SVC_OK)
			return code;
		alone += other && !same;
		if (same && every)
			print_sums(t, same, &sums);
		all.n += sums.n;
		all.worst = fmax(all.worst, sums.worst);
		all.dd += sums.dd;
		all.bb += sums.bb;
	}
	printf("%zu tensors, %" PRIu64 " weights, all finite\n", gguf_tensor_count(gguf), all.n);
	if (other)
		printf("against the other: max %.6g, relative L2 %.6g; %" PRIu64
		       " tensors without a counterpart\n",
		       all.worst, all.bb > 0 ? sqrt(all.dd / all.bb) : 0.0, alone);
	return SVC_OK;
}

/* Does the engine know every tensor and key? */
static enum svc_code check_plan(const struct gguf *gguf, struct svc_err *err)
{
	struct plan *plan = NULL;
	enum svc_code code = plan_open(gguf, 1, &plan, err);
	plan_close(plan);
	return code;
}

enum svc_code model_verify(const struct opt_set *options, const char *source, const char *target,
			   struct svc_err *err)
{
	struct gguf *gguf = NULL, *other = NULL;
	struct progress bar = progress_start("reading");
	const struct draft_progress progress = {progress_show, &bar};
	enum svc_code code = model_open(source, &progress, &gguf, err);
	if (code == SVC_OK)
		code = check_plan(gguf, err);
	if (code == SVC_OK && *target)
		code = model_open(target, &progress, &other, err);
	progress_end(&bar);
	if (code == SVC_OK)
		code = read_all(gguf, other, opt_bool(options, "tensors"), err);
	gguf_close(gguf);
	gguf_close(other);
	return code;
}
